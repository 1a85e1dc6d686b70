// SPDX-License-Identifier: Apache-2.0
//
// The shape table, against a map and against the contract's own lookup.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>

#include "stepped.h"

namespace merapi_test {
namespace {

merapi_shape Instance(uint64_t klass, uint32_t words, uint32_t blocks) {
  merapi_shape shape{};
  shape.klass_word = klass;
  shape.kind = MERAPI_SHAPE_KIND_INSTANCE;
  shape.size_words = words;
  shape.block_count = blocks;
  return shape;
}

std::vector<merapi_ref_block> Blocks(uint32_t count) {
  std::vector<merapi_ref_block> blocks(count);
  for (uint32_t i = 0; i < count; i++) blocks[i] = {16 + 16 * i, 1};
  return blocks;
}

bool Equal(const std::vector<merapi_ref_block>& a, const std::vector<merapi_ref_block>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const merapi_ref_block& x, const merapi_ref_block& y) {
    return x.offset == y.offset && x.count == y.count;
  });
}

// A lookup as the contract words it, on the raw table.
const merapi_shape* Lookup(const merapi_shape* table, uint32_t slots, uint64_t klass) {
  uint32_t log2 = 0;
  while ((1u << log2) < slots) log2++;
  const auto folded = static_cast<uint32_t>(klass ^ klass >> 32);
  const uint32_t home =
      static_cast<uint32_t>(folded * static_cast<uint64_t>(MERAPI_SHAPE_HASH_MULTIPLIER)) >> (32 - log2);
  for (uint32_t i = 0; i < MERAPI_SHAPE_PROBE_LIMIT; i++) {
    const merapi_shape* slot = &table[(home + i) % slots];
    if (slot->klass_word == klass) return slot;
    if (slot->klass_word == MERAPI_SHAPE_KEY_EMPTY) return nullptr;
  }
  return nullptr;
}

class Shape : public Stepped {
 protected:
  const merapi_shape* Table() { return static_cast<const merapi_shape*>(merapi_map_area(window_, MERAPI_AREA_SHAPES)); }
  struct merapi_shape_usage Usage() {
    struct merapi_shape_usage usage;
    merapi_shape_usage(window_, &usage);
    return usage;
  }
};

TEST_F(Shape, InlineAndExtendedBlocksComeBack) {
  for (uint32_t count : {0u, 1u, 4u, 5u, 8u, 9u, 30u}) {
    const uint64_t klass = 0x800001000 + count * 8;
    const auto blocks = Blocks(count);
    const merapi_shape shape = Instance(klass, 100, count);
    ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0) << count;
    merapi_shape got;
    std::vector<merapi_ref_block> back(count);
    ASSERT_EQ(merapi_shape_get(window_, klass, &got, back.data(), count), 0);
    EXPECT_EQ(got.size_words, 100u);
    EXPECT_EQ(got.block_count, count);
    EXPECT_TRUE(Equal(back, blocks));
    EXPECT_EQ(got.extension % 64, 0u);
    const merapi_shape* raw = Lookup(Table(), 64, klass);
    ASSERT_NE(raw, nullptr);
    if (count > 4) {
      const auto* extension = static_cast<const uint8_t*>(merapi_map_area(window_, MERAPI_AREA_SHAPE_EXTENSION));
      EXPECT_EQ(std::memcmp(extension + raw->extension, blocks.data(), count * sizeof(merapi_ref_block)), 0);
    }
  }
  EXPECT_EQ(Usage().used, 7u);
  EXPECT_EQ(Usage().extension_used, (1 + 1 + 2 + 4) * 64u);
}

TEST_F(Shape, ReplacingAndRemovingGiveRoomBack) {
  const auto blocks = Blocks(20);
  merapi_shape shape = Instance(0x1000, 100, 20);
  ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);
  const uint64_t used = Usage().extension_used;
  ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);  // the same: nothing happens
  EXPECT_EQ(Usage().extension_used, used);
  shape.block_count = 6;
  ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);
  EXPECT_EQ(Usage().extension_used, 64u);
  EXPECT_EQ(Usage().used, 1u);
  EXPECT_EQ(merapi_shape_remove(window_, 0x1000), 0);
  EXPECT_EQ(merapi_shape_remove(window_, 0x1000), -ENOENT);
  EXPECT_EQ(Usage().extension_used, 0u);
  EXPECT_EQ(Usage().used, 0u);
  EXPECT_EQ(Usage().tombstones, 0u);  // nothing behind it: no tombstone needed
  merapi_shape got;
  EXPECT_EQ(merapi_shape_get(window_, 0x1000, &got, nullptr, 0), -ENOENT);
}

// A device process, or anything else that has the window, may have written the slot.
TEST_F(Shape, WhatASlotNamesIsNotBelieved) {
  const auto blocks = Blocks(20);
  const merapi_shape first = Instance(0x1000, 100, 20), second = Instance(0x2000, 100, 20);
  ASSERT_EQ(merapi_shape_put(window_, &first, blocks.data()), 0);
  ASSERT_EQ(merapi_shape_put(window_, &second, blocks.data()), 0);
  const uint64_t used = Usage().extension_used;
  auto* slot = const_cast<merapi_shape*>(Lookup(Table(), 64, 0x1000));
  // Beyond the extension, and the window: written anew instead of read there.
  for (uint64_t extension : {UINT64_C(1) << 40, UINT64_MAX - 63, UINT64_C(8)}) {
    slot->extension = extension;
    merapi_shape got;
    std::vector<merapi_ref_block> back(20);
    EXPECT_EQ(merapi_shape_get(window_, 0x1000, &got, back.data(), 20), -EPROTO);
    ASSERT_EQ(merapi_shape_put(window_, &first, blocks.data()), 0) << extension;
    ASSERT_EQ(merapi_shape_get(window_, 0x1000, &got, back.data(), 20), 0);
    EXPECT_TRUE(Equal(back, blocks));
  }
  // Lines that nobody holds are not given back twice.
  slot->extension = merapi_layout_of(window_)->area[MERAPI_AREA_SHAPE_EXTENSION].size - used / 2;
  const uint64_t before = Usage().extension_used;
  EXPECT_EQ(merapi_shape_remove(window_, 0x1000), 0);
  EXPECT_EQ(Usage().extension_used, before);
}

TEST_F(Shape, UnsoundShapesAreRefused) {
  const auto blocks = Blocks(3);
  merapi_shape shape = Instance(0, 100, 0);
  EXPECT_EQ(merapi_shape_put(window_, &shape, nullptr), -EINVAL);
  shape.klass_word = MERAPI_SHAPE_KEY_TOMBSTONE;
  EXPECT_EQ(merapi_shape_put(window_, &shape, nullptr), -EINVAL);
  shape = Instance(8, 1, 0);  // smaller than a header
  EXPECT_EQ(merapi_shape_put(window_, &shape, nullptr), -EINVAL);
  shape = Instance(8, 100, 3);
  EXPECT_EQ(merapi_shape_put(window_, &shape, nullptr), -EINVAL);
  shape = Instance(8, 6, 3);  // blocks beyond the object
  EXPECT_EQ(merapi_shape_put(window_, &shape, blocks.data()), -EINVAL);
  const merapi_ref_block descending[] = {{32, 2}, {16, 1}};
  shape = Instance(8, 100, 2);
  EXPECT_EQ(merapi_shape_put(window_, &shape, descending), -EINVAL);
  const merapi_ref_block odd[] = {{17, 1}};
  shape = Instance(8, 100, 1);
  EXPECT_EQ(merapi_shape_put(window_, &shape, odd), -EINVAL);
  shape = Instance(8, 100, 0);
  shape.kind = MERAPI_SHAPE_KIND_HOST + 1;
  EXPECT_EQ(merapi_shape_put(window_, &shape, nullptr), -EINVAL);
  shape.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
  shape.header_bytes = 16;
  shape.element_log2 = 4;
  EXPECT_EQ(merapi_shape_put(window_, &shape, nullptr), -EINVAL);
  EXPECT_EQ(Usage().used, 0u);
}

TEST_F(Shape, FullTableSaysSoAndStaysSound) {
  int put = 0;
  for (uint64_t klass = 8; klass < 8 * 200; klass += 8) {
    const merapi_shape shape = Instance(klass, 10, 0);
    const int status = merapi_shape_put(window_, &shape, nullptr);
    ASSERT_TRUE(status == 0 || status == -ENOSPC) << status;
    if (status == 0) put++;
  }
  EXPECT_GE(put, 48);
  EXPECT_LE(put, 64);
  EXPECT_EQ(Usage().used, static_cast<uint32_t>(put));
  // The extension has 4096 bytes: 64 lines.
  merapi_shape_clear(window_);
  EXPECT_EQ(Usage().used, 0u);
  const auto blocks = Blocks(8 * 65);
  merapi_shape shape = Instance(8, 5000, 8 * 65);
  EXPECT_EQ(merapi_shape_put(window_, &shape, blocks.data()), -ENOSPC);
  shape.block_count = 8 * 64;
  EXPECT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);
  shape = Instance(16, 5000, 5);
  EXPECT_EQ(merapi_shape_put(window_, &shape, blocks.data()), -ENOSPC);
}

// Classes come and go: the table equals a map at all times, through both lookups, and across a reopening.
TEST_F(Shape, RandomChurnEqualsAMap) {
  std::mt19937_64 random(1);
  std::map<uint64_t, merapi_shape> reference;
  std::map<uint64_t, std::vector<merapi_ref_block>> lists;
  const auto check = [&] {
    for (const auto& [klass, shape] : reference) {
      const merapi_shape* raw = Lookup(Table(), 64, klass);
      ASSERT_NE(raw, nullptr) << klass;
      merapi_shape got;
      std::vector<merapi_ref_block> back(shape.block_count);
      ASSERT_EQ(merapi_shape_get(window_, klass, &got, back.data(), shape.block_count), 0);
      ASSERT_EQ(got.size_words, shape.size_words);
      ASSERT_TRUE(Equal(back, lists[klass])) << klass;
    }
    ASSERT_EQ(Usage().used, reference.size());
  };
  for (int i = 0; i < 20000; i++) {
    const uint64_t klass = 0x7f0000000000 + random() % 90 * 0x1238;
    if (random() % 100 < 55) {
      const auto count = static_cast<uint32_t>(random() % 12);
      const merapi_shape shape = Instance(klass, 200 + static_cast<uint32_t>(random() % 50), count);
      const auto blocks = Blocks(count);
      const int status = merapi_shape_put(window_, &shape, blocks.data());
      if (status == 0) {
        reference[klass] = shape;
        lists[klass] = blocks;
      } else {
        ASSERT_EQ(status, -ENOSPC);
      }
    } else {
      ASSERT_EQ(merapi_shape_remove(window_, klass), reference.erase(klass) == 1 ? 0 : -ENOENT);
    }
    if (i % 500 == 0) check();
    if (i % 5000 == 4999) {
      const struct merapi_shape_usage before = Usage();
      merapi_close(window_);
      ASSERT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window_, &error_), 0) << error_.message;
      const struct merapi_shape_usage after = Usage();
      EXPECT_EQ(before.used, after.used);
      EXPECT_EQ(before.tombstones, after.tombstones);
      EXPECT_EQ(before.extension_used, after.extension_used);
    }
  }
  check();
}

// A reader that runs beside publication sees a whole shape or none.
TEST_F(Shape, ReadersNeverSeeHalfAShape) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen{0};
  const auto* table = reinterpret_cast<const merapi_shape*>(static_cast<const uint8_t*>(merapi_lease_base(lease_)) +
                                                            merapi_layout_of(window_)->area[MERAPI_AREA_SHAPES].offset);
  std::thread reader([&] {
    while (!stop) {
      for (uint32_t i = 0; i < 64; i++) {
        const uint64_t key = __atomic_load_n(&table[i].klass_word, __ATOMIC_ACQUIRE);
        if (key == MERAPI_SHAPE_KEY_EMPTY) continue;
        ASSERT_EQ(table[i].size_words, static_cast<uint32_t>(key / 8 + 2));
        seen++;
      }
    }
  });
  for (uint64_t klass = 8; klass < 8 * 49; klass += 8) {
    const merapi_shape shape = Instance(klass, static_cast<uint32_t>(klass / 8 + 2), 0);
    merapi_shape_put(window_, &shape, nullptr);
    std::this_thread::yield();
  }
  while (seen < 1000) std::this_thread::yield();
  stop = true;
  reader.join();
}

TEST_F(Shape, TableWithSharedLinesIsNotOpened) {
  const auto blocks = Blocks(8);
  for (uint64_t klass : {UINT64_C(0x100), UINT64_C(0x900)}) {
    const merapi_shape shape = Instance(klass, 100, 8);
    ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);
  }
  auto* table = static_cast<merapi_shape*>(merapi_map_area(window_, MERAPI_AREA_SHAPES));
  for (int i = 0; i < 64; i++) table[i].extension = 0;
  merapi_close(window_);
  EXPECT_EQ(merapi_open(path_.c_str(), nullptr, 0, &window_, &error_), -EPROTO);
}

}  // namespace
}  // namespace merapi_test
