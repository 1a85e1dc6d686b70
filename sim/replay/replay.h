// SPDX-License-Identifier: Apache-2.0
//
// A saved window traced once more, without the program that it came from: the image's answers stand in for the host.
#ifndef MERAPI_SIM_REPLAY_REPLAY_H_
#define MERAPI_SIM_REPLAY_REPLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/trace.h"
#include "graph/window.h"

namespace merapi::sim {

struct ReplayOptions {
  bool check = false;                 // compare with a walk on the CPU
  uint64_t patience_us = 10'000'000;  // give up when the device has no news for so long
  int pauses = 0;                     // pauses at the trace's beginning, one after the other
  uint64_t pause_every_us = 0;        // a pause whenever so much time went by; 0: none
  bool lines = false;                 // count the lines that any tracer needs
  std::string rtl_preset, memory;     // of a simulated tracer, for the report
};

// What a tracer needs at least, in 64-byte lines: each line with what it reads of a live object, and each line of the
// bitmap below the limits.
struct LinesNeeded {
  uint64_t objects = 0, heap = 0, bitmap = 0;
};

struct ReplayResult {
  std::string problem;  // empty: the device finished, and with `check` its result is right
  bool checked = false;
  uint32_t fault = 0;        // enum merapi_fault
  bool finished = false;     // the trace; else there are no counters and no time
  graph::TraceResult trace;  // as far as it came
  double g1_seconds = 0;     // stock marking of the same heap, from the image; 0: not known
  LinesNeeded lines;         // with `lines`
  std::string rtl_preset, memory;
};

// Load `image` into `window` (open, of at least its size, no device attached), attach, trace one cycle. The window is
// revoked afterwards. What a device does wrong that has taken the window is the result's `problem`. Throws
// std::runtime_error when it does not come to a trace: the image cannot be loaded, or no device takes the window.
ReplayResult replay(const graph::Image& image, const graph::Window& window, const ReplayOptions& options);

// The result as JSON text (one object).
std::string to_json(const ReplayResult& result);
// The result for people.
std::string to_text(const ReplayResult& result);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_REPLAY_H_
