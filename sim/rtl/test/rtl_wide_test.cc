// SPDX-License-Identifier: Apache-2.0
//
// Every bit of an address: heaps of up to 2^40 bytes in windows of 2^42, few objects in them (WideHeap), and what a
// fault says when it happens high up. MERAPI_SEEDS, MERAPI_SEED and MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/rtl/test/seeds.h"
#include "sim/rtl/test/wide_heap.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Mapping;
using merapi::sim::test::Random;
constexpr uint64_t kPatience = 20'000'000;

RtlMachineOptions options(Random* r) {
  RtlMachineOptions o;
  o.timing.least = uint32_t(r->between(1, 12));
  o.timing.most = o.timing.least + uint32_t(r->below(30));
  o.timing.seed = r->next();
  return o;
}

// Lines that were read and written.
struct Accessed {
  std::unordered_set<uint64_t> read, written;
};

// A tracer that serves one window after the other in the same memory, and what it accessed in the last one: it tells
// the same listener all its life.
struct UsedTracer {
  std::shared_ptr<Mapping> memory = std::make_shared<Mapping>(WideHeap::kWindowBytes);
  std::unique_ptr<Simulation> simulation;
  Accessed accessed;
  uint64_t generation = 0;
};

class WideTrace {
 public:
  // `used`: the tracer of earlier windows, made with the first of them; null: one of its own.
  WideTrace(uint64_t seed, uint8_t heap_log2, uint8_t region_log2, UsedTracer* used = nullptr)
      : random_(seed * 3 + 1),
        heap_(seed, heap_log2, region_log2, used == nullptr ? nullptr : used->memory),
        window_(heap_.window()),
        used_(used),
        accessed_(used == nullptr ? own_ : used->accessed) {
    if (used != nullptr && used->simulation) {
      machine_ = std::make_unique<RtlMachine>(std::move(used->simulation), &window_);
    } else {
      RtlMachineOptions o = options(&random_);
      o.simulation.on_access = [a = &accessed_](uint64_t address, bool write) {
        (write ? a->written : a->read).insert(address);
      };
      machine_ = std::make_unique<RtlMachine>(&window_, o);
    }
  }
  ~WideTrace() {
    if (used_ != nullptr) used_->simulation = std::move(machine_->simulation);
  }
  WideTrace(const WideTrace&) = delete;
  WideTrace& operator=(const WideTrace&) = delete;

  void run() {
    if (used_ != nullptr) {
      // Generations grow over a tracer's life.
      used_->generation += random_.below(UINT64_C(1) << 59);
      window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation = used_->generation + 1;
    }
    ASSERT_TRUE(machine_->attach());
    accessed_ = {};
    machine_->begin(0);
    for (uint32_t region : heap_.swept()) machine_->trace(region, 1);
    bool greys = false;
    ASSERT_TRUE(machine_->run_until(
        [&] {
          complete();
          // Behind the sweeps, which would else find what these mark, and scan it twice.
          if (!greys && done_ == heap_.swept().size()) {
            machine_->grey(heap_.greys());
            greys = true;
          }
          return machine_->fault().code != 0 || (greys && machine_->idle());
        },
        kPatience));
    ASSERT_EQ(machine_->fault().code, 0u) << merapi_fault_name(machine_->fault().code) << std::hex << " "
                                          << machine_->fault().address << " " << machine_->fault().detail;
    complete();
    check();
  }

 private:
  void complete() {
    for (const merapi_completion& c : machine_->complete()) {
      done_ += c.type == MERAPI_COMP_DONE;
      for (int i = 0; i < c.count; i++) {
        if (c.type == MERAPI_COMP_SHAPE_SEEN) klasses_.insert(c.payload[i]);
        if (c.type != MERAPI_COMP_DEFER) continue;
        deferred_.insert(c.payload[i] - window_.shape.heap_base);
        if (c.flags >> MERAPI_DEFER_FLAG_UNSIZED & 1) unsized_.insert(c.payload[i] - window_.shape.heap_base);
      }
    }
  }

  void check() {
    WideResult want = heap_.trace();
    EXPECT_EQ(deferred_, want.deferred);
    EXPECT_EQ(klasses_, want.klasses);
    for (const WideObject& o : heap_.objects()) {
      bool unsized = o.kind == MERAPI_SHAPE_KIND_NONE && want.newly.count(o.offset) != 0;
      EXPECT_EQ(unsized_.count(o.offset) != 0, unsized) << std::hex << o.offset;
    }
    check_marks(want);
    check_live(want);
    auto count = [&](int c) { return machine_->counter(c); };
    EXPECT_EQ(count(MERAPI_COUNTER_OBJECTS_MARKED), want.newly.size());
    EXPECT_EQ(count(MERAPI_COUNTER_LIVE_WORDS), want.live_words);
    EXPECT_GE(count(MERAPI_COUNTER_REFERENCES_READ), want.read);
    if (heap_.swept().size() <= 1) {
      EXPECT_EQ(count(MERAPI_COUNTER_OBJECTS_SCANNED), want.scanned);
      EXPECT_EQ(count(MERAPI_COUNTER_REFERENCES_READ), want.read);
      EXPECT_EQ(count(MERAPI_COUNTER_REFS_NULL) + count(MERAPI_COUNTER_REFS_OUTSIDE), want.nulls + want.outside);
      EXPECT_EQ(count(MERAPI_COUNTER_REFS_ABOVE_LIMIT), want.above);
      EXPECT_EQ(count(MERAPI_COUNTER_DEFERRED), want.deferred.size());
    }
    check_written(want);
  }

  // Whole lines around every mark; no other line of the bitmap was written (check_written).
  void check_marks(const WideResult& want) {
    std::map<uint64_t, uint64_t> words;
    auto word_of = [&](uint64_t offset) { return (offset >> window_.shape.alignment_log2) / 64; };
    for (uint64_t offset : want.marked) words[word_of(offset)] |= bit_of(offset);
    for (const WideObject& o : heap_.objects()) words.try_emplace(word_of(o.offset), 0);
    std::unordered_set<uint64_t> seen;
    for (auto& [word, bits] : words) {
      for (uint64_t w = word / 8 * 8; w < word / 8 * 8 + 8; w++) {
        auto it = words.find(w);
        EXPECT_EQ(window_.bitmap(0)[w], it == words.end() ? 0 : it->second) << "bitmap word " << std::hex << w;
      }
    }
  }
  uint64_t bit_of(uint64_t offset) const { return uint64_t{1} << ((offset >> window_.shape.alignment_log2) % 64); }

  void check_live(const WideResult& want) {
    size_t found = 0;
    for (uint32_t r = 0; r < window_.shape.regions; r++) {
      if (window_.live()[r] == 0) continue;
      auto it = want.live.find(r);
      EXPECT_EQ(window_.live()[r], it == want.live.end() ? 0 : it->second) << "live words of region " << r;
      found++;
    }
    EXPECT_EQ(found, want.live.size());
  }

  // Only lines that the contract lets the device write; of the bitmap, those that hold what it marked.
  void check_written(const WideResult& want) {
    std::set<uint64_t> lines;
    for (uint64_t offset : want.newly) lines.insert((offset >> window_.shape.alignment_log2) / 512 * 64);
    for (uint64_t address : accessed_.written) {
      bool allowed = address >= MERAPI_DEVICE_IDENTITY_OFFSET && address < MERAPI_CONTROL_BYTES;
      for (int a : {MERAPI_AREA_COMPLETION, MERAPI_AREA_LIVE, MERAPI_AREA_SPILL}) allowed |= inside(address, a);
      if (inside(address, MERAPI_AREA_BITMAP0)) {
        allowed = lines.erase(address - window_.layout.area[MERAPI_AREA_BITMAP0].offset) != 0;
      }
      EXPECT_TRUE(allowed) << "written: " << std::hex << address;
    }
    EXPECT_TRUE(lines.empty()) << lines.size() << " lines of the bitmap were not written";
    for (uint64_t address : accessed_.read) {
      bool allowed = address < MERAPI_CONTROL_BYTES;
      for (int a = 0; a <= MERAPI_AREA_HEAP; a++) allowed |= inside(address, a) && a != MERAPI_AREA_BITMAP1;
      EXPECT_TRUE(allowed) << "read: " << std::hex << address;
    }
  }
  bool inside(uint64_t address, int area) const {
    const merapi_area_desc& a = window_.layout.area[area];
    return address >= a.offset && address - a.offset < a.size;
  }

  Random random_;
  WideHeap heap_;
  Window& window_;
  UsedTracer* used_;
  Accessed own_;
  Accessed& accessed_;
  std::unique_ptr<RtlMachine> machine_;
  std::set<uint64_t> deferred_, unsized_, klasses_;
  size_t done_ = 0;
};

void run_wide(uint8_t heap_log2, uint8_t least_region, uint8_t most_region) {
  each_seed([&](uint64_t seed) {
    Random r(seed);
    WideTrace(seed, heap_log2, uint8_t(r.between(least_region, most_region))).run();
  });
}

// Slices of a bitmap from anywhere to anywhere: all of it is cleared and nothing beside it.
TEST(RtlWide, ClearBitmap) {
  merapi::sim::test::WindowShape s;
  s.alignment_log2 = 8;
  s.region_log2 = 17;
  s.regions = 1 << 23;
  s.spread_log2 = 42;
  s.spread_seed = 11;
  Window window(s);
  Random r(1);
  RtlMachineOptions o = options(&r);
  uint64_t low = 0, high = 0, writes = 0;
  o.simulation.on_access = [&](uint64_t address, bool write) {
    for (int b : {0, 1}) {
      uint64_t at = address - window.layout.area[MERAPI_AREA_BITMAP0 + b].offset;
      if (!write || at >= window.layout.area[MERAPI_AREA_BITMAP0 + b].size) continue;
      writes++;
      EXPECT_TRUE(at + 64 > low && at < high) << std::hex << at;
    }
  };
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  const uint64_t words = window.region_bytes() >> (s.alignment_log2 + 6);
  uint64_t lines = 0;
  for (int trial = 0; trial < 16; trial++) {
    uint64_t count = 1 + r.below(uint64_t{1} << r.below(15)), first = r.below(s.regions - count + 1);
    int which = int(r.below(2));
    uint64_t* bits = window.bitmap(which);
    uint64_t from = first * words, to = (first + count) * words;
    for (uint64_t at : {from, to - 1, from + r.below(to - from)}) bits[at] = r.next() | 1;
    if (from > 0) bits[from - 1] = ~uint64_t{0};
    if (to < s.regions * words) bits[to] = ~uint64_t{0};
    low = from * 8;
    high = to * 8;
    writes = 0;
    m.command(MERAPI_OP_CLEAR_BITMAP, uint32_t(which), first, count);
    ASSERT_TRUE(m.run_until([&] { return !m.complete().empty(); }, kPatience)) << "trial " << trial;
    EXPECT_EQ(writes, (high - low) / 64);
    lines += writes;
    for (uint64_t at = from; at < to; at++) EXPECT_EQ(bits[at], 0u);
    if (from > 0) {
      EXPECT_EQ(bits[from - 1], ~uint64_t{0});
      bits[from - 1] = 0;
    }
    if (to < s.regions * words) {
      EXPECT_EQ(bits[to], ~uint64_t{0});
      bits[to] = 0;
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "trial " << trial << ", regions " << first << " to " << first + count;
  }
  EXPECT_GT(lines, 1000u);
}

// Greys dropped by arrays of either lane in every second chunk or so, without a spill area: each of these is swept
// again, and nothing is lost. The others are no copy of them: a flag in the wrong place finds nothing. Short arrays
// stay with their lane, of long ones others take a part. Eight lanes have room for more before they drop.
TEST(RtlWide, ChunksSweptAgain) {
  constexpr uint32_t kNode = 0x1000, kArray = 0x2000, kNodeBytes = 16;
  const bool roomy = lanes() >= 8;
  const uint32_t longest = roomy ? 3000 : 220, shortest = roomy ? 2000 : 100;
  const uint64_t nodes_at = roomy ? 16384 : 4096;
  for (uint32_t regions : {256u, 600u}) {
    merapi::sim::test::WindowShape s;
    s.regions = regions;
    s.spread_log2 = 42;
    s.spread_seed = regions;
    Window window(s);
    window.put_instance(kNode, kNodeBytes / 8, {{12, 1}});
    window.put_object_array(kArray, 16);
    auto put = [&](uint64_t at, uint32_t value) { std::memcpy(window.heap() + at, &value, 4); };
    // An array at the start of every region (of every chunk of several), its nodes behind it.
    const uint64_t each = regions / 200;
    uint64_t nodes = 0;
    std::map<uint64_t, uint64_t> used;  // region to live words
    Random choice(regions + 1);
    for (uint64_t r = 0; r < regions; r += each) {
      if (choice.percent(40)) continue;
      const uint32_t length = choice.percent(50) ? shortest : longest;
      used[r] = length * kNodeBytes / 8;
      uint64_t at = (r << s.region_log2) + choice.below(256) * 8, first = (r << s.region_log2) + nodes_at;
      put(at + 8, kArray);
      put(at + 12, length);
      for (uint64_t i = 0; i < length; i++, nodes++) {
        uint64_t to = first + i * kNodeBytes;
        put(at + 16 + 4 * i, uint32_t((s.heap_base + to) >> s.narrow_shift));
        put(to + 8, kNode);
        put(to + 12, 0);
      }
      window.limits()[r] = first + length * kNodeBytes;
      window.mark(0, at);
    }
    // An area without a place does not exist, whatever its size says.
    window.directory()->area[MERAPI_AREA_SPILL] = {0, regions == 256 ? UINT64_C(0) : UINT64_C(1) << 20};
    Random r(regions);
    RtlMachine m(&window, options(&r));
    ASSERT_TRUE(m.attach());
    m.begin(0);
    m.trace(0, regions);
    ASSERT_TRUE(m.idle_or_fault(kPatience));
    EXPECT_EQ(m.fault().code, 0u);
    EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), nodes);
    EXPECT_GT(m.counter(MERAPI_COUNTER_RESCANS), used.size() / (ports() == 8 ? 6 : lanes() < 8 ? 2 : 3));
    for (const auto& [region, live] : used) {
      ASSERT_EQ(window.live()[region], live) << "region " << region << " of " << regions;
    }
    // All of that was found again. A pause that comes later has nothing of it swept once more.
    const uint64_t rescans = m.counter(MERAPI_COUNTER_RESCANS);
    m.request_pause();
    ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
    m.resume();
    ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
    m.grey({s.heap_base});
    ASSERT_TRUE(m.idle_or_fault(kPatience));
    EXPECT_EQ(m.counter(MERAPI_COUNTER_RESCANS), rescans);
  }
}

// Regions with nothing but a marked object and another one that it refers to.
struct Pairs {
  static constexpr uint64_t kNode = 0x1000, kSecond = 512;
  static merapi::sim::test::WindowShape shape(uint32_t regions) {
    merapi::sim::test::WindowShape s;
    s.regions = regions;
    s.oop_bytes = 8;
    s.spread_log2 = 42;
    s.spread_seed = 1;
    return s;
  }
  explicit Pairs(uint32_t regions) : window(shape(regions)) {
    window.put_instance(kNode, 3, {{16, 1}});
    options.timing = {2, 6, 100, 1};
  }
  void put(uint64_t region) {
    const uint64_t start = region << window.shape.region_log2, to = start + kSecond;
    const uint64_t reference = window.shape.heap_base + to;
    window.limits()[region] = start + 1024;
    for (uint64_t at : {start, to}) std::memcpy(window.heap() + at + 8, &kNode, 4);
    std::memcpy(window.heap() + start + 16, &reference, 8);
    window.mark(0, start);
  }
  bool found(uint64_t region) { return window.marked(0, (region << window.shape.region_log2) + kSecond); }

  Window window;
  RtlMachineOptions options;
};

// Half a million regions in one command, nearly all of them empty: those that are not are swept, the last one, too.
TEST(RtlWide, EveryRegionInOneCommand) {
  constexpr uint32_t kRegions = (1 << 19) + 1000;
  Pairs pairs(kRegions);
  Random r(1);
  std::set<uint64_t> regions = {0, kRegions - 1};
  while (regions.size() < 100) regions.insert(r.below(kRegions));
  for (uint64_t region : regions) pairs.put(region);
  RtlMachine m(&pairs.window, pairs.options);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  m.trace(0, kRegions);
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  EXPECT_EQ(m.fault().code, 0u);
  for (uint64_t region : regions) EXPECT_TRUE(pairs.found(region)) << region;
  EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), regions.size());
}

// After a pause that came when greys had been dropped all of the heap is swept again (RescanFlags): the last regions,
// too, which are few of a chunk, however many there are. Only the smallest preset has so little room.
void all_swept_again_after_a_pause(uint32_t regions) {
  constexpr uint32_t kArray = 0x2000;
  constexpr uint64_t kNodes = 1000, kNodesAt = 16384, kNodeBytes = 24;
  SCOPED_TRACE(testing::Message() << regions << " regions");
  Pairs pairs(regions);
  Window& window = pairs.window;
  window.directory()->area[MERAPI_AREA_SPILL] = {0, 0};
  window.put_object_array(kArray, 16);
  std::memcpy(window.heap() + 8, &kArray, 4);
  std::memcpy(window.heap() + 12, &kNodes, 4);
  for (uint64_t i = 0; i < kNodes; i++) {
    const uint64_t at = kNodesAt + i * kNodeBytes, to = window.shape.heap_base + at;
    std::memcpy(window.heap() + 16 + 8 * i, &to, 8);
    std::memcpy(window.heap() + at + 8, &Pairs::kNode, 4);
  }
  window.limits()[0] = kNodesAt + kNodes * kNodeBytes;
  const uint64_t region_lines = window.region_bytes() >> (window.shape.alignment_log2 + 9);
  std::set<uint64_t> others, read;  // regions
  for (uint64_t region : {regions / 3, regions / 2, regions - 2, regions - 1}) {
    others.insert(region);
    window.limits()[region] = (region << window.shape.region_log2) + 1024;
  }
  const uint64_t bitmap = window.layout.area[MERAPI_AREA_BITMAP0].offset;
  RtlMachineOptions o = pairs.options;
  o.simulation.on_access = [&](uint64_t address, bool write) {
    if (!write && address >= bitmap) read.insert((address - bitmap) / MERAPI_LINE_BYTES / region_lines);
  };
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  ASSERT_TRUE(m.idle_or_fault(kPatience));  // the live table is clear
  m.grey({window.shape.heap_base});
  m.run(2500);
  m.request_pause();
  ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
  EXPECT_GT(m.counter(MERAPI_COUNTER_GREYS_DROPPED), 0u) << "not what is tested";
  EXPECT_LT(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), kNodes) << "not what is tested";
  read.clear();
  m.resume();
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  EXPECT_EQ(m.fault().code, 0u);
  EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), kNodes + 1);
  for (uint64_t region : others) EXPECT_EQ(read.count(region), 1u) << "region " << region << " of " << regions;
}

TEST(RtlWide, EveryChunkIsSweptAgainAfterAPause) {
  if (chosen_preset() != "sim-small") GTEST_SKIP() << "nothing is dropped";
  for (uint32_t regions : {(1u << 8) + 1, (1u << 13) + 3, (1u << 18) + 1}) all_swept_again_after_a_pause(regions);
}

// The number of the last region has one bit: a chunk is as large as that asks for.
TEST(RtlWide, AChunkIsAsLargeAsTheLastRegionAsksFor) {
  if (chosen_preset() != "sim-small") GTEST_SKIP() << "nothing is dropped";
  for (unsigned bit = 8; bit <= 18; bit++) all_swept_again_after_a_pause((1u << bit) + 1);
}

// Commands of one region each: what they name is swept, and nothing beside it.
TEST(RtlWide, CommandsOfHighRegions) {
  constexpr unsigned kBits = 23;
  Pairs pairs((1 << (kBits - 1)) + (1 << 12));
  Random r(1);
  std::map<uint64_t, bool> regions;  // whether a command names it
  for (unsigned bit = 0; bit < kBits; bit++) regions[uint64_t{1} << bit] = true;
  while (regions.size() < 60) regions[(1 << (kBits - 1)) + r.below(1 << 12)] = true;
  const auto named = regions;
  for (auto [region, yes] : named) regions.emplace(region ^ uint64_t{1} << r.below(12), false);
  for (auto [region, yes] : regions) pairs.put(region);
  RtlMachine m(&pairs.window, pairs.options);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  for (auto [region, yes] : named) {
    ASSERT_TRUE(m.run_until([&] { return m.complete(), m.room(); }, kPatience));
    m.trace(uint32_t(region), 1);
  }
  ASSERT_TRUE(m.run_until([&] { return m.complete(), m.idle() || m.fault().code != 0; }, kPatience));
  EXPECT_EQ(m.fault().code, 0u);
  for (auto [region, yes] : regions) EXPECT_EQ(pairs.found(region), yes) << region;
}

// A list that goes on from one of these regions to the next, so many nodes in each: what follows it ahead asks for
// their limits before anybody else does.
void follow_through(const std::vector<uint64_t>& regions, uint64_t nodes, uint32_t all = (1 << 22) + 1) {
  constexpr uint64_t kSize = 24;
  Pairs pairs(all);
  const uint32_t log2 = pairs.window.shape.region_log2;
  for (size_t n = 0; n < regions.size(); n++) {
    const uint64_t start = regions[n] << log2;
    pairs.window.limits()[regions[n]] = start + nodes * kSize;
    for (uint64_t i = 0; i < nodes; i++) {
      const uint64_t at = start + i * kSize;
      const uint64_t to = i + 1 < nodes ? at + kSize : n + 1 < regions.size() ? regions[n + 1] << log2 : start;
      const uint64_t next = pairs.window.shape.heap_base + to;
      std::memcpy(pairs.window.heap() + at + 8, &Pairs::kNode, 4);
      std::memcpy(pairs.window.heap() + at + 16, &next, 8);
    }
  }
  pairs.window.mark(0, regions[0] << log2);
  RtlMachine m(&pairs.window, pairs.options);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  ASSERT_TRUE(m.idle_or_fault(kPatience));  // the live table is clear
  const uint64_t cycles = m.counter(MERAPI_COUNTER_CYCLES);
  m.trace(regions[0], 1);
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  ASSERT_EQ(m.fault().code, 0u);
  EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), regions.size() * nodes - 1);
  EXPECT_LT(m.counter(MERAPI_COUNTER_CYCLES) - cycles, 30 * nodes * regions.size());
}

TEST(RtlWide, AListThroughHighRegions) {
  std::vector<uint64_t> regions;
  for (unsigned bit = 0; bit < 23; bit++) regions.push_back(uint64_t{1} << bit);
  follow_through(regions, 100);
}

TEST(RtlWide, AListThroughTheHighestRegions) {
  constexpr uint32_t kHalf = 1 << 23;
  follow_through({1, kHalf, 2, kHalf + 8, 3, kHalf + 64, 4, kHalf + 72, 5, kHalf + 100}, 100, kHalf + 128);
}

TEST(RtlWide, AListThroughAnyRegions) {
  Random r(1);
  std::vector<uint64_t> regions;
  while (regions.size() < 60) {
    const uint64_t region = r.below(1 << 22);
    if (std::find(regions.begin(), regions.end(), region) == regions.end()) regions.push_back(region);
  }
  follow_through(regions, 60);
}

// One long array and nothing else to do: lanes (one alone, too) cut it into pieces, wherever it lies.
TEST(RtlWide, ALongArrayAnywhere) {
  constexpr uint64_t kNode = 0x1000, kArray = 0x2000, kNodes = 8;
  for (uint64_t seed = 1; seed <= 32; seed++) {
    Random r(seed);
    merapi::sim::test::WindowShape s;
    s.oop_bytes = s.klass_bytes = 8;
    s.region_log2 = uint8_t(r.between(24, 34));
    s.regions = 1u << (40 - s.region_log2);
    s.heap_base = r.next() >> 8 << 20 >> 1;
    s.spread_log2 = 42;
    s.spread_seed = seed;
    Window window(s);
    window.put_instance(kNode, 3, {{16, 1}});
    window.put_object_array(kArray, 24);
    auto put = [&](uint64_t at, uint64_t value) { std::memcpy(window.heap() + at, &value, 8); };
    // Half of them across a power of two.
    uint64_t length = r.between(80, 900), most = window.heap_bytes() - 16 * 1024;
    uint64_t at =
        r.percent(50) ? r.below(most) & ~UINT64_C(7) : (UINT64_C(1) << r.between(14, 39)) - 8 * r.between(4, length);
    put(at + 8, kArray);
    put(at + 16, length);
    // Nothing but the array is below the limit of its region: a piece that took itself for another object would end.
    window.limits()[at >> s.region_log2] = at + 8;
    std::set<uint64_t> nodes;
    for (uint64_t i = 0; i < length; i++) {
      uint64_t to = 0;
      if (i % (length / kNodes) == 0) {
        to = (at + (UINT64_C(1) << 38) + r.below(UINT64_C(1) << 37)) % most & ~UINT64_C(7);
        window.limits()[to >> s.region_log2] = ((to >> s.region_log2) + 1) << s.region_log2;
        put(to + 8, kNode);
        put(to + 16, 0);
        nodes.insert(to);
      }
      put(at + 24 + 8 * i, to == 0 ? 0 : s.heap_base + to);
    }
    RtlMachine m(&window, options(&r));
    ASSERT_TRUE(m.attach());
    m.begin(0);
    m.grey({s.heap_base + at});
    ASSERT_TRUE(m.run_until([&] { return m.complete(), m.idle() || m.fault().code != 0; }, kPatience));
    EXPECT_EQ(m.fault().code, 0u) << merapi_fault_name(m.fault().code);
    for (uint64_t to : nodes) EXPECT_TRUE(window.marked(0, to)) << std::hex << to;
    EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), nodes.size() + 1);
    EXPECT_EQ(m.counter(MERAPI_COUNTER_REFERENCES_READ), length + nodes.size());
    EXPECT_EQ(m.counter(MERAPI_COUNTER_REFS_NULL), length);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ": " << length << " at " << std::hex << at;
  }
}

// Arrays of any length up to the longest that Java has, in regions of 2^36 bytes: their live words, up to all of a
// region's, come together before the table, in the table and in the counter.
TEST(RtlWide, LiveWordsOfTheLongestArrays) {
  constexpr uint64_t kLongs = 0x1000, kHeader = 24, kLongest = INT32_MAX;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    Random r(seed);
    merapi::sim::test::WindowShape s;
    s.oop_bytes = s.klass_bytes = 8;
    s.region_log2 = 36;
    s.regions = 16;
    s.spread_log2 = 42;
    s.spread_seed = seed;
    Window window(s);
    merapi_shape longs{};
    longs.klass_word = kLongs;
    longs.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    longs.header_bytes = kHeader;
    longs.element_log2 = 3;
    window.put_shape(longs);
    std::vector<uint64_t> greys;
    std::vector<uint64_t> live(s.regions);
    for (uint32_t region = 0; region < s.regions; region++) {
      const uint64_t start = uint64_t{region} << s.region_log2, end = start + (uint64_t{1} << s.region_log2);
      window.limits()[region] = end;
      // One after the other until the region is full, so that sums end anywhere up to a region's words.
      for (uint64_t at = start; at + kHeader < end;) {
        uint64_t most = std::min(kLongest, (end - at - kHeader) / 8);
        uint64_t length = r.percent(60) ? most : r.below(most + 1);
        std::memcpy(window.heap() + at + 8, &kLongs, 8);
        std::memcpy(window.heap() + at + 16, &length, 8);
        live[region] += kHeader / 8 + length;
        greys.push_back(s.heap_base + at);
        at += kHeader + 8 * length;
        if (live[region] > r.below(UINT64_C(1) << 34)) break;
      }
    }
    for (size_t i = greys.size() - 1; i > 0; i--) std::swap(greys[i], greys[r.below(i + 1)]);
    RtlMachine m(&window, options(&r));
    ASSERT_TRUE(m.attach());
    m.begin(0);
    m.grey(greys);
    ASSERT_TRUE(m.run_until([&] { return m.complete(), m.idle() || m.fault().code != 0; }, kPatience));
    EXPECT_EQ(m.fault().code, 0u) << merapi_fault_name(m.fault().code);
    uint64_t all = 0;
    for (uint32_t region = 0; region < s.regions; region++) {
      EXPECT_EQ(window.live()[region], live[region]) << "region " << region << ", seed " << seed;
      all += live[region];
    }
    EXPECT_EQ(m.counter(MERAPI_COUNTER_LIVE_WORDS), all);
    EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), greys.size());
  }
}

// Objects of a few regions of any number, in any order: words of several wait at a time to be added to the table.
TEST(RtlWide, LiveWordsOfHighRegions) {
  constexpr uint32_t kRegions = 1 << 21;
  constexpr uint64_t kNodes = 15, kWords = 3;  // of each region; of each node
  Pairs pairs(kRegions);
  Random r(1);
  std::set<uint64_t> regions;
  while (regions.size() < 20) regions.insert(r.below(kRegions));
  std::vector<uint64_t> greys;
  for (uint64_t region : regions) {
    const uint64_t start = region << pairs.window.shape.region_log2;
    pairs.window.limits()[region] = start + kNodes * 8 * kWords;
    for (uint64_t at = start; at < pairs.window.limits()[region]; at += 8 * kWords) {
      std::memcpy(pairs.window.heap() + at + 8, &Pairs::kNode, 4);
      greys.push_back(pairs.window.shape.heap_base + at);
    }
  }
  for (size_t i = greys.size() - 1; i > 0; i--) std::swap(greys[i], greys[r.below(i + 1)]);
  RtlMachine m(&pairs.window, pairs.options);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  m.grey(greys);
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  EXPECT_EQ(m.fault().code, 0u) << merapi_fault_name(m.fault().code);
  for (uint64_t region : regions) EXPECT_EQ(pairs.window.live()[region], kNodes * kWords) << region;
}

TEST(RtlWide, LargestHeap) { run_wide(40, 24, 36); }
TEST(RtlWide, ManyRegions) { run_wide(36, 18, 22); }

// Windows that differ in everything, one after the other before the same tracer: nothing of one is left in the next.
TEST(RtlWide, OneTracerForAll) {
  UsedTracer tracer;
  uint64_t first = from_environment("MERAPI_FIRST_SEED", 1);
  digest_seed(first);
  for (uint64_t seed = first; seed < first + 12; seed++) {
    Random r(seed);
    uint8_t most = uint8_t(r.between(30, 40)), region = uint8_t(r.between(std::max(most - 18, 17), most - 4));
    WideTrace(seed, most, region, &tracer).run();
    ASSERT_FALSE(testing::Test::HasFailure())
        << "the window of seed " << seed << ", the tracer's " << seed - first + 1
        << ". one; replay: " << replay("MERAPI_FIRST_SEED=" + std::to_string(first));
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
