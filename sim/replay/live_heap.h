// SPDX-License-Identifier: Apache-2.0
//
// The marked objects of a window after a trace, one by one, with their sizes and reference fields.
#ifndef MERAPI_SIM_REPLAY_LIVE_HEAP_H_
#define MERAPI_SIM_REPLAY_LIVE_HEAP_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "merapi/merapi.h"

namespace merapi::sim {

// What a tracer needs at least, in 64-byte lines: each line with a live object's header or references, and each line
// of the bitmap below the limits.
struct LinesNeeded {
  uint64_t objects = 0, heap = 0, bitmap = 0;
};

class LiveHeap {
 public:
  // Maps the areas of an open window. Throws std::runtime_error.
  explicit LiveHeap(merapi_window* window);

  // Shape of an object; null when the table has none.
  const merapi_shape* shape(uint64_t offset);
  // Size in heap words; 0 without a shape.
  uint64_t words(uint64_t offset, const merapi_shape* shape) const;

  // each(offset) for every mark of `bitmap`, ascending.
  template <typename F>
  void each_marked(uint32_t bitmap, F each) const {
    const uint64_t* words = bitmaps_[bitmap];
    uint64_t count = heap_bytes() >> (config_.alignment_log2 + 6);
    for (uint64_t i = 0; i < count; i++) {
      for (uint64_t left = words[i]; left != 0; left &= left - 1) {
        each((i * 64 + uint64_t(std::countr_zero(left))) << config_.alignment_log2);
      }
    }
  }
  // each(field offset, bytes): the runs of reference fields that a tracer reads. None of deferred objects.
  template <typename F>
  void each_run(uint64_t offset, const merapi_shape* shape, F each) const {
    if (shape == nullptr) return;
    if (shape->kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
      uint64_t length = load<uint32_t>(offset + 8 + config_.klass_bytes);
      if (length != 0) each(offset + shape->header_bytes, length * config_.oop_bytes);
    }
    if (shape->kind != MERAPI_SHAPE_KIND_INSTANCE) return;
    const auto* blocks = shape->block_count <= MERAPI_SHAPE_INLINE_BLOCKS
                             ? shape->block
                             : reinterpret_cast<const merapi_ref_block*>(extension_ + shape->extension);
    for (uint32_t b = 0; b < shape->block_count; b++) {
      if (blocks[b].count != 0) each(offset + blocks[b].offset, uint64_t{blocks[b].count} * config_.oop_bytes);
    }
  }
  // The address in a reference field (0: null), and back.
  uint64_t reference(uint64_t field) const {
    if (config_.oop_bytes == 8) return load<uint64_t>(field);
    uint32_t narrow = load<uint32_t>(field);
    return narrow == 0 ? 0 : config_.narrow_oop_base + (uint64_t{narrow} << config_.narrow_oop_shift);
  }
  void set_reference(uint64_t field, uint64_t address);

  LinesNeeded lines_needed(uint32_t bitmap);

  const merapi_config& config() const { return config_; }
  uint64_t heap_bytes() const { return uint64_t{config_.region_count} << config_.region_log2; }
  uint64_t bitmap_bytes() const { return heap_bytes() >> (config_.alignment_log2 + 3); }
  uint8_t* heap() { return heap_; }
  uint64_t* bitmap(uint32_t which) { return bitmaps_[which]; }
  uint64_t limit(uint32_t region) const { return limits_[region]; }

 private:
  template <typename T>
  T load(uint64_t offset) const {
    T value;
    std::memcpy(&value, heap_ + offset, sizeof value);
    return value;
  }
  merapi_config config_{};
  uint8_t* heap_ = nullptr;
  uint64_t* bitmaps_[2] = {};
  const uint64_t* limits_ = nullptr;
  const uint8_t* extension_ = nullptr;
  std::unordered_map<uint64_t, merapi_shape> shapes_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_LIVE_HEAP_H_
