// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/border_heap.h"

#include <algorithm>
#include <cstring>

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::Window;
using merapi::sim::test::WindowShape;

void fill_with_junk(void* at, uint64_t bytes, Random* r) {
  for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t junk = r->next();
    std::memcpy(static_cast<uint8_t*>(at) + i, &junk, 8);
  }
}

uint64_t some_heap_base(const WindowShape& s, Random* r) {
  const uint64_t step = uint64_t{1} << s.alignment_log2, bytes = uint64_t{s.regions} << s.region_log2;
  switch (r->below(4)) {
    case 0:
      return 0 - bytes;  // ends with the last of all addresses
    case 1:
      return step * r->between(1, 1000);
    default:
      return (r->next() >> r->between(2, 30)) / step * step + step;
  }
}

uint64_t some_narrow_base(const WindowShape& s, Random* r) {
  const uint64_t step = uint64_t{1} << s.alignment_log2, bytes = uint64_t{s.regions} << s.region_log2;
  switch (r->below(6)) {
    case 0:
      return s.heap_base;
    case 1:
      return s.heap_base - 0x1000;
    case 2:
      return s.heap_base + bytes / 2 / step * step;  // half of the heap has no narrow reference
    case 3:
      return s.heap_base - (r->below(UINT64_C(1) << 31) << s.narrow_shift);  // may wrap: it lies behind the heap then
    case 4:
      return s.heap_base - ((UINT64_C(1) << 32) << s.narrow_shift) + bytes / 2;  // the last narrow one is in the heap
    default:
      return 0;
  }
}

}  // namespace

WindowShape BorderHeap::shape(Random* r) {
  WindowShape s;
  s.oop_bytes = r->percent(50) ? 4 : 8;
  s.klass_bytes = r->percent(50) ? 4 : 8;
  s.alignment_log2 = r->percent(60) ? 3 : uint8_t(r->between(3, 8));
  const uint8_t log2 = r->percent(70) ? 16 : uint8_t(r->between(17, r->percent(15) ? 21 : 18));
  s.region_log2 = std::max(log2, uint8_t(s.alignment_log2 + 9));
  s.regions = uint32_t(s.region_log2 > 18 ? r->between(1, 4) : r->between(1, 20));
  const uint8_t shifts[] = {0, 3, s.alignment_log2, 8, uint8_t(r->below(9))};
  s.narrow_shift = shifts[r->below(5)];
  s.mirror_size_offset = uint32_t(8 + s.klass_bytes + 4 * (r->percent(70) ? r->below(8) : r->below(80)));
  s.shape_slots = 64u << r->below(5);
  s.submission_entries = 64u << r->below(2);
  s.completion_entries = 64u << r->below(2);
  s.spill_bytes = r->percent(60) ? 4096 : 1 << 20;
  s.heap_base = some_heap_base(s, r);
  s.narrow_base = some_narrow_base(s, r);
  return s;
}

BorderHeap::BorderHeap(Window* window, Random* random)
    : window_(*window),
      random_(*random),
      topology_(Topology(random->below(8))),
      crowded_home_(random->below(window->shape.shape_slots)) {
  fill_with_junk(window_.heap(), window_.heap_bytes(), &random_);
  make_klasses();
  put_shapes(&random_);
  fill();
  set_limits();
  write_fields();
}

uint64_t BorderHeap::home(uint64_t k) const {
  const uint32_t folded = uint32_t(k ^ k >> 32);
  return uint32_t(folded * MERAPI_SHAPE_HASH_MULTIPLIER) >> (32 - __builtin_ctz(window_.shape.shape_slots));
}

// One home, or the few before it: chains as long as may be.
uint64_t BorderHeap::near_the_others() {
  uint64_t word = 0;
  for (int i = 0; i < 8192; i++) {
    word = random_.next();
    if (window_.shape.klass_bytes == 4) word &= 0xffffffff;
    if ((crowded_home_ - home(word)) % window_.shape.shape_slots < 3) break;
  }
  return word;
}

uint64_t BorderHeap::some_word() {
  const bool narrow = window_.shape.klass_bytes == 4;
  for (;;) {
    uint64_t word = random_.next();
    switch (random_.below(6)) {
      case 0:
        word = random_.between(1, 600);
        break;
      case 1:
        word = ~random_.below(600);
        break;
      case 2:
        word = word << 32 | (random_.percent(50) ? word & 0xffffffff : 0);  // folds to 0, or has no low half
        if (narrow) word = random_.next();
        break;
      default:
        word = near_the_others();
    }
    if (narrow) word &= 0xffffffff;
    if (word != 0 && word != MERAPI_SHAPE_KEY_TOMBSTONE && words_used_.insert(word).second) return word;
  }
}

void BorderHeap::make_blocks(BorderKlass* k) {
  static const uint32_t counts[] = {0, 1, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 8, 9, 12, 13, 30};
  static const uint32_t lengths[] = {0, 1, 1, 1, 2, 2, 3, 7, 8, 15, 16, 17, 33};
  static const uint32_t gaps[] = {0, 0, 0, 1, 1, 2, 7, 15, 16, 17, 40};
  const uint32_t width = window_.shape.oop_bytes, n = counts[random_.below(17)];
  uint32_t at = (fields() + width - 1) / width * width;
  const bool sparse = random_.percent(50);
  for (uint32_t i = 0; i < n; i++) {
    at += width * gaps[random_.below(sparse ? 11 : 6)];
    if (i + 1 == n && random_.percent(6)) at += width * uint32_t(random_.below(window_.region_bytes() / width));
    const uint32_t count = lengths[random_.below(sparse ? 13 : 6)];
    k->blocks.push_back({at, count});
    k->references += count;
    at += count * width;
  }
  at += random_.percent(50) ? 0 : uint32_t(8 * random_.below(6));
  k->shape.size_words = std::max({2u, (at + 7) / 8, n * width / 8 + 1});
  if (random_.percent(50)) k->shape.size_words = uint32_t(up(k->shape.size_words * 8) / 8);
}

void BorderHeap::make_klass(uint8_t kind) {
  Random& r = random_;
  BorderKlass k;
  merapi_shape& s = k.shape;
  // What a kind does not have says nothing.
  s.element_log2 = uint8_t(r.next());
  s.header_bytes = uint32_t(r.next());
  s.size_words = uint32_t(r.next());
  s.block_count = r.percent(50) ? uint32_t(r.below(9)) : uint32_t(r.next());
  s.extension = r.next();
  for (auto& b : s.block) b = {uint32_t(r.percent(50) ? 4 * r.below(20) : r.next()), uint32_t(r.below(5))};
  s.kind = kind;
  s.klass_word = some_word();
  s.flags = r.percent(20) ? 1u << MERAPI_SHAPE_FLAG_QUIET : 0;
  const uint32_t least = fields() + 4, width = window_.shape.oop_bytes;
  switch (kind) {
    case MERAPI_SHAPE_KIND_INSTANCE:
      make_blocks(&k);
      break;
    case MERAPI_SHAPE_KIND_OBJ_ARRAY:
      s.element_log2 = width == 4 ? 2 : 3;
      s.header_bytes = (least + width - 1) / width * width;
      if (r.percent(50)) s.header_bytes += width * uint32_t(r.below(r.percent(80) ? 20 : 1000));
      obj_arrays_.push_back(klasses_.size());
      break;
    case MERAPI_SHAPE_KIND_PRIM_ARRAY:
      s.element_log2 = uint8_t(r.below(4));
      s.header_bytes = least + uint32_t(r.below(r.percent(70) ? 12 : 300));
      prim_arrays_.push_back(klasses_.size());
      break;
    case MERAPI_SHAPE_KIND_MIRROR:
      break;
    default:
      s.size_words = uint32_t(r.between(2, r.percent(80) ? 12 : 3000));
  }
  klasses_.push_back(k);
}

uint8_t BorderHeap::some_kind() {
  const uint64_t dice = random_.below(100);
  if (dice < 62) return MERAPI_SHAPE_KIND_INSTANCE;
  if (dice < 72) return MERAPI_SHAPE_KIND_OBJ_ARRAY;
  if (dice < 80) return MERAPI_SHAPE_KIND_PRIM_ARRAY;
  if (dice < 84) return MERAPI_SHAPE_KIND_MIRROR;
  return random_.pick(
      std::vector<uint8_t>{MERAPI_SHAPE_KIND_REFERENCE, MERAPI_SHAPE_KIND_LOADER, MERAPI_SHAPE_KIND_HOST});
}

void BorderHeap::make_klasses() {
  make_klass(MERAPI_SHAPE_KIND_OBJ_ARRAY);
  make_klass(MERAPI_SHAPE_KIND_PRIM_ARRAY);
  klasses_[1].shape.element_log2 = 0;  // arrays of bytes end anywhere
  make_klass(MERAPI_SHAPE_KIND_INSTANCE);
  const uint64_t n = random_.percent(40)   ? random_.between(1, 20)
                     : random_.percent(60) ? random_.between(20, 120)
                                           : random_.between(120, 450);
  for (uint64_t i = 0; i < n; i++) {
    make_klass(some_kind());
    if (random_.percent(6)) klasses_.back().has_shape = false;
  }
  if (window_.shape.klass_bytes == 8 && random_.percent(30)) {
    // It has no shape, whatever withdrawn ones look like.
    BorderKlass k;
    k.shape.klass_word = MERAPI_SHAPE_KEY_TOMBSTONE;
    k.shape.size_words = 4;
    k.shape.kind = MERAPI_SHAPE_KIND_HOST;
    k.has_shape = false;
    klasses_.push_back(k);
  }
  for (size_t i = 0; i < klasses_.size() && is_list(); i++) {
    if (klasses_[i].references != 0 && klasses_[i].has_shape && klasses_[i].shape.size_words < 40) link_klass_ = i;
  }
}

// Every slot free, its fields left from anything.
void BorderHeap::empty_table(Random* r) {
  const uint32_t withdrawn = r->percent(30) ? 0 : r->percent(50) ? 100 : uint32_t(r->below(100));
  for (uint64_t i = 0; i < window_.shape.shape_slots; i++) {
    fill_with_junk(&table()[i], sizeof(merapi_shape), r);
    table()[i].klass_word = r->percent(withdrawn) ? MERAPI_SHAPE_KEY_TOMBSTONE : MERAPI_SHAPE_KEY_EMPTY;
  }
}

// False when the extension is full.
bool BorderHeap::put_blocks(const BorderKlass& k, merapi_shape* s, uint64_t* used) {
  s->block_count = uint32_t(k.blocks.size());
  if (s->block_count <= MERAPI_SHAPE_INLINE_BLOCKS) {
    std::copy(k.blocks.begin(), k.blocks.end(), s->block);
    return true;
  }
  const uint64_t bytes = s->block_count * sizeof(merapi_ref_block);
  if (*used + bytes > window_.layout.area[MERAPI_AREA_SHAPE_EXTENSION].size) return false;
  s->extension = *used;
  std::memcpy(window_.area(MERAPI_AREA_SHAPE_EXTENSION) + *used, k.blocks.data(), bytes);
  *used += (bytes + 63) / 64 * 64;
  return true;
}

// In the last slot that a look-up comes to, or any before. False when there is none.
bool BorderHeap::put_shape(const merapi_shape& s, Random* r) {
  std::vector<merapi_shape*> places;
  for (uint64_t p = 0; p < MERAPI_SHAPE_PROBE_LIMIT; p++) {
    merapi_shape* slot = &table()[(home(s.klass_word) + p) % window_.shape.shape_slots];
    const bool empty = slot->klass_word == MERAPI_SHAPE_KEY_EMPTY;
    if (empty || slot->klass_word == MERAPI_SHAPE_KEY_TOMBSTONE) places.push_back(slot);
    if (empty) break;
  }
  if (places.empty()) return false;
  *(r->percent(50) ? places.back() : r->pick(places)) = s;
  return true;
}

void BorderHeap::put_shapes(Random* r) {
  empty_table(r);
  uint64_t used = 64 * r->below(4);
  std::vector<size_t> order(klasses_.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[r->below(i)]);
  for (size_t i : order) {
    BorderKlass& k = klasses_[i];
    if (!k.has_shape) continue;
    merapi_shape s = k.shape;
    k.has_shape = (s.kind != MERAPI_SHAPE_KIND_INSTANCE || put_blocks(k, &s, &used)) && put_shape(s, r);
  }
}

void BorderHeap::publish(Random* r) {
  const auto klasses = klasses_;
  const int areas[] = {MERAPI_AREA_SHAPES, MERAPI_AREA_SHAPE_EXTENSION};
  std::vector<std::vector<uint8_t>> was;
  for (int a : areas) was.emplace_back(window_.area(a), window_.area(a) + window_.layout.area[a].size);
  put_shapes(r);
  // In another order there may be no room for one of them: then all stays as it was.
  const bool all = std::equal(klasses.begin(), klasses.end(), klasses_.begin(),
                              [](auto& x, auto& y) { return x.has_shape == y.has_shape; });
  if (all) return;
  klasses_ = klasses;
  for (int i : {0, 1}) std::memcpy(window_.area(areas[i]), was[i].data(), was[i].size());
}

uint64_t BorderHeap::words_of(const BorderKlass& k, uint64_t length, uint64_t mirror) const {
  if (is_array(k.shape)) return up(k.shape.header_bytes + (length << k.shape.element_log2)) / 8;
  return k.shape.kind == MERAPI_SHAPE_KIND_MIRROR ? mirror : k.shape.size_words;
}

// False when it has more than `most` bytes.
bool BorderHeap::place(uint64_t at, size_t klass, uint64_t length, uint64_t most) {
  const BorderKlass& k = klasses_[klass];
  const uint32_t mirror = uint32_t((window_.shape.mirror_size_offset + 4 + 7) / 8 + random_.below(8));
  const BorderObject o{at, words_of(k, length, mirror), klass, length};
  if (o.words * 8 > most) return false;
  uint8_t* p = window_.heap() + at;
  std::memcpy(p + 8, &k.shape.klass_word, window_.shape.klass_bytes);
  if (is_array(k.shape)) {
    const uint32_t n = uint32_t(length);
    std::memcpy(p + fields(), &n, 4);
  }
  if (k.shape.kind == MERAPI_SHAPE_KIND_MIRROR) std::memcpy(p + window_.shape.mirror_size_offset, &mirror, 4);
  objects_.push_back(o);
  return true;
}

// An array over one or more regions, from a region's start on.
bool BorderHeap::place_over_regions(uint64_t at) {
  Random& r = random_;
  const uint64_t first = region_of(at), bytes = window_.region_bytes();
  const uint64_t count = std::min<uint64_t>(r.between(1, 5), window_.shape.regions - first);
  const uint64_t left = r.percent(40) ? 0 : r.percent(50) ? bytes - step() : r.below(bytes / step()) * step();
  const uint64_t to = start(first + count) - left;
  const size_t k = r.percent(70) ? r.pick(obj_arrays_) : r.pick(prim_arrays_);
  const merapi_shape& s = klasses_[k].shape;
  if (to <= at + s.header_bytes + 64) return false;
  const uint64_t length = (to - at - s.header_bytes) >> s.element_log2;
  return length < (1u << 31) && place(at, k, length, window_.heap_bytes() - at);
}

// In this region, up to its `border`, or beyond it.
bool BorderHeap::place_some(uint64_t at, uint64_t border, bool straddle) {
  static const uint64_t lengths[] = {0, 0, 1, 1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 31, 64, 65, 300};
  Random& r = random_;
  const uint64_t end = window_.heap_bytes(), header = klasses_[1].shape.header_bytes;
  if (r.percent(border - at < 512 ? 50 : 2) && border - at > header) {
    if (place(at, 1, border - at - header, end - at)) return true;  // ends with the region
  }
  for (int i = 0; i < 6; i++) {
    const size_t k = link_klass_ && r.percent(97) ? *link_klass_ : r.below(klasses_.size());
    const uint64_t most = (straddle && r.percent(20) ? end : border) - at;
    const uint64_t length = lengths[r.below(r.percent(90) ? 14 : 19)];
    if (place(at, k, length, most)) return true;
  }
  return place_exactly(at, border - at);
}

bool BorderHeap::place_exactly(uint64_t at, uint64_t bytes) {
  for (size_t k = 0; k < klasses_.size(); k++) {
    const merapi_shape& s = klasses_[k].shape;
    if (s.kind == MERAPI_SHAPE_KIND_INSTANCE && s.size_words * uint64_t{8} == bytes && place(at, k, 0, bytes)) {
      return true;
    }
  }
  return false;
}

void BorderHeap::fill() {
  Random& r = random_;
  const uint64_t end = window_.heap_bytes(), bytes = window_.region_bytes();
  uint64_t at = r.percent(80) ? 0 : step() * r.below(bytes / step());
  const size_t most = r.percent(70) ? 700 : 2500;
  const bool straddle = r.percent(25);
  uint64_t stop = 0;  // in this region nothing is placed from here on
  uint32_t entered = ~0u;
  while (at < end) {
    const uint32_t region = region_of(at);
    const uint64_t border = start(region + uint64_t{1});
    if (region != entered) {
      entered = region;
      stop = start(region) + (r.percent(40) ? bytes : r.below(bytes));
      if (r.percent(12)) stop = at;
      if (at == start(region) && r.percent(15) && place_over_regions(at)) {
        at = end_of(objects_.back());
        entered = region_of(at - 1);
        stop = r.percent(50) ? at : start(entered + uint64_t{1});
        continue;
      }
    }
    if (at >= stop || objects_.size() >= most) {
      at = border;
    } else if (r.percent(4)) {
      at += step() * r.between(1, 20);
    } else {
      at = place_some(at, border, straddle) ? end_of(objects_.back()) : border;
    }
  }
  // One at least: a small instance, or else an array without an element.
  if (objects_.empty()) place(0, 2, 0, end);
  if (objects_.empty()) place(0, 1, 0, end);
}

uint64_t BorderHeap::limit_beside(const std::vector<const BorderObject*>& objects, uint32_t region) {
  const BorderObject &o = *random_.pick(objects), &top = *objects.back();
  switch (random_.below(7)) {
    case 0:
      return start(region);
    case 1:
      return o.at;
    case 2:
      return o.at + step();
    case 3:
      return end_of(o);
    case 4:
      return top.at + step();
    case 5:
      return start(region + uint64_t{1});
    default:
      return end_of(top);
  }
}

void BorderHeap::set_limits() {
  std::vector<std::vector<const BorderObject*>> of(window_.shape.regions);
  for (const BorderObject& o : objects_) of[region_of(o.at)].push_back(&o);
  const bool full = random_.percent(40);
  for (uint32_t i = 0; i < window_.shape.regions; i++) {
    const uint64_t last = start(i + uint64_t{1});
    uint64_t limit = start(i);
    if (of[i].empty()) {
      if (random_.percent(50)) limit += random_.below(window_.region_bytes() / step() + 1) * step();
    } else if (full && random_.percent(90)) {
      limit = last;
    } else {
      limit = limit_beside(of[i], i);
    }
    // Above the first ones there are references to what is no object.
    if (ceiling_.size() <= i) ceiling_.push_back(std::min(limit, last));
    window_.limits()[i] = std::min(limit, ceiling_[i]);
  }
}

bool BorderHeap::store(uint64_t field, uint64_t address) {
  const WindowShape& s = window_.shape;
  if (s.oop_bytes == 8) {
    std::memcpy(window_.heap() + field, &address, 8);
    return true;
  }
  const uint64_t distance = address - s.narrow_base, units = distance >> s.narrow_shift;
  const bool encodes = address != 0 && units != 0 && units <= UINT32_MAX && units << s.narrow_shift == distance;
  const uint32_t narrow = encodes ? uint32_t(units) : 0;
  std::memcpy(window_.heap() + field, &narrow, 4);
  return encodes;
}

uint64_t BorderHeap::any_address() {
  Random& r = random_;
  const uint64_t bytes = window_.heap_bytes();
  switch (r.below(12)) {
    case 0:
      return 0;
    case 1:
      return address(0) - step();
    case 2:
      return address(bytes);
    case 3:
      return address(bytes) + r.below(1000);  // crooked, but outside
    case 4:
      return address(0) - 1 - r.below(1000);
    case 5:
      return address(0) ^ (UINT64_C(1) << r.between(32, 63));
    case 6: {
      const uint32_t i = uint32_t(r.below(window_.shape.regions));
      const uint64_t limit = window_.limits()[i], room = start(i + uint64_t{1}) - limit;
      return room == 0 ? 0 : address(limit + r.below(room / step()) * step());
    }
    default:
      return address(r.pick(objects_).at);
  }
}

uint64_t BorderHeap::target(size_t from) {
  const size_t n = objects_.size();
  if (random_.percent(8)) return any_address();
  size_t to = from;
  switch (random_.percent(70) ? topology_ : Topology(random_.below(7))) {
    case Topology::kSelf:
      break;
    case Topology::kNext:
      to = (from + 1) % n;
      break;
    case Topology::kPrevious:
      to = (from + n - 1) % n;
      break;
    case Topology::kSameLine: {  // if there is another one
      const bool next = from + 1 < n && objects_[from + 1].at / 64 == objects_[from].at / 64;
      to = next ? from + 1 : from == 0 ? 0 : from - 1;
      break;
    }
    case Topology::kOneForAll:
      to = n / 2;
      break;
    case Topology::kFarAway:  // region by region
      to = (from + n / std::max<size_t>(2, window_.shape.regions)) % n;
      break;
    default:
      to = random_.below(n);
  }
  return address(objects_[to].at);
}

// Of a list's link: the next one up or down the heap, else hardly anything.
uint64_t BorderHeap::link_target(size_t from, bool down, bool is_link) {
  if (!is_link) return random_.percent(97) ? 0 : target(from);
  if (random_.percent(1)) return target(from);
  const size_t next = down ? from - 1 : from + 1;  // of the first one down: not an index
  return next < objects_.size() ? address(objects_[next].at) : 0;
}

std::vector<uint64_t> BorderHeap::fields_of(const BorderObject& o) const {
  std::vector<uint64_t> all;
  const BorderKlass& k = klasses_[o.klass];
  const uint64_t width = window_.shape.oop_bytes;
  if (!k.has_shape) return all;
  if (k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
    for (uint64_t i = 0; i < o.length; i++) all.push_back(o.at + k.shape.header_bytes + i * width);
  }
  for (const merapi_ref_block& b : k.blocks) {
    for (uint32_t i = 0; i < b.count; i++) all.push_back(o.at + b.offset + i * width);
  }
  return all;
}

void BorderHeap::write_fields() {
  const uint64_t link = link_klass_ ? random_.below(klasses_[*link_klass_].references) : 0;
  const bool down = random_.percent(50);
  const uint32_t usual = random_.percent(50) ? 20 : 70;
  for (size_t i = 0; i < objects_.size(); i++) {
    const BorderObject& o = objects_[i];
    const std::vector<uint64_t> all = fields_of(o);
    const uint32_t nulls = o.length > 2000 ? 97 : usual;
    for (size_t f = 0; f < all.size(); f++) {
      if (link_klass_ == o.klass) {
        store(all[f], link_target(i, down, f == link));
      } else {
        store(all[f], random_.percent(nulls) ? 0 : target(i));
      }
    }
  }
}

std::vector<uint64_t> BorderHeap::answer(uint64_t key) {
  auto [it, fresh] = answers_.try_emplace(key);
  if (fresh) {
    Random r(key ^ 0x5a5a);  // the same one whenever it is asked
    for (uint64_t n = r.below(4); n != 0; n--) it->second.push_back(address(r.pick(objects_).at));
  }
  return it->second;
}

}  // namespace merapi::sim::rtl::test
