// SPDX-License-Identifier: Apache-2.0
//
// One randomly generated heap, traced by the RTL under a randomly chosen interleaving, memory timing and set of ring
// stalls, pauses and aborts, checked against the naive closure of the model's tests.
#ifndef MERAPI_SIM_RTL_TEST_RTL_TRACE_H_
#define MERAPI_SIM_RTL_TEST_RTL_TRACE_H_

#include <cstdint>
#include <string>

namespace merapi::sim::rtl::test {

struct TraceKnobs {
  std::string preset = "sim-small";
  bool pauses = true;
  bool reclaims = true;  // humongous primitive arrays disappear in pauses
  bool aborts = true;
  bool tiny_spill = false;  // the spill area is removed from the directory: greys are dropped
  bool slow_host = false;   // leaves completions in the ring for long
};

// Empty when everything was as it should be, otherwise what was not.
std::string rtl_trace(uint64_t seed, const TraceKnobs& knobs);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_RTL_TRACE_H_
