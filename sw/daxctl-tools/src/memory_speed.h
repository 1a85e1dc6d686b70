// SPDX-License-Identifier: Apache-2.0
//
// Is a devdax device memory that the processor reads by itself, or does each load end in somebody's program?
#ifndef MERAPI_DAXCTL_TOOLS_MEMORY_SPEED_H_
#define MERAPI_DAXCTL_TOOLS_MEMORY_SPEED_H_

#include <optional>
#include <string>

namespace merapi::cli {

// How many times longer reading the device's first bytes takes than reading ordinary memory; nothing when it cannot be
// mapped. Writes nothing and takes milliseconds.
std::optional<double> slower_than_memory(const std::string& dax_path);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_MEMORY_SPEED_H_
