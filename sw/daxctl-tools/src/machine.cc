// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>

#include "cli.h"
#include "sysfs.h"

namespace merapi::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoBound = ~uint64_t{0};

// The least that `bound` says of the groups of this process: in version 1 (`controller` has a hierarchy) or 2, its own
// and those above. A container may not have its own where the path says: then the root is its own.
template <typename Bound>
uint64_t least_bound(const std::string& controller, const Bound& bound) {
  const fs::path groups = fs::path(sysfs_root()) / "fs/cgroup";
  uint64_t least = kNoBound;
  std::istringstream lines(attribute(proc_root() + "/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {  // NUMBER:CONTROLLER,CONTROLLER:/PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos || line.compare(second, 2, ":/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    for (fs::path own = line.substr(second + 2);; own = own.parent_path()) {
      for (const std::string& hierarchy : {controllers, controllers.empty() ? "" : controller})
        least = std::min(least, bound(groups / hierarchy / own));
      if (own.empty()) break;
    }
  }
  return least;
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
