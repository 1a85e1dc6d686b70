// SPDX-License-Identifier: Apache-2.0
//
// What a complete trace of all regions leaves behind, found by a walk on the CPU without a device, and the comparison
// of a device with it.
#ifndef MERAPI_GRAPH_CLOSURE_H_
#define MERAPI_GRAPH_CLOSURE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/object_graph.h"

namespace merapi::graph {

// What an image's host would answer. Empty without an image.
class Answers {
 public:
  // References of an answer.
  struct Range {
    const uint64_t* first = nullptr;
    const uint64_t* last = nullptr;
    bool known = false;  // the image has an answer, be it an empty one
    const uint64_t* begin() const { return first; }
    const uint64_t* end() const { return last; }
    uint64_t size() const { return uint64_t(last - first); }
  };
  Answers() = default;
  explicit Answers(const merapi_answers* answers) : answers_(answers) {}
  // Of a deferred object (by address) or of a klass' holder.
  Range of(uint64_t key, bool is_klass) const;

 private:
  const merapi_answers* answers_ = nullptr;  // sorted by (is_klass, key)
};

struct Closure {
  Bits greys;                        // marked before, below the limits
  Bits marked;                       // the whole bitmap after
  std::vector<uint64_t> live_words;  // by region: of the objects that were not marked before and have a shape
  std::vector<uint64_t> klasses;     // klass words to be reported, ascending
  std::vector<uint64_t> deferred;    // heap offsets, ascending
  uint64_t objects = 0;              // newly marked
  uint64_t references = 0;           // fields read
};

// Called once for each object reached, in no particular order.
using ObjectVisitor = std::function<void(uint64_t offset, uint64_t klass, const Shape* shape)>;

// Throws Broken when the heap breaks the contract.
Closure close_over(const ObjectGraph& graph, uint32_t bitmap, const Answers& answers, const ObjectVisitor& visit = {});

struct Difference {
  uint64_t missed = 0;      // reachable and not marked by the device
  uint64_t unexpected = 0;  // marked by the device and not reachable
  uint64_t live = 0;        // regions with other live words
  uint64_t klasses = 0;     // klasses reported by one side only
  uint64_t deferred = 0;    // objects deferred by one side only
  std::string first;        // one of them in words
  bool none() const { return missed + unexpected + live + klasses + deferred == 0; }
};

// `klasses` (words) and `deferred` (addresses) are what the device reported, ascending and each once.
Difference compare(const Window& window, const ObjectGraph& graph, uint32_t bitmap, const Closure& expected,
                   const std::vector<uint64_t>& klasses, const std::vector<uint64_t>& deferred);

}  // namespace merapi::graph

#endif  // MERAPI_GRAPH_CLOSURE_H_
