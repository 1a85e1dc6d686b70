// SPDX-License-Identifier: Apache-2.0
//
// A saved window traced once more, without the program that it came from: the image's answers stand in for the host.
#ifndef MERAPI_SIM_REPLAY_REPLAY_H_
#define MERAPI_SIM_REPLAY_REPLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "merapi/merapi.h"
#include "sim/replay/live_heap.h"

namespace merapi::sim {

struct ReplayOptions {
  bool check = false;                 // compare with the naive closure (slow on large heaps)
  uint64_t patience_us = 10'000'000;  // give up when the device has no news for so long
  int pauses = 0;                     // pauses during the trace, evenly over its news
  bool lines = false;                 // count the lines that any tracer needs
  std::string rtl_preset, memory;     // of a simulated tracer, for the report
};

struct ReplayResult {
  std::string problem;  // empty: the device finished, and with `check` its result is right
  bool checked = false;
  uint32_t fault = 0;     // enum merapi_fault
  double seconds = 0;     // from BEGIN_CYCLE to idle, as the host saw it
  double g1_seconds = 0;  // stock marking of the same heap, from the image; 0: not known
  uint64_t deferred = 0, shapes_seen = 0, submitted = 0, unanswered = 0;
  uint64_t counters[MERAPI_COUNTER_COUNT] = {};
  std::vector<double> pause_us;
  LinesNeeded lines;  // with `lines`
  std::string rtl_preset, memory;
  merapi_device_identity device{};
};

// Load `image` into `window` (open, of at least its size, no device attached), attach, trace one cycle. The window is
// revoked afterwards. Never throws for what a device or an image does wrong: see `problem`.
ReplayResult replay(merapi_image* image, merapi_window* window, const ReplayOptions& options);

// The result as JSON text (one object).
std::string to_json(const ReplayResult& result);
// The result for people.
std::string to_text(const ReplayResult& result);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_REPLAY_H_
