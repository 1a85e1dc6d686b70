// SPDX-License-Identifier: Apache-2.0
//
// Faults of configuration, commands and rings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "sim/test/faults_fixture.h"

namespace merapi::sim::test {
namespace {

struct BadField {
  const char* name;
  std::function<void(Window&)> spoil;
  uint64_t where;
};

TEST_F(Faults, EveryConfigurationFieldIsChecked) {
#define FIELD(f) (MERAPI_CONFIG_OFFSET + offsetof(merapi_config, f))
#define AREA(a) (MERAPI_DIRECTORY_OFFSET + (a) * sizeof(merapi_area_desc))
#define SIZE(a) (AREA(a) + 8)
  const BadField fields[] = {
      {"heap base unaligned", [](Window& w) { w.config()->heap_base += 4; }, FIELD(heap_base)},
      {"heap wraps", [](Window& w) { w.config()->heap_base = ~UINT64_C(0xffff); }, FIELD(heap_base)},
      {"shift", [](Window& w) { w.config()->narrow_oop_shift = 9; }, FIELD(narrow_oop_shift)},
      {"oop width", [](Window& w) { w.config()->oop_bytes = 2; }, FIELD(oop_bytes)},
      {"klass width", [](Window& w) { w.config()->klass_bytes = 5; }, FIELD(klass_bytes)},
      {"alignment low", [](Window& w) { w.config()->alignment_log2 = 2; }, FIELD(alignment_log2)},
      {"alignment high", [](Window& w) { w.config()->alignment_log2 = 9; }, FIELD(alignment_log2)},
      {"region low", [](Window& w) { w.config()->region_log2 = 15; }, FIELD(region_log2)},
      {"region high", [](Window& w) { w.config()->region_log2 = 37; }, FIELD(region_log2)},
      {"coherence unknown", [](Window& w) { w.config()->coherence = 0; }, FIELD(coherence)},
      {"coherence other", [](Window& w) { w.config()->coherence = 2; }, FIELD(coherence)},
      {"reserved0", [](Window& w) { w.config()->reserved0 = 1; }, FIELD(reserved0)},
      {"reserved1", [](Window& w) { w.config()->reserved1[2] = 1; }, FIELD(reserved1)},
      {"reserved2", [](Window& w) { w.config()->reserved2 = 1; }, FIELD(reserved2)},
      {"mirror", [](Window& w) { w.config()->mirror_size_offset = 33; }, FIELD(mirror_size_offset)},
      {"no regions", [](Window& w) { w.config()->region_count = 0; }, FIELD(region_count)},
      {"regions overflow", [](Window& w) { w.config()->region_count = ~0u; }, FIELD(region_count)},
      {"regions beyond the heap area", [](Window& w) { w.config()->region_count += 64; }, SIZE(MERAPI_AREA_BITMAP0)},
      {"heap unaligned", [](Window& w) { w.directory()->area[MERAPI_AREA_HEAP].offset += 4096; },
       AREA(MERAPI_AREA_HEAP)},
      {"heap absent",
       [](Window& w) {
         w.directory()->area[MERAPI_AREA_HEAP] = {0, 0};
       },
       AREA(MERAPI_AREA_HEAP)},
      {"heap outside", [](Window& w) { w.directory()->area[MERAPI_AREA_HEAP].size += w.bytes; },
       SIZE(MERAPI_AREA_HEAP)},
      {"bitmap short", [](Window& w) { w.directory()->area[MERAPI_AREA_BITMAP1].size = 4096; },
       SIZE(MERAPI_AREA_BITMAP1)},
      {"bitmaps overlap",
       [](Window& w) {
         w.directory()->area[MERAPI_AREA_BITMAP1].offset = w.directory()->area[MERAPI_AREA_BITMAP0].offset;
       },
       AREA(MERAPI_AREA_BITMAP1)},
      {"limits in the control page", [](Window& w) { w.directory()->area[MERAPI_AREA_LIMITS].offset = 64; },
       AREA(MERAPI_AREA_LIMITS)},
      {"live empty", [](Window& w) { w.directory()->area[MERAPI_AREA_LIVE].size = 0; }, SIZE(MERAPI_AREA_LIVE)},
      {"shape table no power of two", [](Window& w) { w.directory()->area[MERAPI_AREA_SHAPES].size = 12288; },
       SIZE(MERAPI_AREA_SHAPES)},
      {"spill outside", [](Window& w) { w.directory()->area[MERAPI_AREA_SPILL].offset = w.bytes; },
       AREA(MERAPI_AREA_SPILL)},
      {"unknown area overlaps",
       [](Window& w) {
         w.directory()->area[15] = {4096, 4096};
       },
       AREA(15)},
      {"ring moved", [](Window& w) { w.directory()->area[MERAPI_AREA_SUBMISSION].size = 8192; }, 0},
  };
  WindowShape shape;
  shape.regions = 32;
  for (const BadField& f : fields) {
    SCOPED_TRACE(f.name);
    build(shape);
    ASSERT_TRUE(machine_->attach());
    f.spoil(*window_);
    machine_->begin(0);
    steps(5);
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_CONFIG));
    if (f.where != 0) {
      EXPECT_EQ(record().address, f.where);
    }
  }
}

TEST_F(Faults, ARefusedBeginNamesTheCycleBefore) {
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  steps(5);
  const uint32_t before = machine_->cycle;
  window_->config()->oop_bytes = 5;
  machine_->begin(1);
  steps(5);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_CONFIG));
  EXPECT_EQ(record().cycle, before);
}

TEST_F(Faults, LimitOutsideItsRegion) {
  for (uint64_t bad : {window_->region_bytes() - 8, 2 * window_->region_bytes() + 8, window_->region_bytes() + 4}) {
    build({});
    window_->limits()[1] = bad;
    ASSERT_TRUE(machine_->attach());
    machine_->begin(0);
    machine_->trace(0, 4);
    steps();
    expect_fault(MERAPI_FAULT_BAD_CONFIG, window_->layout.area[MERAPI_AREA_LIMITS].offset + 8, bad);
  }
}

TEST_F(Faults, ConfigurationIsLatched) {
  ASSERT_NO_FATAL_FAILURE(begin_with_two_objects());
  steps(3);
  // What changes after BEGIN_CYCLE is not looked at.
  *window_->config() = {};
  *window_->directory() = {};
  machine_->trace(0, 4);
  steps();
  EXPECT_TRUE(window_->marked(0, 4096));
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
}

TEST_F(Faults, BadCommands) {
  struct Case {
    const char* name;
    bool in_cycle;
    merapi_submission entry;
  };
  auto entry = [](uint8_t op, uint32_t arg, uint64_t p0 = 0, uint64_t p1 = 0, uint16_t count = 0) {
    merapi_submission e{};
    e.opcode = op;
    e.arg = arg;
    e.payload[0] = p0;
    e.payload[1] = p1;
    e.count = count;
    return e;
  };
  const Case cases[] = {
      {"unknown opcode", true, entry(99, 0)},
      {"bitmap 2", false, entry(MERAPI_OP_BEGIN_CYCLE, 2)},
      {"trace outside a cycle", false, entry(MERAPI_OP_TRACE_REGION, 0, 1)},
      {"grey outside a cycle", false, entry(MERAPI_OP_GREY, 0)},
      {"no regions", true, entry(MERAPI_OP_TRACE_REGION, 0, 0)},
      {"regions beyond the heap", true, entry(MERAPI_OP_TRACE_REGION, 15, 2)},
      {"region index wraps", true, entry(MERAPI_OP_TRACE_REGION, 1, ~UINT64_C(0))},
      {"scope region", true, entry(MERAPI_OP_TRACE_REGION, 0, 1, MERAPI_SCOPE_REGION)},
      {"breadth first", true, entry(MERAPI_OP_TRACE_REGION, 0, 1, MERAPI_ORDER_BREADTH_FIRST << 8)},
      {"seven greys", true, entry(MERAPI_OP_GREY, 0, 0, 0, 7)},
      {"clear the cycle's bitmap", true, entry(MERAPI_OP_CLEAR_BITMAP, 0, 0, 1)},
      {"clear bitmap 2", true, entry(MERAPI_OP_CLEAR_BITMAP, 2, 0, 1)},
      {"clear beyond the heap", true, entry(MERAPI_OP_CLEAR_BITMAP, 1, 16, 1)},
      {"clear nothing", false, entry(MERAPI_OP_CLEAR_BITMAP, 1, 0, 0)},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    build({});
    ASSERT_TRUE(machine_->attach());
    if (c.in_cycle) machine_->begin(0);
    steps(3);
    merapi_submission e = c.entry;
    e.cycle = c.in_cycle ? machine_->cycle : 5;
    uint64_t index = machine_->produced;
    machine_->submit(e);
    steps(3);
    expect_fault(MERAPI_FAULT_BAD_COMMAND, index, c.entry.opcode);
  }
}

// Outside cycles the configuration may change between two commands; each is measured by that of its own time.
TEST_F(Faults, AClearIsNotMeasuredByAnotherConfiguration) {
  WindowShape shape;
  shape.regions = 256;
  build(shape, true);
  const uint64_t words = window_->heap_bytes() / 8 / 64, slice = 16 * words / shape.regions;
  std::fill_n(window_->bitmap(0), words, ~UINT64_C(0));
  std::fill_n(window_->bitmap(1), words, ~UINT64_C(0));
  std::memset(window_->heap(), 0xaa, window_->heap_bytes());
  ASSERT_TRUE(machine_->attach());
  machine_->command(MERAPI_OP_CLEAR_BITMAP, 0, 16, shape.regions - 16);
  while (window_->bitmap(0)[slice] != 0) machine_->step();
  ASSERT_NE(window_->bitmap(0)[words - 1], 0u) << "expected the command to take some turns";
  window_->config()->region_log2 = 24;
  window_->config()->region_count = 1;
  machine_->command(MERAPI_OP_CLEAR_BITMAP, 1, 0, 1);
  steps();
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_EQ(machine_->complete().size(), 2u);
  for (uint64_t i = 0; i < words; i++) {
    ASSERT_EQ(window_->bitmap(0)[i], i < slice ? ~UINT64_C(0) : 0) << i;
    ASSERT_EQ(window_->bitmap(1)[i], 0u) << i;
  }
  for (uint64_t i = 0; i < window_->heap_bytes(); i++) ASSERT_EQ(window_->heap()[i], 0xaa) << i;
}

TEST_F(Faults, NoFlagsAreDefined) {
  for (uint8_t opcode : {MERAPI_OP_NOP, MERAPI_OP_BEGIN_CYCLE, MERAPI_OP_TRACE_REGION, MERAPI_OP_GREY,
                         MERAPI_OP_CLEAR_BITMAP, MERAPI_OP_FENCE, MERAPI_OP_INVALIDATE_SHAPES}) {
    for (unsigned bit = 0; bit < 8; bit++) {
      SCOPED_TRACE(testing::Message() << "opcode " << unsigned{opcode} << ", flag " << bit);
      build({});
      ASSERT_TRUE(machine_->attach());
      machine_->begin(0);
      steps(3);
      machine_->submit_with_flags(opcode, uint8_t(1u << bit));
      steps(3);
      expect_fault(MERAPI_FAULT_BAD_COMMAND, 1, opcode);
    }
  }
}

TEST_F(Faults, BadSequence) {
  ASSERT_TRUE(machine_->attach());
  machine_->submit({});
  auto* ring = reinterpret_cast<merapi_submission*>(window_->area(MERAPI_AREA_SUBMISSION));
  ring[0].sequence = 9;
  steps(3);
  expect_fault(MERAPI_FAULT_BAD_SEQUENCE, 0, 9);
}

TEST_F(Faults, RingOverrun) {
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  ASSERT_TRUE(machine_->attach());
  host->submission_produced = 65;
  steps(3);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
  EXPECT_EQ(record().address, 65u);

  build({});
  host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  ASSERT_TRUE(machine_->attach());
  machine_->submit({});
  steps(3);
  host->submission_produced = 0;
  steps(3);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));

  build({});
  host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  ASSERT_TRUE(machine_->attach());
  host->completion_consumed = 3;  // more than was ever written
  merapi_submission fence{};
  fence.opcode = MERAPI_OP_FENCE;
  machine_->submit(fence);
  steps(3);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
  EXPECT_EQ(record().address, 3u);
}

// Also while nothing is answered, and whatever the index is.
TEST_F(Faults, AnImpossibleCompletionIndexIsAnOverrun) {
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  merapi_submission fence{};
  fence.opcode = MERAPI_OP_FENCE;
  constexpr uint64_t kProduced = 5, kRead = 3, kWhole = 64;
  for (uint64_t bad : {UINT64_C(0), kRead - 1, kProduced + 1, kProduced + kWhole, UINT64_C(1) << 32, UINT64_C(1) << 63,
                       0 - kWhole, ~UINT64_C(0)}) {
    for (bool in_cycle : {false, true}) {
      SCOPED_TRACE(testing::Message() << "index " << bad << ", in a cycle: " << in_cycle);
      build({});
      host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
      ASSERT_TRUE(machine_->attach());
      if (in_cycle) machine_->begin(0);
      for (uint64_t i = 0; i < kProduced; i++) machine_->submit(fence);
      steps(3);
      ASSERT_EQ(machine_->completed(), kProduced);
      machine_->complete(kRead);
      steps(3);
      ASSERT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
      host->completion_consumed = bad;
      machine_->ring_doorbell();
      steps(3);
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
      EXPECT_EQ(record().address, bad);
      EXPECT_EQ(record().detail, kProduced);
      EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
      EXPECT_LE(machine_->completed(), kProduced + 1);
      // Whoever asks is answered. An abort ends no error that is still there, and one that is not does no harm later.
      machine_->abort();
      steps(3);
      EXPECT_TRUE(machine_->abort_acknowledged());
      EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
      host->completion_consumed = kRead;
      machine_->abort();
      steps(3);
      EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
      for (uint64_t i = 0; i < 3 * kWhole; i++) {
        machine_->submit(fence);
        steps(2);
        machine_->complete();
      }
      EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    }
  }
}

// Each of these ends the command whose answer finds the index wrong.
TEST_F(Faults, OverrunsBeforeAnAnswerLeaveNoCommandBehind) {
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  merapi_submission fence{};
  fence.opcode = MERAPI_OP_FENCE;
  ASSERT_TRUE(machine_->attach());
  for (int i = 0; i < 100; i++) {
    const uint64_t consumed = host->completion_consumed;
    host->completion_consumed = uint64_t{1} << 40;
    machine_->submit(fence);
    steps(3);
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
    host->completion_consumed = consumed;
    machine_->abort();
    steps(3);
    ASSERT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    machine_->complete();
    if (i % 4 == 0) continue;
    machine_->submit(fence);
    steps(3);
    std::vector<merapi_completion> done = machine_->complete();
    ASSERT_EQ(done.size(), 1u) << i;
    EXPECT_EQ(done[0].type, MERAPI_COMP_DONE);
  }
}

TEST_F(Faults, ForeignCycleIsIgnored) {
  klass(0, kKlass);
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  steps(3);
  merapi_submission e{};
  e.opcode = MERAPI_OP_GREY;
  e.count = 1;
  e.payload[0] = address(0);
  e.cycle = 77;
  machine_->submit(e);
  steps(3);
  EXPECT_FALSE(window_->marked(0, 0));
  EXPECT_TRUE(machine_->idle());
  machine_->abort();
  steps(3);
  e.cycle = machine_->cycle;  // late work of the aborted cycle
  machine_->submit(e);
  steps(3);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_FALSE(window_->marked(0, 0));
}

// An abort after a fault outside a cycle leaves the cycle that was aborted before: its late work is ignored still.
TEST_F(Faults, LateWorkIsIgnoredAfterASecondAbort) {
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  steps(3);
  const uint32_t aborted = machine_->cycle;
  machine_->abort();
  steps(3);
  merapi_submission e{};
  e.opcode = 99;
  machine_->submit(e);
  steps(3);
  ASSERT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
  machine_->abort();
  steps(3);
  e.opcode = MERAPI_OP_GREY;
  e.count = 1;
  e.payload[0] = address(0);
  e.cycle = aborted;
  machine_->submit(e);
  steps(3);
  EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
}

// The heap's last byte may be the last of all addresses.
TEST_F(Faults, AHeapMayEndWhereTheAddressesDo) {
  WindowShape shape;
  shape.oop_bytes = 8;
  shape.heap_base = 0 - (uint64_t{shape.regions} << shape.region_log2);
  build(shape);
  const uint64_t last = window_->heap_bytes() - 32, to = address(last);
  klass(0, kKlass);
  klass(last, kBytes);
  u32(last + 12, 16);
  merapi_shape s{};
  s.klass_word = kKlass + 8;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = 3;
  window_->put_shape(s, {{16, 1}});
  klass(0, kKlass + 8);
  std::memcpy(window_->heap() + 16, &to, 8);
  trace_from(0);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_TRUE(window_->marked(0, last));
}

// A heap may begin at address 0: null is not the object there.
TEST_F(Faults, NullOfTheHostIsIgnored) {
  WindowShape shape;
  shape.heap_base = 0;
  build(shape);
  for (uint64_t at : {0, 64}) klass(at, kKlass);
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  machine_->grey({0, 64, 0});
  steps();
  machine_->complete();
  steps();
  EXPECT_TRUE(machine_->idle());
  EXPECT_FALSE(window_->marked(0, 0));
  EXPECT_TRUE(window_->marked(0, 64));
}

}  // namespace
}  // namespace merapi::sim::test
