// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_RTL_TEST_LATE_TIMING_H_
#define MERAPI_SIM_RTL_TEST_LATE_TIMING_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "sim/rtl/timing.h"

namespace merapi::sim::rtl::test {

// For how many cycles more than the memory takes an access of this address is not over, asked when it would be.
// `now`: cycles since the memory was made.
using Lateness = std::function<uint64_t(uint64_t now, uint64_t address, bool write)>;

// A memory whose lines are not all equally fast: `inner`'s answers, later by `late`. What is late holds up nothing
// else.
std::unique_ptr<Timing> make_late_timing(std::unique_ptr<Timing> inner, const Lateness& late);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_LATE_TIMING_H_
