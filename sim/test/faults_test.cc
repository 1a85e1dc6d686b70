// SPDX-License-Identifier: Apache-2.0
//
// What stops a context, and what a stopped one still answers. GUARD is not here: the model has no address that it
// writes to and did not check at BEGIN_CYCLE, so nothing can reach it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <functional>

#include "sim/test/machine.h"

namespace merapi::sim::test {
namespace {

constexpr uint32_t kKlass = 0x1000, kArray = 0x2000, kMirror = 0x3000, kBytes = 0x4000;

class Faults : public testing::Test {
 protected:
  Faults() { build({}); }

  void build(const WindowShape& shape, bool strict = false) {
    machine_.reset();
    window_ = std::make_unique<Window>(shape);
    TracerOptions o;
    o.strict = strict;
    if (strict) o.step_ns = 0;  // one turn a step, so that a test can interfere between two
    machine_ = std::make_unique<Machine>(window_.get(), o);
    merapi_shape s{};
    s.klass_word = kKlass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = 4;
    window_->put_shape(s, {{12, 2}});
    s = {};
    s.klass_word = kArray;
    s.kind = MERAPI_SHAPE_KIND_OBJ_ARRAY;
    s.header_bytes = 16;
    s.element_log2 = 2;
    window_->put_shape(s);
    s = {};
    s.klass_word = kMirror;
    s.kind = MERAPI_SHAPE_KIND_MIRROR;
    window_->put_shape(s);
    s = {};
    s.klass_word = kBytes;
    s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    s.header_bytes = 16;
    window_->put_shape(s);
    window_->fill_regions();
  }

  void klass(uint64_t offset, uint32_t word) { std::memcpy(window_->heap() + offset + 8, &word, 4); }
  void u32(uint64_t offset, uint32_t value) { std::memcpy(window_->heap() + offset, &value, 4); }
  void reference(uint64_t field, uint64_t offset) { u32(field, uint32_t((window_->shape.heap_base + offset) >> 3)); }
  uint64_t address(uint64_t offset) const { return window_->shape.heap_base + offset; }

  void steps(int n = 200) {
    for (int i = 0; i < n; i++) machine_->step();
  }
  merapi_fault_record record() { return *window_->control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET); }

  // A trace of the object at 0, paused when that is marked.
  void pause_in_the_first_object() {
    ASSERT_TRUE(machine_->attach());
    machine_->begin(0);
    machine_->grey({address(0)});
    while (!window_->marked(0, 0)) machine_->step();
    machine_->request_pause();
    while (!machine_->pause_acknowledged()) machine_->step();
  }

  // Mark the object at `offset` and trace everything.
  void trace_from(uint64_t offset) {
    ASSERT_TRUE(machine_->attach());
    window_->mark(0, offset);
    machine_->begin(0);
    machine_->trace(0, window_->shape.regions);
    steps();
  }

  void expect_fault(uint32_t code, uint64_t address, uint64_t detail) {
    merapi_fault_record f = record();
    EXPECT_EQ(f.code, code);
    EXPECT_EQ(f.address, address);
    EXPECT_EQ(f.detail, detail);
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
    EXPECT_FALSE(machine_->idle());
    bool told = false;
    for (const merapi_completion& c : machine_->complete()) {
      if (c.type == MERAPI_COMP_FAULT) {
        told = true;
        EXPECT_EQ(c.arg, code);
        EXPECT_EQ(c.payload[0], address);
        EXPECT_EQ(c.payload[1], detail);
      }
    }
    EXPECT_TRUE(told);
    // A stopped context still acknowledges, and an abort makes it usable again.
    machine_->request_pause();
    steps(3);
    EXPECT_TRUE(machine_->pause_acknowledged());
    machine_->abort();
    steps(3);
    EXPECT_TRUE(machine_->abort_acknowledged());
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
  }

  std::unique_ptr<Window> window_;
  std::unique_ptr<Machine> machine_;
};

// ---------------------------------------------------------------- handshake

TEST_F(Faults, BadMagic) {
  window_->control<merapi_identity>(0)->magic = 77;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_MAGIC));
  EXPECT_EQ(record().address, 77u);
}

TEST_F(Faults, BadVersion) {
  window_->control<merapi_identity>(0)->version_major = MERAPI_VERSION_MAJOR + 1;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_VERSION));
  window_->control<merapi_identity>(0)->version_major = MERAPI_VERSION_MAJOR;
  window_->control<merapi_identity>(0)->version_minor = MERAPI_VERSION_MINOR + 1;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_VERSION));
  window_->control<merapi_identity>(0)->version_minor = MERAPI_VERSION_MINOR;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
}

TEST_F(Faults, RingAreasAreCheckedAtTheHandshake) {
  merapi_area_desc good = window_->directory()->area[MERAPI_AREA_COMPLETION];
  for (merapi_area_desc bad :
       {merapi_area_desc{0, 4096}, merapi_area_desc{64, 4096}, merapi_area_desc{good.offset, 12288},
        merapi_area_desc{window_->bytes, 4096}, merapi_area_desc{good.offset, ~UINT64_C(4095)},
        window_->directory()->area[MERAPI_AREA_SUBMISSION]}) {
    window_->directory()->area[MERAPI_AREA_COMPLETION] = bad;
    EXPECT_TRUE(machine_->attach());
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_CONFIG));
    machine_->abort();
    steps(3);
    EXPECT_TRUE(machine_->abort_acknowledged());
  }
}

// In a larger window than there is memory for: none of it but the control page is read.
TEST_F(Faults, TablesAreBounded) {
  const WindowMemory memory{window_->base, uint64_t{1} << 42};
  const uint64_t most = uint64_t{MERAPI_TABLE_ENTRIES_MAX} * MERAPI_LINE_BYTES, free = uint64_t{1} << 41;
  auto latch = [&] {
    Rings rings;
    Geometry geometry;
    const Fault fault = latch_rings(memory, &rings);
    return fault ? fault : latch_geometry(memory, rings, MERAPI_COHERENCE_COHERENT, &geometry);
  };
  for (int i : {MERAPI_AREA_SUBMISSION, MERAPI_AREA_COMPLETION, MERAPI_AREA_SHAPES}) {
    merapi_area_desc& area = window_->directory()->area[i];
    const merapi_area_desc was = area;
    area = {free, most};
    EXPECT_FALSE(latch()) << i;
    area.size *= 2;
    const Fault fault = latch();
    EXPECT_EQ(fault.code, uint32_t(MERAPI_FAULT_BAD_CONFIG)) << i;
    EXPECT_EQ(fault.address, MERAPI_DIRECTORY_OFFSET + 16 * uint64_t(i) + 8);
    EXPECT_EQ(fault.detail, 2 * most);
    area = was;
  }
}

// ------------------------------------------------------------ configuration

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
  klass(0, kKlass);
  reference(12, 4096);
  klass(4096, kKlass);
  ASSERT_TRUE(machine_->attach());
  window_->mark(0, 0);
  machine_->begin(0);
  steps(3);
  // What changes after BEGIN_CYCLE is not looked at.
  *window_->config() = {};
  *window_->directory() = {};
  machine_->trace(0, 4);
  steps();
  EXPECT_TRUE(window_->marked(0, 4096));
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
}

// ----------------------------------------------------------------- commands

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

// An object in the middle of its scan begins again, with the blocks of the shape as it is then.
TEST_F(Faults, AnObjectWhoseShapeIsReplacedInAPause) {
  constexpr uint32_t kLarge = 0x5000, kWords = 100'000;
  for (const bool fits : {true, false}) {
    build({}, true);
    merapi_shape s{};
    s.klass_word = kLarge;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = kWords;
    window_->put_shape(s, {{16, 2 * kWords - 1000}, {8 * kWords - 800, 4}});
    klass(0, kLarge);
    ASSERT_NO_FATAL_FAILURE(pause_in_the_first_object());
    const uint64_t read = machine_->counter(MERAPI_COUNTER_REFERENCES_READ);
    EXPECT_LT(read, 2 * kWords - 1000);
    s.size_words = fits ? kWords : 0xffff'fff0;
    window_->put_shape(
        s, {{16, 4}, fits ? merapi_ref_block{8 * kWords - 400, 8} : merapi_ref_block{0xf000'0000, 1 << 24}});
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    machine_->trace(0, 16);
    machine_->resume();
    steps(2000);
    if (fits) {
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
      machine_->complete();
      EXPECT_TRUE(machine_->idle());
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFERENCES_READ), read + 4 + 8);
    } else {
      expect_fault(MERAPI_FAULT_BAD_OBJECT, address(0), 0xffff'fff0);
    }
  }
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

// A device ends and another one begins on the same window while the host stays attached, at any time of a cycle and
// whatever the host has read of its completions. What was said to the first one is not executed again: by then regions
// may be free, and the bitmap the host's.
TEST_F(Faults, WhatAnotherDeviceWasToldIsNotExecuted) {
  for (int turns : {0, 1, 3, 200}) {
    for (bool read : {false, true}) {
      SCOPED_TRACE(testing::Message() << turns << " turns, completions read: " << read);
      build({}, true);
      klass(64, kKlass);
      reference(64 + 12, 128);
      for (uint64_t mirror : {128, 256}) {
        klass(mirror, kMirror);
        u32(mirror + window_->shape.mirror_size_offset, 8);
      }
      ASSERT_TRUE(machine_->attach());
      window_->mark(0, 64);
      machine_->begin(0);
      machine_->trace(0, window_->shape.regions);
      machine_->grey({address(256)});
      steps(turns);
      if (read) machine_->complete();
      EXPECT_EQ(machine_->idle(), turns == 200 && read);
      const uint64_t submitted = machine_->produced;
      const uint64_t generation = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation;
      machine_ = std::make_unique<Machine>(window_.get(), TracerOptions{});
      // A full collection has moved everything; of the old cycle nothing is left.
      window_->clear_area(MERAPI_AREA_BITMAP0);
      window_->clear_area(MERAPI_AREA_LIVE);
      window_->mark(0, 64);
      const std::unique_ptr<Mapping> before = window_->copy();
      const auto expect_refused = [&] {
        steps();
        EXPECT_EQ(window_->control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET)->generation, generation);
        EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
        EXPECT_EQ(record().address, submitted);
        EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
        EXPECT_FALSE(machine_->idle());
        EXPECT_EQ(machine_->completed(), 0u);
        EXPECT_EQ(std::memcmp(before->base + MERAPI_CONTROL_BYTES, window_->base + MERAPI_CONTROL_BYTES,
                              window_->bytes - MERAPI_CONTROL_BYTES),
                  0);
      };
      expect_refused();
      EXPECT_EQ(machine_->executed(), 0u);
      // No request of the host that is still there changes that.
      machine_->request_pause();
      expect_refused();
      EXPECT_TRUE(machine_->pause_acknowledged());
      machine_->resume();
      machine_->abort();
      expect_refused();
      EXPECT_TRUE(machine_->abort_acknowledged());
      // It begins a new generation.
      ASSERT_TRUE(machine_->attach());
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
      machine_->begin(0);
      machine_->trace(0, window_->shape.regions);
      steps();
      machine_->complete();
      EXPECT_TRUE(machine_->idle());
      EXPECT_TRUE(window_->marked(0, 128));
      EXPECT_FALSE(window_->marked(0, 256));
    }
  }
}

// One bit of either index says it. A device that nothing was said to is replaced by any other.
TEST_F(Faults, AHostAsksWithEmptyRings) {
  const auto ask = [&](uint64_t submitted, uint64_t taken) {
    auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
    host->generation = 2;
    host->submission_produced = submitted;
    host->completion_consumed = taken;
    steps(3);
    EXPECT_TRUE(machine_->generation_answered());
  };
  for (unsigned bit = 0; bit < 64; bit++) {
    for (bool taken : {false, true}) {
      SCOPED_TRACE(testing::Message() << "bit " << bit << " of completions " << taken);
      build({});
      const uint64_t index = UINT64_C(1) << bit;
      ask(taken ? 0 : index, taken ? index : 0);
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
      EXPECT_EQ(record().address, taken ? 0 : index);
      EXPECT_EQ(record().detail, 0u);
    }
  }
  // What is wrong with the window comes first.
  build({});
  window_->control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->magic = 5;
  ask(1, 0);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_MAGIC));

  build({});
  for (int device = 0; device < 2; device++) {
    ask(0, 0);
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    if (device == 0) machine_ = std::make_unique<Machine>(window_.get(), TracerOptions{});
  }
  machine_->begin(0);
  steps(10);
  EXPECT_TRUE(machine_->idle());
}

// A refused window is answered with the counters of no cycle, as an accepted one is.
TEST_F(Faults, ARefusalLeavesNoCountersBehind) {
  auto* identity = window_->control<merapi_identity>(MERAPI_IDENTITY_OFFSET);
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  merapi_area_desc* ring = &window_->directory()->area[MERAPI_AREA_COMPLETION];
  klass(0, kMirror);
  u32(window_->shape.mirror_size_offset, 8);
  for (uint32_t code : {MERAPI_FAULT_NONE, MERAPI_FAULT_BAD_MAGIC, MERAPI_FAULT_BAD_VERSION, MERAPI_FAULT_BAD_CONFIG,
                        MERAPI_FAULT_RING_OVERRUN}) {
    SCOPED_TRACE(code);
    trace_from(0);
    ASSERT_NE(machine_->counter(MERAPI_COUNTER_DEFERRED), 0u);
    ASSERT_NE(machine_->counter(MERAPI_COUNTER_SHAPES_SEEN), 0u);
    const merapi_identity was = *identity;
    const merapi_area_desc ring_was = *ring;
    if (code == MERAPI_FAULT_BAD_MAGIC) identity->magic = 1;
    if (code == MERAPI_FAULT_BAD_VERSION) identity->version_major = 99;
    if (code == MERAPI_FAULT_BAD_CONFIG) ring->size = 12288;
    const uint64_t odd = machine_->end_generation();
    steps(1);
    machine_->begin_generation(odd);
    if (code == MERAPI_FAULT_RING_OVERRUN) host->submission_produced = 1;
    steps(1);
    ASSERT_TRUE(machine_->generation_answered());
    EXPECT_EQ(record().code, code);
    for (int i = 0; i < int(MERAPI_COUNTER_COUNT); i++) EXPECT_EQ(machine_->counter(i), 0u) << "counter " << i;
    machine_->request_pause();
    steps(1);
    for (int i : {MERAPI_COUNTER_DEFERRED, MERAPI_COUNTER_SHAPES_SEEN}) EXPECT_EQ(machine_->counter(i), 0u) << i;
    *identity = was;
    *ring = ring_was;
  }
}

// A host that detaches makes its generation odd and then zeroes its indexes, perhaps between the device's look at the
// one and at the others.
TEST_F(Faults, IndexesOfARevokedGenerationAreNoOverrun) {
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  auto* index = window_->control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
  merapi_submission fence{};
  fence.opcode = MERAPI_OP_FENCE;
  bool revoked = false;
  const auto revoke = [&] {
    if (revoked) return;
    revoked = true;
    host->generation |= 1;
    host->submission_produced = 0;
    host->completion_consumed = 0;
  };
  // The first look of a step comes before the generation's, the second with the fault.
  const auto revoke_at_a_fault = [&] {
    return [&, looks = 0]() mutable {
      if (looks++ == 1) revoke();
    };
  };
  const auto expect_detached = [&](const char* when) {
    const merapi_device_index before = *index;
    steps(3);
    EXPECT_TRUE(revoked) << when;
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE)) << when;
    EXPECT_EQ(machine_->model.status().faults, 0u) << when;
    EXPECT_EQ(machine_->model.status().state, uint32_t(MERAPI_DEVICE_STATE_DETACHED)) << when;
    EXPECT_EQ(std::memcmp(&before, index, sizeof before), 0) << when;
    machine_->on_notify = nullptr;
    revoked = false;
    EXPECT_TRUE(machine_->attach()) << when;
    machine_->submit(fence);
    steps(3);
    EXPECT_EQ(machine_->complete().size(), 1u) << when;
  };

  // The submission ring's, behind a resume and behind an abort.
  for (const bool abort : {false, true}) {
    ASSERT_TRUE(machine_->attach());
    machine_->submit({});
    steps(3);
    machine_->request_pause();
    steps(3);
    if (abort) {
      machine_->abort();
    } else {
      machine_->resume();
    }
    machine_->on_notify = revoke;
    machine_->step();
    expect_detached(abort ? "abort" : "resume");
  }

  // An abort that reads them itself.
  ASSERT_TRUE(machine_->attach());
  machine_->submit({});
  steps(3);
  machine_->request_pause();
  steps(3);
  const uint32_t acknowledged = window_->control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET)->abort;
  machine_->on_memory_look = revoke_at_a_fault();
  host->submission_produced = 0;
  machine_->abort();
  machine_->step();
  machine_->on_memory_look = nullptr;
  EXPECT_EQ(window_->control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET)->abort, acknowledged);
  expect_detached("abort of a window that was revoked");

  // The completion ring's, as an answer is written.
  ASSERT_TRUE(machine_->attach());
  machine_->submit(fence);
  machine_->on_memory_look = revoke_at_a_fault();
  host->completion_consumed = 3;
  machine_->step();
  machine_->on_memory_look = nullptr;
  expect_detached("an answer");
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

// ------------------------------------------------------------------ objects

TEST_F(Faults, MisalignedReference) {
  WindowShape shape;
  shape.narrow_shift = 0;
  shape.heap_base = 0x10000000;
  build(shape);
  klass(4096, kKlass);
  u32(4096 + 12, 0x10000000 + 4);
  trace_from(4096);
  expect_fault(MERAPI_FAULT_BAD_REFERENCE, address(4), address(4096));

  build(shape);
  ASSERT_TRUE(machine_->attach());
  machine_->begin(0);
  machine_->grey({address(12)});
  steps(3);
  expect_fault(MERAPI_FAULT_BAD_REFERENCE, address(12), 0);
}

TEST_F(Faults, MisalignedReferenceOutsideTheHeapIsOutside) {
  WindowShape shape;
  shape.narrow_shift = 0;
  shape.heap_base = 0x10000000;
  build(shape);
  klass(4096, kKlass);
  u32(4096 + 12, 0x10000000 - 3);
  trace_from(4096);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFS_OUTSIDE), 1u);
}

TEST_F(Faults, KlassWordZero) {
  trace_from(128);
  expect_fault(MERAPI_FAULT_BAD_OBJECT, address(128), 0);
}

TEST_F(Faults, ObjectEndsBeyondTheHeap) {
  uint64_t last = window_->heap_bytes() - 24;
  klass(last, kKlass);  // 32 bytes
  trace_from(last);
  expect_fault(MERAPI_FAULT_BAD_OBJECT, address(last), 4);
}

TEST_F(Faults, ArrayEndsBeyondTheHeap) {
  for (uint32_t word : {kArray, kBytes}) {
    build({});
    uint64_t last = window_->heap_bytes() - 64;
    klass(last, word);
    u32(last + 12, 49);
    trace_from(last);
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
    EXPECT_EQ(record().address, address(last));
  }
}

// Where the heap ends with the window, a read beyond it would end the process.
TEST_F(Faults, NothingIsReadBeyondTheHeap) {
  for (uint8_t klass_bytes : {uint8_t(4), uint8_t(8)}) {
    for (bool strict : {false, true}) {
      for (int way = 0; way < 3; way++) {
        // No object has 8 bytes alone; an array of 16 has its length behind a wide klass word.
        for (uint64_t bytes : {8, 16}) {
          for (uint32_t word : {kArray, kBytes}) {
            SCOPED_TRACE(testing::Message() << int{klass_bytes} << ", " << bytes << " bytes, way " << way);
            WindowShape shape;
            shape.klass_bytes = klass_bytes;
            shape.regions = 32;
            build(shape, strict);
            const merapi_area_desc& heap = window_->layout.area[MERAPI_AREA_HEAP];
            ASSERT_EQ(heap.offset + window_->heap_bytes(), window_->bytes);
            uint8_t* end = window_->base + window_->bytes;
            void* beyond = mmap(end, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            window_->put_object_array(kArray, 24);
            merapi_shape s{};
            s.klass_word = kBytes;
            s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
            s.header_bytes = 24;
            window_->put_shape(s);
            window_->put_instance(kKlass, 4, {{16, 2}});
            const uint64_t last = window_->heap_bytes() - bytes;
            if (bytes == 16) klass(last, word);
            if (way == 0) {
              trace_from(last);
            } else {
              klass(64, kKlass);
              if (way == 1) reference(64 + 16, last);
              trace_from(64);
              if (way == 2) machine_->grey({address(last)});
              steps();
            }
            EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
            EXPECT_EQ(record().address, address(last));
            if (bytes == 8 || klass_bytes == 8) {
              EXPECT_EQ(record().detail, 0u);
            }
            if (beyond != MAP_FAILED) munmap(beyond, 4096);
          }
        }
      }
    }
  }
}

TEST_F(Faults, NegativeArrayLength) {
  for (uint32_t word : {kArray, kBytes}) {
    for (uint32_t length : {0xFFFFFFFFu, 0x80000000u, 0xFFFFFFF0u}) {
      build({});
      klass(0, word);
      u32(12, length);
      trace_from(0);
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT)) << length;
    }
  }
}

TEST_F(Faults, EmptyMirror) {
  klass(0, kMirror);
  trace_from(0);
  expect_fault(MERAPI_FAULT_BAD_OBJECT, address(0), 0);
}

TEST_F(Faults, MirrorAtTheEndOfTheHeap) {
  uint64_t last = window_->heap_bytes() - 16;
  klass(last, kMirror);  // its size field would lie behind the heap
  trace_from(last);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
}

TEST_F(Faults, BadShapes) {
  struct Case {
    const char* name;
    merapi_shape shape;
    std::vector<merapi_ref_block> blocks;
  };
  auto shape = [](uint8_t kind, uint32_t words, uint32_t header = 0, uint8_t log2 = 0) {
    merapi_shape s{};
    s.kind = kind;
    s.size_words = words;
    s.header_bytes = header;
    s.element_log2 = log2;
    return s;
  };
  const Case cases[] = {
      {"no kind", shape(MERAPI_SHAPE_KIND_NONE, 4), {}},
      {"unknown kind", shape(77, 4), {}},
      {"block behind the object", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{24, 3}}},
      {"block offset wraps", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{0xFFFFFFFC, 2}}},
      {"block count wraps", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{12, 0xFFFFFFFF}}},
      {"block over the header", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{8, 1}}},
      {"block misaligned", shape(MERAPI_SHAPE_KIND_INSTANCE, 4), {{14, 1}}},
      {"more blocks than fields", shape(MERAPI_SHAPE_KIND_INSTANCE, 2), std::vector<merapi_ref_block>(5, {12, 1})},
      {"array header over the length", shape(MERAPI_SHAPE_KIND_OBJ_ARRAY, 0, 12, 2), {}},
      {"object array with elements of another width", shape(MERAPI_SHAPE_KIND_OBJ_ARRAY, 0, 16, 3), {}},
      {"elements of 16 bytes", shape(MERAPI_SHAPE_KIND_PRIM_ARRAY, 0, 16, 4), {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    build({});
    merapi_shape s = c.shape;
    s.klass_word = 0x9000;
    window_->put_shape(s, c.blocks);
    klass(0, 0x9000);
    trace_from(0);
    expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, c.shape.kind);
  }
}

TEST_F(Faults, BlocksOutsideTheExtension) {
  merapi_shape s{};
  s.klass_word = 0x9000;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = 400;
  window_->put_shape(s, std::vector<merapi_ref_block>(8, {16, 1}));
  auto* table = reinterpret_cast<merapi_shape*>(window_->area(MERAPI_AREA_SHAPES));
  uint64_t slots = window_->layout.area[MERAPI_AREA_SHAPES].size / 64;
  for (uint64_t i = 0; i < slots; i++) {
    if (table[i].klass_word == 0x9000) table[i].extension = window_->layout.area[MERAPI_AREA_SHAPE_EXTENSION].size;
  }
  klass(0, 0x9000);
  trace_from(0);
  expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, MERAPI_SHAPE_KIND_INSTANCE);
}

// One of more than the model looks at before it scans.
TEST_F(Faults, ABadBlockAmongMany) {
  constexpr uint32_t kBlocks = 5000, kWords = kBlocks + 2;
  WindowShape shape;
  shape.shape_slots = 1 << 14;
  for (const merapi_ref_block bad : {merapi_ref_block{8 * kWords - 4, 2}, merapi_ref_block{8, 1},
                                     merapi_ref_block{14, 1}, merapi_ref_block{0xFFFFFFFC, 0xFFFFFFFF}}) {
    SCOPED_TRACE(testing::Message() << bad.count << " references at " << bad.offset);
    build(shape);
    std::vector<merapi_ref_block> blocks(kBlocks, {16, 1});
    blocks[kBlocks - 10] = bad;
    window_->put_instance(0x9000, kWords, blocks);
    klass(0, 0x9000);
    trace_from(0);
    steps(1000);
    expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, MERAPI_SHAPE_KIND_INSTANCE);
  }
}

// A host that writes over the blocks of an object while it is scanned.
TEST_F(Faults, ABlockThatChanges) {
  constexpr uint32_t kBlocks = 100'000, kWords = 2 + kBlocks / 2;
  WindowShape shape;
  shape.shape_slots = 1 << 18;
  build(shape, true);
  window_->put_instance(0x9000, kWords, std::vector<merapi_ref_block>(kBlocks, {16, 1}));
  klass(0, 0x9000);
  ASSERT_NO_FATAL_FAILURE(pause_in_the_first_object());
  EXPECT_LT(machine_->counter(MERAPI_COUNTER_REFERENCES_READ), kBlocks);
  auto* blocks = reinterpret_cast<merapi_ref_block*>(window_->area(MERAPI_AREA_SHAPE_EXTENSION));
  blocks[kBlocks - 1] = {0xF000'0000, 1 << 24};
  machine_->resume();
  steps(2000);
  expect_fault(MERAPI_FAULT_BAD_SHAPE, 0x9000, MERAPI_SHAPE_KIND_INSTANCE);
}

TEST_F(Faults, StrictModeFindsAMarkAboveALimit) {
  build({}, true);
  klass(0, kKlass);
  window_->limits()[0] = 64;
  window_->mark(0, 4096);
  trace_from(0);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_INTERNAL));
  EXPECT_EQ(record().detail, uint64_t(kMarkedAboveLimit));
}

TEST_F(Faults, StrictModeFindsAWrongLiveTable) {
  build({}, true);
  klass(0, kKlass);
  reference(12, 4096);
  klass(4096, kKlass);
  ASSERT_TRUE(machine_->attach());
  window_->mark(0, 0);
  machine_->begin(0);
  machine_->trace(0, 16);
  for (int i = 0; i < 200 && !machine_->idle(); i++) {
    machine_->step();
    window_->live()[3] = 1;  // nobody but the device may
  }
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_INTERNAL));
  EXPECT_EQ(record().detail, uint64_t(kLiveBalance));
}

// ------------------------------------------------------------------- memory

TEST_F(Faults, MemoryErrorsEndTheContext) {
  for (uint32_t code : {uint32_t(MERAPI_FAULT_TRUNCATED), uint32_t(MERAPI_FAULT_MEMORY)}) {
    build({});
    ASSERT_TRUE(machine_->attach());
    machine_->begin(0);
    steps(3);
    machine_->memory_fault = code;
    machine_->memory_fault_offset = 0x5000;
    EXPECT_EQ(machine_->step().next, Step::kEnded);
    EXPECT_EQ(record().code, code);
    EXPECT_EQ(record().address, 0x5000u);
  }
}

// ------------------------------------------------------------- after a fault

TEST_F(Faults, HandshakeAfterAFaultStartsAnew) {
  trace_from(128);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
  klass(128, kKlass);
  ASSERT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  machine_->begin(0);
  machine_->trace(0, 16);
  steps();
  machine_->complete();
  steps();
  EXPECT_TRUE(machine_->idle());
}

// What was counted stays over an abort, and is gone after a handshake, whoever asks for it then.
TEST_F(Faults, CountersEndWithACycleOrAGeneration) {
  for (uint64_t i = 0; i < 100; i++) {
    klass(i * 32, kKlass);
    reference(i * 32 + 12, (i + 1) * 32);
  }
  klass(3200, kKlass);
  reference(3212, 15 * window_->region_bytes());
  window_->limits()[15] = 15 * window_->region_bytes();
  trace_from(0);
  machine_->grey({address(64)});
  steps();
  machine_->complete();
  steps();
  EXPECT_TRUE(machine_->idle());
  const auto counters = [&] {
    machine_->request_pause();
    steps(3);
    EXPECT_TRUE(machine_->pause_acknowledged());
    std::vector<uint64_t> values;
    for (int i = 0; i <= MERAPI_COUNTER_ROUNDS; i++) {
      // These go on with time.
      const bool goes_on = i == MERAPI_COUNTER_PAUSES || i == MERAPI_COUNTER_PAUSE_MAX ||
                           i == MERAPI_COUNTER_CPU_NANOSECONDS || i == MERAPI_COUNTER_NANOSECONDS;
      values.push_back(goes_on ? 0 : machine_->counter(i));
    }
    machine_->resume();
    steps(3);
    return values;
  };
  const std::vector<uint64_t> traced = counters();
  for (int i : {MERAPI_COUNTER_OBJECTS_MARKED, MERAPI_COUNTER_OBJECTS_SCANNED, MERAPI_COUNTER_REFERENCES_READ,
                MERAPI_COUNTER_REFS_NULL, MERAPI_COUNTER_REFS_ABOVE_LIMIT, MERAPI_COUNTER_LIVE_WORDS,
                MERAPI_COUNTER_SHAPE_MISSES, MERAPI_COUNTER_GREYS_SUBMITTED, MERAPI_COUNTER_ROUNDS}) {
    EXPECT_NE(traced[i], 0u) << "counter " << i << ": not what is tested";
  }
  const uint64_t total = machine_->model.status().objects_marked;
  machine_->abort();
  steps(3);
  EXPECT_TRUE(machine_->abort_acknowledged());
  EXPECT_EQ(counters(), traced);
  EXPECT_EQ(machine_->model.status().objects_marked, total);
  ASSERT_TRUE(machine_->attach());
  EXPECT_EQ(counters(), std::vector<uint64_t>(traced.size()));
  machine_->abort();
  steps(3);
  EXPECT_EQ(counters(), std::vector<uint64_t>(traced.size()));
  EXPECT_EQ(machine_->model.status().objects_marked, total);
}

TEST_F(Faults, RevokedDeviceStopsTouchingTheWindow) {
  for (uint64_t i = 0; i < 1000; i++) {
    klass(i * 32, kKlass);
    reference(i * 32 + 12, (i + 1) * 32);
  }
  klass(32000, kKlass);
  TracerOptions slow;
  slow.slice = 4;
  slow.step_ns = 0;
  machine_ = std::make_unique<Machine>(window_.get(), slow);
  ASSERT_TRUE(machine_->attach());
  window_->mark(0, 0);
  machine_->begin(0);
  machine_->trace(0, 16);
  steps(50);
  EXPECT_FALSE(window_->marked(0, 32000));
  window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation |= 1;
  std::vector<uint8_t> before(window_->base, window_->base + window_->bytes);
  steps();
  EXPECT_EQ(std::memcmp(before.data(), window_->base, window_->bytes), 0);
}

}  // namespace
}  // namespace merapi::sim::test
