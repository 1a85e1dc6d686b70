// SPDX-License-Identifier: Apache-2.0
//
// What a fault says when it happens anywhere in the largest window: address and detail of the record, and of the
// completion that copies it, to the last bit. The low end of every code is in rtl_fault_test.cc.
#include <gtest/gtest.h>

#include <cstring>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
constexpr uint64_t kPatience = 200'000;
constexpr uint64_t kNode = UINT64_C(0x123456789abcdef8), kBytes = UINT64_C(0x0fedcba987654328), kMirror = 0x4440,
                   kMany = 0x5550;
constexpr uint32_t kTrials = 12;
constexpr uint8_t kSlaveError = 2, kDecodeError = 3;

WindowShape high_shape(Random* r) {
  WindowShape s;
  s.oop_bytes = s.klass_bytes = 8;
  s.region_log2 = uint8_t(r->between(26, 34));
  s.regions = uint32_t(uint64_t{1} << (40 - s.region_log2));
  s.heap_base = (r->next() >> 1) & ~UINT64_C(0xffffff);
  s.mirror_size_offset = 40;
  s.spread_log2 = 42;
  s.spread_seed = r->next();
  return s;
}

// A window with a random place for everything, and one trial of a fault in it.
class Trial {
 public:
  explicit Trial(uint64_t seed) : random(seed), window(high_shape(&random)) {
    merapi_shape s{};
    s.klass_word = kNode;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = 4;
    window.put_shape(s, {{16, 2}});
    s = {};
    s.klass_word = kBytes;
    s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    s.header_bytes = 24;
    s.element_log2 = 3;
    window.put_shape(s);
    s = {};
    s.klass_word = kMirror;
    s.kind = MERAPI_SHAPE_KIND_MIRROR;
    window.put_shape(s);
    window.fill_regions();
  }
  uint64_t start(uint64_t region) const { return region << window.shape.region_log2; }
  uint64_t address(uint64_t offset) const { return window.shape.heap_base + offset; }
  uint64_t area(int which) const { return window.layout.area[which].offset; }
  // Room for an object of `bytes`, anywhere.
  uint64_t anywhere(uint64_t bytes) { return random.below((window.heap_bytes() - bytes) / 8) * 8; }
  void object(uint64_t at, uint64_t klass) { std::memcpy(window.heap() + at + 8, &klass, 8); }
  void word(uint64_t at, uint64_t value) { std::memcpy(window.heap() + at, &value, 8); }

  RtlMachine& machine(SimulationOptions simulation = {}) {
    RtlMachineOptions o;
    o.simulation = simulation;
    machine_ = std::make_unique<RtlMachine>(&window, o);
    EXPECT_TRUE(machine_->attach());
    return *machine_;
  }
  // The cycle begins and is given `roots`.
  void grey(const std::vector<uint64_t>& roots) {
    machine_->begin(0);
    machine_->grey(roots);
  }
  void expect(uint32_t code, uint64_t where, uint64_t detail) {
    EXPECT_EQ(machine_->fault_after(kPatience), code) << merapi_fault_name(machine_->fault().code);
    EXPECT_EQ(machine_->fault().address, where);
    EXPECT_EQ(machine_->fault().detail, detail);
    EXPECT_TRUE(machine_->run_until([&] { return machine_->state() == MERAPI_DEVICE_STATE_FAULTED; }, kPatience));
    bool told = false;
    EXPECT_TRUE(machine_->run_until(
        [&] {
          for (const merapi_completion& c : machine_->complete()) {
            if (c.type != MERAPI_COMP_FAULT) continue;
            told = true;
            EXPECT_EQ(c.arg, code);
            EXPECT_EQ(c.payload[0], where);
            EXPECT_EQ(c.payload[1], detail);
          }
          return told;
        },
        kPatience));
  }
  void expect_idle() {
    EXPECT_TRUE(machine_->idle_or_fault(kPatience));
    EXPECT_EQ(machine_->fault().code, 0u);
  }

  Random random;
  Window window;

 private:
  std::unique_ptr<RtlMachine> machine_;
};

template <typename F>
void trials(F one) {
  for (uint64_t seed = 1; seed <= kTrials; seed++) {
    Trial t(seed);
    one(t);
    ASSERT_FALSE(testing::Test::HasFailure()) << "trial " << seed;
  }
}

TEST(RtlHighFault, BadReference) {
  trials([](Trial& t) {
    uint64_t from = t.anywhere(64), to = t.address(t.anywhere(64)) + t.random.between(1, 7);
    t.object(from, kNode);
    t.word(from + 16 + 8 * t.random.below(2), to);
    t.machine();
    t.grey({t.address(from)});
    t.expect(MERAPI_FAULT_BAD_REFERENCE, to, t.address(from));
  });
}

// Its line is another lane's: arrays are cut in two.
TEST(RtlHighFault, BadReferenceFarBehindItsArray) {
  trials([](Trial& t) {
    constexpr uint64_t kLength = 2000, kHeader = 24;
    t.window.put_object_array(kMany, kHeader);
    uint64_t from = t.anywhere(kHeader + 8 * kLength), to = t.address(t.anywhere(64)) + t.random.between(1, 7);
    t.object(from, kMany);
    t.word(from + 16, kLength);
    t.word(from + kHeader + 8 * (kLength - 1 - t.random.below(kLength / 4)), to);
    t.machine();
    t.grey({t.address(from)});
    t.expect(MERAPI_FAULT_BAD_REFERENCE, to, t.address(from));
  });
}

TEST(RtlHighFault, BadReferenceOfTheHost) {
  trials([](Trial& t) {
    uint64_t to = t.address(t.anywhere(64)) + t.random.between(1, 7);
    t.machine();
    t.grey({to});
    t.expect(MERAPI_FAULT_BAD_REFERENCE, to, 0);
  });
}

TEST(RtlHighFault, BadObjectLength) {
  trials([](Trial& t) {
    uint64_t at = t.window.heap_bytes() - 64 - 8 * t.random.below(1 << 20);
    uint64_t room = (t.window.heap_bytes() - at - 24) / 8;
    t.object(at, kBytes);
    uint64_t length = room + 1 + t.random.below(0x7fffffff - room);
    t.word(at + 16, length);
    t.machine();
    t.grey({t.address(at)});
    t.expect(MERAPI_FAULT_BAD_OBJECT, t.address(at), 3 + length);
  });
}

// No Java array is that long, however large the heap.
TEST(RtlHighFault, BadObjectNegativeLength) {
  trials([](Trial& t) {
    uint64_t at = t.anywhere(64) / 16 * 8;
    t.object(at, kBytes);
    t.word(at + 16, 0x80000000 | t.random.below(0x7fffffff));
    RtlMachine& m = t.machine();
    t.grey({t.address(at)});
    EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_OBJECT));
    EXPECT_EQ(m.fault().address, t.address(at));
  });
}

// References far behind an object's start are followed, or the object is the host's to scan.
TEST(RtlHighFault, LargeInstance) {
  for (uint32_t log2 : {20u, 23u, 24u, 25u, 26u}) {
    for (bool many : {false, true}) {
      Trial t(log2);
      merapi_shape s{};
      s.klass_word = kMany;
      s.kind = MERAPI_SHAPE_KIND_INSTANCE;
      s.size_words = 2u << log2 >> 3;
      uint32_t last = (1u << log2) + 64;
      std::vector<merapi_ref_block> blocks = {{16, 1}, {last, 1}};
      if (many) blocks = {{16, 1}, {32, 1}, {48, 1}, {64, 1}, {80, 1}, {last, 1}};
      t.window.put_shape(s, blocks);
      uint64_t at = t.start(t.random.below(t.window.shape.regions / 2)), to = t.start(t.window.shape.regions - 1);
      t.object(at, kMany);
      t.object(to, kNode);
      t.word(at + last, t.address(to));
      RtlMachine& m = t.machine();
      t.grey({t.address(at)});
      bool deferred = false;
      ASSERT_TRUE(m.run_until(
          [&] {
            for (const merapi_completion& c : m.complete()) {
              deferred |= c.type == MERAPI_COMP_DEFER && c.payload[0] == t.address(at);
            }
            return m.idle();
          },
          kPatience));
      EXPECT_TRUE(t.window.marked(0, to) || deferred) << "a reference at 2^" << log2 << (many ? " of many" : "");
    }
  }
}

// As long as it can be: it ends with the heap.
TEST(RtlHighFault, AnArrayThatEndsWithTheHeap) {
  trials([](Trial& t) {
    uint64_t length = t.random.below(0x7fffffff), at = t.window.heap_bytes() - 24 - 8 * length;
    t.object(at, kBytes);
    t.word(at + 16, length);
    RtlMachine& m = t.machine();
    t.grey({t.address(at)});
    t.expect_idle();
    EXPECT_EQ(t.window.live()[at >> t.window.shape.region_log2], 3 + length);
    EXPECT_EQ(m.counter(MERAPI_COUNTER_LIVE_WORDS), 3 + length);
  });
}

TEST(RtlHighFault, BadObjectMirror) {
  trials([](Trial& t) {
    // The size itself lies beyond the heap, or says so.
    uint64_t at = t.window.heap_bytes() - (t.random.percent(50) ? 40 : 48);
    bool readable = at + 48 == t.window.heap_bytes();
    uint32_t words = uint32_t(7 + t.random.below(UINT32_MAX - 7));
    t.object(at, kMirror);
    if (readable) std::memcpy(t.window.heap() + at + 40, &words, 4);
    RtlMachine& m = t.machine();
    t.grey({t.address(at)});
    EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_OBJECT));
    EXPECT_EQ(m.fault().address, t.address(at));
    if (readable) {
      EXPECT_EQ(m.fault().detail, words);
    }
  });
}

TEST(RtlHighFault, BadObjectAtTheEnd) {
  Trial t(1);
  uint64_t at = t.window.heap_bytes() - 8;
  t.machine();
  t.grey({t.address(at)});
  t.expect(MERAPI_FAULT_BAD_OBJECT, t.address(at), 0);
}

// Found by the sweep, by a reference of the host and by one in the heap.
TEST(RtlHighFault, BadLimit) {
  trials([](Trial& t) {
    uint64_t region = t.random.below(t.window.shape.regions), bytes = t.window.region_bytes();
    uint64_t place = t.area(MERAPI_AREA_LIMITS) + 8 * region, limit = 0;
    switch (t.random.below(4)) {
      case 0:
        limit = t.start(region + 1) + 8 + 8 * t.random.below(bytes / 8);
        break;
      case 1:
        limit = t.start(region) == 0 ? bytes + 8 : t.random.below(t.start(region) / 8) * 8;
        break;
      case 2:
        limit = (t.start(region) + 64) ^ UINT64_C(1) << t.random.between(40, 63);
        break;
      default:
        limit = t.start(region) + 8 * t.random.below(bytes / 8) + t.random.between(1, 7);
    }
    t.window.limits()[region] = limit;
    RtlMachine& m = t.machine();
    m.begin(0);
    uint64_t way = t.random.below(3), to = t.address(t.start(region) + 8 * t.random.below(bytes / 8));
    if (way == 0) m.trace(uint32_t(region), 1);
    if (way == 1) m.grey({to});
    if (way == 2) {
      uint64_t from = t.start(region == 0 ? 1 : region - 1);
      t.object(from, kNode);
      t.word(from + 16, to);
      m.grey({t.address(from)});
    }
    EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG));
    EXPECT_EQ(m.fault().address, place);
    // Checkers keep a limit's bits 3 to 40.
    uint64_t kept = way == 0 ? ~uint64_t{0} : (UINT64_C(1) << 41) - 8;
    EXPECT_EQ(m.fault().detail, limit & kept);
  });
}

// Every bit above the largest heap's, in a limit that is right but for it, anywhere in its line of the table.
TEST(RtlHighFault, LimitWithOneBitTooMany) {
  for (uint32_t bit = 40; bit < 64; bit++) {
    Trial t(bit);
    RtlMachine& m = t.machine();
    uint64_t line = t.random.below(t.window.shape.regions / 8);
    for (uint64_t region = 8 * line; region < 8 * line + 8; region++) {
      uint64_t to = t.start(region) + 64, good = t.window.limits()[region];
      uint64_t limit = (to + 64) | UINT64_C(1) << bit;
      t.window.limits()[region] = limit;
      m.begin(0);
      bool sweep = t.random.percent(50);
      if (sweep) {
        m.trace(uint32_t(region), 1);
      } else {
        m.grey({t.address(to)});
      }
      ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG)) << bit;
      EXPECT_EQ(m.fault().address, t.area(MERAPI_AREA_LIMITS) + 8 * region) << bit;
      EXPECT_EQ(m.fault().detail, sweep ? limit : limit & ((UINT64_C(1) << 41) - 8)) << bit;
      t.window.limits()[region] = good;
      ASSERT_TRUE(m.attach());
      ASSERT_EQ(m.fault().code, 0u);
    }
  }
}

TEST(RtlHighFault, BadCommand) {
  trials([](Trial& t) {
    RtlMachine& m = t.machine();
    m.begin(0);
    uint64_t before = t.random.below(200);
    for (uint64_t i = 0; i < before; i++) {
      ASSERT_TRUE(m.run_until([&] { return m.room(); }, kPatience));
      m.command(MERAPI_OP_NOP, uint32_t(t.random.next()), t.random.next(), t.random.next());
    }
    ASSERT_TRUE(m.run_until([&] { return m.room(); }, kPatience));
    uint64_t opcode = MERAPI_OP_TRACE_REGION;
    uint64_t n = t.window.shape.regions;
    switch (t.random.below(5)) {
      case 0:
        opcode = t.random.between(MERAPI_OP_INVALIDATE_SHAPES + 1, 255);
        m.command(uint8_t(opcode), 0, 0, 0);
        break;
      case 1:  // too many, by one
        m.command(uint8_t(opcode), uint32_t(n - 1), 2, 0);
        break;
      case 2:  // by far: bits that no region's number has
        m.command(uint8_t(opcode), uint32_t(n - 1), UINT64_C(1) << t.random.between(32, 63), 0);
        break;
      case 3:
        m.command(uint8_t(opcode), uint32_t(n) | 1u << t.random.between(26, 31), 1, 0);
        break;
      default:  // another scope, or another order
        m.command(uint8_t(opcode), 0, 1, UINT64_C(1) << t.random.below(64));
    }
    t.expect(MERAPI_FAULT_BAD_COMMAND, before + 1, opcode);
  });
}

TEST(RtlHighFault, BadSequence) {
  for (uint32_t bit = 0; bit < 32; bit += 3) {
    Trial t(bit + 1);
    RtlMachine& m = t.machine();
    merapi_submission e{};
    e.opcode = MERAPI_OP_NOP;
    m.submit(e);
    reinterpret_cast<merapi_submission*>(t.window.area(MERAPI_AREA_SUBMISSION))->sequence ^= 1u << bit;
    t.expect(MERAPI_FAULT_BAD_SEQUENCE, 0, 1u ^ 1u << bit);
  }
}

TEST(RtlHighFault, BadShape) {
  trials([](Trial& t) {
    uint64_t at = t.anywhere(64), klass = t.random.next() & ~UINT64_C(7);
    merapi_shape s{};
    s.klass_word = klass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = 4;
    std::vector<merapi_ref_block> blocks = {{16, 1}};
    switch (t.random.below(7)) {
      case 0:
        s.kind = uint8_t(t.random.between(8, 255));
        break;
      case 1:
        blocks = {{16, 3}};
        break;
      case 2:
        blocks = {{20, 1}};
        break;
      case 3:
        blocks = {{8, 1}};
        break;
      case 4:
        blocks = {{16, 1u << t.random.between(2, 31)}};
        break;
      case 5:
        blocks = {{16, 1}, {1u << t.random.between(5, 31), 1}};
        break;
      default:
        s.kind = MERAPI_SHAPE_KIND_OBJ_ARRAY;
        s.header_bytes = 24;
        s.element_log2 = 2;
    }
    t.window.put_shape(s, blocks);
    t.object(at, klass);
    t.machine();
    t.grey({t.address(at)});
    t.expect(MERAPI_FAULT_BAD_SHAPE, klass, s.kind);
  });
}

TEST(RtlHighFault, RingOverrun) {
  trials([](Trial& t) {
    RtlMachine& m = t.machine();
    auto* index = t.window.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
    const uint64_t just = t.window.shape.submission_entries + 1;
    const uint64_t some[] = {t.random.next(), UINT64_C(1) << t.random.between(7, 63), just};
    const uint64_t beyond = some[t.random.below(3)], way = t.random.below(3);
    (way == 0 ? index->completion_consumed : index->submission_produced) = beyond;
    if (way == 2) m.abort();  // what was submitted when it is seen would be dropped
    EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_RING_OVERRUN));
    EXPECT_EQ(m.fault().address, beyond);
    EXPECT_EQ(m.fault().detail, 0u);
  });
}

// A memory error on one line, by what the tracer does with it.
TEST(RtlHighFault, MemoryErrors) {
  enum What {
    kHeap,
    kLimit,
    kShape,
    kExtension,
    kLiveRead,
    kLiveWrite,
    kBitmapRead,
    kBitmapWrite,
    kSweep,
    kRing,
    kWhats
  };
  for (int what = 0; what < kWhats; what++) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
      Trial t(seed * 100 + uint64_t(what));
      uint64_t at = t.anywhere(64), region = at >> t.window.shape.region_log2;
      merapi_shape many{};
      many.klass_word = kMany;
      many.kind = MERAPI_SHAPE_KIND_INSTANCE;
      many.size_words = 20;
      t.window.put_shape(many, {{16, 1}, {32, 1}, {48, 1}, {64, 1}, {80, 1}, {96, 1}});
      if (what == kExtension) at = at % (t.window.heap_bytes() / 2);
      region = at >> t.window.shape.region_log2;
      t.object(at, what == kExtension ? kMany : kNode);
      uint64_t bit_line = (at >> t.window.shape.alignment_log2) / 512 * 64;
      uint64_t line = 0;
      switch (what) {
        case kHeap:
          line = t.area(MERAPI_AREA_HEAP) + (at + 8) / 64 * 64;
          break;
        case kLimit:
          line = t.area(MERAPI_AREA_LIMITS) + region / 8 * 64;
          break;
        case kShape: {
          auto* table = reinterpret_cast<merapi_shape*>(t.window.area(MERAPI_AREA_SHAPES));
          for (int i = 0; table[i].klass_word != kNode; i++) line = uint64_t(i + 1) * 64;
          line += t.area(MERAPI_AREA_SHAPES);
          break;
        }
        case kExtension:
          line = t.area(MERAPI_AREA_SHAPE_EXTENSION);
          break;
        case kLiveRead:
        case kLiveWrite:
          line = t.area(MERAPI_AREA_LIVE) + region / 8 * 64;
          break;
        case kBitmapRead:
        case kBitmapWrite:
        case kSweep:
          line = t.area(MERAPI_AREA_BITMAP0) + bit_line;
          break;
        case kRing:
          line = t.area(MERAPI_AREA_COMPLETION);
          break;
      }
      bool write = what == kLiveWrite || what == kBitmapWrite || what == kRing;
      SimulationOptions o;
      (write ? o.write_error_line : o.read_error_line) = line;
      o.error_response = t.random.percent(50) ? kSlaveError : kDecodeError;
      uint32_t code = o.error_response == kSlaveError ? MERAPI_FAULT_MEMORY : MERAPI_FAULT_TRUNCATED;
      if (what == kSweep) {
        t.window.limits()[region] = std::min(t.start(region + 1), (at / 4096 + 1) * 4096);
        t.window.mark(0, at);
        // No further than needed: the sweep reads all that lies below the limit.
        if (at - t.start(region) > 1 << 22) continue;
      }
      RtlMachine& m = t.machine(o);
      m.begin(0);
      if (what == kSweep) {
        m.trace(uint32_t(region), 1);
      } else {
        m.grey({t.address(at)});
      }
      EXPECT_EQ(m.fault_after(kPatience), code) << what;
      EXPECT_EQ(m.fault().address, line) << what;
      EXPECT_EQ(m.fault().detail, 0u) << what;
    }
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
