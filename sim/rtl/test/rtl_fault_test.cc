// SPDX-License-Identifier: Apache-2.0
//
// Every fault code that a host or a memory can cause, with its address and detail, and what the tracer does after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/rtl/test/rtl_machine.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::WindowShape;
constexpr uint64_t kPatience = 100'000;
constexpr uint64_t kKlass = 0x1000;

class RtlFault : public testing::Test {
 protected:
  explicit RtlFault(const WindowShape& shape = {}) : window_(shape) {
    merapi_shape s{};
    s.klass_word = kKlass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = 3;
    window_.put_shape(s, {{12, 2}});
    for (uint32_t r = 0; r < window_.shape.regions; r++) {
      window_.limits()[r] = (uint64_t{r} + 1) << window_.shape.region_log2;
    }
  }
  // An object of `klass` at heap offset `at`, greyed by the host.
  void object(uint64_t at, uint32_t klass, uint64_t reference) {
    std::memcpy(window_.heap() + at + 8, &klass, 4);
    uint32_t narrow =
        reference == 0 ? 0 : uint32_t((reference - window_.shape.narrow_base) >> window_.shape.narrow_shift);
    std::memcpy(window_.heap() + at + 12, &narrow, 4);
    window_.mark(0, at);
  }
  RtlMachine& machine(RtlMachineOptions options = {}) {
    machine_ = std::make_unique<RtlMachine>(&window_, options);
    EXPECT_TRUE(machine_->attach());
    return *machine_;
  }
  void expect(uint32_t code, uint64_t address, uint64_t detail) {
    EXPECT_EQ(machine_->fault_after(kPatience), code) << merapi_fault_name(machine_->fault().code);
    EXPECT_EQ(machine_->fault().address, address);
    EXPECT_EQ(machine_->fault().detail, detail);
    EXPECT_TRUE(machine_->run_until([&] { return machine_->state() == MERAPI_DEVICE_STATE_FAULTED; }, kPatience));
  }
  void trace() {
    machine_->begin(0);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
  }
  // After a fault: an abort ends it, and the next cycle runs.
  void expect_recovery() {
    machine_->abort();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->abort_acknowledged(); }, kPatience));
    machine_->complete();
    machine_->begin(1);
    ASSERT_TRUE(machine_->run_until([&] { return machine_->idle(); }, kPatience));
  }
  uint64_t address(uint64_t offset) const { return window_.shape.heap_base + offset; }
  uint64_t config_at(uint64_t field) const { return MERAPI_CONFIG_OFFSET + field; }

  Window window_;
  std::unique_ptr<RtlMachine> machine_;
};

TEST_F(RtlFault, NoneAndIdle) {
  object(64, kKlass, address(128));
  std::memcpy(window_.heap() + 128 + 8, &kKlass, 4);
  machine();
  trace();
  ASSERT_TRUE(machine_->run_until(
      [&] {
        machine_->complete();
        return machine_->idle();
      },
      kPatience));
  EXPECT_TRUE(window_.marked(0, 128));
  EXPECT_EQ(window_.live()[0], 3u);
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), 1u);
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_SCANNED), 2u);
}
TEST_F(RtlFault, BadMagic) {
  window_.control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->magic = 0x1234;
  machine();
  expect(MERAPI_FAULT_BAD_MAGIC, 0x1234, 0);
}
TEST_F(RtlFault, BadVersion) {
  window_.control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->version_major = 9;
  machine();
  expect(MERAPI_FAULT_BAD_VERSION, 8, 9u << 16 | MERAPI_VERSION_MINOR);
}
TEST_F(RtlFault, BadConfigField) {
  machine();
  window_.config()->oop_bytes = 5;
  machine_->begin(0);
  expect(MERAPI_FAULT_BAD_CONFIG, config_at(offsetof(merapi_config, oop_bytes)), 5);
  window_.config()->oop_bytes = 4;
  expect_recovery();
}
// It begins no cycle: the record's is that of the one before, or none.
TEST_F(RtlFault, ARefusedBeginNamesTheCycleBefore) {
  machine();
  machine_->begin(0);
  ASSERT_TRUE(machine_->run_until([&] { return machine_->idle(); }, kPatience));
  const uint32_t before = machine_->cycle;
  ASSERT_NE(before, 0u);
  for (uint32_t named : {before, uint32_t{0}}) {
    window_.config()->oop_bytes = 5;
    machine_->begin(1);
    EXPECT_EQ(machine_->fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG));
    EXPECT_EQ(machine_->fault().cycle, named);
    window_.config()->oop_bytes = 4;
    ASSERT_TRUE(machine_->attach());
  }
}
TEST_F(RtlFault, BadConfigOverlap) {
  machine();
  auto* areas = window_.directory()->area;
  areas[MERAPI_AREA_LIVE].offset = areas[MERAPI_AREA_LIMITS].offset;
  machine_->begin(0);
  expect(MERAPI_FAULT_BAD_CONFIG, MERAPI_DIRECTORY_OFFSET + 16 * MERAPI_AREA_LIVE, areas[MERAPI_AREA_LIMITS].offset);
}
TEST_F(RtlFault, BadConfigBeyondWindow) {
  machine();
  window_.directory()->area[MERAPI_AREA_HEAP].size = window_.bytes;
  machine_->begin(0);
  expect(MERAPI_FAULT_BAD_CONFIG, MERAPI_DIRECTORY_OFFSET + 16 * MERAPI_AREA_HEAP + 8, window_.bytes);
}
TEST_F(RtlFault, BadConfigLimit) {
  window_.limits()[2] = 64;
  machine();
  trace();
  expect(MERAPI_FAULT_BAD_CONFIG, window_.layout.area[MERAPI_AREA_LIMITS].offset + 16, 64);
}
TEST_F(RtlFault, BadCommandOpcode) {
  machine();
  machine_->begin(0);
  machine_->command(77, 0, 0, 0);
  expect(MERAPI_FAULT_BAD_COMMAND, 1, 77);
  expect_recovery();
}
TEST_F(RtlFault, BadCommandRange) {
  machine();
  machine_->begin(0);
  machine_->command(MERAPI_OP_TRACE_REGION, 15, 2, 0);
  expect(MERAPI_FAULT_BAD_COMMAND, 1, MERAPI_OP_TRACE_REGION);
}
TEST_F(RtlFault, BadCommandClearOfTheCyclesBitmap) {
  machine();
  machine_->begin(0);
  machine_->command(MERAPI_OP_CLEAR_BITMAP, 0, 0, 1);
  expect(MERAPI_FAULT_BAD_COMMAND, 1, MERAPI_OP_CLEAR_BITMAP);
}
// More references than an entry holds, by each bit of their count.
TEST_F(RtlFault, BadCommandGreyCount) {
  for (unsigned bit = 3; bit < 16; bit++) {
    machine();
    machine_->begin(0);
    merapi_submission e{};
    e.opcode = MERAPI_OP_GREY;
    e.count = uint16_t(1u << bit);
    e.cycle = machine_->cycle;
    machine_->submit(e);
    expect(MERAPI_FAULT_BAD_COMMAND, 1, MERAPI_OP_GREY);
  }
}
TEST_F(RtlFault, BadSequence) {
  machine();
  machine_->begin(0);
  reinterpret_cast<merapi_submission*>(window_.area(MERAPI_AREA_SUBMISSION))[0].sequence = 5;
  expect(MERAPI_FAULT_BAD_SEQUENCE, 0, 5);
}
TEST_F(RtlFault, RingOverrun) {
  machine();
  uint64_t beyond = window_.shape.submission_entries + 1;
  window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->submission_produced = beyond;
  expect(MERAPI_FAULT_RING_OVERRUN, beyond, 0);
}
TEST_F(RtlFault, CompletionIndexImpossible) {
  machine();
  window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->completion_consumed = 3;
  expect(MERAPI_FAULT_RING_OVERRUN, 3, 0);
}
TEST_F(RtlFault, BadReference) {
  WindowShape s;
  s.narrow_shift = 2;
  object(64, kKlass, 0);
  window_.config()->narrow_oop_shift = 2;
  window_.config()->narrow_oop_base = window_.shape.heap_base;
  uint32_t narrow = 0x104 >> 2;
  std::memcpy(window_.heap() + 64 + 12, &narrow, 4);
  machine();
  trace();
  expect(MERAPI_FAULT_BAD_REFERENCE, address(0x104), address(64));
  expect_recovery();
}
TEST_F(RtlFault, BadObjectEmpty) {
  merapi_shape s{};
  s.klass_word = 0x2000;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  window_.put_shape(s);
  object(64, 0x2000, 0);
  machine();
  trace();
  expect(MERAPI_FAULT_BAD_OBJECT, address(64), 0);
}
TEST_F(RtlFault, BadObjectBeyondHeap) {
  merapi_shape s{};
  s.klass_word = 0x3000;
  s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
  s.header_bytes = 16;
  window_.put_shape(s);
  uint64_t at = window_.heap_bytes() - 64;
  object(at, 0x3000, 0);
  uint32_t length = 1000;
  std::memcpy(window_.heap() + at + 12, &length, 4);
  machine();
  trace();
  expect(MERAPI_FAULT_BAD_OBJECT, address(at), 1016 / 8);
}
TEST_F(RtlFault, BadShape) {
  merapi_shape s{};
  s.klass_word = 0x4000;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = 2;
  window_.put_shape(s, {{12, 2}});
  object(64, 0x4000, 0);
  machine();
  trace();
  EXPECT_EQ(machine_->fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_SHAPE));
  EXPECT_EQ(machine_->fault().address, 0x4000u);
}

// Klass words of both widths, in a heap that the window ends with.
class RtlFaultKlass : public RtlFault {
 protected:
  static constexpr uint32_t kHolder = 0x5000, kObjects = 0x6000, kBytes = 0x7000;
  static WindowShape whole_window(uint8_t klass_bytes) {
    WindowShape s;
    s.klass_bytes = klass_bytes;
    s.regions = 32;
    return s;
  }
  explicit RtlFaultKlass(uint8_t klass_bytes) : RtlFault(whole_window(klass_bytes)) {
    window_.put_instance(kHolder, 3, {{16, 2}});
    window_.put_object_array(kObjects, 24);
    merapi_shape s{};
    s.klass_word = kBytes;
    s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    s.header_bytes = 24;
    window_.put_shape(s);
  }
  enum Way { kSwept, kNamed, kReferred };
  static constexpr Way kWays[] = {kSwept, kNamed, kReferred};
  // The object at `at` is met by a sweep, by a reference of the host or by one of an object.
  void meet(uint64_t at, Way way) {
    std::memset(window_.bitmap(0), 0, window_.layout.area[MERAPI_AREA_BITMAP0].size);
    machine();
    machine_->begin(0);
    if (way == kNamed) return machine_->grey({address(at)});
    if (way == kReferred) {
      const uint32_t narrow = uint32_t((address(at) - window_.shape.narrow_base) >> window_.shape.narrow_shift);
      std::memcpy(window_.heap() + 64 + 8, &kHolder, 4);
      std::memcpy(window_.heap() + 64 + 16, &narrow, 4);
    }
    window_.mark(0, way == kSwept ? at : 64);
    machine_->trace(0, window_.shape.regions);
  }
  void zero() {
    for (uint64_t at : {uint64_t{128}, 3 * window_.region_bytes() + 56, window_.heap_bytes() - 16}) {
      for (Way way : kWays) {
        SCOPED_TRACE(at);
        meet(at, way);
        expect(MERAPI_FAULT_BAD_OBJECT, address(at), 0);
        if (HasFailure()) return;
        expect_recovery();
      }
    }
  }

  // Whatever comes before and after it.
  void zero_among_others() {
    for (uint64_t i = 0; i < 60; i++) {
      const uint32_t klass = i % 3 == 0 ? 0x9000 : kHolder;  // or one without a shape
      if (i != 40) std::memcpy(window_.heap() + 128 + 24 * i + 8, &klass, 4);
    }
    machine();
    for (uint64_t i = 0; i < 60; i++) window_.mark(0, 128 + 24 * i);
    trace();
    expect(MERAPI_FAULT_BAD_OBJECT, address(128 + 24 * 40), 0);
  }

  // The length of an array that begins with the heap's last words lies beyond the heap, where nothing is to be read.
  void array_at_the_end_of_the_heap() {
    const merapi_area_desc& heap = window_.layout.area[MERAPI_AREA_HEAP];
    ASSERT_EQ(heap.offset + window_.heap_bytes(), window_.bytes);
    for (uint32_t klass : {kObjects, kBytes}) {
      for (Way way : kWays) {
        const uint64_t at = window_.heap_bytes() - 16;
        std::memcpy(window_.heap() + at + 8, &klass, 4);
        meet(at, way);
        EXPECT_EQ(machine_->fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_OBJECT))
            << merapi_fault_name(machine_->fault().code);
        EXPECT_EQ(machine_->fault().address, address(at));
        expect_recovery();
      }
    }
  }
};

class RtlFaultNarrowKlass : public RtlFaultKlass {
 protected:
  RtlFaultNarrowKlass() : RtlFaultKlass(4) {}
};
TEST_F(RtlFaultNarrowKlass, Zero) { zero(); }
TEST_F(RtlFaultNarrowKlass, ZeroAmongOthers) { zero_among_others(); }
TEST_F(RtlFaultNarrowKlass, ArrayAtTheEndOfTheHeap) { array_at_the_end_of_the_heap(); }

class RtlFaultWideKlass : public RtlFaultKlass {
 protected:
  RtlFaultWideKlass() : RtlFaultKlass(8) {}
};
TEST_F(RtlFaultWideKlass, Zero) { zero(); }
TEST_F(RtlFaultWideKlass, ZeroAmongOthers) { zero_among_others(); }
TEST_F(RtlFaultWideKlass, ArrayAtTheEndOfTheHeap) { array_at_the_end_of_the_heap(); }

// A klass word whose lower half is zero is one like any other.
TEST_F(RtlFaultWideKlass, HalfZeroIsNotZero) {
  const uint64_t high = UINT64_C(1) << 32;
  std::memcpy(window_.heap() + 128 + 8, &high, 8);
  meet(128, kNamed);
  ASSERT_TRUE(machine_->run_until([&] { return machine_->completed() == 1; }, kPatience));
  const std::vector<merapi_completion> c = machine_->complete();
  EXPECT_EQ(c[0].type, MERAPI_COMP_DEFER);
  EXPECT_EQ(c[0].flags, 1u << MERAPI_DEFER_FLAG_UNSIZED);
  EXPECT_EQ(c[0].payload[0], address(128));
  ASSERT_TRUE(machine_->run_until([&] { return machine_->idle(); }, kPatience));
}

// No flags are defined, for any command.
TEST_F(RtlFault, BadCommandFlags) {
  for (uint8_t opcode : {MERAPI_OP_NOP, MERAPI_OP_BEGIN_CYCLE, MERAPI_OP_TRACE_REGION, MERAPI_OP_GREY,
                         MERAPI_OP_CLEAR_BITMAP, MERAPI_OP_FENCE, MERAPI_OP_INVALIDATE_SHAPES}) {
    for (unsigned bit : {0u, 1u + opcode % 6u, 7u}) {
      machine();
      machine_->begin(0);
      machine_->submit_with_flags(opcode, uint8_t(1u << bit));
      expect(MERAPI_FAULT_BAD_COMMAND, 1, opcode);
      ASSERT_FALSE(HasFailure()) << "opcode " << unsigned{opcode} << ", flag " << bit;
      expect_recovery();
    }
  }
}

// A heap may begin at address 0: null is not the object there.
class RtlFaultHeapAtZero : public RtlFault {
 protected:
  static WindowShape at_zero() {
    WindowShape s;
    s.heap_base = 0;
    s.oop_bytes = 8;
    return s;
  }
  RtlFaultHeapAtZero() : RtlFault(at_zero()) {}
};

TEST_F(RtlFaultHeapAtZero, NullOfTheHostIsIgnored) {
  const uint64_t klass = 0x2000;
  window_.put_instance(klass, 2);
  for (uint64_t at : {0, 64, 128}) std::memcpy(window_.heap() + at + 8, &klass, 4);
  machine();
  machine_->begin(0);
  machine_->grey({0});
  machine_->grey({0, 64, 0, 0, 128, 0});
  ASSERT_TRUE(machine_->idle_or_fault(kPatience));
  EXPECT_EQ(machine_->fault().code, 0u);
  EXPECT_FALSE(window_.marked(0, 0));
  EXPECT_TRUE(window_.marked(0, 64) && window_.marked(0, 128));
  EXPECT_EQ(window_.live()[0], 4u);
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), 2u);
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_GREYS_SUBMITTED), 7u);
  EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFS_NULL) + machine_->counter(MERAPI_COUNTER_REFS_OUTSIDE), 5u);
}

// An error at any of the first accesses, one after the other: always a fault with an address in the window, never a
// mark, a live word or a completion made of what was not read.
TEST_F(RtlFault, MemoryErrorsAnywhere) {
  object(64, kKlass, address(128));
  std::memcpy(window_.heap() + 128 + 8, &kKlass, 4);
  // Look-ups of the host's lines before the cycle are not counted from here: start where the cycle does.
  int faults = 0;
  for (uint64_t nth = 40; nth < 110; nth++) {
    Window window(window_.shape);
    std::memcpy(window.base, window_.base, 4096);
    for (int a : {MERAPI_AREA_SHAPES, MERAPI_AREA_LIMITS})
      std::memcpy(window.area(a), window_.area(a), window.layout.area[a].size);
    std::memcpy(window.heap(), window_.heap(), 4096);
    window.mark(0, 64);
    RtlMachineOptions o;
    o.simulation.read_error_at = nth;
    RtlMachine m(&window, o);
    ASSERT_TRUE(m.attach());
    m.begin(0);
    m.command(MERAPI_OP_TRACE_REGION, 0, window.shape.regions, 0);
    ASSERT_TRUE(m.idle_or_fault(20000)) << nth;
    if (m.idle()) {
      // The error hit a look at the host while nothing was attached, or was never reached.
      EXPECT_TRUE(window.marked(0, 128)) << nth;
      continue;
    }
    faults++;
    EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_MEMORY)) << nth;
    EXPECT_LT(m.fault().address, window.bytes);
  }
  EXPECT_GT(faults, 50);
}

// Everything that a host may ask for in a cycle, one after the other, with an error at one access after the other: it
// is a fault of the memory, told with a place in the window, whatever was going on; an abort ends it, and the next
// cycle marks as if nothing had been.
class MemoryErrors : public RtlFault {
 protected:
  struct Run {
    uint64_t reads = 0, writes = 0;  // lines, from the handshake to the end of the first cycle
    uint64_t reads_before = 0, writes_before = 0;
    bool fault = false;
    std::vector<uint64_t> written;  // addresses
  };
  // What can be reached from the object at 64 is those at 128 and 4160.
  std::unique_ptr<Window> fresh() {
    auto window = std::make_unique<Window>(window_.shape);
    std::memcpy(window->base, window_.base, 4096);
    for (int a : {MERAPI_AREA_SHAPES, MERAPI_AREA_LIMITS}) {
      std::memcpy(window->area(a), window_.area(a), window->layout.area[a].size);
    }
    auto put = [&](uint64_t at, uint64_t first, uint64_t second) {
      std::memcpy(window->heap() + at + 8, &kKlass, 4);
      for (uint64_t to : {first, second}) {
        uint32_t narrow =
            to == 0 ? 0 : uint32_t((address(to) - window->shape.narrow_base) >> window->shape.narrow_shift);
        std::memcpy(window->heap() + at + (to == first ? 12 : 16), &narrow, 4);
      }
    };
    put(64, 128, 4160);
    put(128, 64, 0);
    put(4160, 128, 0);
    window->mark(0, 64);
    window->mark(1, 64);
    return window;
  }
  // An access takes 2 to `slowest` cycles; 2: accesses end in the order in which they begin.
  Run run(uint64_t read_error, uint64_t write_error, uint64_t pause_after, uint32_t slowest) {
    Run r;
    std::unique_ptr<Window> window = fresh();
    RtlMachineOptions o;
    o.timing = {2, slowest, 100, 1};
    o.simulation.read_error_at = read_error;
    o.simulation.write_error_at = write_error;
    uint64_t reads = 0, writes = 0;
    o.simulation.on_access = [&](uint64_t address, bool write) {
      (write ? writes : reads)++;
      if (write) r.written.push_back(address);
    };
    RtlMachine m(window.get(), o);
    EXPECT_TRUE(m.attach());
    r.reads_before = reads, r.writes_before = writes;
    auto until = [&](auto what) {
      return m.run_until(
          [&] {
            m.complete();
            return m.fault().code != 0 || what();
          },
          kPatience);
    };
    m.begin(0);
    m.grey({address(4160), 0});
    m.command(MERAPI_OP_TRACE_REGION, 0, window->shape.regions, 0);
    m.command(MERAPI_OP_FENCE, 0, 1, 0);
    m.command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    m.run(pause_after);
    m.request_pause();
    EXPECT_TRUE(until([&] { return m.pause_acknowledged(); }));
    m.resume();
    EXPECT_TRUE(until([&] { return m.resume_acknowledged(); }));
    m.grey({address(128)});
    EXPECT_TRUE(until([&] { return m.idle(); }));
    r.reads = reads, r.writes = writes;
    m.run(1000);  // the last write may be what failed
    r.fault = m.fault().code != 0;
    if (r.fault) {
      EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_MEMORY));
      EXPECT_LT(m.fault().address, window->bytes);
    } else {
      EXPECT_TRUE(window->marked(0, 128) && window->marked(0, 4160));
    }
    m.abort();
    EXPECT_TRUE(m.run_until([&] { return m.abort_acknowledged(); }, kPatience));
    EXPECT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
    m.complete();
    uint32_t before = m.fault().code;
    m.begin(1);
    m.command(MERAPI_OP_TRACE_REGION, 0, window->shape.regions, 0);
    EXPECT_TRUE(m.run_until(
        [&] {
          m.complete();
          return m.idle();
        },
        kPatience));
    EXPECT_EQ(m.fault().code, before);
    EXPECT_TRUE(window->marked(1, 128) && window->marked(1, 4160));
    EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), 2u);
    return r;
  }
};

TEST_F(MemoryErrors, AtEveryRead) {
  Run whole = run(0, 0, 300, 9);
  ASSERT_FALSE(whole.fault || HasFailure());
  uint64_t faults = 0;
  for (uint64_t nth = whole.reads_before + 1; nth <= whole.reads; nth++) {
    uint64_t pause_after = 100 + nth * 37 % 700;
    faults += run(nth, 0, pause_after, 9).fault;
    ASSERT_FALSE(HasFailure()) << "read " << nth << " of " << whole.reads << ", pause after " << pause_after;
  }
  // Not a fault: what was not read because the pause came at another time.
  EXPECT_GE(10 * faults, 9 * (whole.reads - whole.reads_before));
}

// In the completion ring too: an entry whose write failed is never published (it would be read as torn).
TEST_F(MemoryErrors, AtEveryWrite) {
  // In order, since the memory counts what ends and `written` tells what began.
  Run whole = run(0, 0, 500, 2);
  ASSERT_FALSE(whole.fault || HasFailure());
  uint64_t faults = 0, tried = 0, completions = 0;
  for (uint64_t nth = whole.writes_before + 1; nth <= whole.writes; nth++) {
    const merapi_area_desc& ring = window_.layout.area[MERAPI_AREA_COMPLETION];
    completions += whole.written[nth - 1] - ring.offset < ring.size;
    tried++;
    faults += run(0, nth, 500, 2).fault;
    ASSERT_FALSE(HasFailure()) << "write " << nth << " of " << whole.writes;
  }
  EXPECT_GT(tried, 20u);
  EXPECT_GE(completions, 2u);
  EXPECT_EQ(faults, tried);
}

// What a handshake leaves beside the answer itself.
struct HandshakeLines {
  merapi_device_identity identity;
  merapi_device_ack ack;
  merapi_idle_record idle;
  merapi_fault_record fault;
  merapi_counters counters;
  explicit HandshakeLines(Window* w)
      : identity(*w->control<merapi_device_identity>(MERAPI_DEVICE_IDENTITY_OFFSET)),
        ack(*w->control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET)),
        idle(*w->control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET)),
        fault(*w->control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET)),
        counters(*w->control<merapi_counters>(MERAPI_COUNTERS_OFFSET)) {}
  bool operator==(const HandshakeLines& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
  // What a former tracer has left.
  static void spoil(Window* w) {
    constexpr uint64_t kMuch = 0x0123456789;
    w->control<merapi_device_identity>(MERAPI_DEVICE_IDENTITY_OFFSET)->lanes = 77;
    auto* ack = w->control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET);
    ack->pause = ack->resume = ack->abort = 3;
    auto* idle = w->control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
    idle->cycle = idle->idle = 1;
    idle->consumed = idle->produced = kMuch;
    auto* counters = w->control<merapi_counters>(MERAPI_COUNTERS_OFFSET);
    for (uint64_t i = 0; i <= MERAPI_COUNTER_ROUNDS; i++) counters->value[i] = kMuch;
  }
};

// A line of the handshake that cannot be written is a refusal, as a wrong magic is: who sees the generation answered
// sees the fault, or all lines as they should be, and nothing is told later. Where the answer itself fails there may be
// none.
TEST_F(MemoryErrors, AtEveryWriteOfTheHandshake) {
  constexpr uint64_t kAnswers = 20'000, kLive = 0x55;
  std::unique_ptr<HandshakeLines> right;
  uint64_t writes = 0;
  for (uint64_t nth = 0; nth <= writes; nth++) {
    std::unique_ptr<Window> window = fresh();
    HandshakeLines::spoil(window.get());
    std::vector<uint64_t> written;  // addresses
    RtlMachineOptions o;
    o.simulation.write_error_at = nth;
    o.simulation.on_access = [&](uint64_t address, bool write) {
      if (write) written.push_back(address);
    };
    RtlMachine m(window.get(), o);
    const bool answered = m.attach(kAnswers);
    if (nth == 0) {
      ASSERT_TRUE(answered);
      ASSERT_EQ(m.fault().code, 0u);
      right = std::make_unique<HandshakeLines>(window.get());
      writes = written.size();
      ASSERT_GE(writes, 10u) << "not what is tested";
      ASSERT_EQ(written.back(), uint64_t{MERAPI_DEVICE_INDEX_OFFSET});
      continue;
    }
    const uint64_t failed = written[nth - 1];
    SCOPED_TRACE(testing::Message() << "write " << nth << " of " << writes << ", at " << std::hex << failed);
    auto ask = [&](uint32_t bitmap) {
      m.begin(bitmap);
      m.command(MERAPI_OP_TRACE_REGION, 0, window->shape.regions, 0);
    };
    if (!answered) {
      EXPECT_EQ(failed, uint64_t{MERAPI_DEVICE_INDEX_OFFSET});
    } else if (m.fault().code == 0) {
      EXPECT_TRUE(HandshakeLines(window.get()) == *right) << "answered without a line that was not written";
      ask(0);
      m.run(kAnswers);
      EXPECT_EQ(m.fault().code, 0u) << "told after the answer";
      EXPECT_EQ(m.executed(), m.produced);
    } else {
      EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_MEMORY)) << merapi_fault_name(m.fault().code);
      EXPECT_EQ(m.fault().address, failed);
      window->live()[3] = kLive;
      ask(0);
      m.run(kAnswers);
      EXPECT_EQ(m.executed(), 0u);
      EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
      m.abort();
      EXPECT_TRUE(m.run_until([&] { return m.abort_acknowledged(); }, kPatience));
      ask(0);
      m.run(kAnswers);
      EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_MEMORY)) << "an abort ended it";
      EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED)) << "an abort ended it";
      EXPECT_EQ(window->live()[3], kLive) << "executed";
      EXPECT_FALSE(window->marked(0, 128)) << "executed";
      for (const merapi_completion& c : m.complete()) EXPECT_EQ(c.type, MERAPI_COMP_FAULT);
    }
    ASSERT_TRUE(m.attach(kAnswers)) << "the next generation";
    ASSERT_EQ(m.fault().code, 0u);
    ask(1);
    ASSERT_TRUE(m.idle_or_fault(kPatience));
    EXPECT_EQ(m.fault().code, 0u);
    EXPECT_TRUE(window->marked(1, 128) && window->marked(1, 4160));
  }
}

// An abort whose own look at the host fails, at any of the next reads: an index that was not read is none. What was
// submitted before the abort is consumed when it is acknowledged, and never executed.
class AbortErrors : public RtlFault {
 protected:
  static WindowShape large_ring() {
    WindowShape s;
    s.submission_entries = 256;
    return s;
  }
  AbortErrors() : RtlFault(large_ring()) {
    object(64, kKlass, address(128));
    std::memcpy(window_.heap() + 128 + 8, &kKlass, 4);
  }
  // The error: at the nth read after the request, or none. False: it was not reached.
  bool run(uint64_t nth, uint64_t reads) {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    std::memset(window_.bitmap(1), 0xa5, window_.heap_bytes() / 64);
    std::memset(window_.area(MERAPI_AREA_SUBMISSION), 0, window_.layout.area[MERAPI_AREA_SUBMISSION].size);
    window_.mark(0, 64);
    RtlMachineOptions o;
    o.simulation.read_error_at = nth == 0 ? 0 : reads + nth;
    RtlMachine& m = machine(o);
    m.begin(0);
    // More answers than the ring has room for: what is behind them waits.
    for (uint64_t i = 0; i < window_.shape.completion_entries + 4; i++) m.command(MERAPI_OP_FENCE, 0, i, 0);
    for (int i = 0; i < 20; i++) m.command(MERAPI_OP_CLEAR_BITMAP, 1, 0, window_.shape.regions);
    m.run(20'000);
    EXPECT_LT(m.executed(), m.produced - 20);
    reads_ = m.simulation->accesses().reads;
    m.abort();
    for (int tries = 0; tries < 3; tries++) {
      bool acknowledged = m.run_until([&] { return m.abort_acknowledged(); }, 20'000);
      EXPECT_TRUE(acknowledged || m.fault().code != 0);
      if (acknowledged) {
        EXPECT_EQ(m.executed(), m.produced) << "acknowledged with submissions left";
      }
      m.run(5000);
      if (acknowledged && m.state() == MERAPI_DEVICE_STATE_READY) break;
      m.abort();
    }
    const bool reached = nth == 0 || m.simulation->accesses().reads >= reads + nth;
    EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    EXPECT_EQ(m.executed(), m.produced);
    if (m.fault().code != 0) {
      EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_MEMORY));
    }
    m.complete();
    if (!HasFailure()) next_cycle();
    const auto* marks = reinterpret_cast<const uint8_t*>(window_.bitmap(1));
    EXPECT_EQ(std::count(marks, marks + window_.heap_bytes() / 64, 0xa5), int64_t(window_.heap_bytes() / 64))
        << "a submission of before the abort was executed";
    return reached;
  }
  void next_cycle() {
    const uint32_t before = machine_->fault().code;
    trace();
    EXPECT_TRUE(machine_->run_until([&] { return machine_->complete(), machine_->idle(); }, kPatience));
    EXPECT_EQ(machine_->fault().code, before);
    EXPECT_TRUE(window_.marked(0, 128));
  }
  uint64_t reads_ = 0;
};

TEST_F(AbortErrors, AtEveryReadAfterTheRequest) {
  ASSERT_TRUE(run(0, 0));
  const uint64_t reads = reads_;
  for (uint64_t nth = 1; nth <= 24; nth++) {
    EXPECT_TRUE(run(nth, reads));
    ASSERT_FALSE(HasFailure()) << "read " << nth << " after the request";
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
