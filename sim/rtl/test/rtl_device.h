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
// What else a memory may do, chosen by a seed alone: wait for what is offered, answer at once. None of it with the
// seeds of which it is recorded what leaves the ports (port_record.cc).
void choose_memory(const std::string& preset, uint64_t seed, SimulationOptions* options);
struct RtlDeviceOptions {
  std::function<void(RtlMachine*)> at_end = {};  // sees each device when it is no longer needed
  uint64_t power_up = 0;                         // of SimulationOptions
  bool uneven = false;                           // the memory is slow, each area as it is chosen for it
  uint64_t seed = 0;                             // not 0: for choose_memory()
};
// Makes simulated tracers of `preset` for random_trace, with memories of choose_machine().
merapi::sim::test::DeviceMaker rtl_devices(const std::string& preset, const RtlDeviceOptions& chosen = {});

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_RTL_DEVICE_H_
