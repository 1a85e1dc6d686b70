// SPDX-License-Identifier: Apache-2.0
//
// A host that revokes while the tracer is busy: what the tracer still writes once it has seen it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/rtl/test/directed_heap.h"
#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;

// A window whose memory became zeros shows the generation 0, and klass words that are a fault.
class RtlHostRevokes : public DirectedHeap {
 protected:
  static constexpr uint32_t kNodes = 6000;
  RtlHostRevokes() {
    make_array(64, kNodes);
    for (uint32_t i = 0; i < kNodes; i++) {
      make_node(i);
      refer(64 + 16 + 4 * uint64_t{i}, node(i));
    }
    options_.timing = {30, 30, 100, 1};
  }
  // The control page is not written any more once the tracer has looked and may have seen it, whatever went wrong
  // meanwhile: nodes are gone some cycles before. Nor is anything else once the look is answered and what was under way
  // then is through. `looks`: how often it looked in time.
  void revoke(bool by_zero, int* looks) {
    enum { kNone, kIndex, kWhole } look = kNone;
    bool shown = false;
    uint64_t written = 0, late = 0, nodes_read = 0, looked = 0;
    const uint64_t first_node = window_.layout.area[MERAPI_AREA_HEAP].offset + node(0);
    options_.simulation.on_access = [&](uint64_t address, bool write) {
      nodes_read += !write && address >= first_node && address < first_node + kNodes * kNodeBytes;
      if (!shown) return;
      if (!write && address == MERAPI_HOST_INDEX_OFFSET && look == kNone) look = kIndex;
      if (!write && address == MERAPI_HOST_REQUEST_OFFSET && look == kIndex) {
        look = kWhole;
        looked = machine_->simulation->cycles();
      }
      written += write && address < MERAPI_CONTROL_BYTES && look == kWhole;
      if (write && look == kWhole) late = std::max(late, machine_->simulation->cycles() - looked);
    };
    auto* host = window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
    const std::vector<uint8_t> nodes(window_.heap() + node(0), window_.heap() + node(kNodes));
    window_.mark(0, 64);
    start();
    Random r(1);
    for (int trial = 0; trial < 50; trial++) {
      nodes_read = 0;
      ASSERT_TRUE(machine_->run_until([&] { return nodes_read > 20; }, kPatience));
      machine_->run(r.below(1000));
      machine_->complete();
      const uint64_t odd = host->generation | 1;
      std::memset(window_.heap() + node(0), 0, nodes.size());
      machine_->run(r.below(60));
      shown = true;
      host->generation = by_zero ? 0 : odd;
      machine_->run(1500);
      EXPECT_EQ(written, 0u) << "trial " << trial;
      EXPECT_LE(late, options_.timing.most + 3) << "trial " << trial;
      *looks += look == kWhole;
      shown = false;
      look = kNone;
      written = late = 0;
      std::memcpy(window_.heap() + node(0), nodes.data(), nodes.size());
      host->generation = odd;
      machine_->run(500);
      machine_->begin_generation(odd);
      ASSERT_TRUE(machine_->run_until([&] { return machine_->generation_answered(); }, kPatience));
      std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
      window_.mark(0, 64);
      machine_->begin(0);
      machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    }
  }
};

TEST_F(RtlHostRevokes, NoFaultIsToldThen) {
  int looks = 0;
  revoke(false, &looks);
  EXPECT_GT(looks, 40);
}

TEST_F(RtlHostRevokes, NoFaultIsToldToTheGenerationZero) {
  int looks = 0;
  revoke(true, &looks);
  EXPECT_GT(looks, 40);
}

// Notes what leaves the tracer after the first look that shows that the host has revoked.
class Leaver {
 public:
  // From the answer that shows it to the last write that was under way: those offered to the memory before the lanes
  // and the mark unit are stopped.
  static constexpr uint64_t kReaction = 12;

  explicit Leaver(uint64_t latency) : latency_(latency) {}
  void revoke(Window* window) {
    window->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation |= 1;
    gone_ = true;
  }
  void access(uint64_t now, uint64_t address, bool write) {
    if (!gone_) return;
    if (!write && address == MERAPI_HOST_INDEX_OFFSET && seen_ == 0) seen_ = now + latency_;
    if (write && seen_ != 0 && now > seen_ + kReaction) late_.push_back(address);
  }
  bool gone() const { return gone_; }
  bool seen() const { return seen_ != 0; }
  uint64_t seen_at() const { return seen_; }
  const std::vector<uint64_t>& late() const { return late_; }

 private:
  uint64_t latency_;
  bool gone_ = false;
  uint64_t seen_ = 0;  // the cycle of that look's answer
  std::vector<uint64_t> late_;
};

// Traces of few objects whose marks are in a bitmap line each, so that much is left to be written at their end.
class RtlHostLeaves : public DirectedHeap {
 protected:
  static constexpr uint32_t kFar = 200;  // objects
  RtlHostLeaves() {
    make_array(64, kFar);
    for (uint32_t i = 0; i < kFar; i++) {
      klass(far(i), kNode);
      refer(64 + 16 + 4 * uint64_t{i}, far(i));
    }
    options_.simulation.on_access = [this](uint64_t address, bool write) {
      if (machine_) leaver_.access(machine_->simulation->cycles(), address, write);
    };
  }
  uint64_t far(uint64_t i) const { return region(4) + i * 16384; }
  void again() {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    window_.mark(0, 64);
    machine_->begin(0);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, 1, 0);
  }
  // The host revokes so many cycles after now; a handshake follows.
  void leave_after(uint64_t cycles) {
    machine_->run(cycles);
    leaver_ = Leaver(options_.timing.most);
    leaver_.revoke(&window_);
    machine_->run(2000);
    EXPECT_TRUE(leaver_.seen());
    EXPECT_EQ(leaver_.late(), std::vector<uint64_t>{}) << "revoked after " << cycles << " cycles";
    leaver_ = Leaver(0);
    machine_->begin_generation(window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation);
    ASSERT_TRUE(machine_->run_until([&] { return machine_->generation_answered(); }, kPatience));
  }
  Leaver leaver_{0};
};

// The end of a cycle: the core drains, its lines are written back, the idle record is written.
TEST_F(RtlHostLeaves, WhenACycleEnds) {
  for (unsigned latency : {30u, 80u}) {
    options_.timing = {latency, latency, 100, 1};
    start();
    ASSERT_TRUE(finish());
    again();
    const uint64_t begin = machine_->simulation->cycles();
    ASSERT_TRUE(finish());
    const uint64_t span = machine_->simulation->cycles() - begin;
    for (uint64_t trial = 0; trial < 150 && !HasFailure(); trial++) {
      again();
      leave_after(span - 1000 + 7 * trial);
    }
  }
}

// A FENCE's DONE: the core drains in the middle of a cycle.
TEST_F(RtlHostLeaves, WhenAFenceEnds) {
  for (unsigned latency : {30u, 80u}) {
    options_.timing = {latency, latency, 100, 1};
    start();
    ASSERT_TRUE(finish());
    for (uint64_t trial = 0; trial < 150 && !HasFailure(); trial++) {
      again();
      machine_->run(3000 + 17 * trial);
      machine_->command(MERAPI_OP_FENCE, 0, 7, 0);
      leave_after(4 * (trial % 100));
    }
  }
}

// A write of live words fails after the look that shows it has left, so that the fault comes before the look is heard
// of.
TEST_F(RtlHostRevokes, NoFaultIsToldThatComesWithTheLook) {
  const uint64_t live = window_.layout.area[MERAPI_AREA_LIVE].offset;
  const uint64_t latency = options_.timing.most;
  Leaver leaver(latency);
  bool watching = false;
  uint64_t looks = 0, wanted = 0, failed = 0;
  options_.simulation.on_access = [&](uint64_t address, bool write) {
    // In the look itself, before the memory answers.
    if (watching && !leaver.gone() && !write && address == MERAPI_HOST_INDEX_OFFSET && looks++ == wanted) {
      leaver.revoke(&window_);
    }
    leaver.access(machine_->simulation->cycles(), address, write);
  };
  options_.simulation.response_of = [&](uint64_t address, bool write) -> uint8_t {
    if (failed != 0 || !write || address < live || !leaver.seen()) return 0;
    if (machine_->simulation->cycles() + 4 >= leaver.seen_at()) return 0;
    failed = address;
    return 2;
  };
  window_.mark(0, 64);
  start();
  Random r(3);
  int failures = 0;
  for (int trial = 0; trial < 120 && !HasFailure(); trial++) {
    bool swept = false;
    ASSERT_TRUE(machine_->run_until(
        [&] {
          for (const merapi_completion& c : machine_->complete()) swept |= c.type == MERAPI_COMP_DONE;
          return swept;
        },
        kPatience));
    machine_->run(7 * (unsigned(trial) % 13) + r.below(700));
    machine_->complete();
    machine_->command(MERAPI_OP_FENCE, 0, 7, 0);
    looks = 0;
    wanted = uint64_t(trial) % 12;
    watching = true;
    machine_->run(6000);
    EXPECT_EQ(leaver.late(), std::vector<uint64_t>{}) << "trial " << trial;
    failures += failed != 0;
    watching = false;
    if (!leaver.gone()) leaver.revoke(&window_);
    leaver = Leaver(latency);
    failed = 0;
    machine_->run(1000);
    machine_->begin_generation(window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation);
    ASSERT_TRUE(machine_->run_until([&] { return machine_->generation_answered(); }, kPatience));
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    window_.mark(0, 64);
    machine_->begin(0);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
  }
  EXPECT_GT(failures, 0) << "not what is tested";
}

}  // namespace
}  // namespace merapi::sim::rtl::test
