// SPDX-License-Identifier: Apache-2.0
//
// One tracing cycle on a device: commands, answers to what it defers, the wait for idle.
#ifndef MERAPI_DAXCTL_TOOLS_TRACE_SESSION_H_
#define MERAPI_DAXCTL_TOOLS_TRACE_SESSION_H_

#include <vector>

#include "heap_reader.h"
#include "window.h"

namespace merapi::cli {

struct TraceOptions {
  uint32_t bitmap = 0;
  uint32_t first_region = 0;
  uint32_t regions = 0;         // 0: all from first_region on
  std::vector<uint64_t> greys;  // addresses submitted beside the bitmap's
  double timeout_seconds = 600;
};

struct TraceResult {
  uint32_t cycle = 0;
  double milliseconds = 0;  // from the first command to idle, as this process saw it
  uint64_t deferred = 0, shapes_seen = 0, answers = 0;
  std::vector<uint64_t> klasses;  // reported by SHAPE_SEEN
  ControlPage control;            // at idle
};

// Attach (a device must serve the window) and run one cycle. Throws on faults, lost devices and timeouts.
TraceResult trace(const Window& window, const Answers& answers, const TraceOptions& options);

json describe_trace(const TraceResult& result);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_TRACE_SESSION_H_
