// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/live_heap.h"

#include <algorithm>
#include <stdexcept>

namespace merapi::sim {
namespace {

constexpr uint64_t kLine = 64;

void* area(merapi_window* window, int which) {
  void* mapped = merapi_map_area(window, merapi_area(which));
  if (mapped == nullptr) throw std::runtime_error("cannot map an area of the window");
  return mapped;
}

}  // namespace

LiveHeap::LiveHeap(merapi_window* window) {
  merapi_get_config(window, &config_);
  heap_ = static_cast<uint8_t*>(area(window, MERAPI_AREA_HEAP));
  for (int i : {0, 1}) bitmaps_[i] = static_cast<uint64_t*>(area(window, MERAPI_AREA_BITMAP0 + i));
  limits_ = static_cast<const uint64_t*>(area(window, MERAPI_AREA_LIMITS));
  const merapi_layout* layout = merapi_layout_of(window);
  if (layout->area[MERAPI_AREA_SHAPE_EXTENSION].offset != 0) {
    extension_ = static_cast<const uint8_t*>(area(window, MERAPI_AREA_SHAPE_EXTENSION));
  }
  const auto* table = static_cast<const merapi_shape*>(area(window, MERAPI_AREA_SHAPES));
  for (uint64_t i = 0; i < layout->area[MERAPI_AREA_SHAPES].size / sizeof *table; i++) {
    if (table[i].klass_word != 0) shapes_[table[i].klass_word] = table[i];
  }
}

const merapi_shape* LiveHeap::shape(uint64_t offset) {
  uint64_t klass = config_.klass_bytes == 8 ? load<uint64_t>(offset + 8) : load<uint32_t>(offset + 8);
  auto it = shapes_.find(klass);
  return it == shapes_.end() ? nullptr : &it->second;
}

uint64_t LiveHeap::words(uint64_t offset, const merapi_shape* s) const {
  if (s == nullptr) return 0;
  uint64_t alignment = uint64_t{1} << config_.alignment_log2;
  switch (s->kind) {
    case MERAPI_SHAPE_KIND_OBJ_ARRAY:
    case MERAPI_SHAPE_KIND_PRIM_ARRAY: {
      uint64_t length = load<uint32_t>(offset + 8 + config_.klass_bytes);
      uint64_t bytes = s->header_bytes + (length << s->element_log2);
      return (bytes + alignment - 1) / alignment * alignment / 8;
    }
    case MERAPI_SHAPE_KIND_MIRROR:
      return load<uint32_t>(offset + config_.mirror_size_offset);
    default:
      return s->size_words;
  }
}

void LiveHeap::set_reference(uint64_t field, uint64_t address) {
  if (config_.oop_bytes == 8) {
    std::memcpy(heap_ + field, &address, sizeof address);
    return;
  }
  uint32_t narrow = uint32_t((address - config_.narrow_oop_base) >> config_.narrow_oop_shift);
  std::memcpy(heap_ + field, &narrow, sizeof narrow);
}

LinesNeeded LiveHeap::lines_needed(uint32_t bitmap) {
  LinesNeeded needed;
  std::vector<bool> touched(heap_bytes() / kLine);
  auto touch = [&](uint64_t from, uint64_t bytes) {
    for (uint64_t line = from / kLine; line <= (from + bytes - 1) / kLine; line++) {
      if (touched[line]) continue;
      touched[line] = true;
      needed.heap++;
    }
  };
  each_marked(bitmap, [&](uint64_t offset) {
    needed.objects++;
    const merapi_shape* s = shape(offset);
    bool array = s != nullptr && (s->kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || s->kind == MERAPI_SHAPE_KIND_PRIM_ARRAY);
    touch(offset + 8, config_.klass_bytes + (array ? 4u : 0u));
    each_run(offset, s, touch);
  });
  for (uint32_t r = 0; r < config_.region_count; r++) {
    uint64_t first = uint64_t{r} << config_.region_log2;
    if (limits_[r] <= first) continue;
    // A line of the bitmap stands for this many bytes of the heap.
    uint64_t covered = (kLine * 8) << config_.alignment_log2;
    needed.bitmap += (limits_[r] - first + covered - 1) / covered;
  }
  return needed;
}

}  // namespace merapi::sim
