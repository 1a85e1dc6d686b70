// SPDX-License-Identifier: Apache-2.0
//
// Fields of a shape that its kind does not have say nothing, whatever stands in them. MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "sim/rtl/test/directed_heap.h"

namespace merapi::sim::rtl::test {
namespace {

class RtlShapes : public DirectedHeap {};

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

}  // namespace
}  // namespace merapi::sim::rtl::test
