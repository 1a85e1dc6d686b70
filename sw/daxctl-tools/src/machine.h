// SPDX-License-Identifier: Apache-2.0
//
// What of the machine a process may use, control groups included, as a JVM counts it.
#ifndef MERAPI_DAXCTL_TOOLS_MACHINE_H_
#define MERAPI_DAXCTL_TOOLS_MACHINE_H_

#include <cstdint>

namespace merapi::cli {

// Of this process' affinity, at most what the quotas of its groups come to, rounded up.
uint64_t usable_processors();
// Of the machine, at most the limit of a group; used or not.
uint64_t usable_memory();

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_MACHINE_H_
