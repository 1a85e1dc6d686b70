// SPDX-License-Identifier: Apache-2.0
//
// What a host does to the model while it is paused: shapes are withdrawn and replaced, with INVALIDATE_SHAPES among
// what waits in the ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "sim/test/machine.h"

namespace merapi::sim::test {
namespace {

constexpr uint32_t kKlass = 0x1000, kLarge = 0x2000;

class Pauses : public testing::Test {
 protected:
  explicit Pauses(const WindowShape& shape = large_ring()) : window_(shape), machine_(&window_, one_turn()) {
    window_.fill_regions();
  }

  static WindowShape large_ring() {
    WindowShape shape;
    shape.submission_entries = 256;
    shape.regions = 32;
    return shape;
  }
  static TracerOptions one_turn() {
    TracerOptions options;
    options.step_ns = 0;
    options.strict = true;
    return options;
  }

  void klass(uint64_t offset, uint32_t word) { std::memcpy(window_.heap() + offset + 8, &word, 4); }
  void u32(uint64_t offset, uint32_t value) { std::memcpy(window_.heap() + offset, &value, 4); }
  void reference(uint64_t field, uint64_t offset) { u32(field, uint32_t(address(offset) >> 3)); }
  uint64_t address(uint64_t offset) const { return window_.shape.heap_base + offset; }

  void pause() {
    machine_.request_pause();
    while (!machine_.pause_acknowledged()) machine_.step();
  }
  // INVALIDATE_SHAPES behind so many entries that nothing happens at.
  void resume_behind(int entries) {
    for (int i = 0; i < entries; i++) machine_.command(MERAPI_OP_NOP, 0, 0, 0);
    machine_.command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    machine_.resume();
  }
  // The completions until idle.
  std::vector<merapi_completion> finish() {
    std::vector<merapi_completion> all;
    for (int i = 0; i < 20'000 && !machine_.idle(); i++) {
      machine_.step();
      for (const merapi_completion& c : machine_.complete()) all.push_back(c);
    }
    EXPECT_EQ(machine_.fault().code, uint32_t(MERAPI_FAULT_NONE));
    EXPECT_TRUE(machine_.idle());
    return all;
  }

  Window window_;
  Machine machine_;
};

class PausesOfManyRegions : public Pauses {
 protected:
  PausesOfManyRegions() : Pauses(many_regions()) {}
  static WindowShape many_regions() {
    WindowShape shape = large_ring();
    shape.region_log2 = 16;
    shape.regions = 40'000;
    return shape;
  }
};

// Limits are read in several turns after a resume. A pause in between owes the check of what it finds read already.
TEST_F(PausesOfManyRegions, ALimitThatFellIsRememberedByTheNextPause) {
  constexpr uint64_t kFreed = 3, kObjects = 2000, kBytes = 32;
  const uint64_t base = kFreed << window_.shape.region_log2;
  window_.put_instance(kKlass, kBytes / 8);
  window_.put_object_array(kLarge, 16);
  for (int turns : {0, 1, 2, 3}) {
    SCOPED_TRACE(turns);
    window_.clear_area(MERAPI_AREA_BITMAP0);
    window_.clear_area(MERAPI_AREA_LIVE);
    window_.limits()[kFreed] = base + (uint64_t{1} << window_.shape.region_log2);
    klass(0, kLarge);
    u32(12, kObjects);
    for (uint64_t i = 0; i < kObjects; i++) {
      klass(base + kBytes * i, kKlass);
      reference(16 + 4 * i, base + kBytes * i);
    }
    ASSERT_TRUE(machine_.attach());
    machine_.begin(0);
    machine_.grey({address(0)});
    // A turn of any length (they adapt to the time that they take) leaves most of the objects to be visited.
    for (int i = 0; i < 100'000 && window_.live()[kFreed] == 0; i++) machine_.step();
    pause();
    EXPECT_GT(window_.live()[kFreed], 0u);
    EXPECT_LT(window_.live()[kFreed], kObjects * kBytes / 8);
    // The host frees the region, and the memory is something else's.
    window_.limits()[kFreed] = base;
    std::fill_n(window_.bitmap(0) + base / 512, (uint64_t{1} << window_.shape.region_log2) / 512, 0);
    window_.live()[kFreed] = 0;
    std::memset(window_.heap() + base, 0, kObjects * kBytes);
    machine_.resume();
    for (int i = 0; i < turns; i++) machine_.step();
    pause();
    machine_.resume();
    finish();
    EXPECT_EQ(window_.live()[kFreed], 0u);
    EXPECT_FALSE(window_.marked(0, base));
  }
}

// A list whose links move to another field: what stands in the old one is no reference any more.
TEST_F(Pauses, NothingIsTracedByAShapeOfBeforeThePause) {
  constexpr uint64_t kBytes = 32, kObjects = 8000, kDecoys = kObjects * kBytes, kOld = 12, kNew = 20;
  for (int entries : {0, 1, 63, 64, 65, 200}) {
    SCOPED_TRACE(entries);
    window_.clear_area(MERAPI_AREA_BITMAP0);
    window_.put_instance(kKlass, kBytes / 8, {{kOld, 1}});
    for (uint64_t i = 0; i < kObjects; i++) {
      klass(i * kBytes, kKlass);
      klass(kDecoys + i * kBytes, kKlass);
      u32(i * kBytes + kNew, 0);
      if (i + 1 < kObjects) reference(i * kBytes + kOld, (i + 1) * kBytes);
    }
    ASSERT_TRUE(machine_.attach());
    machine_.begin(0);
    machine_.grey({address(0)});
    while (!window_.marked(0, 100 * kBytes)) machine_.step();
    pause();
    ASSERT_FALSE(window_.marked(0, (kObjects - 1) * kBytes));
    window_.put_instance(kKlass, kBytes / 8, {{kNew, 1}});
    for (uint64_t i = 0; i < kObjects; i++) {
      reference(i * kBytes + kOld, kDecoys + i * kBytes);
      if (i + 1 < kObjects) reference(i * kBytes + kNew, (i + 1) * kBytes);
    }
    resume_behind(entries);
    finish();
    uint64_t marked = 0, decoys = 0;
    for (uint64_t i = 0; i < kObjects; i++) {
      marked += window_.marked(0, i * kBytes);
      decoys += window_.marked(0, kDecoys + i * kBytes);
    }
    EXPECT_EQ(marked, kObjects);
    EXPECT_EQ(decoys, 0u);
  }
}

// What is left of an object in the middle of its scan is by the shape that it has then, whatever its kind; its words
// were counted.
TEST_F(Pauses, AnObjectInTheMiddleOfItsScanBeginsAgain) {
  constexpr uint32_t kWords = 100'000;
  constexpr uint64_t kTarget = 8 * kWords, kDecoy = kTarget + 64;
  const auto shape = [](uint8_t kind) {
    merapi_shape s{};
    s.klass_word = kLarge;
    s.kind = kind;
    s.size_words = kWords;
    return s;
  };
  enum { kMoved, kWithdrawn, kDeferred, kArray, kBytes, kSame, kKinds };
  for (int to = 0; to < kKinds; to++) {
    for (int entries : {0, 100}) {
      SCOPED_TRACE(testing::Message() << "kind " << to << ", " << entries << " entries");
      window_.clear_area(MERAPI_AREA_BITMAP0);
      window_.clear_area(MERAPI_AREA_SHAPES);
      window_.put_instance(kKlass, 4);
      window_.put_shape(shape(MERAPI_SHAPE_KIND_INSTANCE), {{16, 2 * kWords - 1000}});
      klass(0, kLarge);
      for (uint64_t o : {kTarget, kDecoy}) klass(o, kKlass);
      std::memset(window_.heap() + 12, 0, 8 * kWords - 12);
      ASSERT_TRUE(machine_.attach());
      machine_.begin(0);
      machine_.grey({address(0)});
      while (!window_.marked(0, 0)) machine_.step();
      pause();
      machine_.complete();
      const uint64_t before = machine_.counter(MERAPI_COUNTER_REFERENCES_READ);
      ASSERT_LT(before, 2 * kWords - 1000);
      reference(4 * kWords, kDecoy);  // in the run of the old shape
      reference(16, kTarget);         // passed by the old shape; as an array of 2 references, too
      u32(12, 2);
      uint64_t more = 0;
      if (to == kMoved) window_.put_shape(shape(MERAPI_SHAPE_KIND_INSTANCE), {{16, 1}}), more = 1;
      if (to == kDeferred) window_.put_shape(shape(MERAPI_SHAPE_KIND_HOST));
      if (to == kSame) {
        u32(4 * kWords, 0);
        more = 2 * kWords - 1000;
      }
      if (to == kArray) window_.put_object_array(kLarge, 16), more = 2;
      if (to == kWithdrawn) {
        auto* table = reinterpret_cast<merapi_shape*>(window_.area(MERAPI_AREA_SHAPES));
        for (uint32_t i = 0; i < window_.shape.shape_slots; i++) {
          if (table[i].klass_word == kLarge) table[i].klass_word = MERAPI_SHAPE_KEY_TOMBSTONE;
        }
      }
      if (to == kBytes) {
        merapi_shape s = shape(MERAPI_SHAPE_KIND_PRIM_ARRAY);
        s.header_bytes = 16;
        window_.put_shape(s);
      }
      resume_behind(entries);
      uint64_t deferred = 0;
      for (const merapi_completion& c : finish()) {
        if (c.type != MERAPI_COMP_DEFER) continue;
        EXPECT_EQ(c.flags, 0);
        EXPECT_EQ(c.payload[0], address(0));
        deferred += c.count;
      }
      EXPECT_EQ(deferred, to == kWithdrawn || to == kDeferred);
      EXPECT_EQ(machine_.counter(MERAPI_COUNTER_REFERENCES_READ), before + more);
      EXPECT_EQ(window_.marked(0, kTarget), to == kMoved || to == kArray || to == kSame);
      EXPECT_FALSE(window_.marked(0, kDecoy));
      EXPECT_EQ(machine_.counter(MERAPI_COUNTER_LIVE_WORDS), kWords + (window_.marked(0, kTarget) ? 4 : 0));
    }
  }
}

// Arrays, which may be too long for the time between two pauses, go on where they are.
TEST_F(Pauses, AnArrayGoesOnOverPauses) {
  constexpr uint32_t kLength = 200'000;
  window_.put_object_array(kLarge, 16);
  klass(0, kLarge);
  u32(12, kLength);
  ASSERT_TRUE(machine_.attach());
  machine_.begin(0);
  machine_.grey({address(0)});
  for (int i = 0; i < 50; i++) {
    machine_.step();
    machine_.complete();
    pause();
    resume_behind(i % 3);
  }
  finish();
  EXPECT_EQ(machine_.counter(MERAPI_COUNTER_REFERENCES_READ), kLength);
}

}  // namespace
}  // namespace merapi::sim::test
