// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/wide_heap.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>

namespace merapi::sim::rtl::test {

using merapi::sim::test::Window;
using merapi::sim::test::WindowShape;

namespace {

constexpr size_t kObjects = 90;
// Regions with more below their limit are not swept: it would take the simulation minutes.
constexpr uint64_t kMostSwept = 1 << 22;
constexpr uint32_t kMostElements = 40;
// An array as long as this is shared among lanes.
constexpr uint32_t kLongArray = 700;

WindowShape choose(merapi::sim::test::Random* r, uint8_t heap_log2, uint8_t region_log2,
                   const std::shared_ptr<merapi::sim::test::Mapping>& memory) {
  WindowShape s;
  s.klass_bytes = r->percent(50) ? 4 : 8;
  s.alignment_log2 = uint8_t(r->between(3, std::min<uint64_t>(8, region_log2 - 9)));
  // A narrow reference reaches 2^32 units.
  s.oop_bytes = 32 + s.alignment_log2 >= heap_log2 && r->percent(60) ? 4 : 8;
  s.narrow_shift = s.alignment_log2;
  s.region_log2 = region_log2;
  s.regions = uint32_t(uint64_t{1} << (heap_log2 - region_log2));
  s.heap_base = (r->next() >> 1) & ~((UINT64_C(1) << 20) - 1);
  s.narrow_base = s.heap_base - (UINT64_C(1) << s.alignment_log2);
  s.mirror_size_offset = uint32_t(8 + s.klass_bytes + 4 * r->below(8));
  s.spread_log2 = uint8_t(std::countr_zero(WideHeap::kWindowBytes));
  s.memory = memory;
  s.spread_seed = r->next();
  s.submission_entries = 256;
  s.completion_entries = 256;
  s.spill_bytes = 1 << 20;
  return s;
}

}  // namespace

WideHeap::WideHeap(uint64_t seed, uint8_t heap_log2, uint8_t region_log2,
                   const std::shared_ptr<merapi::sim::test::Mapping>& memory)
    : random_(seed), window_(std::make_unique<Window>(choose(&random_, heap_log2, region_log2, memory))) {
  make_klasses();
  place_all();
  set_limits();
  write_references();
}

WideHeap::Klass& WideHeap::add_klass(uint8_t kind) {
  Klass k;
  k.shape.kind = kind;
  k.shape.klass_word = window_->shape.klass_bytes == 4 ? random_.next() % UINT32_MAX | 8 : random_.next() >> 1 | 8;
  klasses_.push_back(k);
  return klasses_.back();
}

void WideHeap::make_klasses() {
  const WindowShape& s = window_->shape;
  uint32_t width = s.oop_bytes, first = 16 + (s.klass_bytes == 4 ? 0 : 8), header = first;
  for (uint32_t blocks : {1u, 3u, 7u}) {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_INSTANCE);
    uint32_t at = first;
    for (uint32_t i = 0; i < blocks; i++) {
      uint32_t n = uint32_t(random_.between(1, 3));
      k.blocks.push_back({at, n});
      at += (n + 1) * width;
    }
    k.shape.size_words = uint32_t(align(at) / 8);
  }
  {
    // Sizes up to what the tracer keeps of a shape.
    Klass& k = add_klass(MERAPI_SHAPE_KIND_INSTANCE);
    k.shape.size_words = uint32_t(align(random_.between(1 << 20, (1 << 21) - 1) * 8) / 8);
    uint32_t last = (std::min<uint32_t>(k.shape.size_words * 8, 1 << 24) - 4 * width) / 64 * 64;
    k.blocks = {{first, 2}, {last / 2, 1}, {last, 2}};
  }
  {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_OBJ_ARRAY);
    k.shape.header_bytes = header;
    k.shape.element_log2 = width == 4 ? 2 : 3;
  }
  {
    // Elements far behind the start, as no program has them.
    Klass& k = add_klass(MERAPI_SHAPE_KIND_OBJ_ARRAY);
    k.shape.header_bytes = header + 8 * uint32_t(random_.next() >> (43 + random_.below(20)));
    k.shape.element_log2 = width == 4 ? 2 : 3;
  }
  {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_INSTANCE);
    uint32_t n = uint32_t(random_.between(200, 2500));
    k.blocks = {{first, n}};
    k.shape.size_words = uint32_t(align(first + n * width) / 8);
  }
  for (uint8_t log2 = 0; log2 <= 3; log2++) {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_PRIM_ARRAY);
    k.shape.header_bytes = header + (log2 == 3 ? 8 * uint32_t(random_.next() >> (43 + random_.below(20))) : 0);
    k.shape.element_log2 = log2;
    k.shape.flags = log2 == 0 ? 0 : 1u << MERAPI_SHAPE_FLAG_QUIET;
  }
  for (uint8_t kind : {MERAPI_SHAPE_KIND_REFERENCE, MERAPI_SHAPE_KIND_LOADER, MERAPI_SHAPE_KIND_HOST}) {
    add_klass(kind).shape.size_words = uint32_t(align(random_.between(48, 1 << 24)) / 8);
  }
  add_klass(MERAPI_SHAPE_KIND_MIRROR);
  for (const Klass& k : klasses_) window_->put_shape(k.shape, k.blocks);
  Klass& absent = add_klass(MERAPI_SHAPE_KIND_NONE);
  absent.shape.size_words = uint32_t(align(32) / 8);
}

// False when it has no room there.
bool WideHeap::place(uint64_t offset, const Klass& k) {
  const WindowShape& s = window_->shape;
  WideObject o;
  o.offset = offset;
  o.klass_word = k.shape.klass_word;
  o.kind = k.shape.kind;
  uint64_t length = 0;
  switch (k.shape.kind) {
    case MERAPI_SHAPE_KIND_OBJ_ARRAY:
      length = random_.percent(8) ? kLongArray : random_.below(kMostElements);
      break;
    case MERAPI_SHAPE_KIND_PRIM_ARRAY:
      length = random_.next() >> (33 + random_.below(31));
      break;
    case MERAPI_SHAPE_KIND_MIRROR:
      o.words = std::min<uint64_t>(
          align(std::max<uint64_t>(s.mirror_size_offset + 8, 8 * (random_.next() >> (32 + random_.below(32))))) / 8,
          (UINT64_C(1) << 32) - 32);
      break;
    default:
      o.words = k.shape.size_words;
  }
  bool array = k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || k.shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY;
  if (array) o.words = align(k.shape.header_bytes + (length << k.shape.element_log2)) / 8;
  uint64_t end = offset + o.words * 8;
  if (end > window_->heap_bytes()) return false;
  auto next = taken_.upper_bound(offset);
  if (next != taken_.end() && next->first < end) return false;
  if (next != taken_.begin() && std::prev(next)->second > offset) return false;
  taken_[offset] = end;
  at_[offset] = objects_.size();
  uint8_t* p = window_->heap() + offset;
  std::memcpy(p + 8, &o.klass_word, s.klass_bytes);
  uint32_t n = uint32_t(length), size = uint32_t(o.words);
  if (array) std::memcpy(p + 8 + s.klass_bytes, &n, 4);
  if (k.shape.kind == MERAPI_SHAPE_KIND_MIRROR) std::memcpy(p + s.mirror_size_offset, &size, 4);
  if (k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) o.references.resize(length);
  if (k.shape.kind == MERAPI_SHAPE_KIND_INSTANCE) {
    for (const merapi_ref_block& b : k.blocks) o.references.resize(o.references.size() + b.count);
  }
  objects_.push_back(o);
  return true;
}

void WideHeap::place_all() {
  const WindowShape& s = window_->shape;
  const uint64_t bytes = window_->heap_bytes();
  // Across every power of two, at it, and behind it.
  for (uint64_t at = 4096; at < bytes; at *= 2) {
    uint64_t step = uint64_t{1} << s.alignment_log2;
    if (random_.percent(60)) place(at - step, klasses_[random_.below(5)]);
    if (random_.percent(60)) place(at, random_.pick(klasses_));
    if (random_.percent(60)) place(at + 4096 + random_.below(16) * step, random_.pick(klasses_));
  }
  // At the beginning of regions: these can be swept.
  for (int i = 0; i < 16; i++) {
    uint64_t start = random_.below(s.regions) << s.region_log2;
    for (int k = 0; k < 3; k++) place(start + align(random_.below(4096)), klasses_[random_.below(5)]);
  }
  // The heap's last object ends with it.
  place(bytes - align(klasses_[0].shape.size_words * 8), klasses_[0]);
  for (size_t tries = 0; objects_.size() < kObjects && tries < 400; tries++) {
    place(align(random_.below(bytes - 4096)), random_.pick(klasses_));
  }
}

bool WideHeap::below(uint64_t offset) const { return offset < window_->limits()[region_of(offset)]; }

void WideHeap::set_limits() {
  const uint64_t region_bytes = window_->region_bytes();
  // Between two sweeps marks of the device reach the window, and the second may find them: objects are scanned twice.
  const bool one = random_.percent(60);
  std::map<uint32_t, std::vector<uint64_t>> by_region;
  for (const WideObject& o : objects_) by_region[region_of(o.offset)].push_back(o.offset);
  for (auto& [region, offsets] : by_region) {
    std::sort(offsets.begin(), offsets.end());
    uint64_t start = uint64_t{region} << window_->shape.region_log2;
    uint64_t last = offsets.back();
    uint64_t limit = start + region_bytes;
    if (random_.percent(25)) {
      limit = random_.pick(offsets);  // it and what lies behind it is above
    } else if (random_.percent(50)) {
      limit = std::min(limit, align(last + 1));
    }
    window_->limits()[region] = limit;
    if (limit - start > kMostSwept || random_.percent(20) || (one && !swept_.empty())) continue;
    swept_.push_back(region);
    for (uint64_t offset : offsets) {
      if (offset >= limit || !random_.percent(50)) continue;
      roots_.insert(offset);
      window_->mark(0, offset);
    }
  }
  for (const WideObject& o : objects_) {
    if (random_.percent(25)) greys_.push_back(address(o.offset));
  }
  for (int i = 0; i < 8; i++) greys_.push_back(some_address());
}

uint64_t WideHeap::some_address() {
  const uint64_t step = uint64_t{1} << window_->shape.alignment_log2;
  const uint64_t valid = address(random_.pick(objects_).offset);
  switch (random_.below(12)) {
    case 0:
      return 0;
    case 1:
      return address(0) - step;
    case 2:
      return address(window_->heap_bytes());
    case 3:  // beyond the heap by one bit
      return valid ^ UINT64_C(1) << random_.between(__builtin_ctzll(window_->heap_bytes()), 63);
    case 4: {  // at a limit, or above it
      uint32_t region = region_of(random_.pick(objects_).offset);
      uint64_t limit = window_->limits()[region], end = (uint64_t{region} + 1) << window_->shape.region_log2;
      if (limit >= end) return 0;
      return address(random_.percent(50) ? limit : limit + random_.below((end - limit) / step) * step);
    }
    case 5: {  // in a region without objects: its limit is its start
      uint64_t offset = align(random_.below(window_->heap_bytes() - step));
      uint64_t start = uint64_t{region_of(offset)} << window_->shape.region_log2;
      return window_->limits()[region_of(offset)] == start ? address(offset) : 0;
    }
    default:
      return valid;
  }
}

void WideHeap::write_references() {
  const WindowShape& s = window_->shape;
  for (WideObject& o : objects_) {
    const Klass& k = *std::find_if(klasses_.begin(), klasses_.end(),
                                   [&](const Klass& x) { return x.shape.klass_word == o.klass_word; });
    std::vector<uint64_t> fields;
    if (o.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
      for (size_t i = 0; i < o.references.size(); i++) fields.push_back(k.shape.header_bytes + i * s.oop_bytes);
    } else if (o.kind == MERAPI_SHAPE_KIND_INSTANCE) {
      for (const merapi_ref_block& b : k.blocks) {
        for (uint32_t i = 0; i < b.count; i++) fields.push_back(b.offset + i * s.oop_bytes);
      }
    }
    for (size_t i = 0; i < fields.size(); i++) {
      // Long arrays hold few references: the trace is about addresses.
      uint64_t to = i > kMostElements && !random_.percent(3) ? 0 : some_address();
      uint64_t distance = (to - s.narrow_base) >> s.narrow_shift;
      bool aligned = ((to - s.narrow_base) & ((UINT64_C(1) << s.narrow_shift) - 1)) == 0;
      if (s.oop_bytes == 4 && (to == 0 || distance > UINT32_MAX || !aligned)) to = 0;
      o.references[i] = to;
      uint64_t value = s.oop_bytes == 8 || to == 0 ? to : distance;
      std::memcpy(window_->heap() + o.offset + fields[i], &value, s.oop_bytes);
    }
  }
}

WideResult WideHeap::trace() const {
  WideResult out;
  std::deque<uint64_t> grey;
  for (uint64_t root : roots_) {
    out.marked.insert(root);
    grey.push_back(root);
  }
  auto offer = [&](uint64_t a) {
    uint64_t offset = a - window_->shape.heap_base;
    if (a == 0) {
      out.nulls++;
    } else if (offset >= window_->heap_bytes()) {
      out.outside++;
    } else if (!below(offset)) {
      out.above++;
    } else if (out.marked.insert(offset).second) {
      out.newly.insert(offset);
      grey.push_back(offset);
    }
  };
  for (uint64_t a : greys_) offer(a);
  while (!grey.empty()) {
    uint64_t offset = grey.front();
    grey.pop_front();
    const WideObject& o = objects_[at_.at(offset)];
    if (out.newly.count(offset) != 0 && o.kind != MERAPI_SHAPE_KIND_NONE) {
      out.live[region_of(offset)] += o.words;
      out.live_words += o.words;
    }
    const Klass& k = *std::find_if(klasses_.begin(), klasses_.end(),
                                   [&](const Klass& x) { return x.shape.klass_word == o.klass_word; });
    if (o.kind != MERAPI_SHAPE_KIND_NONE && (k.shape.flags >> MERAPI_SHAPE_FLAG_QUIET & 1) == 0)
      out.klasses.insert(o.klass_word);
    if (o.kind == MERAPI_SHAPE_KIND_NONE || o.kind >= MERAPI_SHAPE_KIND_REFERENCE) {
      out.deferred.insert(offset);
      continue;
    }
    if (o.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY) continue;
    out.scanned++;
    out.read += o.references.size();
    for (uint64_t a : o.references) offer(a);
  }
  return out;
}

}  // namespace merapi::sim::rtl::test
