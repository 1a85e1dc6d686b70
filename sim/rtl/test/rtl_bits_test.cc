// SPDX-License-Identifier: Apache-2.0
//
// Single bits that generated heaps hardly ever set alone: of references, of tables' sizes, of counts. MERAPI_PRESET as
// in rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
constexpr uint64_t kPatience = 2'000'000;
constexpr uint32_t kLeaf = 0x1000, kArray = 0x2000, kMany = 0x3000;

class Bits {
 public:
  explicit Bits(const WindowShape& s) : window(s) {
    window.put_instance(kLeaf, 2);
    window.put_object_array(kArray, 16);
  }
  void all_live() { window.fill_regions(); }
  void klass(uint64_t at, uint32_t word) { std::memcpy(window.heap() + at + 8, &word, 4); }
  uint64_t reference(uint64_t to) const {
    const WindowShape& s = window.shape;
    return s.oop_bytes == 8 ? s.heap_base + to : (s.heap_base + to - s.narrow_base) >> s.narrow_shift;
  }
  // References as they are, in an array whose first element is at a line's slot 4.
  void array(uint64_t at, const std::vector<uint64_t>& elements) {
    klass(at, kArray);
    uint32_t length = uint32_t(elements.size());
    std::memcpy(window.heap() + at + 12, &length, 4);
    for (size_t i = 0; i < elements.size(); i++) {
      std::memcpy(window.heap() + at + 16 + window.shape.oop_bytes * i, &elements[i], window.shape.oop_bytes);
    }
  }
  RtlMachine& begin(const RandomTimingOptions& timing = {}) {
    RtlMachineOptions o;
    o.timing = timing;
    machine = std::make_unique<RtlMachine>(&window, o);
    EXPECT_TRUE(machine->attach());
    machine->begin(0);
    return *machine;
  }
  void finish() {
    ASSERT_TRUE(machine->idle_or_fault(kPatience));
    EXPECT_EQ(machine->fault().code, 0u);
  }

  Window window;
  std::unique_ptr<RtlMachine> machine;
};

// References with one bit set, each bit in each slot of a line: none is taken for null, and all lead where they should.
TEST(RtlBits, ReferencesWithOneBit) {
  for (uint8_t oop : {uint8_t(4), uint8_t(8)}) {
    WindowShape s;
    s.oop_bytes = oop;
    s.region_log2 = 25;
    s.regions = oop == 8 ? 1 << 15 : 1 << 10;
    s.heap_base = oop == 8 ? 0 : UINT64_C(0x700000000);
    s.narrow_base = s.heap_base;
    Bits b(s);
    b.all_live();
    std::vector<uint64_t> elements;
    const unsigned slots = 64 / oop, low = oop == 8 ? 4 : 1, high = oop == 8 ? 39 : 31;
    for (unsigned bit = low; bit <= high; bit++) {
      elements.insert(elements.end(), slots, UINT64_C(1) << bit);
      b.klass(UINT64_C(1) << (oop == 8 ? bit : bit + 3), kLeaf);
    }
    const uint64_t at = 3 << 21;
    b.array(at, elements);
    b.window.mark(0, at);
    b.begin().trace(0, 1);
    b.finish();
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_REFERENCES_READ), elements.size());
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_REFS_NULL), 0u);
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_OBJECTS_MARKED), high - low + 1);
    for (unsigned bit = low; bit <= high; bit++) {
      EXPECT_TRUE(b.window.marked(0, UINT64_C(1) << (oop == 8 ? bit : bit + 3))) << bit << " of " << 8 * oop;
    }
  }
}

// References that lie between objects by one bit, of every alignment, from an object and from the host.
TEST(RtlBits, ReferencesBesideTheAlignment) {
  for (uint8_t oop : {uint8_t(4), uint8_t(8)}) {
    for (unsigned alignment = 3; alignment <= 8; alignment++) {
      for (unsigned bit = oop == 8 ? 0 : 2; bit < alignment; bit++) {
        for (bool host : {false, true}) {
          SCOPED_TRACE(testing::Message() << 8 * oop << " bits, " << (1 << alignment) << " bytes apart, bit " << bit);
          WindowShape s;
          s.oop_bytes = oop;
          s.alignment_log2 = uint8_t(alignment);
          s.region_log2 = 17;
          s.narrow_base = s.heap_base;
          s.narrow_shift = 2;
          Bits b(s);
          b.all_live();
          const uint64_t from = 1 << 12, to = s.heap_base + (1 << 14) + (1 << bit);
          b.array(from, {oop == 8 ? to : (to - s.narrow_base) >> s.narrow_shift});
          b.window.mark(0, from);
          RtlMachine& m = b.begin();
          if (host) {
            m.grey({to});
          } else {
            m.trace(0, 1);
          }
          EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_REFERENCE));
          EXPECT_EQ(m.fault().address, to);
          EXPECT_EQ(m.fault().detail, host ? 0 : s.heap_base + from);
          ASSERT_FALSE(testing::Test::HasFailure());
        }
      }
    }
  }
}

// The first reference at every place that an object may have it, wherever in a line the object begins: elements behind
// headers of every size, fields at every offset, of the klass word's line and of the next ones.
TEST(RtlBits, FirstReferenceAnywhere) {
  for (uint8_t oop : {uint8_t(4), uint8_t(8)}) {
    WindowShape s;
    s.oop_bytes = oop;
    s.region_log2 = 20;
    Bits b(s);
    b.all_live();
    std::vector<uint64_t> elements, leaves;
    uint64_t at = 64 << 10, leaf = 512 << 10, read = 0;
    for (uint32_t offset = 16; offset <= 128; offset += oop) {
      for (uint8_t kind : {MERAPI_SHAPE_KIND_INSTANCE, MERAPI_SHAPE_KIND_OBJ_ARRAY}) {
        const uint32_t count = 1 + offset / oop % 3;
        const uint32_t klass = 0x10000 + 0x100 * offset + kind;
        if (kind == MERAPI_SHAPE_KIND_INSTANCE) {
          b.window.put_instance(klass, (offset + count * oop + 7) / 8, {{offset, count}});
        } else {
          b.window.put_object_array(klass, offset);
        }
        for (uint64_t place = 0; place < 64; place += 8, at += 256) {
          const uint64_t object = at + place;
          b.klass(object, klass);
          if (kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) std::memcpy(b.window.heap() + object + 12, &count, 4);
          elements.push_back(b.reference(object));
          for (uint32_t i = 0; i < count; i++, leaf += 16) {
            const uint64_t to = b.reference(leaf);
            b.klass(leaf, kLeaf);
            std::memcpy(b.window.heap() + object + offset + i * oop, &to, oop);
            leaves.push_back(leaf);
          }
          read += count;
        }
      }
    }
    ASSERT_LE(at, 512u << 10);
    b.array(4096, elements);
    b.window.mark(0, 4096);
    b.begin().trace(0, 1);
    b.finish();
    for (uint64_t l : leaves) ASSERT_TRUE(b.window.marked(0, l)) << std::hex << l << ", " << 8 * oop << " bits";
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_OBJECTS_MARKED), elements.size() + leaves.size());
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_REFERENCES_READ), elements.size() + read);
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_REFS_NULL), 0u);
  }
}

// The last reference at every place, behind one to four blocks that end before it, wherever in a line the object
// begins: whether an object goes on in further lines is the last block's alone to say.
TEST(RtlBits, LastReferenceAnywhere) {
  for (uint8_t oop : {uint8_t(4), uint8_t(8)}) {
    WindowShape s;
    s.oop_bytes = oop;
    s.region_log2 = 20;
    Bits b(s);
    b.all_live();
    std::vector<uint64_t> elements, leaves;
    uint64_t at = 64 << 10, leaf = 512 << 10, klass = 0x10000;
    for (uint32_t blocks = 1; blocks <= 4; blocks++) {
      for (uint32_t last = 16 + (blocks - 1) * 2 * oop; last <= 144; last += oop, klass += 8) {
        std::vector<merapi_ref_block> all;
        for (uint32_t i = 0; i + 1 < blocks; i++) all.push_back({16 + i * 2 * oop, 1});
        all.push_back({last, 1});
        b.window.put_instance(klass, (last + oop + 7) / 8, all);
        for (uint64_t place = 0; place < 64; place += 8, at += 256) {
          b.klass(at + place, klass);
          elements.push_back(b.reference(at + place));
          for (const merapi_ref_block& block : all) {
            const uint64_t to = b.reference(leaf);
            b.klass(leaf, kLeaf);
            std::memcpy(b.window.heap() + at + place + block.offset, &to, oop);
            leaves.push_back(leaf);
            leaf += 16;
          }
        }
      }
    }
    ASSERT_LE(at, 512u << 10);
    ASSERT_LE(leaf, 1u << 20);
    b.array(4096, elements);
    b.window.mark(0, 4096);
    b.begin().trace(0, 1);
    b.finish();
    for (uint64_t l : leaves) ASSERT_TRUE(b.window.marked(0, l)) << std::hex << l << ", " << 8 * oop << " bits";
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_OBJECTS_MARKED), elements.size() + leaves.size());
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_REFERENCES_READ), elements.size() + leaves.size());
  }
}

// Tables of shapes of every size, one entry and up: every klass is found in them.
TEST(RtlBits, ShapeTablesOfEverySize) {
  for (unsigned log2 = 6; log2 <= 28; log2++) {
    WindowShape s;
    s.shape_slots = 1u << log2;
    Bits b(s);
    b.all_live();
    std::vector<uint64_t> elements;
    for (uint32_t i = 0; i < 24; i++) {
      const uint32_t klass = 0x10000 + 0x1238 * i;
      b.window.put_instance(klass, 2);
      const uint64_t at = 4096 + 16 * uint64_t{i};
      b.klass(at, klass);
      elements.push_back((s.heap_base + at - s.narrow_base) >> s.narrow_shift);
    }
    b.array(64, elements);
    b.window.mark(0, 64);
    b.begin().trace(0, 1);
    b.finish();
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_OBJECTS_MARKED), elements.size()) << "2^" << log2;
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_DEFERRED), 0u) << "2^" << log2;
  }
}

// Spill areas of 2^k lines a lane, up to as many as a window can hold: all of it is there for greys.
TEST(RtlBits, SpillAreasOfEverySize) {
  const uint32_t nodes = lanes() == 1 ? 3000 : 16'000 * lanes();
  const unsigned lines = lanes() * 64, largest = 41 - unsigned(__builtin_ctz(lines));
  for (unsigned log2 = lanes() == 1 ? 9 : largest - 3; log2 <= largest; log2++) {
    WindowShape s;
    s.region_log2 = 20;
    s.regions = 16;
    s.spill_bytes = uint64_t{lines} << log2;
    Bits b(s);
    b.all_live();
    Random random(1);
    b.window.put_instance(kMany, 3, {{12, 2}});
    auto narrow = [&](uint64_t i) { return (s.heap_base + (4 << 20) + 24 * i - s.narrow_base) >> s.narrow_shift; };
    std::vector<uint64_t> elements(nodes);
    for (uint32_t i = 0; i < nodes; i++) {
      const uint64_t at = (4 << 20) + 24 * uint64_t{i};
      b.klass(at, kMany);
      const uint32_t edges[] = {uint32_t(narrow(random.below(nodes))), uint32_t(narrow(random.below(nodes)))};
      std::memcpy(b.window.heap() + at + 12, edges, sizeof edges);
      elements[i] = narrow(i);
    }
    b.array(64, elements);
    b.window.mark(0, 64);
    b.begin({60, 60, 100, 1}).trace(0, s.regions);
    b.finish();
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_OBJECTS_MARKED), nodes) << "2^" << log2;
    EXPECT_GT(b.machine->counter(MERAPI_COUNTER_SPILL_WRITES), 0u) << "2^" << log2;
    EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_GREYS_DROPPED), 0u) << "2^" << log2;
  }
}

// Live words of `count` leaves, each in a region that `next` names, before a memory that takes its time for what is
// written: each region has its own ones' in the end.
void live_words(uint32_t regions, uint64_t count, const std::function<uint64_t(uint64_t)>& next,
                const RandomTimingOptions& timing) {
  WindowShape s;
  s.regions = regions;
  Bits b(s);
  b.all_live();
  std::vector<uint64_t> elements, words(regions);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t region = next(i);
    const uint64_t at = (region << s.region_log2) + 4096 + 16 * i;
    b.klass(at, kLeaf);
    words[region] += 2;
    elements.push_back(b.reference(at));
  }
  b.array(64, elements);
  b.window.mark(0, 64);
  b.begin(timing).trace(0, 1);
  b.finish();
  for (uint64_t r = 0; r < regions; r++) ASSERT_EQ(b.window.live()[r], words[r]) << r;
}

// Regions whose lines push each other out of the table on chip: a line that is read again has what was written before.
TEST(RtlBits, LiveWordsOfLinesThatAlternate) {
  for (uint32_t apart = 8; apart <= 2048; apart *= 2) {
    SCOPED_TRACE(testing::Message() << apart << " apart");
    Random random(apart);
    live_words(4096, 400, [&](uint64_t i) { return random.below(2) * apart + (i / 100 % 8); }, {2, 80, 100, apart});
  }
}

// Few rows of the table on chip are wanted by several lines in turn: many are on their way to the window at a time, and
// one of these that has come again does not leave a second time before it is there.
TEST(RtlBits, LiveWordsOfLinesThatLeaveAgain) {
  constexpr uint32_t kRows = 4, kLines = 4, kApart = 256;  // rows of the table, lines of each, a multiple of its rows
  for (uint64_t seed = 1; seed <= 6; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const auto next = [&](uint64_t) {
      const uint64_t line = random.below(kLines) * kApart + random.below(kRows);
      return 8 * line + random.below(8);
    };
    live_words(kLines * kApart * 8, 800, next, {2, 400, 100, seed});
  }
}

// Blocks behind the fourth with a count of one bit: what goes beyond the object is a bad shape, whatever the bit.
TEST(RtlBits, CountsOfFurtherBlocks) {
  for (unsigned trial = 0; trial < 64; trial++) {
    const unsigned bit = trial % 32;
    WindowShape s;
    s.oop_bytes = trial < 32 ? 4 : 8;
    Bits b(s);
    b.all_live();
    b.window.put_instance(kMany, 64, {{16, 1}, {24, 1}, {32, 1}, {40, 1}, {48, uint32_t{1} << bit}});
    b.klass(64, kMany);
    b.window.mark(0, 64);
    RtlMachine& m = b.begin();
    m.trace(0, 1);
    ASSERT_TRUE(m.idle_or_fault(kPatience));
    const bool good = 48 + (uint64_t{s.oop_bytes} << bit) <= 8 * 64;
    EXPECT_EQ(m.fault().code, uint32_t(good ? MERAPI_FAULT_NONE : MERAPI_FAULT_BAD_SHAPE)) << "bit " << bit;
  }
}

// A bit of a region's limit changes while the tracer is paused and holds objects of the region: of a list through it,
// of which each node that is a multiple of `apart` is marked before. With all of them the sweep is not over, with the
// first alone it is, and a lane meets the limit.
constexpr uint32_t kNodes = 2000;
void limit_changes_in_a_pause(const WindowShape& s, uint64_t region, unsigned bit, uint32_t apart,
                              const RandomTimingOptions& timing) {
  SCOPED_TRACE(testing::Message() << "region " << region << ", bit " << bit << ", marks " << apart << " apart");
  Bits b(s);
  const uint32_t link = s.oop_bytes == 8 ? 16 : 12, bytes = link + s.oop_bytes;
  b.window.put_instance(kMany, bytes / 8, {{link, 1}});
  const uint64_t start = region << s.region_log2, good = start + b.window.region_bytes();
  b.window.limits()[region] = good;
  for (uint32_t i = 0; i < kNodes; i++) {
    b.klass(start + bytes * i, kMany);
    const uint64_t next = b.reference(start + bytes * ((i + 7) % kNodes));
    std::memcpy(b.window.heap() + start + bytes * i + link, &next, s.oop_bytes);
  }
  for (uint32_t i = 0; i < kNodes; i += apart) b.window.mark(0, start + bytes * i);
  RtlMachine& m = b.begin(timing);
  ASSERT_TRUE(m.idle_or_fault(kPatience));  // the live table is clear
  m.trace(uint32_t(region), 1);
  // As soon as something was scanned: how long that takes is the preset's and the memory's.
  for (uint64_t cycles = 400;; cycles += 200) {
    ASSERT_LT(cycles, 10000u) << "not what is tested";
    m.run(cycles);
    m.request_pause();
    ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
    if (m.counter(MERAPI_COUNTER_OBJECTS_SCANNED) > 0) break;
    m.resume();
    ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
  }
  EXPECT_LT(m.counter(MERAPI_COUNTER_OBJECTS_SCANNED), kNodes) << "nothing was held";
  const uint64_t bad = good ^ (UINT64_C(1) << bit);
  const bool still = bad <= good && bad >= start;
  b.window.limits()[region] = bad;
  m.resume();
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  EXPECT_EQ(m.fault().code, uint32_t(still ? MERAPI_FAULT_NONE : MERAPI_FAULT_BAD_CONFIG));
  if (!still) {
    EXPECT_EQ(m.fault().address, b.window.layout.area[MERAPI_AREA_LIMITS].offset + 8 * region);
    EXPECT_EQ(m.fault().detail, bad);
  }
}

TEST(RtlBits, BadLimitAfterAPause) {
  WindowShape s;
  s.regions = 64;
  for (unsigned bit = 3; bit < 41; bit++) {
    for (uint32_t apart : {3u, kNodes}) limit_changes_in_a_pause(s, bit % s.regions, bit, apart, {60, 60, 30, bit});
  }
}

// Of a limit that cannot be the record names the place in the table: each of the lower 22 bits of a region's number is
// set in one of these and not in the other. (A cycle begins with so many rows of the live table.)
constexpr uint32_t kHighRegions[] = {0x155555, 0x2aaaaa};
WindowShape shape_to(uint32_t region) {
  WindowShape s;
  s.oop_bytes = 8;
  s.regions = region + 1;
  s.heap_base = UINT64_C(1) << 41;
  return s;
}

TEST(RtlBits, BadLimitOfAHighRegionAfterAPause) {
  for (uint32_t region : kHighRegions) {
    for (uint32_t apart : {1u, kNodes}) limit_changes_in_a_pause(shape_to(region), region, 20, apart, {});
  }
}

TEST(RtlBits, BadLimitOfAHighRegion) {
  for (uint32_t region : kHighRegions) {
    const WindowShape s = shape_to(region);
    Bits b(s);
    const uint64_t start = uint64_t{region} << s.region_log2, bad = start + 12;
    b.window.limits()[region] = bad;
    RtlMachine& m = b.begin();
    m.grey({s.heap_base + start + 64});
    ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG)) << region;
    EXPECT_EQ(m.fault().address, b.window.layout.area[MERAPI_AREA_LIMITS].offset + 8 * region);
    EXPECT_EQ(m.fault().detail, bad & ~UINT64_C(7));  // checkers keep no lower bits
  }
}

// After a pause a sweep goes on where it was, in lines of the bitmap with high numbers, too.
TEST(RtlBits, ASweepOfAHighRegionGoesOnAfterPauses) {
  for (uint32_t region : kHighRegions) {
    SCOPED_TRACE(testing::Message() << "region " << region);
    Bits b(shape_to(region));
    const uint64_t start = uint64_t{region} << b.window.shape.region_log2, leaves = b.window.region_bytes() / 16;
    b.window.limits()[region] = start + b.window.region_bytes();
    for (uint64_t i = 0; i < leaves; i++) {
      b.klass(start + 16 * i, kLeaf);
      b.window.mark(0, start + 16 * i);
    }
    RtlMachine& m = b.begin();
    ASSERT_TRUE(m.idle_or_fault(kPatience));  // the live table is clear
    m.trace(region, 1);
    uint64_t pauses = 0;
    for (; m.complete(), !m.idle(); pauses++) {
      m.run(100);
      m.request_pause();
      ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
      m.resume();
      ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
      ASSERT_LT(pauses, leaves) << "it does not go on";
    }
    EXPECT_GT(pauses, b.window.region_bytes() / 4096) << "fewer than lines of the bitmap";
    EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_SCANNED), leaves);
  }
}

// A limit with every bit set, of a region that nothing leads to, decides nothing of the seven that share a line of the
// table with it: of each the object that ends at its limit is marked, the one that begins there is not.
TEST(RtlBits, ABadLimitSaysNothingOfOthers) {
  for (uint32_t bad = 0; bad < 8; bad++) {
    SCOPED_TRACE(testing::Message() << "region " << bad);
    WindowShape s;
    s.regions = 8;
    Bits b(s);
    Random random(bad + 1);
    std::vector<uint64_t> below, at_limit, elements;
    const uint64_t array = (uint64_t{(bad + 1) % 8} << s.region_log2) + 64;
    for (uint64_t r = 0; r < s.regions; r++) {
      const uint64_t limit = (r << s.region_log2) + 8 * random.between(512, b.window.region_bytes() / 8 - 512);
      b.window.limits()[r] = r == bad ? ~UINT64_C(0) : limit;
      if (r == bad) continue;
      for (uint64_t to : {limit - 16, limit}) {
        b.klass(to, kLeaf);
        elements.push_back(b.reference(to));
      }
      below.push_back(limit - 16);
      at_limit.push_back(limit);
    }
    b.array(array, elements);
    b.window.mark(0, array);
    b.begin().trace((bad + 1) % 8, 1);
    b.finish();
    for (uint64_t to : below) EXPECT_TRUE(b.window.marked(0, to)) << to;
    for (uint64_t to : at_limit) EXPECT_FALSE(b.window.marked(0, to)) << to;
  }
}

// Bits at a limit and above it are nobody's, whichever of its word the limit is: no sweep takes one up.
TEST(RtlBits, MarksAboveALimit) {
  WindowShape s;
  s.regions = 64;
  Bits b(s);
  for (uint64_t r = 0; r < s.regions; r++) {
    const uint64_t start = r << s.region_log2, limit = start + 8 * (3 * 64 + r);
    b.window.limits()[r] = limit;
    b.klass(start, kLeaf);
    b.window.mark(0, start);
    for (uint64_t at = limit; at < start + 8 * (3 * 512); at += 8) b.window.mark(0, at);
  }
  const auto marks = [&] {
    return std::vector<uint64_t>(b.window.bitmap(0), b.window.bitmap(0) + (s.regions << (s.region_log2 - 9)));
  };
  const std::vector<uint64_t> before = marks();
  b.begin().trace(0, s.regions);
  b.finish();
  EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_OBJECTS_SCANNED), s.regions);
  EXPECT_EQ(b.machine->counter(MERAPI_COUNTER_GREYS_STALE), 0u);
  EXPECT_EQ(marks(), before);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
