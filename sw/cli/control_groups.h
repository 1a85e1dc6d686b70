// SPDX-License-Identifier: Apache-2.0
//
// The control groups of this process, of version 1 and 2, whatever is bound there.
#ifndef MERAPI_CLI_CONTROL_GROUPS_H_
#define MERAPI_CLI_CONTROL_GROUPS_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace merapi::cli {

// Nothing is bound.
inline constexpr uint64_t kNoBound = ~uint64_t{0};

// The least of bound(FOLDER) over this process' groups: in version 1 (`controller` has a hierarchy) or 2, its own and
// those above. A container may not have its own where the path says: then the root is its own.
//   groups   where they are mounted, /sys/fs/cgroup
//   process  the folder that says which are this process', /proc/self
template <typename Bound>
uint64_t least_of_groups(const std::filesystem::path& groups, const std::filesystem::path& process,
                         const std::string& controller, const Bound& bound) {
  uint64_t least = kNoBound;
  std::ifstream lines(process / "cgroup");
  for (std::string line; std::getline(lines, line);) {  // NUMBER:CONTROLLER,CONTROLLER:/PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos || line.compare(second, 2, ":/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    for (std::filesystem::path own = line.substr(second + 2);; own = own.parent_path()) {
      for (const std::string& hierarchy : {controllers, controllers.empty() ? "" : controller})
        least = std::min(least, bound(groups / hierarchy / own));
      if (own.empty()) break;
    }
  }
  return least;
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_CONTROL_GROUPS_H_
