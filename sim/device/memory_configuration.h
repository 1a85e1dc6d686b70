// SPDX-License-Identifier: Apache-2.0
//
// What a file must say to be a memory of the simulated tracers. DRAMsim3 itself takes any file: whatever is missing has
// a value of its own, and what it does not know ends the process.
#ifndef MERAPI_SIM_DEVICE_MEMORY_CONFIGURATION_H_
#define MERAPI_SIM_DEVICE_MEMORY_CONFIGURATION_H_

#include <string>

namespace merapi::sim {

// Throws std::runtime_error when the file at `path` is no DRAMsim3 configuration of one channel, with what is missing.
void check_memory_configuration(const std::string& path);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_MEMORY_CONFIGURATION_H_
