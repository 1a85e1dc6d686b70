// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_RTL_TEST_RTL_DEVICE_H_
#define MERAPI_SIM_RTL_TEST_RTL_DEVICE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random_trace.h"

namespace merapi::sim::rtl::test {

// Random memory latency and order, back-pressure and stalls.
RtlMachineOptions choose_machine(const std::string& preset, merapi::sim::test::Random* random);
// Makes simulated tracers of `preset` for random_trace, with memories of choose_machine().
// `at_end` sees each of them when it is no longer needed. `power_up`: of SimulationOptions.
merapi::sim::test::DeviceMaker rtl_devices(const std::string& preset,
                                           const std::function<void(RtlMachine*)>& at_end = {}, uint64_t power_up = 0);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_RTL_DEVICE_H_
