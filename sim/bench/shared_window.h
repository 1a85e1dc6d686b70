// SPDX-License-Identifier: Apache-2.0
//
// A window in a memfd, as a device process gets it: one mapping to build the heap through, another for the engine, so
// that the engine pays for its own page faults.
#ifndef MERAPI_SIM_BENCH_SHARED_WINDOW_H_
#define MERAPI_SIM_BENCH_SHARED_WINDOW_H_

#include <cstdint>

#include "merapi/merapi.h"
#include "sim/engine/engine.h"

namespace merapi::sim::bench {

class SharedWindow {
 public:
  SharedWindow(uint64_t heap_bytes, uint8_t region_log2, bool wide_oops);
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  static constexpr uint64_t kHeapBase = UINT64_C(0x600000000);

  uint8_t* heap() { return host_ + layout_.area[MERAPI_AREA_HEAP].offset; }
  void put_shape(const merapi_shape& shape);
  void store_reference(uint64_t field, uint64_t target_offset);
  // Limits of all regions below `top`, one region after the other.
  void set_top(uint64_t top);
  void clear_bitmap();
  void mark(uint64_t offset);
  WindowMemory device() const { return {device_, layout_.window_bytes}; }
  // Map the device's side anew: its page tables are empty again.
  void remap_device();
  uint32_t regions() const { return regions_; }
  bool wide() const { return wide_; }
  template <typename T>
  T* control(uint64_t offset) {
    return reinterpret_cast<T*>(host_ + offset);
  }
  merapi_submission* submissions() {
    return reinterpret_cast<merapi_submission*>(host_ + layout_.area[MERAPI_AREA_SUBMISSION].offset);
  }
  uint64_t submission_entries() const { return layout_.area[MERAPI_AREA_SUBMISSION].size / 64; }

 private:
  int fd_ = -1;
  bool wide_;
  uint32_t regions_;
  uint8_t region_log2_;
  uint8_t* host_ = nullptr;
  uint8_t* device_ = nullptr;
  merapi_layout layout_{};
};

}  // namespace merapi::sim::bench

#endif  // MERAPI_SIM_BENCH_SHARED_WINDOW_H_
