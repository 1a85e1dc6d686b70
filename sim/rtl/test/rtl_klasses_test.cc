// SPDX-License-Identifier: Apache-2.0
//
// Heaps of more klasses than caches, queues and rings have room for. MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "sim/rtl/test/directed_heap.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;

class RtlKlasses : public DirectedHeap {
 protected:
  using DirectedHeap::DirectedHeap;

  // An array of so many objects of these klasses, in turns of chance, traced by a host that pauses every so many
  // cycles; the longest pause.
  uint64_t trace_with_pauses(const std::vector<uint32_t>& klasses, uint32_t objects, uint64_t every) {
    Random random(1);
    for (uint32_t k : klasses) window_.put_instance(k, 2);
    make_array(64, objects);
    for (uint32_t i = 0; i < objects; i++) {
      klass(node(i), klasses[random.below(klasses.size())]);
      refer(64 + 16 + 4 * uint64_t{i}, node(i));
    }
    window_.mark(0, 64);
    start();
    uint64_t longest = 0;
    int pauses = 0;
    for (; !machine_->idle() && pauses < 1000; pauses++) {
      machine_->run(every + random.below(3 * every / 2));
      machine_->complete();
      const uint64_t before = machine_->simulation->cycles();
      machine_->request_pause();
      EXPECT_TRUE(machine_->run_until([&] { return machine_->pause_acknowledged(); }, kPatience));
      longest = std::max(longest, machine_->simulation->cycles() - before);
      machine_->resume();
      EXPECT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
      machine_->complete();
      if (HasFailure()) return longest;
    }
    EXPECT_LT(pauses, 1000) << "nothing goes on between pauses";
    EXPECT_GT(pauses, 3);
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), objects);
    RecordProperty("longest_pause_cycles", int(longest));
    return longest;
  }
};

// More klasses than the completion ring has room for, met by a host that reads nothing until nothing moves any more:
// every queue of reports is full by then, and none of what waits is lost.
TEST_F(RtlKlasses, EveryKlassIsReportedToAHostThatWaits) {
  const uint32_t klasses = 600;
  std::set<uint64_t> missing{kArray};
  make_array(64, klasses);
  for (uint32_t i = 0; i < klasses; i++) {
    const uint32_t leaf = 0x10000 + 8 * i;
    window_.put_instance(leaf, 2);
    klass(node(i), leaf);
    refer(64 + 16 + 4 * uint64_t{i}, node(i));
    missing.insert(leaf);
  }
  window_.mark(0, 64);
  start();
  machine_->run(300'000);
  EXPECT_EQ(machine_->completed(), window_.shape.completion_entries);
  auto read_some = [&] {
    for (const merapi_completion& c : machine_->complete(1)) {
      if (c.type != MERAPI_COMP_SHAPE_SEEN) continue;
      for (uint32_t k = 0; k < c.count; k++) missing.erase(c.payload[k]);
    }
  };
  ASSERT_TRUE(machine_->run_until([&] { return read_some(), machine_->idle(); }, kPatience));
  for (uint32_t i = 0; i < window_.shape.completion_entries; i++) read_some();
  EXPECT_TRUE(missing.empty()) << missing.size() << " klasses, the first " << std::hex << *missing.begin();
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), klasses);
}

// Objects that wait for their shapes do not keep a pause waiting for all that is asked of the walker: they look again
// when it is over.
TEST_F(RtlKlasses, APauseDoesNotWaitForShapes) {
  std::vector<uint32_t> klasses;
  for (uint32_t i = 0; i < 600; i++) klasses.push_back(0x10000 + 8 * i);
  EXPECT_LE(trace_with_pauses(klasses, 6000, 2000), ports() < 8 ? 800u : 1000u);
}

// Of a klass word as ShapeCache (a set of up to nine bits) and ShapeHash (five bits) fold it.
uint32_t folded(uint32_t word, int bits) {
  uint32_t f = 0;
  for (; word != 0; word >>= bits) f ^= word & ((1u << bits) - 1);
  return f;
}

// Klasses that share one set in the shape cache of every lane, whatever the preset: nearly every look misses, and lanes
// push out what others wait for. Some object goes on all the same. (That it need not be lucky for that, since one
// guards the set, is ShapeCacheTest's to see.)
class RtlKlassesOfOneSet : public RtlKlasses {
 protected:
  static std::vector<uint32_t> klasses(uint32_t count, bool of_one_hash) {
    std::vector<uint32_t> found;
    for (uint32_t i = 1; found.size() < count; i++) {
      const uint32_t word = 8 | i << 9 | i << 18;
      EXPECT_EQ(folded(word, 9), 8u);
      EXPECT_EQ(folded(word, 3), 1u);
      if (!of_one_hash || folded(word, 5) == folded(8 | 1 << 9 | 1 << 18, 5)) found.push_back(word);
    }
    return found;
  }
  void go_on(const std::vector<uint32_t>& klasses) {
    constexpr uint32_t kObjects = 1200;
    options_.timing = {60, 60, 100, 1};
    EXPECT_LE(trace_with_pauses(klasses, kObjects, 4000), 1250u);
    // 65 to 244 by the presets: a look-up of the memory for each object, or a few.
    EXPECT_LT(machine_->counter(MERAPI_COUNTER_CYCLES), 400 * kObjects);
  }
};
TEST_F(RtlKlassesOfOneSet, GoOn) { go_on(klasses(48, false)); }
TEST_F(RtlKlassesOfOneSet, AndOneHashGoOn) { go_on(klasses(12, true)); }

}  // namespace
}  // namespace merapi::sim::rtl::test
