// SPDX-License-Identifier: Apache-2.0
//
// Every rule of a shape's blocks; fields that its kind does not have say nothing, whatever stands in them.
// MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "sim/rtl/test/directed_heap.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::WindowShape;

class RtlShapes : public DirectedHeap {
 protected:
  using DirectedHeap::DirectedHeap;
};

// A list whose klass has five blocks, all of them in the extension, and a block in line that is left from another
// klass: there the objects have a number, which looks like a reference to the next one. The last one's looks like a
// reference to dead objects, which go on to what is no object.
TEST_F(RtlShapes, InLineBlocksOfAnExtendedShapeAreNotFollowed) {
  constexpr uint32_t kLink = 0x8000, kLinks = 40;
  constexpr uint64_t kBytes = 64, kNext = 16, kNumber = 56;
  merapi_shape s{};
  s.klass_word = kLink;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = kBytes / 8;
  window_.put_shape(s, {{kNext, 1}, {24, 1}, {32, 1}, {40, 1}, {48, 1}});
  slot(kLink)->block[0] = {kNumber, 1};
  auto live = [&](uint32_t i) { return region(1) + 64 + i * kBytes; };
  auto dead = [&](uint32_t i) { return region(2) + 64 + i * kBytes; };
  for (uint32_t i = 0; i < kLinks; i++) {
    const bool last = i + 1 == kLinks;
    klass(live(i), kLink);
    klass(dead(i), kLink);
    if (!last) refer(live(i) + kNext, live(i + 1));
    refer(live(i) + kNumber, last ? dead(0) : live(i + 1));
    refer(dead(i) + kNumber, last ? region(3) + 64 : dead(i + 1));  // without a klass word
  }
  window_.mark(0, live(0));
  start();
  ASSERT_TRUE(machine_->idle_or_fault(kPatience));
  EXPECT_EQ(machine_->fault().code, 0u) << merapi_fault_name(machine_->fault().code);
  for (uint32_t i = 0; i < kLinks; i++) {
    EXPECT_TRUE(window_.marked(0, live(i))) << i;
    EXPECT_FALSE(window_.marked(0, dead(i))) << i;
  }
}

// Klasses that all belong into a table's last slot: all but the first lie at its beginning.
void look_up_from_the_last_slot(uint32_t log2) {
  constexpr uint64_t kBytes = 24, kObjects = MERAPI_SHAPE_PROBE_LIMIT;
  WindowShape shape = directed_shape();
  shape.shape_slots = 1u << log2;
  Window window(shape);
  window.fill_regions();
  std::vector<uint32_t> klasses;
  for (uint32_t word = 8; klasses.size() < kObjects; word += 8) {
    if (word * uint32_t{MERAPI_SHAPE_HASH_MULTIPLIER} >> (32 - log2) == shape.shape_slots - 1) klasses.push_back(word);
  }
  // A chain of objects, each of another klass; the next one's reference is in another field.
  const auto object = [](uint64_t i) { return (i + 1) << 12; };
  for (uint64_t i = 0; i < kObjects; i++) {
    const uint32_t field = i % 2 == 0 ? 12 : 16;
    window.put_instance(klasses[i], kBytes / 8, {{field, 1}});
    std::memcpy(window.heap() + object(i) + 8, &klasses[i], 4);
    const auto narrow = uint32_t((shape.heap_base + object(i + 1) - shape.narrow_base) >> shape.narrow_shift);
    if (i + 1 < kObjects) std::memcpy(window.heap() + object(i) + field, &narrow, 4);
  }
  window.mark(0, object(0));
  RtlMachine m(&window, RtlMachineOptions{});
  ASSERT_TRUE(m.attach());
  m.begin(0);
  m.trace(0, shape.regions);
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  EXPECT_EQ(m.fault().code, 0u) << merapi_fault_name(m.fault().code);
  for (uint64_t i = 0; i < kObjects; i++) EXPECT_TRUE(window.marked(0, object(i))) << i;
}

TEST(RtlShapeTable, LookupsGoOnAtItsBeginning) {
  for (uint32_t log2 = 6; log2 <= 16; log2++) {
    SCOPED_TRACE(testing::Message() << (1u << log2) << " slots");
    look_up_from_the_last_slot(log2);
  }
}

TEST_F(RtlShapes, SizesOfAnotherKindAreNotLookedAt) {
  constexpr uint32_t kInstance = 0x8000, kObjects = 0x8008, kMirror = 0x8010, kAnything = 0xa5a5a5a5;
  merapi_shape s{};
  s.klass_word = kInstance;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = 4;
  s.header_bytes = kAnything;
  window_.put_shape(s, {{16, 2}});
  s = {};
  s.klass_word = kObjects;
  s.kind = MERAPI_SHAPE_KIND_OBJ_ARRAY;
  s.header_bytes = 16;
  s.element_log2 = 2;
  s.size_words = kAnything;
  window_.put_shape(s);
  s = {};
  s.klass_word = kMirror;
  s.kind = MERAPI_SHAPE_KIND_MIRROR;
  s.size_words = kAnything;
  window_.put_shape(s);
  const uint64_t instance = 64, array = 128, mirror = 256, leaf = 512;
  const uint32_t length = 1, mirror_words = 8;
  klass(instance, kInstance);
  refer(instance + 16, array);
  refer(instance + 20, mirror);
  klass(array, kObjects);
  std::memcpy(window_.heap() + array + 12, &length, 4);
  refer(array + 16, leaf);
  klass(mirror, kMirror);
  std::memcpy(window_.heap() + mirror + window_.config()->mirror_size_offset, &mirror_words, 4);
  klass(leaf, kInstance);
  machine_ = std::make_unique<RtlMachine>(&window_, options_);
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  machine_->grey({window_.shape.heap_base + instance});
  std::set<uint64_t> seen, deferred;
  ASSERT_TRUE(machine_->run_until(
      [&] {
        for (const merapi_completion& c : machine_->complete()) {
          EXPECT_EQ(c.flags, 0u) << "every object's klass has a shape";
          for (int i = 0; i < c.count; i++) {
            (c.type == MERAPI_COMP_SHAPE_SEEN ? seen : deferred).insert(c.payload[i]);
          }
        }
        return machine_->idle();
      },
      kPatience));
  EXPECT_EQ(seen, (std::set<uint64_t>{kInstance, kObjects, kMirror}));
  EXPECT_EQ(deferred, std::set<uint64_t>{window_.shape.heap_base + mirror});
  EXPECT_EQ(window_.live()[0], 4u + 3u + mirror_words + 4u);
}

// Of a shape with this many blocks, all in the extension: does the device take it? The object has room for 16
// references.
class RtlShapeExtension : public RtlShapes {
 protected:
  static constexpr uint32_t kKlass = 0x8000, kWords = 8;
  RtlShapeExtension() { klass(64, kKlass); }
  uint64_t area() const { return window_.layout.area[MERAPI_AREA_SHAPE_EXTENSION].size; }
  uint32_t judged(uint64_t extension, uint32_t blocks) {
    merapi_shape s{};
    s.klass_word = kKlass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = kWords;
    s.extension = extension;
    window_.put_shape(s);
    slot(kKlass)->block_count = blocks;
    const merapi_ref_block good = {16, 1};
    for (uint64_t i = 0; i < blocks && extension + 8 * (i + 1) <= area(); i++)
      std::memcpy(window_.area(MERAPI_AREA_SHAPE_EXTENSION) + extension + 8 * i, &good, sizeof good);
    window_.mark(0, 64);
    start();
    EXPECT_TRUE(machine_->idle_or_fault(kPatience));
    return machine_->fault().code;
  }
};
TEST_F(RtlShapeExtension, EndsInItsArea) {
  ASSERT_LT(area(), uint64_t{1} << 20) << "what is too far is to be beside the area by one bit";
  for (uint32_t blocks : {5u, 8u}) EXPECT_EQ(judged(area() - 64, blocks), 0u) << blocks;
  EXPECT_EQ(judged(area() - 64, 9), uint32_t(MERAPI_FAULT_BAD_SHAPE));
  for (unsigned bit = 6; bit < 64; bit++) {
    SCOPED_TRACE(testing::Message() << "bit " << bit);
    EXPECT_EQ(judged(area() - 64 + (UINT64_C(1) << bit), 5), uint32_t(MERAPI_FAULT_BAD_SHAPE));
    EXPECT_EQ(machine_->fault().address, kKlass) << "found when blocks behind the area were read";
    if (HasFailure()) return;
  }
}
// Each of them is in the object, but there are more than can lie in it side by side.
TEST_F(RtlShapeExtension, HasNoMoreBlocksThanReferencesFit) {
  EXPECT_EQ(judged(0, 16), 0u);
  for (uint32_t blocks : {17u, 18u, 24u, 32u, 100u}) EXPECT_EQ(judged(0, blocks), uint32_t(MERAPI_FAULT_BAD_SHAPE));
}

// An instance whose blocks in line are judged one by one. Its last reference ends where it does.
class RtlShapeBlocks : public RtlShapes {
 protected:
  static constexpr uint32_t kKlass = 0x8000, kBlocks = 4, kBytes = 128;
  static WindowShape of_oops(uint8_t bytes) {
    WindowShape s = directed_shape();
    s.oop_bytes = s.klass_bytes = bytes;
    return s;
  }
  explicit RtlShapeBlocks(uint8_t oop_bytes) : RtlShapes(of_oops(oop_bytes)), oop_(oop_bytes) {
    merapi_shape s{};
    s.klass_word = kKlass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = kBytes / 8;
    for (uint32_t i = 0; i < kBlocks; i++) good_.push_back({kBytes - (kBlocks - i) * 2 * oop_, 2});
    window_.put_shape(s, good_);
    klass(64, kKlass);
  }
  // What the device says of the object when so many blocks count and one has become something else.
  uint32_t judged(uint32_t count, uint32_t block, const merapi_ref_block& is) {
    merapi_shape* s = slot(kKlass);
    std::copy(good_.begin(), good_.end(), s->block);
    s->block_count = count;
    s->block[block] = is;
    std::memset(window_.bitmap(0), 0, window_.layout.area[MERAPI_AREA_BITMAP0].size);
    window_.mark(0, 64);
    start();
    EXPECT_TRUE(machine_->idle_or_fault(kPatience));
    const merapi_fault_record fault = machine_->fault();
    if (fault.code == 0) {
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_SCANNED), 1u);
    } else {
      EXPECT_EQ(fault.address, kKlass);
    }
    return fault.code;
  }
  void every_block() {
    const uint32_t header = oop_ == 8 ? 16 : 12;
    const merapi_ref_block bad[] = {
        {header - oop_, 1}, {kBytes - 3 * oop_ + 2, 1}, {kBytes - oop_, 2}, {UINT32_C(1) << 31, 1}, {16, UINT32_MAX}};
    for (uint32_t block = 0; block < kBlocks; block++) {
      for (const merapi_ref_block& is : bad) {
        SCOPED_TRACE(testing::Message() << "block " << block << ": " << is.offset << ", " << is.count);
        EXPECT_EQ(judged(kBlocks, block, is), uint32_t(MERAPI_FAULT_BAD_SHAPE));
        if (HasFailure()) return;
      }
      if (block > 0) {
        EXPECT_EQ(judged(block, block, bad[block]), 0u) << "a block that does not count";
      }
      EXPECT_EQ(judged(kBlocks, block, {header, 1}), 0u);
      EXPECT_EQ(judged(kBlocks, block, {kBytes - oop_, 1}), 0u);
    }
  }
  const uint32_t oop_;
  std::vector<merapi_ref_block> good_;
};

class RtlShapeNarrowBlocks : public RtlShapeBlocks {
 protected:
  RtlShapeNarrowBlocks() : RtlShapeBlocks(4) {}
};
class RtlShapeWideBlocks : public RtlShapeBlocks {
 protected:
  RtlShapeWideBlocks() : RtlShapeBlocks(8) {}
};
TEST_F(RtlShapeNarrowBlocks, AreJudgedOneByOne) { every_block(); }
TEST_F(RtlShapeWideBlocks, AreJudgedOneByOne) { every_block(); }

// Objects of the first region, each with one reference that is not null, to a leaf of its own in the second.
class RtlFarBlocks : public testing::Test {
 protected:
  static constexpr uint32_t kLeaf = 0x1000, kFirst = 0x8000, kBlocks = 4;
  static constexpr unsigned kMost = 23;  // of an offset in bytes, as powers of two: a device may refuse 2^24
  struct Object {
    uint64_t at, leaf;
    unsigned bit;
    uint32_t block;
  };
  static WindowShape shape() {
    WindowShape s = directed_shape();
    s.region_log2 = 24;
    s.regions = 2;
    return s;
  }
  RtlFarBlocks() : window_(shape()) {
    window_.fill_regions();
    window_.put_instance(kLeaf, 2);
  }
  void klass(uint64_t at, uint32_t word) { std::memcpy(window_.heap() + at + 8, &word, sizeof word); }
  // Its reference lies `offset` bytes behind it.
  void put(const Object& o, uint32_t word, uint32_t offset) {
    klass(o.at, word);
    klass(o.leaf, kLeaf);
    const WindowShape& s = window_.shape;
    const uint32_t narrow = uint32_t((s.heap_base + o.leaf - s.narrow_base) >> s.narrow_shift);
    std::memcpy(window_.heap() + o.at + offset, &narrow, sizeof narrow);
    objects_.push_back(o);
  }
  void every_leaf_is_found() {
    RtlMachine machine(&window_, RtlMachineOptions{});
    ASSERT_TRUE(machine.attach());
    machine.run(kPowerUp);
    machine.begin(0);
    for (const Object& o : objects_) {
      machine.grey({window_.shape.heap_base + o.at});
      ASSERT_TRUE(machine.idle_or_fault(kPatience));
    }
    EXPECT_EQ(machine.fault().code, 0u) << merapi_fault_name(machine.fault().code);
    EXPECT_EQ(machine.counter(MERAPI_COUNTER_OBJECTS_MARKED), 2 * objects_.size());
    for (const Object& o : objects_) {
      EXPECT_TRUE(window_.marked(0, o.leaf)) << "bit " << o.bit << ", block " << o.block << ", at " << o.at;
    }
  }
  Window window_;
  std::vector<Object> objects_;
};

// References far behind their object's header, each bit of how far in each of the blocks in line; the last of them, in
// the next line, is not null. Of each klass an object that brings its shape, and one that finds it on chip.
TEST_F(RtlFarBlocks, EachBitOfEachBlock) {
  constexpr uint32_t kCount = 16;
  constexpr unsigned kLeast = 13;  // from behind the headers on
  for (unsigned bit = kLeast; bit <= kMost; bit++) {
    for (uint32_t block = 0; block < kBlocks; block++) {
      const uint32_t far = UINT32_C(1) << bit, word = kFirst + uint32_t(objects_.size()) * 8;
      merapi_ref_block blocks[kBlocks] = {{16, 1}, {20, 1}, {24, 1}, {28, 1}};
      blocks[block] = {far, kCount};
      window_.put_instance(word, (far + 4 * kCount) / 8, {blocks, blocks + kBlocks});
      for (int object = 0; object < 2; object++) {
        const uint64_t at = 64 * objects_.size() + 32;
        put({at, window_.region_bytes() + at, bit, block}, word, far + 4 * (kCount - 1));
      }
    }
  }
  every_leaf_is_found();
}

// A last reference one slot behind a power of two, in each of the blocks in line, wherever in a line its object begins:
// without that one bit the block would seem to end in the klass word's line.
TEST_F(RtlFarBlocks, EndBehindEachPowerOfTwo) {
  constexpr uint32_t kLine = 64;
  constexpr unsigned kLeast = 8;
  constexpr uint64_t kApart = kLine * 8 * 9;  // no power of two, nor a difference of two of them that meets an object
  uint32_t word = kFirst;
  for (unsigned bit = kLeast; bit <= kMost; bit++) {
    for (uint32_t block = 0; block < kBlocks; block++, word += 8) {
      const uint32_t far = UINT32_C(1) << bit;
      merapi_ref_block blocks[kBlocks] = {{12, 1}, {16, 1}, {20, 1}, {24, 1}};
      blocks[block] = {far, 1};
      window_.put_instance(word, far / 8 + 1, {blocks, blocks + block + 1});
      // The blocks before it end in the line that the object begins in.
      for (uint64_t place = 0; place + 12 + 4 * block <= kLine; place += 8) {
        const uint64_t index = objects_.size();
        put({kApart * index + place, window_.region_bytes() + 16 * index, bit, block}, word, far);
      }
    }
  }
  ASSERT_LE(kApart * objects_.size() + (UINT64_C(1) << kMost), window_.region_bytes());
  every_leaf_is_found();
}

// A block from any slot of an object's first lines to any other, in each place of a shape in line: of all other slots,
// which hold what would lead out of the heap, none is read.
void nothing_beside_a_block_is_read(uint32_t oop) {
  constexpr uint32_t kLeaf = 0x1000, kFirst = 0x8000, kBlocks = 4, kBytes = 80;
  const uint32_t header = oop == 8 ? 2 : 3, slots = kBytes / oop;  // in slots
  for (uint32_t block = 0; block < kBlocks; block++) {
    SCOPED_TRACE(testing::Message() << "block " << block);
    WindowShape s = directed_shape();
    s.oop_bytes = uint8_t(oop);
    s.shape_slots = 1024;
    Window window(s);
    window.fill_regions();
    window.put_instance(kLeaf, 2);
    auto klass = [&](uint64_t at, uint32_t word) { std::memcpy(window.heap() + at + 8, &word, sizeof word); };
    uint64_t at = 0, leaf = window.region_bytes();
    std::vector<uint64_t> leaves;
    for (uint32_t first = header + block; first < slots; first++) {
      for (uint32_t last = first; last < slots; last++, at += kBytes) {
        std::vector<merapi_ref_block> blocks;
        for (uint32_t before = 0; before < block; before++) blocks.push_back({oop * (header + before), 1});
        blocks.push_back({oop * first, last - first + 1});
        const uint32_t word = kFirst + uint32_t(at / kBytes);
        window.put_instance(word, kBytes / 8, blocks);
        klass(at, word);
        for (uint32_t slot = header; slot < slots; slot++) {
          uint64_t value = ~UINT64_C(7);
          if (slot < header + block || (slot >= first && slot <= last)) {
            klass(leaf, kLeaf);
            leaves.push_back(leaf);
            value = oop == 8 ? s.heap_base + leaf : (s.heap_base + leaf - s.narrow_base) >> s.narrow_shift;
            leaf += 16;
          }
          std::memcpy(window.heap() + at + oop * slot, &value, oop);
        }
        window.mark(0, at);
      }
    }
    RtlMachine machine(&window, RtlMachineOptions{});
    ASSERT_TRUE(machine.attach());
    machine.begin(0);
    machine.trace(0, 1);
    ASSERT_TRUE(machine.idle_or_fault(kPatience));
    ASSERT_EQ(machine.fault().code, 0u) << merapi_fault_name(machine.fault().code);
    EXPECT_EQ(machine.counter(MERAPI_COUNTER_REFS_OUTSIDE), 0u);
    EXPECT_EQ(machine.counter(MERAPI_COUNTER_REFERENCES_READ), leaves.size());
    EXPECT_EQ(machine.counter(MERAPI_COUNTER_OBJECTS_MARKED), leaves.size());
    for (uint64_t to : leaves) ASSERT_TRUE(window.marked(0, to)) << to;
  }
}
TEST(RtlNearBlocks, NothingBesideThemIsRead) { nothing_beside_a_block_is_read(4); }
TEST(RtlNearBlocks, NothingBesideThemIsReadWide) { nothing_beside_a_block_is_read(8); }

}  // namespace
}  // namespace merapi::sim::rtl::test
