// SPDX-License-Identifier: Apache-2.0
//
// The naive closure: a second, deliberately simple implementation of what a trace must leave behind, written from
// docs/contract.md. It reads the window before the trace, byte by byte, and uses sets; it shares no code with the
// model and is not fast.
#ifndef MERAPI_SIM_TEST_CLOSURE_H_
#define MERAPI_SIM_TEST_CLOSURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

namespace merapi::sim::test {

// What goes in beside the window's contents.
struct ClosureInput {
  const uint8_t* window = nullptr;
  uint32_t bitmap = 0;
  std::set<uint32_t> commanded;     // regions whose bits are greys
  std::vector<uint64_t> submitted;  // addresses given by GREY
  // What the host submits for a deferred object (by address) and a seen klass word.
  std::function<std::vector<uint64_t>(uint64_t)> answer_object;
  std::function<std::vector<uint64_t>(uint64_t)> answer_klass;
};

struct Closure {
  std::set<uint64_t> marked;          // heap offsets of all marked objects, those of the host included
  std::set<uint64_t> newly;           // of those, turned by the device
  std::set<uint64_t> visited;         // scanned or deferred: newly, and the host's in commanded regions
  std::set<uint64_t> deferred;        // heap offsets
  std::set<uint64_t> unsized;         // of the deferred and newly marked, those without a shape
  std::set<uint64_t> klasses;         // klass words to be reported by SHAPE_SEEN
  std::map<uint32_t, uint64_t> live;  // region: words of newly marked objects that have a shape
};

Closure naive_closure(const ClosureInput& input);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_CLOSURE_H_
