// SPDX-License-Identifier: Apache-2.0
#include "sim/model/shapes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace merapi::sim {

void Shapes::begin(const Geometry* geometry) {
  geometry_ = geometry;
  invalidate();
}

void Shapes::invalidate() {
  std::fill(std::begin(cache_), std::end(cache_), Shape{});
  if (!table_.empty()) dropped_.push_back(std::exchange(table_, Table()));
  std::move(pieces_.begin(), pieces_.end(), std::back_inserter(dropped_pieces_));
  pieces_.clear();
}

void Shapes::free_some() {
  for (int i = 0; i < kFreed && !dropped_.empty(); i++) {
    Table& table = dropped_.back();
    table.erase(table.begin());
    if (table.empty()) dropped_.pop_back();
  }
  if (!dropped_pieces_.empty()) dropped_pieces_.pop_back();
}

const merapi_ref_block* Shapes::keep(const merapi_ref_block* blocks, uint32_t count) {
  if (pieces_.empty() || count > kPiece - used_) {
    pieces_.emplace_back(new merapi_ref_block[kPiece]);
    used_ = 0;
  }
  merapi_ref_block* const kept = &pieces_.back()[used_];
  std::copy(blocks, blocks + count, kept);
  used_ += count;
  return kept;
}

Shapes::Result Shapes::lookup(uint64_t klass_word) {
  Shape& slot = cache_[slot_of(klass_word)];
  if (slot.klass_word == klass_word) return {Found::kHit, &slot, false};
  if (auto it = table_.find(klass_word); it != table_.end()) {
    slot = it->second;
    return {Found::kLoaded, &slot, false};
  }
  merapi_shape raw;
  if (!read_slot(klass_word, &raw)) return {Found::kAbsent, nullptr, false};
  Shape shape;
  if (!translate(raw, &shape)) return {Found::kBad, nullptr, false, raw.kind};
  free_some();
  if (table_.size() == kMany) table_.reserve(kMostShapes);
  table_.emplace(klass_word, shape);
  slot = shape;
  return {Found::kLoaded, &slot, (raw.flags & (1u << MERAPI_SHAPE_FLAG_QUIET)) == 0};
}

bool Shapes::read_slot(uint64_t klass_word, merapi_shape* out) const {
  const Geometry& g = *geometry_;
  uint64_t slots = uint64_t{1} << g.shape_slots_log2;
  uint32_t folded = uint32_t(klass_word ^ (klass_word >> 32));
  uint64_t home = uint64_t{folded * MERAPI_SHAPE_HASH_MULTIPLIER} >> (32 - g.shape_slots_log2);
  for (uint64_t probe = 0; probe < MERAPI_SHAPE_PROBE_LIMIT; probe++) {
    const merapi_shape* slot = &g.shapes[(home + probe) & (slots - 1)];
    uint64_t key = load(slot->klass_word);
    if (key == MERAPI_SHAPE_KEY_EMPTY) return false;
    if (key != klass_word) continue;
    __builtin_memcpy(out, slot, sizeof *out);
    __atomic_thread_fence(__ATOMIC_ACQ_REL);  // from here on only the copy is looked at
    out->klass_word = klass_word;
    return true;
  }
  return false;
}

bool Shapes::fits(const merapi_ref_block& b, uint64_t size_bytes) const {
  uint64_t width = geometry_->oop_bytes;
  uint64_t fields = 8 + geometry_->klass_bytes;  // references lie behind mark word and klass word
  return b.offset % width == 0 && b.offset >= fields && b.offset + uint64_t{b.count} * width <= size_bytes;
}

bool Shapes::block(const Shape& s, uint32_t index, merapi_ref_block* out) const {
  const merapi_ref_block& from = s.path == Path::kOneBlock ? s.first : s.blocks[index];
  out->offset = load(from.offset);
  out->count = load(from.count);
  return fits(*out, uint64_t{s.size_words} * 8);
}

bool Shapes::translate(const merapi_shape& in, Shape* out) {
  const Geometry& g = *geometry_;
  Shape s;
  s.klass_word = in.klass_word;
  uint32_t length_end = 8u + g.klass_bytes + 4u;
  uint32_t oop_log2 = g.oop_bytes == 8 ? 3 : 2;
  switch (in.kind) {
    case MERAPI_SHAPE_KIND_INSTANCE: {
      s.size_words = in.size_words;
      s.block_count = in.block_count;
      uint64_t size_bytes = uint64_t{in.size_words} * 8;
      // More blocks than an object of this size has references is a contradiction.
      if (in.block_count > size_bytes / g.oop_bytes) return false;
      const merapi_ref_block* from = in.block;
      if (in.block_count > MERAPI_SHAPE_INLINE_BLOCKS) {
        uint64_t bytes = uint64_t{in.block_count} * sizeof(merapi_ref_block);
        if (in.extension % MERAPI_LINE_BYTES != 0 || in.extension > g.extension_bytes ||
            bytes > g.extension_bytes - in.extension) {
          return false;
        }
        from = reinterpret_cast<const merapi_ref_block*>(g.extension + in.extension);
      }
      if (in.block_count > kInlineReferences) {
        s.path = Path::kHuge;
        s.blocks = from;
        break;
      }
      merapi_ref_block blocks[kInlineReferences];
      std::copy(from, from + in.block_count, blocks);
      __atomic_thread_fence(__ATOMIC_ACQ_REL);  // as above
      uint64_t references = 0;
      for (uint32_t i = 0; i < in.block_count; i++) {
        if (!fits(blocks[i], size_bytes)) return false;
        references += blocks[i].count;
      }
      if (references == 0) {
        s.path = Path::kLeaf;
        break;
      }
      s.path = references > kInlineReferences ? Path::kHuge : in.block_count == 1 ? Path::kOneBlock : Path::kBlocks;
      if (s.path == Path::kOneBlock) {
        s.first = blocks[0];
      } else {
        s.blocks = keep(blocks, in.block_count);
      }
      break;
    }
    case MERAPI_SHAPE_KIND_OBJ_ARRAY:
      if (in.header_bytes < length_end || in.header_bytes % g.oop_bytes != 0 || in.element_log2 != oop_log2)
        return false;
      s.path = Path::kObjArray;
      s.header_bytes = in.header_bytes;
      s.element_log2 = in.element_log2;
      break;
    case MERAPI_SHAPE_KIND_PRIM_ARRAY:
      if (in.header_bytes < length_end || in.element_log2 > 3) return false;
      s.path = Path::kPrimArray;
      s.header_bytes = in.header_bytes;
      s.element_log2 = in.element_log2;
      break;
    case MERAPI_SHAPE_KIND_MIRROR:
      if (g.mirror_size_offset < 8u + g.klass_bytes) return false;
      s.path = Path::kMirror;
      break;
    case MERAPI_SHAPE_KIND_REFERENCE:
    case MERAPI_SHAPE_KIND_LOADER:
    case MERAPI_SHAPE_KIND_HOST:
      s.path = Path::kDeferred;
      s.size_words = in.size_words;
      break;
    default:
      return false;
  }
  *out = s;
  return true;
}

}  // namespace merapi::sim
