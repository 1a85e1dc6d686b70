// SPDX-License-Identifier: Apache-2.0
//
// What BorderHeap spoils.
#include <algorithm>
#include <cstring>

#include "sim/rtl/test/border_heap.h"

namespace merapi::sim::rtl::test {

PlantedFault BorderHeap::plant() {
  const BorderObject o = random_.pick(objects_);
  switch (random_.below(7)) {
    case 0:
      return crooked_reference();
    case 1:
      return crooked_grey(o);
    case 2:
      return bad_length(o);
    case 3:
      return bad_mirror(o);
    case 4:
      return no_klass(o);
    case 5:
      return bad_shape(o);
    default:
      return bad_limit(o);
  }
}

PlantedFault BorderHeap::overwrite(const char* what, void* at, const void* value, size_t bytes) {
  auto* p = static_cast<uint8_t*>(at);
  PlantedFault f;
  f.what = what;
  f.repair = [p, was = std::vector<uint8_t>(p, p + bytes)] { std::memcpy(p, was.data(), was.size()); };
  std::memcpy(p, value, bytes);
  return f;
}

PlantedFault BorderHeap::crooked_reference() {
  const uint64_t width = window_.shape.oop_bytes, unit = width == 8 ? 1 : uint64_t{1} << window_.shape.narrow_shift;
  if (unit >= step()) return {};  // narrow ones are straight
  std::vector<uint64_t> all;
  for (int i = 0; i < 20 && all.empty(); i++) all = fields_of(random_.pick(objects_));
  if (all.empty()) return {};
  const uint64_t field = random_.pick(all), straight = address(random_.pick(objects_).at);
  uint8_t* p = window_.heap() + field;
  const std::vector<uint8_t> was(p, p + width);
  PlantedFault f = overwrite("crooked reference", p, was.data(), width);
  if (store(field, straight + unit * random_.between(1, step() / unit - 1))) return f;
  f.repair();
  return {};
}

PlantedFault BorderHeap::crooked_grey(const BorderObject& o) {
  PlantedFault f;
  f.what = "crooked grey";
  f.grey = address(o.at) + random_.between(1, step() - 1);
  f.repair = [] {};
  return f;
}

// Just beyond the heap, or far.
PlantedFault BorderHeap::bad_length(const BorderObject& o) {
  const BorderKlass& k = klasses_[o.klass];
  if (!k.has_shape || !is_array(k.shape)) return {};
  const uint64_t room = window_.heap_bytes() - o.at, header = std::min<uint64_t>(room, k.shape.header_bytes);
  uint32_t length = uint32_t((room - header) >> k.shape.element_log2) + 1;
  if (random_.percent(50)) {
    length = random_.percent(50) ? 0x7fffffff : UINT32_C(0x80000000) + uint32_t(random_.below(100));
  }
  return overwrite("length", window_.heap() + o.at + fields(), &length, 4);
}

PlantedFault BorderHeap::bad_mirror(const BorderObject& o) {
  const BorderKlass& k = klasses_[o.klass];
  if (!k.has_shape || k.shape.kind != MERAPI_SHAPE_KIND_MIRROR) return {};
  uint32_t words = 0;
  if (random_.percent(50)) {
    words = uint32_t((window_.heap_bytes() - o.at) / 8 + 1);
    if (random_.percent(50)) words += uint32_t(random_.below(1u << 30));
  }
  return overwrite("mirror", window_.heap() + o.at + window_.shape.mirror_size_offset, &words, 4);
}

PlantedFault BorderHeap::no_klass(const BorderObject& o) {
  const uint64_t none = 0;
  return overwrite("klass word 0", window_.heap() + o.at + 8, &none, window_.shape.klass_bytes);
}

PlantedFault BorderHeap::bad_shape(const BorderObject& o) {
  const BorderKlass& k = klasses_[o.klass];
  if (!k.has_shape) return {};
  merapi_shape* slot = std::find_if(table(), table() + window_.shape.shape_slots,
                                    [&](auto& s) { return s.klass_word == k.shape.klass_word; });
  const bool instance = slot->kind == MERAPI_SHAPE_KIND_INSTANCE;
  const bool extended = instance && slot->block_count > MERAPI_SHAPE_INLINE_BLOCKS;
  merapi_shape bad = *slot;
  switch (random_.below(5)) {
    case 0:
      bad.kind = uint8_t(random_.percent(30) ? 0 : random_.between(8, 255));
      break;
    case 1:
      if (!is_array(bad)) return {};
      bad.header_bytes = uint32_t(random_.below(fields() + 4));
      break;
    case 2:
      if (!instance || extended || !spoil_blocks(&bad)) return {};
      break;
    case 3:
      if (!extended) return {};
      // Crooked, or most of its blocks behind the area's end.
      bad.extension =
          random_.percent(50) ? bad.extension + 8 : window_.layout.area[MERAPI_AREA_SHAPE_EXTENSION].size - 8;
      break;
    default:
      return extended ? bad_extension(bad) : PlantedFault{};
  }
  return overwrite("shape", slot, &bad, sizeof bad);
}

// In line: one too long, or crooked.
bool BorderHeap::spoil_blocks(merapi_shape* s) {
  if (s->block_count == 0) return false;
  const uint32_t width = window_.shape.oop_bytes;
  merapi_ref_block& last = s->block[s->block_count - 1];
  if (random_.percent(50)) {
    last.count = (s->size_words * 8 - last.offset) / width + 1;
  } else {
    s->block[0].offset += 1u + uint32_t(random_.below(width - 1));
  }
  return true;
}

PlantedFault BorderHeap::bad_extension(const merapi_shape& s) {
  auto* b = reinterpret_cast<merapi_ref_block*>(window_.area(MERAPI_AREA_SHAPE_EXTENSION) + s.extension) +
            random_.below(s.block_count);
  merapi_ref_block bad = *b;
  if (random_.percent(50)) {
    bad.count = s.size_words * 8 / window_.shape.oop_bytes + 1;
  } else {
    bad.offset |= 1;
  }
  PlantedFault f = overwrite("extension block", b, &bad, sizeof bad);
  f.same_address = f.same_detail = false;
  return f;
}

PlantedFault BorderHeap::bad_limit(const BorderObject& o) {
  const uint32_t i = region_of(o.at);
  uint64_t bad = start(i);
  if (random_.percent(30) && i > 0) {
    bad -= step();
  } else {
    bad = random_.percent(50) ? start(i + uint64_t{1}) + step() : bad + random_.between(1, step() - 1);
  }
  PlantedFault f = overwrite("limit", &window_.limits()[i], &bad, sizeof bad);
  f.same_detail = false;
  return f;
}

}  // namespace merapi::sim::rtl::test
