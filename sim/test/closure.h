// SPDX-License-Identifier: Apache-2.0
//
// The naive closure: a second, deliberately simple implementation of what a trace must leave behind, written from
// docs/contract.md. It shares no code with the model and is not fast, but takes windows of real programs.
#ifndef MERAPI_SIM_TEST_CLOSURE_H_
#define MERAPI_SIM_TEST_CLOSURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "merapi/contract.h"

namespace merapi::sim::test {

// What goes in: the window as it was before the trace (areas by enum merapi_area; of the bitmaps only `bitmap`), and
// what the host did.
struct ClosureInput {
  merapi_config config{};
  const uint8_t* area[MERAPI_AREA_COUNT] = {};
  uint64_t area_bytes[MERAPI_AREA_COUNT] = {};
  const uint8_t* bitmap = nullptr;
  std::set<uint32_t> commanded;     // regions whose bits are greys
  std::vector<uint64_t> submitted;  // addresses given by GREY
  // What the host submits for a deferred object (by address) and a seen klass word.
  std::function<std::vector<uint64_t>(uint64_t)> answer_object;
  std::function<std::vector<uint64_t>(uint64_t)> answer_klass;

  // Areas and configuration of a window that lies at `base` in memory, format as in the contract.
  static ClosureInput of_window(const uint8_t* base, uint32_t bitmap);
};

// What one visit of every traced object meets.
struct ClosureCounts {
  uint64_t arrays = 0, instances = 0;  // whose references are read
  uint64_t leaves = 0;                 // instances without a reference
  uint64_t sized = 0;                  // all objects with a shape
  uint64_t references = 0, nulls = 0, outside = 0, above = 0;
  uint64_t live_words = 0;
  std::set<uint64_t> shapeless;  // klass words
};

struct Closure {
  // By heap offset >> alignment.
  std::vector<bool> marked;  // all marked objects, those of the host included
  std::vector<bool> newly;   // of those, turned by the device
  uint64_t marked_count = 0, newly_count = 0;
  std::set<uint64_t> deferred;        // heap offsets
  std::set<uint64_t> unsized;         // of the deferred and newly marked, those without a shape
  std::set<uint64_t> klasses;         // klass words to be reported by SHAPE_SEEN
  std::map<uint32_t, uint64_t> live;  // region: words of newly marked objects that have a shape
  ClosureCounts counts;
};

// Throws std::runtime_error when the heap breaks the contract (a misaligned reference, an object beyond the heap).
Closure naive_closure(const ClosureInput& input);

// Compare marks (bitmap bytes after the trace) with the closure; empty when equal, otherwise a description.
std::string compare_marks(const ClosureInput& input, const Closure& want, const uint8_t* bitmap_after);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_CLOSURE_H_
