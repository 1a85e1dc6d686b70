// SPDX-License-Identifier: Apache-2.0
#include "sim/test/heap_maker.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace merapi::sim::test {

HeapMaker::HeapMaker(Window* window, Random* random, Topology topology)
    : window_(*window), random_(*random), topology_(topology) {}

uint64_t HeapMaker::align(uint64_t bytes) const {
  uint64_t a = uint64_t{1} << window_.shape.alignment_log2;
  return (bytes + a - 1) / a * a;
}

HeapMaker::Klass& HeapMaker::add_klass(uint8_t kind) {
  Klass k;
  k.shape.kind = kind;
  do {
    k.shape.klass_word =
        window_.shape.klass_bytes == 4 ? random_.between(1, UINT32_MAX) & ~UINT64_C(7) : random_.next();
  } while (k.shape.klass_word == 0 || k.shape.klass_word == MERAPI_SHAPE_KEY_TOMBSTONE ||
           by_word_.count(k.shape.klass_word) != 0);
  by_word_[k.shape.klass_word] = klasses_.size();
  klasses_.push_back(k);
  return klasses_.back();
}

// `count` blocks of up to `most` references each, ascending, with gaps.
void HeapMaker::spread_blocks(Klass* k, uint32_t count, uint32_t most) {
  uint32_t width = window_.shape.oop_bytes;
  uint32_t at = (8 + window_.shape.klass_bytes + width - 1) / width * width;
  for (uint32_t i = 0; i < count; i++) {
    at += width * uint32_t(random_.below(3));
    uint32_t n = uint32_t(random_.between(1, most));
    k->blocks.push_back({at, n});
    at += n * width;
  }
  k->shape.size_words = uint32_t(align(at + width * random_.below(3)) / 8);
}

void HeapMaker::make_klasses() {
  const WindowShape& w = window_.shape;
  uint32_t small = uint32_t(align(32) / 8);
  for (int i = 0; i < 3; i++)
    add_klass(MERAPI_SHAPE_KIND_INSTANCE).shape.size_words = small + i * uint32_t(align(8) / 8);
  element_ = klasses_.size();
  for (int i = 0; i < 4; i++) spread_blocks(&add_klass(MERAPI_SHAPE_KIND_INSTANCE), 1, 4);
  for (int i = 0; i < 4; i++) spread_blocks(&add_klass(MERAPI_SHAPE_KIND_INSTANCE), uint32_t(2 + i % 3), 3);
  for (int i = 0; i < 2; i++)
    spread_blocks(&add_klass(MERAPI_SHAPE_KIND_INSTANCE), uint32_t(random_.between(5, 12)), 3);
  spread_blocks(&add_klass(MERAPI_SHAPE_KIND_INSTANCE), 3, 400);  // may be scanned in part
  uint32_t header = w.klass_bytes == 4 ? 16 : 24;
  {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_OBJ_ARRAY);
    k.shape.header_bytes = header;
    k.shape.element_log2 = w.oop_bytes == 4 ? 2 : 3;
  }
  for (uint8_t log2 = 0; log2 <= 3; log2++) {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_PRIM_ARRAY);
    k.shape.header_bytes = header;
    k.shape.element_log2 = log2;
    k.shape.flags = 1u << MERAPI_SHAPE_FLAG_QUIET;
  }
  for (uint8_t kind : {MERAPI_SHAPE_KIND_REFERENCE, MERAPI_SHAPE_KIND_LOADER, MERAPI_SHAPE_KIND_HOST}) {
    add_klass(kind).shape.size_words = uint32_t(align(48) / 8);
  }
  add_klass(MERAPI_SHAPE_KIND_MIRROR);
  for (int i = 0; i < 2; i++) {
    Klass& k = add_klass(MERAPI_SHAPE_KIND_INSTANCE);
    k.shape.size_words = small;
    k.has_shape = false;
  }
  for (Klass& k : klasses_) {
    if (k.has_shape) window_.put_shape(k.shape, k.blocks);
  }
}

void HeapMaker::redefine() {
  const size_t which = random_.below(klasses_.size());
  const Klass& k = klasses_[which];
  if (!k.has_shape) return;
  merapi_shape s = k.shape;
  std::vector<merapi_ref_block> blocks = k.blocks;
  window_.withdraw_shape(s.klass_word);
  withdrawn_.insert(which);
  if (random_.percent(25)) return;
  withdrawn_.erase(which);
  const bool of_host =
      s.kind == MERAPI_SHAPE_KIND_REFERENCE || s.kind == MERAPI_SHAPE_KIND_LOADER || s.kind == MERAPI_SHAPE_KIND_HOST;
  if (of_host || (s.kind == MERAPI_SHAPE_KIND_INSTANCE && random_.percent(25))) {
    constexpr uint8_t kKinds[] = {MERAPI_SHAPE_KIND_REFERENCE, MERAPI_SHAPE_KIND_LOADER, MERAPI_SHAPE_KIND_HOST};
    s.kind = kKinds[random_.below(std::size(kKinds))];
    blocks.clear();
  }
  for (uint64_t cuts = random_.below(8); cuts != 0 && !blocks.empty(); cuts--) {
    const size_t i = random_.below(blocks.size());
    const uint32_t first = uint32_t(random_.below(blocks[i].count));
    if (first == 0) continue;
    const merapi_ref_block rest{blocks[i].offset + first * window_.shape.oop_bytes, blocks[i].count - first};
    blocks[i].count = first;
    blocks.insert(blocks.begin() + long(i) + 1, rest);
  }
  window_.put_shape(s, blocks);
}

void HeapMaker::publish_again() {
  if (withdrawn_.empty()) return;
  const size_t which = *std::next(withdrawn_.begin(), long(random_.below(withdrawn_.size())));
  withdrawn_.erase(which);
  window_.put_shape(klasses_[which].shape, klasses_[which].blocks);
}

uint64_t HeapMaker::array_words(const Klass& k, uint64_t length) const {
  return align(k.shape.header_bytes + (length << k.shape.element_log2)) / 8;
}

// Write mark word, klass word, length and size; returns the offset behind the object.
uint64_t HeapMaker::place(uint64_t offset, const Klass& k, uint64_t length) {
  uint8_t* p = window_.heap() + offset;
  uint64_t mark_word = random_.next();
  std::memcpy(p, &mark_word, 8);
  std::memcpy(p + 8, &k.shape.klass_word, window_.shape.klass_bytes);
  MadeObject o;
  o.offset = offset;
  o.klass_word = k.shape.klass_word;
  switch (k.shape.kind) {
    case MERAPI_SHAPE_KIND_OBJ_ARRAY:
    case MERAPI_SHAPE_KIND_PRIM_ARRAY: {
      uint32_t n = uint32_t(length);
      std::memcpy(p + 8 + window_.shape.klass_bytes, &n, sizeof n);
      o.words = array_words(k, length);
      o.primitive = k.shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY;
      break;
    }
    case MERAPI_SHAPE_KIND_MIRROR: {
      uint32_t words = uint32_t(align(window_.shape.mirror_size_offset + 4 + 8 * random_.below(6)) / 8);
      std::memcpy(p + window_.shape.mirror_size_offset, &words, sizeof words);
      o.words = words;
      break;
    }
    default:
      o.words = k.shape.size_words;
  }
  at_[offset] = objects_.size();
  objects_.push_back(o);
  return offset + o.words * 8;
}

void HeapMaker::fill_region(uint32_t region) {
  uint64_t at = uint64_t{region} << window_.shape.region_log2;
  uint64_t end = at + window_.region_bytes();
  uint64_t stop = random_.percent(30) ? end : at + random_.below(window_.region_bytes());
  int misses = 0;
  while (at < stop && misses < 8) {
    const Klass& k = in_list(region) && random_.percent(98) ? klasses_[element_] : random_.pick(klasses_);
    uint64_t length = random_.percent(5) ? random_.below(1500) : random_.below(12);
    bool array = k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || k.shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY;
    uint64_t most = array                                      ? array_words(k, length) * 8
                    : k.shape.kind == MERAPI_SHAPE_KIND_MIRROR ? align(window_.shape.mirror_size_offset + 4 + 40)
                                                               : k.shape.size_words * uint64_t{8};
    if (most > end - at) {
      misses++;
      continue;
    }
    at = place(at, k, length);
  }
  // Sometimes the last object ends with the region (and in the last region with the heap).
  if (stop == end && end - at >= align(32)) {
    const Klass& bytes =
        klasses_[by_word_.at(std::find_if(klasses_.begin(), klasses_.end(), [](const Klass& k) {
                               return k.shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY && k.shape.element_log2 == 0;
                             })->shape.klass_word)];
    at = place(at, bytes, end - at - bytes.shape.header_bytes);
  }
  region_top_[region] = at;
}

// One array over one or more whole regions; returns how many it took.
uint32_t HeapMaker::humongous(uint32_t region) {
  uint32_t count = uint32_t(random_.between(1, std::min<uint64_t>(3, window_.shape.regions - region)));
  std::vector<const Klass*> arrays;
  for (const Klass& k : klasses_) {
    if (k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || k.shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY)
      arrays.push_back(&k);
  }
  const Klass& k = *random_.pick(arrays);
  uint64_t start = uint64_t{region} << window_.shape.region_log2;
  uint64_t bytes =
      (count - 1) * window_.region_bytes() + random_.between(window_.region_bytes() / 2 + 64, window_.region_bytes());
  uint64_t end = place(start, k, (bytes - k.shape.header_bytes) >> k.shape.element_log2);
  objects_.back().humongous = true;
  for (uint32_t i = 0; i < count; i++) {
    region_top_[region + i] = std::min(end, start + (i + 1) * window_.region_bytes());
  }
  return count;
}

void HeapMaker::set_limits() {
  std::vector<std::vector<uint64_t>> borders(window_.shape.regions);
  for (const MadeObject& o : objects_) borders[o.offset >> window_.shape.region_log2].push_back(o.offset);
  for (uint32_t r = 0; r < window_.shape.regions; r++) {
    uint64_t limit = region_top_[r];
    bool whole = borders[r].size() == 1;  // perhaps humongous: its limit is its top, as in G1
    if (!whole && !borders[r].empty() && random_.percent(30)) limit = random_.pick(borders[r]);
    window_.limits()[r] = limit;
  }
  for (size_t i = 0; i < objects_.size(); i++) {
    objects_[i].below_limit = objects_[i].offset < window_.limits()[objects_[i].offset >> window_.shape.region_log2];
    if (objects_[i].below_limit) below_.push_back(i);
  }
}

uint64_t HeapMaker::any_address() {
  uint64_t step = uint64_t{1} << window_.shape.alignment_log2;
  switch (random_.below(16)) {
    case 0:
      return 0;
    case 1:
      return address(0) - step;  // just below the heap
    case 2:
      return address(window_.heap_bytes());  // just behind it
    case 3: {
      // At a limit; where that is the inside of an array over several regions, no program has a reference.
      uint64_t limit = window_.limits()[random_.below(window_.shape.regions)];
      bool inside = limit < window_.heap_bytes() && limit < window_.limits()[limit >> window_.shape.region_log2];
      return inside && at_.count(limit) == 0 ? 0 : address(limit);
    }
    case 4: {
      // Above a limit, where there may be no object at all.
      uint32_t r = uint32_t(random_.below(window_.shape.regions));
      uint64_t end = uint64_t{r + 1} << window_.shape.region_log2;
      uint64_t limit = window_.limits()[r];
      return limit >= end ? 0 : address(limit + random_.below((end - limit) / step) * step);
    }
    case 5:
      return random_.percent(50) ? window_.shape.heap_base + (uint64_t{1} << 46) : step;
    default:
      return below_.empty() ? 0 : address(objects_[random_.pick(below_)].offset);
  }
}

uint64_t HeapMaker::target(size_t from) {
  if (random_.percent(20)) return 0;
  if (random_.percent(10)) return any_address();
  size_t n = objects_.size(), to = from;
  switch (topology_) {
    case Topology::kRandom:
    case Topology::kList:
      to = random_.below(n);
      break;
    case Topology::kChainUp:
      to = (from + 1) % n;
      break;
    case Topology::kChainDown:
      to = (from + n - 1) % n;
      break;
    case Topology::kNear:
      to = (from + n + random_.below(9) - 4) % n;
      break;
    case Topology::kHub:
      to = random_.below(std::min<size_t>(n, 5));
      break;
  }
  return address(objects_[to].offset);
}

void HeapMaker::store_reference(uint64_t field, uint64_t addr) {
  const WindowShape& w = window_.shape;
  if (w.oop_bytes == 8) {
    std::memcpy(window_.heap() + field, &addr, 8);
    return;
  }
  uint32_t narrow = 0;
  uint64_t distance = addr - w.narrow_base;
  bool encodes = addr != 0 && addr >= w.narrow_base && (distance >> w.narrow_shift) <= UINT32_MAX &&
                 (distance & ((uint64_t{1} << w.narrow_shift) - 1)) == 0;
  if (encodes) narrow = uint32_t(distance >> w.narrow_shift);
  std::memcpy(window_.heap() + field, &narrow, 4);
}

uint64_t HeapMaker::load_reference(uint64_t field) const {
  const WindowShape& w = window_.shape;
  if (w.oop_bytes == 8) {
    uint64_t addr;
    std::memcpy(&addr, window_.heap() + field, sizeof addr);
    return addr;
  }
  uint32_t narrow;
  std::memcpy(&narrow, window_.heap() + field, sizeof narrow);
  return narrow == 0 ? 0 : w.narrow_base + (uint64_t{narrow} << w.narrow_shift);
}

std::vector<uint64_t> HeapMaker::fields_of(const MadeObject& o) const {
  const Klass& k = klasses_[by_word_.at(o.klass_word)];
  const uint32_t width = window_.shape.oop_bytes;
  std::vector<uint64_t> fields;
  auto add = [&](uint64_t from, uint64_t count) {
    for (uint64_t e = 0; e < count; e++) fields.push_back(o.offset + from + e * width);
  };
  if (k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
    uint32_t length;
    std::memcpy(&length, window_.heap() + o.offset + 8 + window_.shape.klass_bytes, sizeof length);
    add(k.shape.header_bytes, length);
  } else if (k.shape.kind == MERAPI_SHAPE_KIND_INSTANCE) {
    for (const merapi_ref_block& b : k.blocks) add(b.offset, b.count);
  }
  return fields;
}

bool HeapMaker::is_scanned(const MadeObject& o) const {
  const Klass& k = klasses_[by_word_.at(o.klass_word)];
  return k.has_shape && (k.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || k.shape.kind == MERAPI_SHAPE_KIND_INSTANCE);
}

bool HeapMaker::is_reported(uint64_t klass_word) const {
  const Klass& k = klasses_[by_word_.at(klass_word)];
  return k.has_shape && (k.shape.flags >> MERAPI_SHAPE_FLAG_QUIET & 1) == 0;
}

void HeapMaker::write_fields() {
  for (size_t i = 0; i < objects_.size(); i++) {
    const MadeObject& o = objects_[i];
    // A list goes its way alone: what an element has besides its link is as a rule nothing.
    for (uint64_t field : fields_of(o)) store_reference(field, in_list(o) && !random_.percent(2) ? 0 : target(i));
  }
  if (topology_ == Topology::kList) link_list();
}

bool HeapMaker::in_list(const MadeObject& o) const {
  return in_list(uint32_t(o.offset >> window_.shape.region_log2)) &&
         o.klass_word == klasses_[element_].shape.klass_word;
}

void HeapMaker::link_list() {
  const merapi_ref_block& block = klasses_[element_].blocks.front();
  uint64_t link = block.offset + random_.below(block.count) * window_.shape.oop_bytes;
  std::vector<uint64_t> elements;
  for (const MadeObject& o : objects_) {
    if (in_list(o)) elements.push_back(o.offset);
  }
  if (elements.empty()) return;
  if (random_.percent(50)) std::reverse(elements.begin(), elements.end());
  bool ring = random_.percent(30);
  for (size_t i = 0; i < elements.size(); i++) {
    bool last = i + 1 == elements.size();
    if (random_.percent(1)) continue;
    store_reference(elements[i] + link, last && !ring ? 0 : address(elements[last ? 0 : i + 1]));
  }
}

void HeapMaker::make() {
  make_klasses();
  // What lies between and above objects is garbage, and must not matter.
  for (uint64_t at = 0; at < window_.heap_bytes(); at += 8) {
    uint64_t junk = random_.next();
    std::memcpy(window_.heap() + at, &junk, 8);
  }
  region_top_.assign(window_.shape.regions, 0);
  for (uint32_t r = 0; r < window_.shape.regions;) {
    uint64_t dice = random_.below(100);
    region_top_[r] = uint64_t{r} << window_.shape.region_log2;
    if (dice < 15) {
      r += humongous(r);
    } else {
      if (dice < 85) fill_region(r);
      r++;
    }
  }
  if (objects_.empty()) fill_region(0);
  set_limits();
  write_fields();
}

void HeapMaker::mark_some(uint32_t which, uint32_t percent, size_t most) {
  for (size_t i : below_) {
    if (!random_.percent(percent) || most == 0) continue;
    window_.mark(int(which), objects_[i].offset);
    most--;
  }
}

std::vector<uint64_t> HeapMaker::answer(uint64_t key) {
  auto [it, fresh] = answers_.try_emplace(key);
  if (fresh) {
    for (uint64_t n = random_.below(4); n != 0; n--) it->second.push_back(any_address());
  }
  return it->second;
}

const MadeObject* HeapMaker::object_at(uint64_t offset) const {
  auto it = at_.find(offset);
  return it == at_.end() ? nullptr : &objects_[it->second];
}

}  // namespace merapi::sim::test
