// SPDX-License-Identifier: Apache-2.0
//
// All that leaves the ports of tracers in a test, as a number: in which cycle, by which port, with which id, where to,
// and which bytes. Two runs with the same number behaved alike as far as any memory or host can tell.
#ifndef MERAPI_SIM_RTL_TEST_PORT_DIGEST_H_
#define MERAPI_SIM_RTL_TEST_PORT_DIGEST_H_

#include <cstdint>
#include <map>

#include "sim/rtl/simulation.h"

namespace merapi::sim::rtl::test {

// For SimulationOptions::on_request. Any number of tracers, one thread.
void digest_request(const PortRequest& request);
// What follows is of this seed; 0: of none, as at the begin.
void digest_seed(uint64_t seed);
// Of each seed that something was sent with, since the last call; begins anew.
std::map<uint64_t, uint64_t> take_digests();

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_PORT_DIGEST_H_
