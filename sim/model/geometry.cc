// SPDX-License-Identifier: Apache-2.0
#include "sim/model/geometry.h"

#include <cstddef>

namespace merapi::sim {
namespace {

// Heap offsets carry tags in their low bits and must leave room for index arithmetic.
constexpr uint64_t kMaxHeapBytes = uint64_t{1} << 46;

Fault bad(uint64_t offset, uint64_t value) { return {MERAPI_FAULT_BAD_CONFIG, offset, value}; }

uint64_t area_offset(int area) { return MERAPI_DIRECTORY_OFFSET + uint64_t(area) * sizeof(merapi_area_desc); }
uint64_t size_offset(int area) { return area_offset(area) + offsetof(merapi_area_desc, size); }

// Entries of a ring, slots of the shape table. What has fewer is no whole page.
bool is_table_count(uint64_t n) { return n != 0 && (n & (n - 1)) == 0 && n <= MERAPI_TABLE_ENTRIES_MAX; }

int log2_of(uint64_t n) { return 63 - __builtin_clzll(n); }

// Alignment and bounds of one area; an area with offset 0 does not exist.
Fault check_area(const merapi_area_desc& a, int area, uint64_t window_bytes) {
  bool mapped = area == MERAPI_AREA_HEAP || area == MERAPI_AREA_BITMAP0 || area == MERAPI_AREA_BITMAP1;
  uint64_t alignment = mapped ? MERAPI_MAPPED_ALIGNMENT : MERAPI_AREA_ALIGNMENT;
  if (a.offset % alignment != 0 || a.offset < MERAPI_CONTROL_BYTES || a.offset >= window_bytes) {
    return bad(area_offset(area), a.offset);
  }
  if (a.size == 0 || a.size % MERAPI_AREA_ALIGNMENT != 0 || a.size > window_bytes - a.offset) {
    return bad(size_offset(area), a.size);
  }
  return {};
}

Fault check_ring(const merapi_area_desc& a, int area, uint64_t window_bytes) {
  if (Fault f = check_area(a, area, window_bytes)) return f;
  if (!is_table_count(a.size / MERAPI_LINE_BYTES)) return bad(size_offset(area), a.size);
  return {};
}

void copy_directory(const WindowMemory& memory, merapi_area_desc* areas) {
  const merapi_directory* d = Control(memory.base).directory;
  for (uint32_t i = 0; i < MERAPI_AREA_COUNT; i++) {
    areas[i].offset = load(d->area[i].offset);
    areas[i].size = load(d->area[i].size);
  }
}

#define MERAPI_CONFIG_FIELD(field) (MERAPI_CONFIG_OFFSET + offsetof(merapi_config, field))

Fault check_config(const merapi_config& c, uint8_t coherence) {
  if (c.narrow_oop_shift > 8) return bad(MERAPI_CONFIG_FIELD(narrow_oop_shift), c.narrow_oop_shift);
  if (c.oop_bytes != 4 && c.oop_bytes != 8) return bad(MERAPI_CONFIG_FIELD(oop_bytes), c.oop_bytes);
  if (c.klass_bytes != 4 && c.klass_bytes != 8) return bad(MERAPI_CONFIG_FIELD(klass_bytes), c.klass_bytes);
  if (c.alignment_log2 < 3 || c.alignment_log2 > 8) return bad(MERAPI_CONFIG_FIELD(alignment_log2), c.alignment_log2);
  // A region's marks fill whole lines, so that no line of a bitmap concerns two regions.
  if (c.region_log2 < 16 || c.region_log2 > 36 || c.region_log2 < c.alignment_log2 + 9)
    return bad(MERAPI_CONFIG_FIELD(region_log2), c.region_log2);
  if (c.coherence != coherence) return bad(MERAPI_CONFIG_FIELD(coherence), c.coherence);
  if (c.reserved0 != 0) return bad(MERAPI_CONFIG_FIELD(reserved0), c.reserved0);
  if (c.mirror_size_offset % 4 != 0) return bad(MERAPI_CONFIG_FIELD(mirror_size_offset), c.mirror_size_offset);
  for (uint64_t r : c.reserved1) {
    if (r != 0) return bad(MERAPI_CONFIG_FIELD(reserved1), r);
  }
  if (c.reserved2 != 0) return bad(MERAPI_CONFIG_FIELD(reserved2), c.reserved2);
  uint64_t bytes = uint64_t{c.region_count} << c.region_log2;
  if (c.region_count == 0 || c.region_count > (kMaxHeapBytes >> c.region_log2)) {
    return bad(MERAPI_CONFIG_FIELD(region_count), c.region_count);
  }
  uint64_t mask = (uint64_t{1} << c.alignment_log2) - 1;
  if ((c.heap_base & mask) != 0 || c.heap_base + (bytes - 1) < c.heap_base) {
    return bad(MERAPI_CONFIG_FIELD(heap_base), c.heap_base);
  }
  return {};
}

// Areas that exist must not overlap each other (the control page is excluded by check_area).
Fault check_overlaps(const merapi_area_desc* areas) {
  for (uint32_t i = 0; i < MERAPI_AREA_COUNT; i++) {
    if (areas[i].offset == 0) continue;
    for (uint32_t j = 0; j < i; j++) {
      if (areas[j].offset == 0) continue;
      if (areas[i].offset < areas[j].offset + areas[j].size && areas[j].offset < areas[i].offset + areas[i].size) {
        return bad(area_offset(int(i)), areas[i].offset);
      }
    }
  }
  return {};
}

Fault check_sizes(const merapi_area_desc* a, const Geometry& g) {
  struct {
    int area;
    uint64_t needed;
  } const rules[] = {
      {MERAPI_AREA_SHAPES, MERAPI_LINE_BYTES},
      {MERAPI_AREA_LIMITS, uint64_t{g.region_count} * 8},
      {MERAPI_AREA_LIVE, uint64_t{g.region_count} * 8},
      {MERAPI_AREA_BITMAP0, g.heap_bytes >> (g.alignment_log2 + 3)},
      {MERAPI_AREA_BITMAP1, g.heap_bytes >> (g.alignment_log2 + 3)},
      {MERAPI_AREA_HEAP, g.heap_bytes},
  };
  for (const auto& rule : rules) {
    if (a[rule.area].offset == 0) return bad(area_offset(rule.area), 0);
    if (a[rule.area].size < rule.needed) return bad(size_offset(rule.area), a[rule.area].size);
  }
  if (!is_table_count(a[MERAPI_AREA_SHAPES].size / MERAPI_LINE_BYTES)) {
    return bad(size_offset(MERAPI_AREA_SHAPES), a[MERAPI_AREA_SHAPES].size);
  }
  return {};
}

}  // namespace

Fault latch_rings(const WindowMemory& memory, Rings* rings) {
  merapi_area_desc areas[MERAPI_AREA_COUNT];
  copy_directory(memory, areas);
  for (int area : {MERAPI_AREA_SUBMISSION, MERAPI_AREA_COMPLETION}) {
    if (Fault f = check_ring(areas[area], area, memory.bytes)) return f;
  }
  const merapi_area_desc& s = areas[MERAPI_AREA_SUBMISSION];
  const merapi_area_desc& c = areas[MERAPI_AREA_COMPLETION];
  if (s.offset < c.offset + c.size && c.offset < s.offset + s.size) {
    return bad(area_offset(MERAPI_AREA_COMPLETION), c.offset);
  }
  rings->submission_area = s;
  rings->completion_area = c;
  rings->submission = reinterpret_cast<merapi_submission*>(memory.base + s.offset);
  rings->completion = reinterpret_cast<merapi_completion*>(memory.base + c.offset);
  rings->submission_entries = s.size / MERAPI_LINE_BYTES;
  rings->completion_entries = c.size / MERAPI_LINE_BYTES;
  return {};
}

Fault latch_geometry(const WindowMemory& memory, const Rings& rings, uint8_t coherence, Geometry* geometry) {
  const merapi_config* in_window = Control(memory.base).config;
  merapi_config c;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  __builtin_memcpy(&c, in_window, sizeof c);
  __atomic_thread_fence(__ATOMIC_ACQ_REL);  // the copy is not read again from the window
  if (Fault f = check_config(c, coherence)) return f;

  merapi_area_desc areas[MERAPI_AREA_COUNT];
  copy_directory(memory, areas);
  for (uint32_t i = 0; i < MERAPI_AREA_COUNT; i++) {
    if (areas[i].offset == 0) continue;
    if (Fault f = check_area(areas[i], int(i), memory.bytes)) return f;
  }
  if (Fault f = check_overlaps(areas)) return f;
  const merapi_area_desc& sub = areas[MERAPI_AREA_SUBMISSION];
  const merapi_area_desc& comp = areas[MERAPI_AREA_COMPLETION];
  if (sub.offset != rings.submission_area.offset || sub.size != rings.submission_area.size) {
    return bad(area_offset(MERAPI_AREA_SUBMISSION), sub.offset);
  }
  if (comp.offset != rings.completion_area.offset || comp.size != rings.completion_area.size) {
    return bad(area_offset(MERAPI_AREA_COMPLETION), comp.offset);
  }

  Geometry g;
  g.heap_base = c.heap_base;
  g.heap_bytes = uint64_t{c.region_count} << c.region_log2;
  g.oop_bytes = c.oop_bytes;
  g.klass_bytes = c.klass_bytes;
  g.alignment_log2 = c.alignment_log2;
  g.region_log2 = c.region_log2;
  g.region_count = c.region_count;
  g.mirror_size_offset = c.mirror_size_offset;
  g.shift = c.oop_bytes == 4 ? c.narrow_oop_shift : 0;
  g.delta = (c.oop_bytes == 4 ? c.narrow_oop_base : 0) - c.heap_base;
  if (Fault f = check_sizes(areas, g)) return f;

  auto pointer = [&](int area) { return memory.base + areas[area].offset; };
  g.heap = pointer(MERAPI_AREA_HEAP);
  g.limits = reinterpret_cast<const uint64_t*>(pointer(MERAPI_AREA_LIMITS));
  g.live = reinterpret_cast<uint64_t*>(pointer(MERAPI_AREA_LIVE));
  g.bitmap[0] = reinterpret_cast<uint64_t*>(pointer(MERAPI_AREA_BITMAP0));
  g.bitmap[1] = reinterpret_cast<uint64_t*>(pointer(MERAPI_AREA_BITMAP1));
  g.shapes = reinterpret_cast<const merapi_shape*>(pointer(MERAPI_AREA_SHAPES));
  g.shape_slots_log2 = uint32_t(log2_of(areas[MERAPI_AREA_SHAPES].size / MERAPI_LINE_BYTES));
  if (areas[MERAPI_AREA_SHAPE_EXTENSION].offset != 0) {
    g.extension = pointer(MERAPI_AREA_SHAPE_EXTENSION);
    g.extension_bytes = areas[MERAPI_AREA_SHAPE_EXTENSION].size;
  }
  if (areas[MERAPI_AREA_SPILL].offset != 0) {
    g.spill = reinterpret_cast<uint64_t*>(pointer(MERAPI_AREA_SPILL));
    g.spill_words = areas[MERAPI_AREA_SPILL].size / 8;
  }
  *geometry = g;
  return {};
}

Fault latch_limit(const WindowMemory& memory, const Geometry& g, uint32_t region, uint64_t* limit) {
  uint64_t value = load(g.limits[region]);
  uint64_t start = uint64_t{region} << g.region_log2;
  if (value < start || value > start + g.region_bytes() || (value & g.alignment_mask()) != 0) {
    uint64_t at = uint64_t(reinterpret_cast<const uint8_t*>(&g.limits[region]) - memory.base);
    return bad(at, value);
  }
  *limit = value;
  return {};
}

}  // namespace merapi::sim
