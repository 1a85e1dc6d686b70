// SPDX-License-Identifier: Apache-2.0
//
// One tracing cycle on a device: commands, answers to what it defers, the wait for idle.
#ifndef MERAPI_GRAPH_TRACE_H_
#define MERAPI_GRAPH_TRACE_H_

#include <cstdint>
#include <vector>

#include "graph/closure.h"
#include "graph/window.h"

namespace merapi::graph {

struct TraceOptions {
  uint32_t bitmap = 0;
  uint32_t first_region = 0;
  uint32_t regions = 0;               // 0: all from first_region on
  std::vector<uint64_t> greys;        // addresses submitted beside the bitmap's
  uint64_t attach_us = 10'000'000;    // for the handshake
  double timeout_seconds = 0;         // for the cycle; 0: as long as the device shows progress
  uint64_t patience_us = 10'000'000;  // without news for so long a device is asked for a sign of life
  int pauses = 0;                     // so many, as soon as the device traces; fewer if it ends before
  uint64_t pause_every_us = 0;        // and one whenever so much time went by; 0: none
};

struct TraceResult {
  uint32_t cycle = 0;
  double seconds = 0;                    // from the first command to idle, as this process saw it
  std::vector<uint64_t> deferred;        // addresses reported by DEFER, ascending, each once
  std::vector<uint64_t> klasses;         // words reported by SHAPE_SEEN, ascending, each once
  uint64_t answers = 0, unanswered = 0;  // references submitted; deferred objects that the image says nothing of
  std::vector<double> pause_us;
  uint64_t counters[MERAPI_COUNTER_COUNT] = {};
  merapi_device_identity device{};
};

// Attach (a device must serve the window) and run one cycle; the window stays attached. `result` is filled as far as
// the cycle came. Throws Broken for faults and what breaks the contract, Error for devices that are not there, go away
// or do not answer in time.
void trace(const Window& window, const Answers& answers, const TraceOptions& options, TraceResult* result);

}  // namespace merapi::graph

#endif  // MERAPI_GRAPH_TRACE_H_
