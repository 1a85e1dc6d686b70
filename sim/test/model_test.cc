// SPDX-License-Identifier: Apache-2.0
//
// The model against the naive closure over generated heaps. MERAPI_SEEDS: how many seeds each case runs (default 150);
// MERAPI_SEED: run this one alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim/test/closure.h"
#include "sim/test/environment.h"
#include "sim/test/heap_maker.h"
#include "sim/test/machine.h"
#include "sim/test/model_device.h"

namespace merapi::sim::test {
namespace {

void run_seeds(const TraceKnobs& knobs) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  uint64_t first = 1, count = from_environment("MERAPI_SEEDS", 150, 1);
  if (uint64_t only = from_environment("MERAPI_SEED", 0)) first = only, count = 1;
  for (uint64_t seed = first; seed < first + count; seed++) {
    std::string error = random_trace(seed, knobs, make_model_device);
    EXPECT_EQ(error, "") << "replay: MERAPI_SEED=" << seed << " model_test --gtest_filter=" << info->test_suite_name()
                         << "." << info->name();
    if (!error.empty()) return;
  }
}

}  // namespace

// The judge itself: one mark too many and one too few are found.
TEST(NaiveClosure, FindsOneWrongMark) {
  Random random(7);
  Window window({});
  HeapMaker maker(&window, &random, Topology::kRandom);
  maker.make();
  maker.mark_some(0, 10);
  ClosureInput in = ClosureInput::of_window(window.base, 0);
  for (uint32_t r = 0; r < window.shape.regions; r++) in.commanded.insert(r);
  in.answer_object = [&](uint64_t key) { return maker.answer(key); };
  in.answer_klass = in.answer_object;
  std::vector<uint8_t> before(in.bitmap, in.bitmap + in.area_bytes[MERAPI_AREA_BITMAP0]);
  in.bitmap = before.data();
  Closure want = naive_closure(in);
  std::vector<uint8_t> right(before.size());
  for (uint64_t bit = 0; bit < want.marked.size(); bit++) right[bit / 8] |= uint8_t(want.marked[bit] << (bit % 8));
  EXPECT_GT(want.newly_count, 0u);
  EXPECT_EQ(compare_marks(in, want, right.data()), "");
  for (uint64_t bit : {UINT64_C(0), want.marked.size() / 2, want.marked.size() - 1}) {
    right[bit / 8] ^= uint8_t(1u << (bit % 8));
    EXPECT_NE(compare_marks(in, want, right.data()), "");
    right[bit / 8] ^= uint8_t(1u << (bit % 8));
  }
}

// A host that asks whether the device gets on, while a sweep finds nothing for long.
TEST(BitmapReads, GrowWhileNothingIsMarked) {
  WindowShape shape;
  shape.regions = 256;
  Window window(shape);
  const uint64_t lines = window.heap_bytes() >> window.shape.alignment_log2 >> 9;
  window.fill_regions();
  TracerOptions options;
  options.slice = 64;
  options.step_ns = 0;  // one turn a step
  Machine machine(&window, options);
  ASSERT_TRUE(machine.attach());
  machine.begin(0);
  machine.trace(0, window.shape.regions);
  uint64_t read = 0, grew = 0;
  for (int looks = 0; !machine.idle(); looks++) {
    ASSERT_LT(looks, 10000);
    for (int i = 0; i < 4; i++) machine.step();
    machine.request_pause();
    while (!machine.pause_acknowledged()) machine.step();
    const uint64_t now = machine.counter(MERAPI_COUNTER_BITMAP_READS);
    machine.complete();
    if (looks != 0 && machine.completed() == 0) {
      EXPECT_GT(now, read) << "look " << looks;
    }
    grew += now > read;
    read = now;
    machine.resume();
    while (!machine.resume_acknowledged()) machine.step();
  }
  EXPECT_GT(grew, 10u);
  EXPECT_EQ(machine.counter(MERAPI_COUNTER_BITMAP_READS), 2 * lines) << "the snapshot of each region, and its sweep";
}

// Of an object with as many blocks as the model copies, and with more, which it reads from the window.
TEST(Blocks, AllReferencesOfAnObject) {
  constexpr uint32_t kKlass = 0x1000, kLeaf = 0x2000;
  for (uint32_t count : {1u, 4u, 5u, 511u, 512u, 513u, 3000u}) {
    SCOPED_TRACE(testing::Message() << count << " blocks");
    WindowShape shape;
    shape.shape_slots = 1 << 14;
    Window window(shape);
    window.fill_regions();
    const auto put = [&](uint64_t offset, uint32_t value) {
      std::memcpy(window.heap() + offset, &value, sizeof value);
    };
    const auto narrow = [&](uint64_t offset) {
      return uint32_t((window.shape.heap_base + offset) >> window.shape.narrow_shift);
    };
    std::vector<merapi_ref_block> blocks;
    for (uint32_t i = 0; i < count; i++) blocks.push_back({16 + 8 * i, i % 5 == 3 ? 0u : 1u});
    window.put_instance(kKlass, 2 + count, blocks);
    window.put_instance(kLeaf, 2);
    put(8, kKlass);
    const uint64_t leaves = window.heap_bytes() / 2;
    for (uint32_t i = 0; i < count; i++) {
      put(16 + 8 * i, narrow(leaves + 16 * i));
      put(leaves + 16 * i + 8, kLeaf);
    }
    Machine machine(&window, {});
    ASSERT_TRUE(machine.attach());
    machine.begin(0);
    machine.grey({window.shape.heap_base});
    for (int i = 0; i < 1000 && !machine.idle(); i++) {
      machine.step();
      machine.complete();
    }
    ASSERT_TRUE(machine.idle());
    for (uint32_t i = 0; i < count; i++) ASSERT_EQ(window.marked(0, leaves + 16 * i), blocks[i].count != 0) << i;
  }
}

TEST(RandomTrace, Plain) { run_seeds({.pauses = false, .reclaims = false, .aborts = false}); }
TEST(RandomTrace, EveryCounter) { run_seeds({.pauses = false, .reclaims = false, .aborts = false, .once = true}); }
TEST(RandomTrace, Pauses) { run_seeds({.reclaims = false, .aborts = false}); }
TEST(RandomTrace, PausesWithReclaim) { run_seeds({.aborts = false}); }
TEST(RandomTrace, RegionsFallInPauses) { run_seeds({.reclaims = false, .falls = true, .aborts = false}); }
TEST(RandomTrace, RegionsFallWithTinyStacks) {
  run_seeds({.reclaims = false, .falls = true, .aborts = false, .tiny_stack = true});
}
TEST(RandomTrace, Aborts) { run_seeds({}); }
TEST(RandomTrace, TinyStackSpills) { run_seeds({.aborts = false, .tiny_stack = true}); }
TEST(RandomTrace, TinyStackDrops) { run_seeds({.tiny_stack = true, .no_spill = true}); }
TEST(RandomTrace, SlowHost) { run_seeds({.tiny_stack = true, .slow_host = true}); }
TEST(RandomTrace, Hasty) { run_seeds({.aborts = false, .no_spill = true, .hasty = true}); }
TEST(RandomTrace, Redefines) { run_seeds({.reclaims = false, .aborts = false, .redefines = true}); }
TEST(RandomTrace, RedefinesWithTinyStacks) {
  run_seeds({.reclaims = false, .aborts = false, .tiny_stack = true, .no_spill = true, .redefines = true});
}
TEST(RandomTrace, Overwrites) { run_seeds({.reclaims = false, .aborts = false, .overwrites = true}); }
TEST(RandomTrace, OverwritesWithTinyStacks) { run_seeds({.tiny_stack = true, .no_spill = true, .overwrites = true}); }

}  // namespace merapi::sim::test
