// SPDX-License-Identifier: Apache-2.0
#include "heap_reader.h"

#include <string.h>

#include <unordered_set>

namespace merapi::cli {
namespace {

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::vector<uint64_t> Answers::of(uint64_t key, bool is_klass) const {
  if (answers_ == nullptr) return {};
  uint64_t low = 0, high = answers_->count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const bool middle_klass = answers_->is_klass[middle] != 0;
    const bool less = middle_klass != is_klass ? !middle_klass : answers_->key[middle] < key;
    if (less) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == answers_->count || answers_->key[low] != key || (answers_->is_klass[low] != 0) != is_klass) return {};
  return {answers_->reference + answers_->first[low], answers_->reference + answers_->first[low + 1]};
}

HeapReader::HeapReader(const Window& window) : window_(window) {
  merapi_get_config(window.get(), &config_);
  heap_bytes_ = uint64_t(config_.region_count) << config_.region_log2;
  if (heap_bytes_ == 0 || heap_bytes_ > window.layout().area[MERAPI_AREA_HEAP].size)
    throw Failure(kAbsent,
                  window.name() + ": expected a configured heap, found none; has a host configured the window?");
  heap_ = window.area(MERAPI_AREA_HEAP);
  limits_ = reinterpret_cast<const uint64_t*>(window.area(MERAPI_AREA_LIMITS));
}

void HeapReader::need(uint64_t object, uint64_t bytes) const {
  if (object > heap_bytes_ || bytes > heap_bytes_ - object)
    throw Failure(kFound, window_.name() + ": expected the object at " + hex(config_.heap_base + object) + " of " +
                              std::to_string(bytes) + " bytes to lie inside the heap, found that it does not");
}

uint64_t HeapReader::klass(uint64_t object) const {
  need(object, 16);
  uint64_t wide;
  memcpy(&wide, heap_ + object + 8, sizeof wide);
  return config_.klass_bytes == 8 ? wide : wide & UINT32_MAX;
}

const Shape* HeapReader::shape(uint64_t klass_word) const {
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

uint32_t HeapReader::array_length(uint64_t object) const {
  need(object, 8 + config_.klass_bytes + sizeof(uint32_t));
  uint32_t length;
  memcpy(&length, heap_ + object + 8 + config_.klass_bytes, sizeof length);
  return length;
}

uint64_t HeapReader::bytes(uint64_t object, const merapi_shape& shape) const {
  const uint64_t unit = UINT64_C(1) << config_.alignment_log2;
  uint64_t size = 0;
  switch (shape.kind) {
    case MERAPI_SHAPE_KIND_OBJ_ARRAY:
      size = shape.header_bytes + uint64_t(array_length(object)) * config_.oop_bytes;
      break;
    case MERAPI_SHAPE_KIND_PRIM_ARRAY:
      size = shape.header_bytes + (uint64_t(array_length(object)) << shape.element_log2);
      break;
    case MERAPI_SHAPE_KIND_MIRROR: {
      need(object, uint64_t(config_.mirror_size_offset) + 4);
      uint32_t words;
      memcpy(&words, heap_ + object + config_.mirror_size_offset, sizeof words);
      size = uint64_t(words) * 8;
      break;
    }
    default:
      size = uint64_t(shape.size_words) * 8;
  }
  if (shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || shape.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY)
    size = (size + unit - 1) / unit * unit;
  need(object, size);
  return size;
}

void HeapReader::fields(uint64_t object, const Shape& shape, const std::function<void(uint64_t)>& visit) const {
  if (shape.shape.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) {
    const uint64_t length = array_length(object);
    need(object, shape.shape.header_bytes + length * config_.oop_bytes);
    for (uint64_t i = 0; i < length; i++) visit(object + shape.shape.header_bytes + i * config_.oop_bytes);
  }
  if (shape.shape.kind != MERAPI_SHAPE_KIND_INSTANCE) return;
  for (const merapi_ref_block& block : shape.blocks) {
    need(object, uint64_t(block.offset) + uint64_t(block.count) * config_.oop_bytes);
    for (uint64_t i = 0; i < block.count; i++) visit(object + block.offset + i * config_.oop_bytes);
  }
}

uint64_t HeapReader::reference(uint64_t field) const {
  if (config_.oop_bytes == 8) {
    uint64_t wide;
    memcpy(&wide, heap_ + field, sizeof wide);
    return wide;
  }
  uint32_t narrow;
  memcpy(&narrow, heap_ + field, sizeof narrow);
  return narrow == 0 ? 0 : config_.narrow_oop_base + (uint64_t(narrow) << config_.narrow_oop_shift);
}

bool HeapReader::traced(uint64_t address, uint64_t* offset) const {
  if (address < config_.heap_base || address - config_.heap_base >= heap_bytes_) return false;
  *offset = address - config_.heap_base;
  if (*offset >= limit(*offset)) return false;
  if (*offset % (UINT64_C(1) << config_.alignment_log2) != 0)
    throw Failure(kFound, window_.name() + ": expected references aligned to " +
                              std::to_string(1u << config_.alignment_log2) + " bytes, found " + hex(address));
  return true;
}

Bits HeapReader::marks(uint32_t bitmap) const {
  const auto* words = reinterpret_cast<const uint64_t*>(window_.area(merapi_area(MERAPI_AREA_BITMAP0 + bitmap)));
  Bits bits(units());
  for (uint64_t w = 0; w < bits.words(); w++) {
    if (words[w] == 0) continue;
    uint64_t value = words[w];
    for (uint64_t rest = value; rest != 0; rest &= rest - 1) {
      const uint64_t offset = offset_of_unit(w * 64 + uint64_t(__builtin_ctzll(rest)));
      if (offset >= heap_bytes_ || offset >= limit(offset)) value &= ~(rest & -rest);
    }
    bits.set_word(w, value);
  }
  return bits;
}

Closure close_over(const HeapReader& heap, uint32_t bitmap, const Answers& answers, const ObjectVisitor& visit) {
  const Bits greys = heap.marks(bitmap);
  Closure out{greys, greys, std::vector<uint64_t>(heap.config().region_count), {}, 0, 0, 0};
  std::unordered_set<uint64_t> seen;
  std::vector<uint64_t> stack;
  const auto offer = [&](uint64_t address) {
    uint64_t offset;
    if (heap.traced(address, &offset) && out.marked.set(heap.unit_of(offset))) stack.push_back(offset);
  };
  const auto scan = [&](uint64_t object) {
    const uint64_t klass = heap.klass(object);
    const Shape* shape = heap.shape(klass);
    if (visit) visit(object, klass, shape);
    if (!out.greys.get(heap.unit_of(object))) {
      out.objects++;
      if (shape != nullptr) out.live_words[object >> heap.config().region_log2] += heap.bytes(object, shape->shape) / 8;
    }
    if (shape != nullptr && (shape->shape.flags >> MERAPI_SHAPE_FLAG_QUIET & 1) == 0 && seen.insert(klass).second) {
      out.klasses.push_back(klass);
      for (const uint64_t address : answers.of(klass, true)) offer(address);
    }
    if (HeapReader::deferred(shape)) {
      out.deferred++;
      for (const uint64_t address : answers.of(heap.config().heap_base + object, false)) offer(address);
      return;
    }
    heap.fields(object, *shape, [&](uint64_t field) {
      out.references++;
      offer(heap.reference(field));
    });
  };
  for (uint64_t w = 0; w < greys.words(); w++) {
    for (uint64_t rest = greys.word(w); rest != 0; rest &= rest - 1) {
      scan(heap.offset_of_unit(w * 64 + uint64_t(__builtin_ctzll(rest))));
      while (!stack.empty()) {
        const uint64_t object = stack.back();
        stack.pop_back();
        scan(object);
      }
    }
  }
  return out;
}

}  // namespace merapi::cli
