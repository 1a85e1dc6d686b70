// SPDX-License-Identifier: Apache-2.0
//
// A memory that fails while the tracer has much to do: everything under way ends, nothing of it is seen afterwards, and
// the cycle after an abort marks what it should.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "sim/rtl/axi_memory.h"
#include "sim/rtl/test/directed_heap.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Mapping;
using merapi::sim::test::Random;

// Nodes far from each other, so that nearly each has a bitmap line of its own, each with two references to anywhere.
class RtlErrors : public DirectedHeap {
 protected:
  static constexpr uint32_t kNodes = 1500, kApart = 90;
  RtlErrors() {
    Random random(1);
    make_array(64, kNodes);
    for (uint32_t i = 0; i < kNodes; i++) {
      make_node(at(i));
      refer(64 + 16 + 4 * uint64_t{i}, node(at(i)));
      for (uint32_t field : {12, 16}) refer(node(at(i)) + field, node(at(uint32_t(random.below(kNodes)))));
    }
    for (int bitmap : {0, 1}) window_.mark(bitmap, 64);
    fresh_ = window_.copy();
  }
  static uint64_t at(uint32_t i) { return uint64_t{i} * kApart; }

  struct Run {
    // Lines, before the first cycle and at its end.
    uint64_t reads_before = 0, writes_before = 0, reads = 0, writes = 0;
    merapi_fault_record fault{};
  };
  // Every use of a seed does the same until the access that fails. 0: none does.
  // `together`: the memory answers the writes of some time together, the first of them a little before.
  Run run(uint64_t seed, uint64_t read_error, uint64_t write_error, bool together = false) {
    Run r;
    Random random(seed);
    std::memcpy(window_.base, fresh_->base, window_.bytes);
    options_.timing = {2, uint32_t(4 + random.below(120)), uint32_t(30 + random.below(71)), seed};
    options_.simulation.read_error_at = read_error;
    options_.simulation.write_error_at = write_error;
    options_.simulation.error_response = 2;
    if (together) {
      const uint64_t turn = 100 + random.below(500), lead = random.below(80);
      const bool reads = random.below(2) == 0;
      options_.late = [=, first = uint64_t{0}](uint64_t now, uint64_t, bool write) mutable {
        const uint64_t left = turn - now % turn;
        if (!write) return reads ? left : 0;
        return std::exchange(first, now + left) == now + left || left < lead ? left : left - lead;
      };
    }
    start();
    r.reads_before = machine_->simulation->accesses().reads;
    r.writes_before = machine_->simulation->accesses().writes;
    serve(&random);
    r.reads = machine_->simulation->accesses().reads;
    r.writes = machine_->simulation->accesses().writes;
    machine_->run(together ? 10'000 : 2000);  // the last write may be what failed
    r.fault = machine_->fault();
    return r;
  }
  // The host until the trace's end or a fault.
  void serve(Random* random) {
    auto until = [&](auto what) {
      EXPECT_TRUE(machine_->run_until([&] { return machine_->fault().code != 0 || what(); }, kPatience));
      return machine_->fault().code == 0;
    };
    bool running = true;
    while (running && !machine_->idle()) {
      machine_->run(random->below(2500));
      if (random->below(2) == 0) machine_->complete();
      if (random->below(2) == 0 && machine_->room()) {
        machine_->grey({window_.shape.heap_base + node(at(uint32_t(random->below(kNodes)))), 0});
      }
      if (random->below(3) != 0) continue;
      machine_->request_pause();
      running = until([&] { return machine_->pause_acknowledged(); });
      machine_->resume();
      running = running && until([&] { return machine_->resume_acknowledged(); });
      running = running && machine_->fault().code == 0;
    }
  }
  // Marks, live words and what else the tracer writes but its page.
  void nothing_more_is_written() {
    std::unique_ptr<Mapping> before = window_.copy();
    machine_->run(10'000);
    for (int a :
         {MERAPI_AREA_BITMAP0, MERAPI_AREA_BITMAP1, MERAPI_AREA_LIVE, MERAPI_AREA_COMPLETION, MERAPI_AREA_HEAP}) {
      const merapi_area_desc& area = window_.layout.area[a];
      EXPECT_EQ(std::memcmp(before->base + area.offset, window_.base + area.offset, area.size), 0) << "area " << a;
    }
  }
  void the_next_cycle_is_right() {
    machine_->abort();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->abort_acknowledged(); }, kPatience));
    ASSERT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
    machine_->complete();
    machine_->begin(1);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    ASSERT_TRUE(finish());
    uint64_t words = 0;
    for (uint32_t r = 0; r < window_.shape.regions; r++) words += window_.live()[r];
    for (uint32_t i = 0; i < kNodes; i++) ASSERT_TRUE(window_.marked(1, node(at(i)))) << i;
    EXPECT_EQ(words, kNodes * kNodeBytes / 8);
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), kNodes);
  }
  // The record is of one of the accesses that failed, whole, and the entry says the same.
  void one_of_them_is_told(const std::map<uint64_t, uint8_t>& failed) {
    const merapi_fault_record fault = machine_->fault();
    const auto told = failed.find(fault.address);
    ASSERT_NE(told, failed.end()) << std::hex << fault.address << " did not fail";
    EXPECT_EQ(fault.code, uint32_t(told->second == 2 ? MERAPI_FAULT_MEMORY : MERAPI_FAULT_TRUNCATED));
    EXPECT_EQ(fault.detail, 0u);
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
    ASSERT_NE(machine_->completed(), 0u);
    const auto* ring = reinterpret_cast<const merapi_completion*>(window_.area(MERAPI_AREA_COMPLETION));
    const merapi_completion& last = ring[(machine_->completed() - 1) % window_.shape.completion_entries];
    EXPECT_EQ(last.type, MERAPI_COMP_FAULT);
    EXPECT_EQ(last.arg, fault.code);
    EXPECT_EQ(last.payload[0], fault.address);
    EXPECT_EQ(last.payload[1], fault.detail);
  }
  // One error for each seed, at any access of the cycle.
  void run_seeds(bool write, bool together = false) {
    uint64_t faults = 0, tried = 0;
    each_seed([&](uint64_t seed) {
      const Run whole = run(seed, 0, 0, together);
      EXPECT_EQ(whole.fault.code, 0u);
      if (HasFailure()) return;
      Random random(seed + 1000);
      const uint64_t before = write ? whole.writes_before : whole.reads_before;
      const uint64_t nth = before + 1 + random.below((write ? whole.writes : whole.reads) - before);
      SCOPED_TRACE((write ? "write " : "read ") + std::to_string(nth));
      const Run broken = run(seed, write ? 0 : nth, write ? nth : 0, together);
      tried++;
      if (broken.fault.code != 0) {
        faults++;
        EXPECT_EQ(broken.fault.code, uint32_t(MERAPI_FAULT_MEMORY));
        EXPECT_LT(broken.fault.address, window_.bytes);
        nothing_more_is_written();
      }
      the_next_cycle_is_right();
    });
    EXPECT_EQ(faults, tried);
  }
  std::unique_ptr<Mapping> fresh_;
};

TEST_F(RtlErrors, AnyReadOfABusyTracer) { run_seeds(false); }
TEST_F(RtlErrors, AnyWriteOfABusyTracer) { run_seeds(true); }
// All that is written in some time is answered together, and a little before the host aborts.
TEST_F(RtlErrors, AnAbortBeforeManyWritesAreAnswered) {
  each_seed([&](uint64_t seed) {
    Random random(seed);
    std::memcpy(window_.base, fresh_->base, window_.bytes);
    const uint64_t turn = 100 + random.below(300), lead = random.below(300);
    options_.timing = {2, uint32_t(4 + random.below(30)), 100, seed};
    options_.late = [=](uint64_t now, uint64_t, bool write) { return write ? turn - now % turn : 0; };
    start();
    machine_->run(random.below(20'000));
    machine_->run(turn - (machine_->simulation->cycles() + lead) % turn);
    the_next_cycle_is_right();
  });
}

// While answers come one a cycle, what is no longer to be written must wait for its turn to be answered.
TEST_F(RtlErrors, AnyWriteOfManyThatAreAnsweredTogether) { run_seeds(true, true); }

// From some cycle on all reads of the heap and all writes of marks fail, and what else is chosen, by SLVERR and DECERR,
// for a while or until the memory is mended. What is answered a little before comes in that cycle, so that the first
// errors come together, on both channels of answers and at all ports.
TEST_F(RtlErrors, ManyAtATime) {
  uint64_t tried = 0, together = 0;
  each_seed([&](uint64_t seed) {
    Random random(seed * 1000);
    std::memcpy(window_.base, fresh_->base, window_.bytes);
    options_.timing = {2, uint32_t(4 + random.below(120)), uint32_t(30 + random.below(71)), seed};
    options_.simulation.seed = seed;
    options_.simulation.stall_percent = random.percent(50) ? 0 : uint32_t(random.below(60));
    options_.simulation.readiness = Readiness(random.below(3));
    options_.simulation.at_once_percent = random.percent(50) ? 0 : uint32_t(random.between(10, 90));
    bool broken[MERAPI_AREA_COUNT][2] = {};  // read, written
    for (int a : {MERAPI_AREA_SHAPES, MERAPI_AREA_LIMITS, MERAPI_AREA_LIVE, MERAPI_AREA_BITMAP0, MERAPI_AREA_SPILL}) {
      for (bool& b : broken[a]) b = random.percent(60);
    }
    broken[MERAPI_AREA_HEAP][false] = broken[MERAPI_AREA_BITMAP0][true] = true;
    const auto in = [&](int area, uint64_t address) {
      return address - window_.layout.area[area].offset < window_.layout.area[area].size;
    };
    const auto is_broken = [&](uint64_t address, bool write) {
      for (int a = 0; a < int(MERAPI_AREA_COUNT); a++) {
        if (in(a, address)) return broken[a][write];
      }
      return false;
    };
    constexpr uint64_t kNever = ~uint64_t{0};
    const uint64_t lead = random.between(10, 200), after = 1 + random.below(kNodes - 300);
    const uint64_t lasts = random.percent(50) ? kNever : random.between(1, 3000);
    uint64_t from = kNever, end = kNever, objects = 0, first = 0;
    std::map<uint64_t, uint8_t> failed;  // with their responses
    options_.late = [&](uint64_t now, uint64_t address, bool write) {
      return now <= from && from - now < lead && is_broken(address, write) ? from + 1 - now : 0;
    };
    options_.simulation.response_of = [&](uint64_t address, bool write) -> uint8_t {
      if (in(MERAPI_AREA_HEAP, address) && ++objects == after) from = machine_->simulation->cycles() + lead;
      if (from == kNever || !is_broken(address, write)) return AxiMemory::kOkay;
      const uint64_t now = machine_->simulation->cycles();
      if (now < from || now > end) return AxiMemory::kOkay;
      if (failed.empty() && lasts != kNever) end = now + lasts;
      if (now == from) first++;
      return failed[address] = address / 64 % 2 == 0 ? AxiMemory::kSlaveError : AxiMemory::kDecodeError;
    };
    start();
    serve(&random);
    machine_->run(2000);
    one_of_them_is_told(failed);
    nothing_more_is_written();
    end = 0;
    the_next_cycle_is_right();
    tried++;
    together += first > 1;
  });
  if (tried >= 5) {
    EXPECT_GT(2 * together, tried) << "not what is tested";
  }
}

// What was offered when the error came stays offered (port_rules.h), though nobody needs it any more.
TEST_F(RtlErrors, AnyReadWhileChannelsStandStill) {
  options_.simulation.stall_percent = 60;
  run_seeds(false);
}
TEST_F(RtlErrors, AnyWriteWhileChannelsStandStill) {
  options_.simulation.stall_percent = 60;
  run_seeds(true);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
