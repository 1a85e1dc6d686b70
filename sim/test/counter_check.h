// SPDX-License-Identifier: Apache-2.0
//
// What the contract's counters must say at the idle that ends a cycle: equal to the closure's where order does not
// matter, to what the host itself did and received, and to what the memory saw; within bounds where time decides.
#ifndef MERAPI_SIM_TEST_COUNTER_CHECK_H_
#define MERAPI_SIM_TEST_COUNTER_CHECK_H_

#include <cstdint>
#include <string>

#include "sim/test/closure.h"
#include "sim/test/random_trace.h"

namespace merapi::sim::test {

// What the host did and received in one cycle.
struct HostTally {
  uint64_t greys = 0, nulls = 0, outside = 0, above = 0;  // references given by GREY, and those of them that are this
  uint64_t deferred = 0, klasses = 0;                     // received, repeated ones included
  uint64_t pauses_least = 0, pauses_most = 0;  // acknowledged; a pause before BEGIN_CYCLE is executed is not counted
  uint64_t longest_pause = 0;                  // request to acknowledgement, in the device's clock
};

struct CounterCase {
  DevicePromises promises;
  bool limits_fell = false;   // in a pause: what was traced is not one closure
  bool may_drop = false;      // the spill area may have been full
  bool scanned_once = false;  // nothing in the host's commands lets an object be scanned twice
  uint64_t rounds_least = 0, rounds_most = 0;
  uint64_t swept_lines = 0;  // of the bitmap, below the limits of the regions commanded
  const Closure* closure = nullptr;
  HostTally host;
  // Since the cycle began; nullptr for a device whose memory is not watched.
  const AreaAccesses* accesses = nullptr;
  uint64_t clock = 0;
  uint64_t traced = 0;  // cycles of the clock in which the device said that it traces; 0: not watched
  uint64_t lanes = 1;
  const uint64_t* values = nullptr;  // MERAPI_COUNTER_COUNT
};

// Empty when all is as it must be.
std::string check_counters(const CounterCase& c);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_COUNTER_CHECK_H_
