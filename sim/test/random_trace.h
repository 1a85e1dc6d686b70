// SPDX-License-Identifier: Apache-2.0
//
// One randomly generated heap, traced under a randomly chosen interleaving of host and device, checked against the
// naive closure.
#ifndef MERAPI_SIM_TEST_RANDOM_TRACE_H_
#define MERAPI_SIM_TEST_RANDOM_TRACE_H_

#include <cstdint>
#include <string>

namespace merapi::sim::test {

struct TraceKnobs {
  bool pauses = true;
  bool reclaims = true;  // humongous primitive arrays disappear in pauses
  bool falls = false;    // any region's limit falls to its start in a pause, marks and live words with it
  bool aborts = true;
  bool tiny_stack = false;
  bool no_spill = false;
  bool slow_host = false;  // leaves completions in the ring for long
};

// Empty when everything was as it should be, otherwise what was not.
std::string random_trace(uint64_t seed, const TraceKnobs& knobs);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_RANDOM_TRACE_H_
