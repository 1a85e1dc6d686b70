// SPDX-License-Identifier: Apache-2.0
//
// Objects so far from each other that no two share a line of anything: heap, bitmap, limits, live words. With a slow
// memory much is under way at a time, lines of live words in all places of their list, and every one of those lines has
// an address of many bits.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
constexpr uint64_t kPatience = 20'000'000;
constexpr uint64_t kNode = 0x1000, kArray = 0x2000;

merapi::sim::test::WindowShape choose(uint64_t seed, Random* r) {
  merapi::sim::test::WindowShape s;
  const bool wide = r->percent(50);
  s.oop_bytes = wide ? 8 : 4;
  s.klass_bytes = r->percent(50) ? 4 : 8;
  s.narrow_shift = 8;
  s.alignment_log2 = 8;
  s.region_log2 = uint8_t(r->between(24, 26));  // more regions: more lines of live words to begin with
  s.regions = 1u << (40 - s.region_log2);
  s.heap_base = r->next() >> 8 << 20 >> 1;
  s.narrow_base = s.heap_base - 256;
  s.spread_log2 = 42;
  s.spread_seed = seed;
  s.spill_bytes = 1 << 20;
  return s;
}

struct Kind {
  bool pauses = false;
  bool live_late = false;  // the memory's lines of live words are slow beside all others
  uint32_t nodes = 400;
};

void run(uint64_t seed, const Kind& kind) {
  Random r(seed);
  const uint32_t count = kind.nodes;
  Window window(choose(seed, &r));
  const auto& s = window.shape;
  const uint32_t first = s.klass_bytes == 4 ? 16 : 24;  // element, or the node's reference
  window.put_instance(kNode, 256 / 8, {{first, 1}});
  window.put_object_array(kArray, first);

  std::set<uint64_t> places;  // no two regions share a line of limits or live words
  std::set<uint64_t> lines;
  while (places.size() < count) {
    uint64_t at = r.below(window.heap_bytes()) & ~UINT64_C(255);
    if (at >> s.region_log2 >= 8 && lines.insert(at >> s.region_log2 >> 3).second) places.insert(at);
  }
  std::vector<uint64_t> nodes(places.begin(), places.end());
  for (size_t i = nodes.size(); i-- > 1;) std::swap(nodes[i], nodes[r.below(i + 1)]);
  auto refer = [&](uint64_t field, uint64_t to) {
    uint64_t value = s.oop_bytes == 8 ? s.heap_base + to : (s.heap_base + to - s.narrow_base) >> s.narrow_shift;
    std::memcpy(window.heap() + field, &value, s.oop_bytes);
  };
  const uint64_t at = 256;
  std::memcpy(window.heap() + at + 8, &kArray, s.klass_bytes);
  std::memcpy(window.heap() + at + 8 + s.klass_bytes, &count, 4);
  window.limits()[0] = window.region_bytes();
  for (uint32_t i = 0; i < count; i++) {
    std::memcpy(window.heap() + nodes[i] + 8, &kNode, s.klass_bytes);
    refer(nodes[i] + first, r.pick(nodes));
    refer(at + first + uint64_t{i} * s.oop_bytes, nodes[i]);
    const uint64_t region = nodes[i] >> s.region_log2;
    window.limits()[region] = (region + 1) << s.region_log2;
  }

  RtlMachineOptions o;
  o.timing.least = uint32_t(r.between(2, 300));
  o.timing.most = o.timing.least + uint32_t(r.below(100));
  o.timing.seed = r.next();
  if (kind.live_late) {
    const merapi_area_desc& live = window.layout.area[MERAPI_AREA_LIVE];
    const uint64_t late = r.between(2000, 5000);
    o.late = [=](uint64_t, uint64_t address, bool write) {
      return !write && address - live.offset < live.size ? late : 0;
    };
  }
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  m.grey({s.heap_base + at});
  uint64_t next = 1000;
  ASSERT_TRUE(m.run_until(
      [&] {
        m.complete();
        if (kind.pauses && m.simulation->cycles() >= next && !m.idle()) {
          m.request_pause();
          EXPECT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
          m.resume();
          EXPECT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
          next = m.simulation->cycles() + r.between(500, 6000);
        }
        return m.idle() || m.fault().code != 0;
      },
      kPatience));
  ASSERT_EQ(m.fault().code, 0u) << merapi_fault_name(m.fault().code) << std::hex << " " << m.fault().address;
  const uint64_t array_words = (first + uint64_t{count} * s.oop_bytes + 255) / 256 * 256 / 8;
  EXPECT_EQ(window.live()[0], array_words);
  for (uint64_t n : nodes) {
    EXPECT_TRUE(window.marked(0, n)) << std::hex << n;
    EXPECT_EQ(window.live()[n >> s.region_log2], 256u / 8) << "region " << (n >> s.region_log2);
  }
  EXPECT_EQ(m.counter(MERAPI_COUNTER_OBJECTS_MARKED), count + 1);
  EXPECT_EQ(m.counter(MERAPI_COUNTER_LIVE_WORDS), array_words + count * 256 / 8);
}

void run_seeds(const Kind& kind) {
  each_seed([&](uint64_t seed) { run(seed, kind); });
}

TEST(RtlScattered, EverythingMisses) { run_seeds({}); }
TEST(RtlScattered, EverythingMissesAndIsWrittenBack) { run_seeds({.pauses = true}); }
// As many lines of live words are on their way as can be, and objects wait for one of them.
TEST(RtlScattered, LiveWordsComeLate) { run_seeds({.live_late = true, .nodes = 60}); }

}  // namespace
}  // namespace merapi::sim::rtl::test
