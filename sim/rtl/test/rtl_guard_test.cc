// SPDX-License-Identifier: Apache-2.0
//
// What no host and no heap can bring about: an address that the tracer keeps on chip is another one when it is written
// to. The memory's boundary writes nowhere but to the areas that are the tracer's at that time.
#include <gtest/gtest.h>

#include <cstring>

#include "sim/rtl/test/directed_heap.h"

namespace merapi::sim::rtl::test {
namespace {

constexpr uint32_t kNodes = 20;
constexpr uint64_t kLate = 3000;
constexpr int kLineBits = 36;  // of an address in lines, in every preset

class RtlGuard : public DirectedHeap {
 protected:
  RtlGuard() {
    make_array(64, kNodes);
    for (uint32_t i = 0; i < kNodes; i++) {
      make_node(i);
      refer(64 + 16 + 4 * uint64_t{i}, node(i));
    }
    for (int bitmap : {0, 1}) window_.mark(bitmap, 64);
    fresh_ = window_.copy();
    const merapi_area_desc live = window_.layout.area[MERAPI_AREA_LIVE];
    options_.simulation.on_access = [this, live](uint64_t address, bool write) {
      if (write) wrong_ += !tracers(address);
      if (!write) asked_ |= address - live.offset < live.size;
    };
    options_.late = [live](uint64_t, uint64_t address, bool write) {
      return !write && address - live.offset < live.size ? kLate : 0;
    };
  }
  // May it be written in a cycle of bitmap_?
  bool tracers(uint64_t address) const {
    if (address < MERAPI_CONTROL_BYTES) {
      return address >= MERAPI_DEVICE_IDENTITY_OFFSET && address < MERAPI_COUNTERS_OFFSET + sizeof(merapi_counters);
    }
    for (int a :
         {int(MERAPI_AREA_COMPLETION), int(MERAPI_AREA_LIVE), MERAPI_AREA_BITMAP0 + bitmap_, int(MERAPI_AREA_SPILL)}) {
      if (address - window_.layout.area[a].offset < window_.layout.area[a].size) return true;
    }
    return false;
  }

  std::unique_ptr<merapi::sim::test::Mapping> fresh_;
  int bitmap_ = 0;
  bool asked_ = false;
  uint64_t wrong_ = 0;
};

TEST_F(RtlGuard, AnAddressThatTurnedOverIsNotWrittenTo) {
  const uint64_t live = window_.layout.area[MERAPI_AREA_LIVE].offset;
  uint32_t guarded = 0, outside = 0;
  for (int bit = 0; bit < kLineBits; bit++) {
    SCOPED_TRACE("bit " + std::to_string(bit));
    std::memcpy(window_.base, fresh_->base, window_.bytes);
    asked_ = false;
    bitmap_ = 0;
    start();
    // The line of live words has been asked for, at its place.
    ASSERT_TRUE(machine_->run_until(
        [&] {
          machine_->complete();
          return asked_;
        },
        kPatience));
    if (!machine_->simulation->upset_live_addresses(uint64_t{1} << bit)) {
      GTEST_SKIP() << "expected the live table's addresses in the simulation, found a netlist without their name";
    }
    ASSERT_TRUE(machine_->idle_or_fault(kPatience));
    const uint64_t to = live ^ uint64_t { 64 } << bit;
    const auto fault = machine_->fault();
    if (tracers(to)) {
      EXPECT_EQ(fault.code, 0u);  // nobody can see it but the host, whose live words do not add up
      continue;
    }
    EXPECT_EQ(fault.code, uint32_t(to < window_.bytes ? MERAPI_FAULT_GUARD : MERAPI_FAULT_TRUNCATED));
    EXPECT_EQ(fault.address, to);
    reached("fault", fault.code);
    (to < window_.bytes ? guarded : outside)++;

    machine_->abort();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->abort_acknowledged(); }, kPatience));
    ASSERT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
    machine_->complete();
    bitmap_ = 1;
    machine_->begin(1);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    ASSERT_TRUE(finish());
    uint64_t words = 0;
    for (uint32_t r = 0; r < window_.shape.regions; r++) words += window_.live()[r];
    EXPECT_EQ(words, kNodes * kNodeBytes / 8);
  }
  EXPECT_EQ(wrong_, 0u);
  EXPECT_GT(guarded, 3u);
  EXPECT_GT(outside, 3u);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
