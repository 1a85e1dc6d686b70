// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/room.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "sw/cli/control_groups.h"

namespace merapi::sim {
namespace {

namespace fs = std::filesystem;

using cli::kNoBound;

// The number after `name` in a file of names and numbers; 0 when it is not there.
uint64_t number_after(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  std::string word;
  uint64_t number = 0;
  while (in >> word) {
    if (word == name && in >> number) return number;
    in.clear();
  }
  return 0;
}

// A file of one number; `otherwise` when it says something else ("max") or is not there.
uint64_t number_in(const fs::path& file, uint64_t otherwise) {
  std::ifstream in(file);
  uint64_t number = 0;
  return in >> number ? number : otherwise;
}

uint64_t left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

uint64_t left_on_the_machine() {
  const fs::path file = "/proc/meminfo";
  uint64_t kib = number_after(file, "MemAvailable:") + number_after(file, "SwapFree:");
  // Strict accounting: what is promised counts, used or not.
  if (number_in("/proc/sys/vm/overcommit_memory", 0) == 2)
    kib = std::min(kib, left(number_after(file, "CommitLimit:"), number_after(file, "Committed_AS:")));
  return kib == 0 ? kNoBound : kib << 10;  // without /proc nothing is known
}

// A group's memory holds cached files too, which give way. (Of version 1 the words of memory.stat without "total_"
// leave out the groups below.)
uint64_t left_in_group(const fs::path& group) {
  std::error_code error;
  const bool first = !fs::exists(group / "memory.max", error);
  const uint64_t limit = number_in(group / (first ? "memory.limit_in_bytes" : "memory.max"), kNoBound);
  if (limit == kNoBound) return kNoBound;
  const std::string sum = first ? "total_" : "";
  const uint64_t cached = number_after(group / "memory.stat", sum + "inactive_file") +
                          number_after(group / "memory.stat", sum + "active_file");
  return left(limit, left(number_in(group / (first ? "memory.usage_in_bytes" : "memory.current"), 0), cached));
}

}  // namespace

uint64_t memory_available() {
  return std::min(left_on_the_machine(), cli::least_of_groups("/sys/fs/cgroup", "/proc/self", "memory", left_in_group));
}

void require_room(uint64_t bytes, const std::string& what) {
  const uint64_t found = memory_available();
  if (bytes <= found) return;
  throw std::runtime_error("expected " + std::to_string(bytes) + " bytes of memory for " + what + ", found " +
                           std::to_string(found) +
                           "; end other programs, raise the limit of the container, or use a machine with more memory");
}

void require_room_to_load(const graph::Image& image) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(image.path(), error);
  require_room(error ? 0 : bytes, "a copy of the window");
}

void require_room_to_rewrite(const graph::Image& image) {
  require_room(2 * image.geometry().heap_bytes, "two copies of the heap");
}

}  // namespace merapi::sim
