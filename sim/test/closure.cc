// SPDX-License-Identifier: Apache-2.0
#include "sim/test/closure.h"

#include <cstring>
#include <deque>
#include <stdexcept>

#include "merapi/contract.h"

namespace merapi::sim::test {
namespace {

// Reads the window as docs/contract.md describes it.
class Reader {
 public:
  explicit Reader(const uint8_t* window) : window_(window) {
    config = get<merapi_config>(MERAPI_CONFIG_OFFSET);
    directory = get<merapi_directory>(MERAPI_DIRECTORY_OFFSET);
    heap_bytes = uint64_t{config.region_count} << config.region_log2;
  }

  template <typename T>
  T get(uint64_t offset) const {
    T value;
    std::memcpy(&value, window_ + offset, sizeof value);
    return value;
  }
  template <typename T>
  T heap(uint64_t offset) const {
    return get<T>(directory.area[MERAPI_AREA_HEAP].offset + offset);
  }
  uint64_t limit_of(uint64_t offset) const {
    return get<uint64_t>(directory.area[MERAPI_AREA_LIMITS].offset + (offset >> config.region_log2) * 8);
  }
  bool bit(uint32_t bitmap, uint64_t offset) const {
    uint64_t n = offset >> config.alignment_log2;
    return (get<uint8_t>(directory.area[MERAPI_AREA_BITMAP0 + bitmap].offset + n / 8) >> (n % 8) & 1) != 0;
  }
  // The address in a reference field.
  uint64_t reference(uint64_t field) const {
    if (config.oop_bytes == 8) return heap<uint64_t>(field);
    uint32_t narrow = heap<uint32_t>(field);
    return narrow == 0 ? 0 : config.narrow_oop_base + (uint64_t{narrow} << config.narrow_oop_shift);
  }
  uint64_t klass(uint64_t object) const {
    return config.klass_bytes == 8 ? heap<uint64_t>(object + 8) : heap<uint32_t>(object + 8);
  }
  // Any slot with this key: where it is does not matter here.
  bool shape(uint64_t klass_word, merapi_shape* out) const {
    const merapi_area_desc& a = directory.area[MERAPI_AREA_SHAPES];
    auto [it, fresh] = shapes_.try_emplace(klass_word);
    if (fresh) {
      for (uint64_t at = 0; at < a.size; at += sizeof(merapi_shape)) {
        auto s = get<merapi_shape>(a.offset + at);
        if (s.klass_word == klass_word) it->second = s;
      }
    }
    *out = it->second;
    return out->klass_word == klass_word;
  }
  uint64_t words(uint64_t object, const merapi_shape& s) const {
    uint64_t alignment = uint64_t{1} << config.alignment_log2;
    switch (s.kind) {
      case MERAPI_SHAPE_KIND_OBJ_ARRAY:
      case MERAPI_SHAPE_KIND_PRIM_ARRAY: {
        uint64_t length = heap<uint32_t>(object + 8 + config.klass_bytes);
        uint64_t size = s.header_bytes + length * (uint64_t{1} << s.element_log2);
        return (size + alignment - 1) / alignment * alignment / 8;
      }
      case MERAPI_SHAPE_KIND_MIRROR:
        return heap<uint32_t>(object + config.mirror_size_offset);
      default:
        return s.size_words;
    }
  }
  std::vector<uint64_t> fields(uint64_t object, const merapi_shape& s) const {
    std::vector<uint64_t> out;
    if (s.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
      uint64_t length = heap<uint32_t>(object + 8 + config.klass_bytes);
      for (uint64_t i = 0; i < length; i++) out.push_back(object + s.header_bytes + i * config.oop_bytes);
    }
    if (s.kind != MERAPI_SHAPE_KIND_INSTANCE) return out;
    for (uint32_t b = 0; b < s.block_count; b++) {
      merapi_ref_block block;
      if (s.block_count <= MERAPI_SHAPE_INLINE_BLOCKS) {
        block = s.block[b];
      } else {
        block = get<merapi_ref_block>(directory.area[MERAPI_AREA_SHAPE_EXTENSION].offset + s.extension + b * 8);
      }
      for (uint32_t i = 0; i < block.count; i++) out.push_back(object + block.offset + i * config.oop_bytes);
    }
    return out;
  }

  merapi_config config;
  merapi_directory directory;
  uint64_t heap_bytes;

 private:
  const uint8_t* window_;
  mutable std::map<uint64_t, merapi_shape> shapes_;
};

}  // namespace

Closure naive_closure(const ClosureInput& in) {
  Reader window(in.window);
  Closure out;
  std::deque<uint64_t> grey;

  uint64_t step = uint64_t{1} << window.config.alignment_log2;
  for (uint64_t at = 0; at < window.heap_bytes; at += step) {
    if (at >= window.limit_of(at) || !window.bit(in.bitmap, at)) continue;
    out.marked.insert(at);
    if (in.commanded.count(uint32_t(at >> window.config.region_log2)) != 0) grey.push_back(at);
  }
  auto offer = [&](uint64_t address) {
    if (address < window.config.heap_base || address - window.config.heap_base >= window.heap_bytes) return;
    uint64_t offset = address - window.config.heap_base;
    if (offset >= window.limit_of(offset)) return;
    if (offset % step != 0) throw std::runtime_error("the generated heap holds a misaligned reference");
    if (!out.marked.insert(offset).second) return;
    out.newly.insert(offset);
    grey.push_back(offset);
  };
  for (uint64_t address : in.submitted) offer(address);

  while (!grey.empty()) {
    uint64_t object = grey.front();
    grey.pop_front();
    out.visited.insert(object);
    bool counts = out.newly.count(object) != 0;
    merapi_shape shape;
    bool has_shape = window.shape(window.klass(object), &shape);
    if (has_shape && counts) {
      out.live[uint32_t(object >> window.config.region_log2)] += window.words(object, shape);
    }
    if (has_shape && (shape.flags >> MERAPI_SHAPE_FLAG_QUIET & 1) == 0 && out.klasses.insert(shape.klass_word).second) {
      for (uint64_t address : in.answer_klass(shape.klass_word)) offer(address);
    }
    bool defer = !has_shape || shape.kind >= MERAPI_SHAPE_KIND_REFERENCE;
    if (defer) {
      out.deferred.insert(object);
      if (!has_shape && counts) out.unsized.insert(object);
      for (uint64_t address : in.answer_object(window.config.heap_base + object)) offer(address);
      continue;
    }
    for (uint64_t field : window.fields(object, shape)) {
      uint64_t address = window.reference(field);
      if (address != 0) offer(address);
    }
  }
  return out;
}

}  // namespace merapi::sim::test
