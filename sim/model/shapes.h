// SPDX-License-Identifier: Apache-2.0
//
// Shapes as the model keeps them: checked private copies of table slots. A small direct-mapped cache answers nearly
// every lookup; behind it a private table holds every shape used since the last invalidation, so that the window's
// table is read once per klass and SHAPE_SEEN is due exactly when an entry is made. INVALIDATE_SHAPES drops both: a
// klass may then be reported again, which the contract calls harmless, and a klass word that was given to another
// klass meanwhile is reported for certain.
//
// A shape's blocks are copied where they are few. Many stay in the window, and each is checked when it is read: shapes
// may share blocks, so copies of all would know no bound, and to copy millions takes long.
#ifndef MERAPI_SIM_MODEL_SHAPES_H_
#define MERAPI_SIM_MODEL_SHAPES_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/model/geometry.h"

namespace merapi::sim {

// How an object is treated, chosen when the shape is loaded so that the loop branches once.
enum class Path : uint8_t {
  kLeaf,      // instance without references
  kOneBlock,  // instance with one in-line block of at most kInlineReferences
  kBlocks,    // instance with few references in several blocks
  kHuge,      // instance with so many references or blocks that scanning must be interruptible
  kObjArray,
  kPrimArray,
  kMirror,    // size read from the object, deferred
  kDeferred,  // size known, deferred
};

// References that are scanned without looking at the budget, and blocks that are copied.
inline constexpr uint32_t kInlineReferences = 512;

struct alignas(64) Shape {
  uint64_t klass_word = 0;  // 0: empty cache slot
  Path path = Path::kLeaf;
  uint8_t element_log2 = 0;
  uint16_t reserved = 0;
  uint32_t size_words = 0;
  uint32_t header_bytes = 0;
  uint32_t block_count = 0;
  const merapi_ref_block* blocks = nullptr;  // kBlocks and kHuge: block_count of them, private if they are few
  merapi_ref_block first{};                  // kOneBlock
};

class Shapes {
 public:
  static constexpr int kCacheLog2 = 8;
  static constexpr size_t kMostShapes = 1 << 17;
  // Of which copies are kept (32 MiB).
  static constexpr size_t kMostBlocks = 1 << 22;

  enum class Found { kHit, kLoaded, kAbsent, kBad };
  struct Result {
    Found found;
    const Shape* shape;  // null when absent or bad; valid until the next lookup of another klass word
    bool report;         // SHAPE_SEEN is due
    uint8_t kind = 0;    // of a bad one, as it stands in the table
  };

  // Drop everything and use this geometry from now on. It must outlive its use.
  void begin(const Geometry* geometry);
  // Drop everything. What it took is given back with the lookups that follow, a few shapes with each that is loaded:
  // all of it at once takes longer than a host should wait for.
  void invalidate();
  // More than are to be kept.
  bool too_many() const { return table_.size() > kMostShapes || pieces_.size() > kMostBlocks / kPiece; }

  // Slot of the direct-mapped cache for a klass word; the caller compares klass_word itself.
  const Shape& cached(uint64_t klass_word) const { return cache_[slot_of(klass_word)]; }
  // The full lookup; fills the cache. klass_word is neither 0 nor the tombstone.
  Result lookup(uint64_t klass_word);
  // A block of an instance with references. False: it does not lie in an object of the shape's size.
  bool block(const Shape& shape, uint32_t index, merapi_ref_block* out) const;

  static uint32_t slot_of(uint64_t klass_word) {
    return uint32_t((klass_word * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - kCacheLog2));
  }

 private:
  // Copy the slot of klass_word out of the window's table. False: none within the probe limit.
  bool read_slot(uint64_t klass_word, merapi_shape* out) const;
  // Check and translate; false when its fields contradict each other.
  bool translate(const merapi_shape& in, Shape* out);
  bool fits(const merapi_ref_block& block, uint64_t size_bytes) const;
  const merapi_ref_block* keep(const merapi_ref_block* blocks, uint32_t count);

  // Give back some of what was dropped.
  void free_some();

  using Table = std::unordered_map<uint64_t, Shape>;
  using Piece = std::unique_ptr<merapi_ref_block[]>;
  // From so many on there is room for all: to make it takes long when there are more.
  static constexpr size_t kMany = 1024;
  // With each that is loaded: what was dropped is gone before as much is there again.
  static constexpr int kFreed = 4;
  // Blocks that are allocated at once; a shape's are in one piece. With each shape that is loaded a dropped piece is
  // given back, and at most one is made.
  static constexpr uint32_t kPiece = 4096;
  static_assert(kPiece >= kInlineReferences);

  const Geometry* geometry_ = nullptr;
  Shape cache_[1 << kCacheLog2];
  Table table_;
  std::vector<Piece> pieces_;
  uint32_t used_ = 0;  // of the last piece
  std::vector<Table> dropped_;
  std::vector<Piece> dropped_pieces_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_SHAPES_H_
