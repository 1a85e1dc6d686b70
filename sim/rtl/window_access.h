// SPDX-License-Identifier: Apache-2.0
//
// Lines of a window that a host process shares at the same time. Word by word, in the order that the contract needs:
// reads ascend (a shape's key is read before its fields), writes descend (the first word of a control line, and with
// it a generation, an idle mark or a fault code, comes last).
#ifndef MERAPI_SIM_RTL_WINDOW_ACCESS_H_
#define MERAPI_SIM_RTL_WINDOW_ACCESS_H_

#include <cstdint>

#include "merapi/contract.h"

namespace merapi::sim::rtl {

struct Line {
  uint64_t word[8];
};

inline void read_line(const uint8_t* from, Line* line) {
  auto* words = reinterpret_cast<const uint64_t*>(from);
  for (int i = 0; i < 8; i++) line->word[i] = __atomic_load_n(words + i, __ATOMIC_ACQUIRE);
}

// The device process itself keeps `event` and `sleeping` of the index line (futex words of the host's waits); with
// `events` the tracer's own are written, as on a board.
inline void write_line(uint8_t* base, uint64_t address, const Line& line, uint64_t strobe, bool events) {
  constexpr uint64_t kEventWord = offsetof(merapi_device_index, event) / 8;
  static_assert(offsetof(merapi_device_index, sleeping) / 8 == kEventWord, "event and sleeping share a word");
  auto* words = reinterpret_cast<uint64_t*>(base + address);
  for (int i = 7; i >= 0; i--) {
    if (!events && address == MERAPI_DEVICE_INDEX_OFFSET && uint64_t(i) == kEventWord) continue;
    if ((strobe >> (8 * i) & 0xff) == 0xff) __atomic_store_n(words + i, line.word[i], __ATOMIC_RELEASE);
  }
}

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_WINDOW_ACCESS_H_
