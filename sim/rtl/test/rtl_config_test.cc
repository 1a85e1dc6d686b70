// SPDX-License-Identifier: Apache-2.0
//
// Every field that a handshake or BEGIN_CYCLE checks, with values that are wrong by one bit anywhere in it: the fault
// names the field and what was found. And values at the edge that are right.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
constexpr uint64_t kPatience = 20'000;
constexpr unsigned kLargestRing = __builtin_ctz(MERAPI_TABLE_ENTRIES_MAX);
constexpr uint64_t kLargestTable = uint64_t{MERAPI_TABLE_ENTRIES_MAX} * MERAPI_LINE_BYTES;

WindowShape large() {
  WindowShape s;
  s.region_log2 = 30;
  s.regions = 512;
  s.spread_log2 = 42;
  s.spread_seed = 5;
  return s;
}

class RtlConfig : public testing::Test {
 protected:
  explicit RtlConfig(const WindowShape& shape = large()) : window_(shape) {}
  // BEGIN_CYCLE after `change`, in a generation of its own; what it changed is put back.
  void refused(const std::function<void(Window*)>& change, uint64_t where, uint64_t detail) {
    std::vector<uint8_t> page(window_.base, window_.base + MERAPI_CONTROL_BYTES);
    if (!refusing_) refusing_ = std::make_unique<RtlMachine>(&window_, RtlMachineOptions{});
    RtlMachine& m = *refusing_;
    const uint64_t odd = m.end_generation();
    m.run(200);
    m.begin_generation(odd);
    ASSERT_TRUE(m.run_until([&] { return m.generation_answered(); }, kPatience));
    ASSERT_EQ(m.fault().code, 0u);
    change(&window_);
    m.begin(0);
    EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG));
    EXPECT_EQ(m.fault().address, where);
    EXPECT_EQ(m.fault().detail, detail);
    // But not the generation: it has answered this one.
    const uint64_t generation = window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation;
    std::memcpy(window_.base, page.data(), page.size());
    window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation = generation;
  }
  void refused_field(uint64_t field, unsigned bytes, uint64_t value, uint64_t named) {
    refused([&](Window* w) { std::memcpy(w->control<uint8_t>(MERAPI_CONFIG_OFFSET + field), &value, bytes); },
            MERAPI_CONFIG_OFFSET + named, value);
  }
  void refused_field(uint64_t field, unsigned bytes, uint64_t value) { refused_field(field, bytes, value, field); }
  void accepted() {
    RtlMachine m(&window_, {});
    ASSERT_TRUE(m.attach());
    m.begin(0);
    EXPECT_TRUE(m.run_until([&] { return m.idle() || m.fault().code != 0; }, 200'000));
    EXPECT_EQ(m.fault().code, 0u) << std::hex << m.fault().address << " " << m.fault().detail;
  }
  Window window_;
  std::unique_ptr<RtlMachine> refusing_;
};

TEST_F(RtlConfig, Accepted) { accepted(); }

// A submission ring of as many entries as there may be.
TEST_F(RtlConfig, LargestRing) {
  WindowShape s = large();
  s.submission_entries = 1 << kLargestRing;
  Window window(s);
  RtlMachine m(&window, {});
  ASSERT_TRUE(m.attach());
  for (int cycle = 0; cycle < 2; cycle++) {
    m.begin(0);
    m.command(MERAPI_OP_NOP, 0, 0, 0);
    EXPECT_TRUE(m.run_until([&] { return m.idle() || m.fault().code != 0; }, 200'000));
    EXPECT_EQ(m.fault().code, 0u) << std::hex << m.fault().address << " " << m.fault().detail;
  }
}

// Completion rings of every size take more answers than the smallest one holds, each at its place, before any is read.
TEST_F(RtlConfig, CompletionRingsOfEverySize) {
  constexpr uint64_t kAnswers = 200;
  for (unsigned log2 = 8; log2 <= kLargestRing; log2++) {
    SCOPED_TRACE(testing::Message() << "2^" << log2 << " entries");
    WindowShape s;
    s.submission_entries = 1 << 9;
    s.completion_entries = 1u << log2;
    Window window(s);
    RtlMachine m(&window, {});
    ASSERT_TRUE(m.attach());
    m.begin(0);
    for (uint64_t i = 0; i < kAnswers; i++) m.command(MERAPI_OP_FENCE, 0, i, 0);
    ASSERT_TRUE(m.run_until([&] { return m.completed() == kAnswers || m.fault().code != 0; }, 200'000));
    ASSERT_EQ(m.fault().code, 0u) << std::hex << m.fault().address << " " << m.fault().detail;
    const auto answers = m.complete();
    ASSERT_EQ(answers.size(), kAnswers);
    for (uint64_t i = 0; i < kAnswers; i++) ASSERT_EQ(answers[i].payload[2], i);
  }
}

// The smallest completion rings go round several times, each answer at its place.
TEST_F(RtlConfig, LeastCompletionRings) {
  for (uint64_t entries = MERAPI_TABLE_ENTRIES_MIN; entries < 256; entries *= 2) {
    SCOPED_TRACE(testing::Message() << entries << " entries");
    WindowShape s;
    s.submission_entries = 1 << 10;
    s.completion_entries = uint32_t(entries);
    Window window(s);
    RtlMachine m(&window, {});
    ASSERT_TRUE(m.attach());
    m.begin(0);
    const uint64_t answers = 3 * entries + 1;
    for (uint64_t i = 0; i < answers; i++) m.command(MERAPI_OP_FENCE, 0, i, 0);
    for (uint64_t i = 0; i < answers;) {
      ASSERT_TRUE(m.run_until([&] { return m.completed() > i || m.fault().code != 0; }, 200'000));
      ASSERT_EQ(m.fault().code, 0u) << std::hex << m.fault().address << " " << m.fault().detail;
      for (const auto& answer : m.complete()) ASSERT_EQ(answer.payload[2], i++);
    }
  }
}

// A window may be larger than what the tracer can address; what lies within its reach is traced.
TEST_F(RtlConfig, WindowsBeyondItsReach) {
  for (unsigned log2 = 42; log2 < 64; log2++) {
    for (uint64_t more : {UINT64_C(0), UINT64_C(4096), UINT64_C(1) << 21}) {
      SCOPED_TRACE(testing::Message() << "2^" << log2 << " bytes and " << more);
      window_.bytes = (uint64_t{1} << log2) + more;
      accepted();
    }
  }
  // What lies beyond it is refused.
  const merapi_area_desc was = window_.directory()->area[MERAPI_AREA_SPILL];
  for (uint64_t offset : {UINT64_C(1) << 42, (UINT64_C(1) << 42) + was.offset}) {
    refused([&](Window* w) { w->directory()->area[MERAPI_AREA_SPILL].offset = offset; },
            MERAPI_DIRECTORY_OFFSET + 16 * MERAPI_AREA_SPILL, offset);
  }
}

TEST_F(RtlConfig, SmallFields) {
  Random r(1);
  auto above = [&](unsigned most) { return r.percent(50) ? most + 1 : 1u << r.between(6, 7); };
  for (int i = 0; i < 4; i++) {
    refused_field(offsetof(merapi_config, narrow_oop_shift), 1, r.percent(50) ? 9 : above(8));
    refused_field(offsetof(merapi_config, oop_bytes), 1, 4u ^ 1u << r.pick(std::vector<uint64_t>{0, 1, 4, 5, 6, 7}));
    refused_field(offsetof(merapi_config, klass_bytes), 1, 8u ^ 1u << r.pick(std::vector<uint64_t>{0, 1, 4, 5, 6, 7}));
    refused_field(offsetof(merapi_config, alignment_log2), 1, r.percent(50) ? r.below(3) : above(8));
    refused_field(offsetof(merapi_config, region_log2), 1, r.percent(50) ? r.below(16) : above(36));
    refused_field(offsetof(merapi_config, coherence), 1, 1u ^ 1u << r.below(8));
    refused_field(offsetof(merapi_config, mirror_size_offset), 4, 32 + r.between(1, 3));
  }
}

// The marks of a region fill whole lines of the bitmap.
TEST_F(RtlConfig, RegionsHaveLinesOfTheirOwn) {
  const uint64_t at = MERAPI_CONFIG_OFFSET + offsetof(merapi_config, region_log2);
  auto set = [](Window* w, uint8_t region, uint8_t alignment) {
    w->config()->region_log2 = region;
    w->config()->alignment_log2 = alignment;
  };
  refused([&](Window* w) { set(w, 16, 8); }, at, 16);
  set(&window_, 16, 7);
  accepted();
  set(&window_, 17, 8);
  accepted();
}

TEST_F(RtlConfig, ReservedFields) {
  for (unsigned bit = 0; bit < 16; bit++) refused_field(offsetof(merapi_config, reserved0), 2, 1u << bit);
  for (unsigned word = 0; word < 3; word++) {
    for (unsigned bit = 3; bit < 64; bit += 12) {
      uint64_t at = offsetof(merapi_config, reserved1);
      refused_field(at + 8 * word, 8, UINT64_C(1) << bit, at);
    }
  }
  for (unsigned bit = 0; bit < 64; bit += 9) refused_field(offsetof(merapi_config, reserved2), 8, UINT64_C(1) << bit);
}

TEST_F(RtlConfig, RegionCount) {
  refused_field(offsetof(merapi_config, region_count), 4, 0);
  refused_field(offsetof(merapi_config, region_count), 4, 1025);  // 2^40 bytes and one region
  for (unsigned bit = 11; bit < 32; bit += 2) refused_field(offsetof(merapi_config, region_count), 4, 1u << bit);
}

TEST_F(RtlConfig, HeapBase) {
  for (uint64_t base : {UINT64_C(0x7000000000000001), UINT64_C(0x123456789abc4), UINT64_C(2)}) {
    refused_field(offsetof(merapi_config, heap_base), 8, base);
  }
  // By each bit below the alignment; the one that is the alignment is right.
  const uint64_t base = window_.config()->heap_base;
  for (unsigned bit = 3; bit < 8; bit++) {
    const uint64_t crooked = base | uint64_t{1} << bit;
    auto set = [&](Window* w, unsigned alignment) {
      w->config()->alignment_log2 = uint8_t(alignment);
      w->config()->heap_base = crooked;
    };
    refused([&](Window* w) { set(w, 8); }, MERAPI_CONFIG_OFFSET + offsetof(merapi_config, heap_base), crooked);
    set(&window_, bit);
    accepted();
    window_.config()->alignment_log2 = window_.shape.alignment_log2;
    window_.config()->heap_base = base;
  }
  // The heap would end beyond the address space.
  uint64_t bytes = window_.heap_bytes();
  for (uint64_t beyond : {UINT64_C(8), UINT64_C(1) << 20, bytes / 2, bytes - 8}) {
    refused_field(offsetof(merapi_config, heap_base), 8, beyond - bytes);
  }
  window_.config()->heap_base = 0 - bytes;
  accepted();
}

TEST_F(RtlConfig, Areas) {
  Random r(3);
  for (unsigned i = 0; i < MERAPI_AREA_COUNT; i++) {
    uint64_t at = MERAPI_DIRECTORY_OFFSET + 16 * i;
    merapi_area_desc was = window_.directory()->area[i];
    bool exists = was.offset != 0;
    bool mapped = i == MERAPI_AREA_BITMAP0 || i == MERAPI_AREA_BITMAP1 || i == MERAPI_AREA_HEAP;
    auto offset = [&](uint64_t value) {
      refused([&](Window* w) { w->directory()->area[i].offset = value; }, at, value);
    };
    auto size = [&](uint64_t value) {
      refused(
          [&](Window* w) {
            w->directory()->area[i].size = value;
            if (!exists) w->directory()->area[i].offset = 0x200000;
          },
          at + 8, value);
    };
    offset(was.offset + (uint64_t{1} << r.below(12)));
    if (mapped) offset(was.offset + (uint64_t{1} << r.between(12, 20)));
    offset(window_.bytes);
    offset(was.offset | uint64_t{1} << r.between(42, 63));
    size(was.size + (uint64_t{1} << r.below(12)));
    size(uint64_t{1} << r.between(43, 63));
    if (!exists) continue;
    size(0);
    size(window_.bytes - was.offset + 4096);
    if (i == MERAPI_AREA_SHAPES) {
      size(was.size + 4096);
      size(2 * kLargestTable);
      window_.directory()->area[i].size = kLargestTable;
      accepted();
      window_.directory()->area[i].size = was.size;
    }
    // Too small for what it must hold.
    if (i == MERAPI_AREA_LIMITS || i == MERAPI_AREA_LIVE) {
      refused(
          [&](Window* w) {
            w->config()->region_count = 1024;
            w->directory()->area[MERAPI_AREA_LIMITS].size = i == MERAPI_AREA_LIMITS ? 4096 : 8192;
            w->directory()->area[MERAPI_AREA_LIVE].size = i == MERAPI_AREA_LIVE ? 4096 : 8192;
          },
          at + 8, 4096);
    }
    if (mapped) size(was.size - 4096);
  }
  for (int i : {MERAPI_AREA_SHAPES, MERAPI_AREA_LIMITS, MERAPI_AREA_LIVE, MERAPI_AREA_BITMAP0, MERAPI_AREA_BITMAP1,
                MERAPI_AREA_HEAP}) {
    refused([&](Window* w) { w->directory()->area[i].offset = 0; }, MERAPI_DIRECTORY_OFFSET + 16 * uint64_t(i), 0);
  }
}

class RtlSmallConfig : public RtlConfig {
 protected:
  RtlSmallConfig() : RtlConfig(WindowShape{}) {}
};

// In a window of few MB, in which a place with a bit too many lies outside: which of the two is named, and as what, is
// a matter of the wrong one's own bits.
TEST_F(RtlSmallConfig, OfAnAreaTheWrongFieldIsNamed) {
  for (unsigned i = 0; i < MERAPI_AREA_COUNT; i++) {
    const uint64_t at = MERAPI_DIRECTORY_OFFSET + 16 * i;
    const merapi_area_desc was = window_.directory()->area[i];
    if (was.offset == 0) continue;
    for (unsigned bit = 0; bit < 64; bit++) {
      const uint64_t flip = uint64_t{1} << bit;
      if (flip < MERAPI_AREA_ALIGNMENT || (flip > window_.bytes && (is_small() || bit % 4 == i % 4))) {
        refused([&](Window* w) { w->directory()->area[i].offset = was.offset ^ flip; }, at, was.offset ^ flip);
        refused([&](Window* w) { w->directory()->area[i].size = was.size ^ flip; }, at + 8, was.size ^ flip);
      }
    }
  }
}

TEST_F(RtlConfig, Overlaps) {
  Random r(4);
  for (int trial = 0; trial < 24; trial++) {
    unsigned a = unsigned(r.below(MERAPI_AREA_HEAP + 1)), b = unsigned(r.below(MERAPI_AREA_HEAP + 1));
    if (a == b) continue;
    merapi_area_desc to = window_.directory()->area[b];
    uint64_t size = window_.directory()->area[a].size;
    // From in front of it, at it, or within it; what is named is in the directory (which of the two: RtlConfigRandom).
    uint64_t at = r.percent(50) || to.size <= 4096 ? to.offset : to.offset + to.size - 4096;
    bool mapped = a == MERAPI_AREA_BITMAP0 || a == MERAPI_AREA_BITMAP1 || a == MERAPI_AREA_HEAP;
    if (mapped) at = at / MERAPI_MAPPED_ALIGNMENT * MERAPI_MAPPED_ALIGNMENT;
    if (at + size > window_.bytes || at < MERAPI_CONTROL_BYTES) continue;
    std::vector<uint8_t> page(window_.base, window_.base + MERAPI_CONTROL_BYTES);
    RtlMachine m(&window_, {});
    ASSERT_TRUE(m.attach());
    window_.directory()->area[a].offset = at;
    m.begin(0);
    EXPECT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG)) << a << " over " << b;
    EXPECT_GE(m.fault().address, MERAPI_DIRECTORY_OFFSET);
    EXPECT_LT(m.fault().address, MERAPI_DIRECTORY_OFFSET + sizeof(merapi_directory));
    std::memcpy(window_.base, page.data(), page.size());
  }
  // Neighbours do not overlap.
  auto* areas = window_.directory()->area;
  areas[MERAPI_AREA_LIVE].offset = areas[MERAPI_AREA_LIMITS].offset + areas[MERAPI_AREA_LIMITS].size;
  accepted();
}

// A ring that moved since the handshake.
TEST_F(RtlConfig, RingsMoved) {
  for (unsigned i : {0u, 1u}) {
    uint64_t at = MERAPI_DIRECTORY_OFFSET + 16 * i, offset = window_.directory()->area[i].offset;
    for (uint64_t by : {UINT64_C(4096), UINT64_C(1) << 30}) {
      refused([&](Window* w) { w->directory()->area[i].offset += by; }, at, offset + by);
    }
    refused([&](Window* w) { w->directory()->area[i].size *= 2; }, at, offset);
  }
}

TEST_F(RtlConfig, Handshake) {
  auto refuse = [&](const std::function<void()>& change, uint32_t code, uint64_t where, uint64_t detail) {
    std::vector<uint8_t> page(window_.base, window_.base + MERAPI_CONTROL_BYTES);
    change();
    RtlMachine m(&window_, {});
    ASSERT_TRUE(m.attach());
    EXPECT_EQ(m.fault().code, code);
    EXPECT_EQ(m.fault().address, where);
    EXPECT_EQ(m.fault().detail, detail);
    std::memcpy(window_.base, page.data(), page.size());
  };
  auto* identity = window_.control<merapi_identity>(MERAPI_IDENTITY_OFFSET);
  for (unsigned bit = 0; bit < 64; bit += 7) {
    uint64_t magic = MERAPI_MAGIC ^ UINT64_C(1) << bit;
    refuse([&] { identity->magic = magic; }, MERAPI_FAULT_BAD_MAGIC, magic, 0);
  }
  for (unsigned bit = 0; bit < 16; bit += 3) {
    uint32_t major = MERAPI_VERSION_MAJOR ^ 1u << bit, minor = MERAPI_VERSION_MINOR + (1u << bit);
    refuse([&] { identity->version_major = uint16_t(major); }, MERAPI_FAULT_BAD_VERSION, 8,
           major << 16 | MERAPI_VERSION_MINOR);
    refuse([&] { identity->version_minor = uint16_t(minor); }, MERAPI_FAULT_BAD_VERSION, 8,
           MERAPI_VERSION_MAJOR << 16 | minor);
  }
  Random r(9);
  for (unsigned i : {0u, 1u}) {
    uint64_t at = MERAPI_DIRECTORY_OFFSET + 16 * i;
    merapi_area_desc* area = &window_.directory()->area[i];
    merapi_area_desc was = *area;
    for (uint64_t offset : {UINT64_C(0), was.offset + (uint64_t{1} << r.below(12)), window_.bytes,
                            was.offset | uint64_t{1} << r.between(42, 63)}) {
      refuse([&] { area->offset = offset; }, MERAPI_FAULT_BAD_CONFIG, at, offset);
    }
    for (uint64_t size : {UINT64_C(0), was.size + 64, UINT64_C(3) * 4096, 2 * kLargestTable, 4 * kLargestTable,
                          uint64_t{1} << r.between(43, 63)}) {
      refuse([&] { area->size = size; }, MERAPI_FAULT_BAD_CONFIG, at + 8, size);
    }
  }
  merapi_area_desc* areas = window_.directory()->area;
  uint64_t first = areas[0].offset;
  refuse([&] { areas[1].offset = first; }, MERAPI_FAULT_BAD_CONFIG, MERAPI_DIRECTORY_OFFSET + 16, first);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
