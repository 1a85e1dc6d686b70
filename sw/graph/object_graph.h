// SPDX-License-Identifier: Apache-2.0
//
// The object graph of a window as docs/contract.md describes it. Only for windows that nobody changes meanwhile. What
// lies beyond the heap is never read: an object or a table that claims it throws Broken.
#ifndef MERAPI_GRAPH_OBJECT_GRAPH_H_
#define MERAPI_GRAPH_OBJECT_GRAPH_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/window.h"

namespace merapi::graph {

struct Shape {
  merapi_shape shape;
  std::vector<merapi_ref_block> blocks;
  bool is_array() const {
    return shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY;
  }
  // Its klass is reported when an object of it is met.
  bool reported() const { return (shape.flags >> MERAPI_SHAPE_FLAG_QUIET & 1) == 0; }
};

// A bit for each unit of object alignment.
class Bits {
 public:
  explicit Bits(uint64_t count) : words_((count + 63) / 64) {}
  bool get(uint64_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  // True when it was 0.
  bool set(uint64_t i) {
    const uint64_t bit = UINT64_C(1) << (i % 64);
    const bool fresh = (words_[i / 64] & bit) == 0;
    words_[i / 64] |= bit;
    return fresh;
  }
  void clear(uint64_t i) { words_[i / 64] &= ~(UINT64_C(1) << (i % 64)); }
  uint64_t word(uint64_t w) const { return words_[w]; }
  uint64_t words() const { return words_.size(); }
  uint64_t* data() { return words_.data(); }
  const uint64_t* data() const { return words_.data(); }
  // visit(index) for every bit that is 1, ascending.
  template <typename F>
  void each(F visit) const {
    for (uint64_t w = 0; w < words_.size(); w++)
      for (uint64_t rest = words_[w]; rest != 0; rest &= rest - 1) visit(w * 64 + uint64_t(std::countr_zero(rest)));
  }

 private:
  std::vector<uint64_t> words_;
};

class ObjectGraph {
 public:
  // Maps the areas. Throws Error when they cannot be mapped or no heap was configured. `window` must outlive it.
  explicit ObjectGraph(const Window& window);

  const merapi_config& config() const { return config_; }
  uint64_t heap_bytes() const { return heap_bytes_; }
  uint64_t units() const { return heap_bytes_ >> config_.alignment_log2; }
  uint64_t offset_of_unit(uint64_t unit) const { return unit << config_.alignment_log2; }
  uint64_t unit_of(uint64_t offset) const { return offset >> config_.alignment_log2; }
  uint32_t region_of(uint64_t offset) const { return uint32_t(offset >> config_.region_log2); }
  // Of a region, as a heap offset.
  uint64_t limit(uint32_t region) const { return limits_[region]; }
  uint8_t* heap() const { return heap_; }

  // Objects and fields are named by their heap offsets.
  uint64_t klass(uint64_t object) const;
  // nullptr: the klass has no shape.
  const Shape* shape(uint64_t klass_word) const;
  const Shape* shape_of(uint64_t object) const { return shape(klass(object)); }
  uint64_t bytes(uint64_t object, const Shape& shape) const;
  uint32_t array_length(uint64_t object) const;
  // The host scans it, not the tracer.
  static bool deferred(const Shape* shape) {
    return shape == nullptr || shape->shape.kind >= MERAPI_SHAPE_KIND_REFERENCE;
  }
  // visit(offset, bytes): the runs of reference fields that a tracer reads. None of deferred objects.
  template <typename F>
  void runs(uint64_t object, const Shape& shape, F visit) const {
    const auto run = [&](uint64_t from, uint64_t count) {
      if (count == 0) return;
      need(object, from + count * config_.oop_bytes);
      visit(object + from, count * config_.oop_bytes);
    };
    if (shape.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) run(shape.shape.header_bytes, array_length(object));
    if (shape.shape.kind != MERAPI_SHAPE_KIND_INSTANCE) return;
    for (const merapi_ref_block& block : shape.blocks) run(block.offset, block.count);
  }
  // visit(field), one by one.
  template <typename F>
  void fields(uint64_t object, const Shape& shape, F visit) const {
    runs(object, shape, [&](uint64_t from, uint64_t length) {
      for (uint64_t field = from; field < from + length; field += config_.oop_bytes) visit(field);
    });
  }
  // visit(offset, bytes): everything that a tracer reads of an object, its klass word first.
  template <typename F>
  void read_by_a_trace(uint64_t object, F visit) const {
    need(object, 16);
    const Shape* shape = shape_of(object);
    const uint64_t header = config_.klass_bytes + (shape != nullptr && shape->is_array() ? sizeof(uint32_t) : 0);
    need(object, 8 + header);
    visit(object + 8, header);
    if (shape == nullptr) return;
    if (shape->shape.kind == MERAPI_SHAPE_KIND_MIRROR) {
      need(object, config_.mirror_size_offset + sizeof(uint32_t));
      visit(object + config_.mirror_size_offset, sizeof(uint32_t));
    }
    runs(object, *shape, visit);
  }

  // The address in a field (0: null), and back.
  uint64_t reference(uint64_t field) const;
  void set_reference(uint64_t field, uint64_t address) const;
  // Is it an object of this heap below its region's limit? Gives its offset.
  bool traced(uint64_t address, uint64_t* offset) const;

  // A copy of a bitmap: all of it, or what lies below the limits.
  Bits bitmap(uint32_t which) const;
  Bits marks(uint32_t which) const;
  void set_bitmap(uint32_t which, const Bits& bits) const;

 private:
  [[noreturn]] void beyond(uint64_t object, uint64_t bytes) const;
  void need(uint64_t object, uint64_t bytes) const {
    if (object > heap_bytes_ || bytes > heap_bytes_ - object) beyond(object, bytes);
  }
  template <typename T>
  T load(uint64_t offset) const {
    T value;
    std::memcpy(&value, heap_ + offset, sizeof value);
    return value;
  }

  const Window& window_;
  merapi_config config_{};
  uint64_t heap_bytes_;
  uint8_t* heap_;
  const uint64_t* limits_;
  mutable std::unordered_map<uint64_t, std::unique_ptr<Shape>> shapes_;
};

}  // namespace merapi::graph

#endif  // MERAPI_GRAPH_OBJECT_GRAPH_H_
