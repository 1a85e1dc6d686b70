// SPDX-License-Identifier: Apache-2.0
#include "sim/test/closure.h"

#include <cstring>
#include <deque>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace merapi::sim::test {
namespace {

// Reads the window as docs/contract.md describes it.
class Reader {
 public:
  explicit Reader(const ClosureInput& in) : config(in.config), in_(in) {
    heap_bytes = uint64_t{config.region_count} << config.region_log2;
  }

  template <typename T>
  T get(int area, uint64_t offset) const {
    if (offset + sizeof(T) > in_.area_bytes[area]) throw std::runtime_error("an object ends beyond the heap");
    T value;
    std::memcpy(&value, in_.area[area] + offset, sizeof value);
    return value;
  }
  template <typename T>
  T heap(uint64_t offset) const {
    return get<T>(MERAPI_AREA_HEAP, offset);
  }
  uint64_t limit_of(uint64_t offset) const {
    return get<uint64_t>(MERAPI_AREA_LIMITS, (offset >> config.region_log2) * 8);
  }
  bool bit(uint64_t offset) const {
    uint64_t n = offset >> config.alignment_log2;
    return (in_.bitmap[n / 8] >> (n % 8) & 1) != 0;
  }
  // The address in a reference field; nothing when it is null. A narrow one that is not null may say address 0.
  std::optional<uint64_t> reference(uint64_t field) const {
    const uint64_t value = config.oop_bytes == 8 ? heap<uint64_t>(field) : heap<uint32_t>(field);
    if (value == 0) return std::nullopt;
    return config.oop_bytes == 8 ? value : config.narrow_oop_base + (value << config.narrow_oop_shift);
  }
  uint64_t klass(uint64_t object) const {
    return config.klass_bytes == 8 ? heap<uint64_t>(object + 8) : heap<uint32_t>(object + 8);
  }
  // Any slot with this key: where it is does not matter here.
  const merapi_shape* shape(uint64_t klass_word) {
    auto [it, fresh] = shapes_.try_emplace(klass_word);
    if (fresh) {
      for (uint64_t at = 0; at < in_.area_bytes[MERAPI_AREA_SHAPES]; at += sizeof(merapi_shape)) {
        auto s = get<merapi_shape>(MERAPI_AREA_SHAPES, at);
        if (s.klass_word == klass_word) it->second = s;
      }
    }
    if (klass_word == MERAPI_SHAPE_KEY_TOMBSTONE) return nullptr;
    return it->second.klass_word == klass_word ? &it->second : nullptr;
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
  // Call `each` with every reference field of an object.
  template <typename F>
  void fields(uint64_t object, const merapi_shape& s, F each) const {
    if (s.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
      uint64_t length = heap<uint32_t>(object + 8 + config.klass_bytes);
      for (uint64_t i = 0; i < length; i++) each(object + s.header_bytes + i * config.oop_bytes);
    }
    if (s.kind != MERAPI_SHAPE_KIND_INSTANCE) return;
    for (uint32_t b = 0; b < s.block_count; b++) {
      merapi_ref_block block;
      if (s.block_count <= MERAPI_SHAPE_INLINE_BLOCKS) {
        block = s.block[b];
      } else {
        block = get<merapi_ref_block>(MERAPI_AREA_SHAPE_EXTENSION, s.extension + b * sizeof block);
      }
      for (uint32_t i = 0; i < block.count; i++) each(object + block.offset + i * config.oop_bytes);
    }
  }

  const merapi_config config;
  uint64_t heap_bytes;

 private:
  const ClosureInput& in_;
  std::map<uint64_t, merapi_shape> shapes_;
};

}  // namespace

ClosureInput ClosureInput::of_window(const uint8_t* base, uint32_t bitmap) {
  ClosureInput in;
  std::memcpy(&in.config, base + MERAPI_CONFIG_OFFSET, sizeof in.config);
  merapi_directory directory;
  std::memcpy(&directory, base + MERAPI_DIRECTORY_OFFSET, sizeof directory);
  for (uint32_t i = 0; i < MERAPI_AREA_COUNT; i++) {
    in.area[i] = base + directory.area[i].offset;
    in.area_bytes[i] = directory.area[i].size;
  }
  in.bitmap = in.area[MERAPI_AREA_BITMAP0 + bitmap];
  return in;
}

Closure naive_closure(const ClosureInput& in) {
  Reader window(in);
  const int log2 = window.config.alignment_log2;
  const uint64_t step = uint64_t{1} << log2;
  Closure out;
  out.marked.resize(window.heap_bytes >> log2);
  out.newly.resize(window.heap_bytes >> log2);
  std::deque<uint64_t> grey;

  for (uint64_t at = 0; at < window.heap_bytes; at += step) {
    if (!window.bit(at) || at >= window.limit_of(at)) continue;
    out.marked[at >> log2] = true;
    out.marked_count++;
    if (in.commanded.count(uint32_t(at >> window.config.region_log2)) != 0) grey.push_back(at);
  }
  auto offer = [&](uint64_t address) {
    if (address < window.config.heap_base || address - window.config.heap_base >= window.heap_bytes) return;
    uint64_t offset = address - window.config.heap_base;
    if (offset % step != 0) throw std::runtime_error("a reference is misaligned");
    if (offset >= window.limit_of(offset)) return;
    if (out.marked[offset >> log2]) return;
    out.marked[offset >> log2] = true;
    out.newly[offset >> log2] = true;
    out.marked_count++;
    out.newly_count++;
    grey.push_back(offset);
  };
  auto submit = [&](const std::vector<uint64_t>& greys) {
    for (uint64_t address : greys) {
      if (address != 0) offer(address);
    }
  };
  submit(in.submitted);

  while (!grey.empty()) {
    uint64_t object = grey.front();
    grey.pop_front();
    bool counts = out.newly[object >> log2];
    const merapi_shape* shape = window.shape(window.klass(object));
    if (shape != nullptr && counts) {
      uint64_t words = window.words(object, *shape);
      out.live[uint32_t(object >> window.config.region_log2)] += words;
      out.counts.live_words += words;
    }
    if (shape == nullptr) out.counts.shapeless.insert(window.klass(object));
    out.counts.sized += shape != nullptr;
    bool quiet = shape != nullptr && (shape->flags >> MERAPI_SHAPE_FLAG_QUIET & 1) != 0;
    if (shape != nullptr && !quiet && out.klasses.insert(shape->klass_word).second) {
      submit(in.answer_klass(shape->klass_word));
    }
    if (shape == nullptr || shape->kind >= MERAPI_SHAPE_KIND_REFERENCE) {
      out.deferred.insert(object);
      if (shape == nullptr && counts) out.unsized.insert(object);
      submit(in.answer_object(window.config.heap_base + object));
      continue;
    }
    uint64_t before = out.counts.references;
    window.fields(object, *shape, [&](uint64_t field) {
      const std::optional<uint64_t> address = window.reference(field);
      out.counts.references++;
      if (!address) {
        out.counts.nulls++;
        return;
      }
      uint64_t offset = *address - window.config.heap_base;
      if (offset >= window.heap_bytes) {
        out.counts.outside++;
      } else if (offset >= window.limit_of(offset)) {
        out.counts.above++;
      }
      offer(*address);
    });
    if (shape->kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) out.counts.arrays++;
    if (shape->kind == MERAPI_SHAPE_KIND_INSTANCE) {
      (out.counts.references != before ? out.counts.instances : out.counts.leaves)++;
    }
  }
  return out;
}

std::string compare_marks(const ClosureInput& in, const Closure& want, const uint8_t* after) {
  uint64_t missing = 0, extra = 0, example = 0;
  for (uint64_t bit = 0; bit < want.marked.size(); bit++) {
    bool have = (after[bit / 8] >> (bit % 8) & 1) != 0;
    if (have == want.marked[bit]) continue;
    (have ? extra : missing)++;
    example = bit << in.config.alignment_log2;
  }
  if (missing + extra == 0) return "";
  std::ostringstream text;
  text << "marks: " << missing << " missing, " << extra << " too many of " << want.marked_count
       << ", for instance at 0x" << std::hex << example;
  return text.str();
}

}  // namespace merapi::sim::test
