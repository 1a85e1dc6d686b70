// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets share: input as a stream of values, and windows on memory files.
#ifndef MERAPI_FUZZ_H
#define MERAPI_FUZZ_H

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "merapi/merapi.h"

#define MUST(condition)                                                             \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                 \
    }                                                                               \
  } while (0)

namespace merapi_fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  template <typename T>
  T Take() {
    T value{};
    const size_t bytes = left_ < sizeof value ? left_ : sizeof value;
    std::memcpy(&value, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return value;
  }
  bool Done() const { return left_ == 0; }
  const uint8_t* data() const { return data_; }
  size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  size_t left_;
};

// An anonymous file that can be opened by name.
class MemoryFile {
 public:
  explicit MemoryFile(uint64_t bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    MUST(fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
  }
  ~MemoryFile() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void Write(uint64_t offset, const void* data, size_t bytes) {
    MUST(pwrite(fd_, data, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes));
  }

 private:
  int fd_;
};

constexpr merapi_geometry SmallGeometry() {
  merapi_geometry geometry{};
  geometry.heap_bytes = UINT64_C(2) << 20;
  geometry.region_log2 = 20;
  geometry.alignment_log2 = 3;
  geometry.submission_entries = 64;
  geometry.completion_entries = 64;
  geometry.shape_slots = 64;
  geometry.spill_bytes = 4096;
  return geometry;
}

inline merapi_window* Format(const MemoryFile& file) {
  const merapi_geometry geometry = SmallGeometry();
  merapi_window* window = nullptr;
  MUST(merapi_open(("file:" + file.path()).c_str(), &geometry, MERAPI_OPEN_FORMAT, &window, nullptr) == 0);
  return window;
}

}  // namespace merapi_fuzz

#endif  // MERAPI_FUZZ_H
