// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_MODEL_LAZY_TABLE_H_
#define MERAPI_SIM_MODEL_LAZY_TABLE_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace merapi::sim {

// Entries of a plain type, zero at first. What is never touched costs neither memory nor time, and to make everything
// zero again is a bounded piece of work at a time: of a billion regions that takes longer than a host waits.
template <typename T>
class LazyTable {
 public:
  LazyTable() = default;
  ~LazyTable() { unmap(); }
  LazyTable(const LazyTable&) = delete;
  LazyTable& operator=(const LazyTable&) = delete;

  // Room for `count` entries. What they hold is right once clear_some() has said so.
  void begin(uint64_t count) {
    const size_t bytes = count * sizeof(T);
    if (wanted_ != 0) {  // replaced already: what is gone is not looked at again
      wanted_ = std::max(wanted_, bytes);
      return;
    }
    at_ = 0;
    if (bytes <= bytes_) return;
    wanted_ = bytes;
    if (bytes_ == 0) map();
  }
  // True when everything is zero and there is the room that was asked for.
  bool clear_some() {
    if (at_ == bytes_ && wanted_ == 0) return true;
    const size_t piece = std::min(kPiece, bytes_ - at_);
    if (wanted_ != 0) {
      munmap(bytes_of() + at_, piece);
    } else if (bytes_ <= kSmall) {
      std::memset(static_cast<void*>(data_), 0, piece);
    } else {
      madvise(bytes_of() + at_, piece, MADV_DONTNEED);
    }
    at_ += piece;
    if (at_ != bytes_) return false;
    if (wanted_ != 0) {
      data_ = nullptr;
      bytes_ = 0;
      map();
    }
    return true;
  }
  T* data() { return data_; }
  T& operator[](uint64_t i) { return data_[i]; }
  const T& operator[](uint64_t i) const { return data_[i]; }

 private:
  static constexpr size_t kPiece = size_t{8} << 20;
  static constexpr size_t kSmall = size_t{256} << 10;

  uint8_t* bytes_of() { return reinterpret_cast<uint8_t*>(data_); }
  void map() {
    void* p = mmap(nullptr, wanted_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(p);
    at_ = bytes_ = wanted_;
    wanted_ = 0;
  }
  void unmap() {
    // Of a table that is being replaced the part before `at_` is gone.
    const size_t from = wanted_ != 0 ? at_ : 0;
    if (bytes_ != from) munmap(bytes_of() + from, bytes_ - from);
  }

  T* data_ = nullptr;
  size_t bytes_ = 0;
  size_t wanted_ = 0;  // not 0: a larger table takes the place of this one when it is gone
  size_t at_ = 0;      // cleared, or gone, so far
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_LAZY_TABLE_H_
