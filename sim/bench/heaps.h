// SPDX-License-Identifier: Apache-2.0
//
// Synthetic heaps in HotSpot's layout (8 bytes mark word, 4 bytes klass word, fields behind, 8-byte alignment), laid
// out as a program allocates them.
#ifndef MERAPI_SIM_BENCH_HEAPS_H_
#define MERAPI_SIM_BENCH_HEAPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/bench/shared_window.h"

namespace merapi::sim::bench {

struct Heap {
  std::string name;
  uint64_t objects = 0;
  double g1_seconds = 0;  // stock G1, one concurrent thread, on the machine of docs; 0: not known
  std::vector<uint64_t> roots;
  std::unique_ptr<SharedWindow> window;
};

// Names: list-up, list-down, list-shuffled (objects nodes), hashmap (objects entries), graph (objects nodes with two
// random edges, all in an array), graph-from-one (the same, reached from one node alone), tree (binary).
// Throws std::invalid_argument for any other.
Heap make_heap(const std::string& name, uint64_t objects, bool wide_oops);
const std::vector<std::string>& heap_names();

}  // namespace merapi::sim::bench

#endif  // MERAPI_SIM_BENCH_HEAPS_H_
