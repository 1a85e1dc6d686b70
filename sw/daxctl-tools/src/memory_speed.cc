// SPDX-License-Identifier: Apache-2.0
#include "memory_speed.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "merapi/contract.h"

namespace merapi::cli {
namespace {

constexpr size_t kReadBytes = 64 << 10;

double seconds_to_read(const volatile uint64_t* words) {
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (size_t i = 0; i < kReadBytes / sizeof *words; i++) (void)words[i];
  clock_gettime(CLOCK_MONOTONIC, &end);
  return double(end.tv_sec - begin.tv_sec) + double(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

// The first pass takes page faults, and any may be interrupted.
double best_of_three(const volatile uint64_t* words) {
  seconds_to_read(words);
  return std::min({seconds_to_read(words), seconds_to_read(words), seconds_to_read(words)});
}

}  // namespace

std::optional<double> slower_than_memory(const std::string& dax_path) {
  const int fd = open(dax_path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  void* base = MAP_FAILED;
  // A mapping of devdax begins and ends at multiples of its alignment.
  if (fd >= 0 && fstat(fd, &status) == 0 && S_ISCHR(status.st_mode))
    base = mmap(nullptr, MERAPI_MAPPED_ALIGNMENT, PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (base == MAP_FAILED) return std::nullopt;
  const std::vector<uint64_t> ordinary(kReadBytes / sizeof(uint64_t), 1);
  const double device = best_of_three(static_cast<const uint64_t*>(base)), memory = best_of_three(ordinary.data());
  munmap(base, MERAPI_MAPPED_ALIGNMENT);
  return memory > 0 ? std::optional<double>(device / memory) : std::nullopt;
}

}  // namespace merapi::cli
