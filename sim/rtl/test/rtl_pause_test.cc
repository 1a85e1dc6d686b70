// SPDX-License-Identifier: Apache-2.0
//
// What a host does to a tracer that it has paused: regions are freed, completions are read, shapes change their places.
// What the tracer held then must not be believed afterwards, and nothing may depend on what is gone. MERAPI_PRESET as
// in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "sim/rtl/test/directed_heap.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
constexpr uint32_t kLeaf = 0x5000;
constexpr uint64_t kLeafBytes = 16;

class RtlPause : public DirectedHeap {
 protected:
  explicit RtlPause(const WindowShape& s = directed_shape()) : DirectedHeap(s) {
    window_.put_instance(kLeaf, kLeafBytes / 8);
  }
  uint64_t region(uint32_t r) const { return uint64_t{r} << window_.shape.region_log2; }
  uint64_t address(uint64_t at) const { return window_.shape.heap_base + at; }
  void pause() {
    machine_->request_pause();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->pause_acknowledged(); }, kPatience));
  }
  void resume() {
    machine_->resume();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
  }
  // While paused: nothing in it is left.
  void free_region(uint32_t r) {
    const uint64_t bytes = window_.region_bytes() >> (window_.shape.alignment_log2 + 3);
    std::memset(reinterpret_cast<uint8_t*>(window_.bitmap(0)) + r * bytes, 0, bytes);
    window_.live()[r] = 0;
    window_.limits()[r] = region(r);
  }
};

// Twins refer to the same object, one from regions that are freed, one from a region that stays. That the first one's
// reference was dropped, because nothing had room for a grey, must not keep the second one's from being followed.
class RtlPauseTwins : public RtlPause {
 protected:
  static constexpr uint32_t kRoot = 0x6000, kTwin = 0x7000;
  static constexpr uint32_t kFillers = 400, kRoots = 4, kPairs = 30, kTwins = kRoots * kPairs, kBallast = 40;
  static constexpr uint32_t kGoing = 4, kGoingRegions = 3;
  static constexpr uint64_t kTwinBytes = 192;
  static WindowShape many_regions() {
    WindowShape s = directed_shape();
    s.region_log2 = 16;
    s.regions = 256;
    return s;
  }
  RtlPauseTwins() : RtlPause(many_regions()) {
    window_.directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    window_.put_instance(kRoot, 17, {{12, kPairs}});
    window_.put_instance(kTwin, kTwinBytes / 8, {{12, kBallast + 1}});
    Random random(7);
    for (uint32_t i = 0; i < kFillers; i++) klass(filler(i), kLeaf);
    for (uint32_t r = 0; r < kRoots; r++) {
      klass(root(r), kRoot);
      for (uint32_t i = 0; i < kPairs; i++) make_pair(root(r) + 12 + 4 * uint64_t{i}, r * kPairs + i, random.below(2));
    }
  }
  void make_pair(uint64_t field, uint32_t k, bool first) {
    const uint64_t pair = region(1) + k * kNodeBytes;
    klass(pair, kNode);
    refer(field, pair);
    refer(pair + 12, first ? goes(k) : stays(k));
    refer(pair + 16, first ? stays(k) : goes(k));
    klass(target(k), kLeaf);
    for (uint64_t twin : {goes(k), stays(k)}) {
      klass(twin, kTwin);
      refer(twin + 12 + 4 * uint64_t{kBallast}, target(k));
    }
    // What takes the last room before the target comes.
    for (uint32_t b = k * kBallast; b < (k + 1) * kBallast; b++) {
      klass(ballast(b), kLeaf);
      refer(goes(k) + 12 + 4 * uint64_t{b % kBallast}, ballast(b));
    }
  }
  uint64_t filler(uint32_t i) const { return 64 + kLeafBytes * i; }
  uint64_t root(uint32_t r) const { return 0x4000 + 136 * r; }
  // First twins lie together, each second one has a region of its own: chunks are scanned again as a whole.
  uint64_t goes(uint32_t k) const { return region(kGoing) + kTwinBytes * k; }
  uint64_t stays(uint32_t k) const { return region(16 + k); }
  // Targets and ballast do not push each other out of the filter of what was tested lately.
  uint64_t place(uint32_t i) const { return i / 512 * 32768 + i % 512 / 16 * 512 + i % 16 * kLeafBytes; }
  uint64_t target(uint32_t k) const { return region(8) + 256 + place(k); }
  uint64_t ballast(uint32_t b) const { return region(9) + place(b); }

  // One pause, after so many cycles.
  void run(uint64_t before) {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    for (uint32_t r = kGoing; r < kGoing + kGoingRegions; r++) window_.limits()[r] = region(r + 1);
    for (uint32_t i = 0; i < kFillers; i++) window_.mark(0, filler(i));
    for (uint32_t r = 0; r < kRoots; r++) window_.mark(0, root(r));
    start();
    machine_->run(before);
    machine_->complete();
    pause();
    if (options_.preset == "sim-small") {
      EXPECT_GT(machine_->counter(MERAPI_COUNTER_GREYS_DROPPED), 0u) << "not what is tested";
    }
    for (uint32_t r = kGoing; r < kGoing + kGoingRegions; r++) free_region(r);
    resume();
    ASSERT_TRUE(finish());
    EXPECT_EQ(machine_->fault().code, 0u);
    uint32_t twins = 0, targets = 0;
    for (uint32_t k = 0; k < kTwins; k++) {
      twins += window_.marked(0, stays(k));
      targets += window_.marked(0, target(k));
    }
    EXPECT_EQ(twins, kTwins);
    EXPECT_EQ(targets, kTwins) << "objects that marked ones refer to, a pause after " << before << " cycles";
    EXPECT_EQ(window_.live()[8], kTwins * kLeafBytes / 8);
  }
};

TEST_F(RtlPauseTwins, WhatTheFirstDroppedTheSecondMarks) {
  for (uint64_t before : {12'000, 16'000, 20'000, 28'000, 40'000}) {
    run(before);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
