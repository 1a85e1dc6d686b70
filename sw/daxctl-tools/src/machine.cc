// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

#include "cli/control_groups.h"
#include "sysfs.h"

namespace merapi::cli {
namespace {

namespace fs = std::filesystem;

template <typename Bound>
uint64_t least_bound(const std::string& controller, const Bound& bound) {
  return least_of_groups(fs::path(sysfs_root()) / "fs/cgroup", fs::path(proc_root()) / "self", controller, bound);
}

uint64_t quotient(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  return quota && period && *quota > 0 && *period > 0 ? (*quota - 1) / *period + 1 : kNoBound;
}

uint64_t processors_of(const fs::path& group) {
  uint64_t quota, period;  // "max" is no quota
  std::istringstream in(attribute((group / "cpu.max").string()).value_or(""));
  if (in >> quota >> period) return quotient(quota, period);
  return quotient(number((group / "cpu.cfs_quota_us").string()), number((group / "cpu.cfs_period_us").string()));
}

uint64_t memory_of(const fs::path& group) {
  const auto limit = number((group / "memory.max").string());
  return limit ? *limit : number((group / "memory.limit_in_bytes").string()).value_or(kNoBound);
}

}  // namespace

uint64_t usable_processors() {
  cpu_set_t usable;
  const uint64_t processors = sched_getaffinity(0, sizeof usable, &usable) == 0
                                  ? uint64_t(CPU_COUNT(&usable))
                                  : uint64_t(sysconf(_SC_NPROCESSORS_ONLN));
  return std::min(processors, least_bound("cpu", processors_of));
}

uint64_t usable_memory() {
  const uint64_t memory = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  return std::min(memory, least_bound("memory", memory_of));
}

}  // namespace merapi::cli
