// SPDX-License-Identifier: Apache-2.0
#include "graph/object_graph.h"

#include <errno.h>

#include "graph/names.h"

namespace merapi::graph {
namespace {

merapi_area bitmap_area(uint32_t which) { return merapi_area(MERAPI_AREA_BITMAP0 + which); }

}  // namespace

ObjectGraph::ObjectGraph(const Window& window) : window_(window) {
  merapi_get_config(window.get(), &config_);
  heap_bytes_ = uint64_t(config_.region_count) << config_.region_log2;
  if (heap_bytes_ == 0 || heap_bytes_ > window.layout().area[MERAPI_AREA_HEAP].size)
    throw Error(-ENXIO, window.name() + ": expected a configured heap, found none; has a host configured the window?");
  heap_ = window.area(MERAPI_AREA_HEAP);
  limits_ = reinterpret_cast<const uint64_t*>(window.area(MERAPI_AREA_LIMITS));
}

void ObjectGraph::beyond(uint64_t object, uint64_t bytes) const {
  throw Broken(window_.name() + ": expected the object at " + hex(config_.heap_base + object) + " of " +
               std::to_string(bytes) + " bytes to lie inside the heap, found that it does not");
}

uint64_t ObjectGraph::klass(uint64_t object) const {
  need(object, 16);
  return config_.klass_bytes == 8 ? load<uint64_t>(object + 8) : load<uint32_t>(object + 8);
}

const Shape* ObjectGraph::shape(uint64_t klass_word) const {
  const auto [known, fresh] = shapes_.try_emplace(klass_word);
  if (!fresh) return known->second.get();
  merapi_shape found{};
  if (merapi_shape_get(window_.get(), klass_word, &found, nullptr, 0) < 0) return nullptr;
  auto shape = std::make_unique<Shape>(Shape{found, std::vector<merapi_ref_block>(found.block_count)});
  if (found.block_count != 0 &&
      merapi_shape_get(window_.get(), klass_word, &found, shape->blocks.data(), found.block_count) < 0)
    return nullptr;
  known->second = std::move(shape);
  return known->second.get();
}

uint32_t ObjectGraph::array_length(uint64_t object) const {
  need(object, 8 + config_.klass_bytes + sizeof(uint32_t));
  return load<uint32_t>(object + 8 + config_.klass_bytes);
}

uint64_t ObjectGraph::bytes(uint64_t object, const Shape& shape) const {
  const merapi_shape& s = shape.shape;
  uint64_t size = 0;
  if (shape.is_array()) {
    const uint64_t unit = UINT64_C(1) << config_.alignment_log2;
    const uint64_t elements = s.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY ? uint64_t(array_length(object)) * config_.oop_bytes
                                                                    : uint64_t(array_length(object)) << s.element_log2;
    size = (s.header_bytes + elements + unit - 1) / unit * unit;
  } else if (s.kind == MERAPI_SHAPE_KIND_MIRROR) {
    need(object, uint64_t(config_.mirror_size_offset) + sizeof(uint32_t));
    size = uint64_t(load<uint32_t>(object + config_.mirror_size_offset)) * 8;
  } else {
    size = uint64_t(s.size_words) * 8;
  }
  need(object, size);
  return size;
}

uint64_t ObjectGraph::reference(uint64_t field) const {
  if (config_.oop_bytes == 8) return load<uint64_t>(field);
  const uint32_t narrow = load<uint32_t>(field);
  return narrow == 0 ? 0 : config_.narrow_oop_base + (uint64_t(narrow) << config_.narrow_oop_shift);
}

void ObjectGraph::set_reference(uint64_t field, uint64_t address) const {
  if (config_.oop_bytes == 8) {
    std::memcpy(heap_ + field, &address, sizeof address);
    return;
  }
  const uint32_t narrow = uint32_t((address - config_.narrow_oop_base) >> config_.narrow_oop_shift);
  std::memcpy(heap_ + field, &narrow, sizeof narrow);
}

bool ObjectGraph::traced(uint64_t address, uint64_t* offset) const {
  if (address < config_.heap_base || address - config_.heap_base >= heap_bytes_) return false;
  *offset = address - config_.heap_base;
  if (*offset % (UINT64_C(1) << config_.alignment_log2) != 0)
    throw Broken(window_.name() + ": expected references aligned to " + std::to_string(1u << config_.alignment_log2) +
                 " bytes, found " + hex(address));
  return *offset < limits_[region_of(*offset)];
}

Bits ObjectGraph::bitmap(uint32_t which) const {
  Bits bits(units());
  std::memcpy(bits.data(), window_.area(bitmap_area(which)), bits.words() * sizeof(uint64_t));
  return bits;
}

Bits ObjectGraph::marks(uint32_t which) const {
  const Bits all = bitmap(which);
  Bits below = all;
  all.each([&](uint64_t unit) {
    const uint64_t offset = offset_of_unit(unit);
    if (offset >= heap_bytes_ || offset >= limits_[region_of(offset)]) below.clear(unit);
  });
  return below;
}

void ObjectGraph::set_bitmap(uint32_t which, const Bits& bits) const {
  std::memcpy(window_.area(bitmap_area(which)), bits.data(), bits.words() * sizeof(uint64_t));
}

}  // namespace merapi::graph
