// SPDX-License-Identifier: Apache-2.0
//
// Several lanes find something wrong in the same cycle, or in the next: what the host is told is of one of them, whole.
// MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <tuple>

#include "sim/rtl/test/directed_heap.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;

// Arrays that the host has marked, each in a line of its own, so that all lanes begin with some at the same time; what
// is wrong with one comes after as many references of it, or objects, as chance has it.
class RtlFaultsAtOnce : public DirectedHeap {
 protected:
  static constexpr uint32_t kArrays = 40, kLength = 12, kTries = 16;
  // Code, address and detail of a fault's record.
  using Told = std::tuple<uint32_t, uint64_t, uint64_t>;
  enum Wrong { kNothing, kReference, kKlass };

  RtlFaultsAtOnce() : DirectedHeap(shape()) {
    for (uint32_t i = 0; i < kArrays; i++) klass(leaf(i), kNode);
  }
  static uint64_t leaf(uint32_t i) { return 4096 + 64 * uint64_t{i}; }

  // In any of the arrays a reference that is not aligned, in a quarter of them no klass word, or either.
  void one_of_them_is_told(bool references, bool klasses) {
    std::set<Told> met;
    for (uint32_t seed = 1; seed <= kTries; seed++) {
      SCOPED_TRACE(seed);
      Random random(seed);
      std::set<uint64_t> places;
      while (places.size() < kArrays) places.insert(node(0) + 64 * random.below(32'000));
      std::set<Told> wrong;
      make(
          places,
          [&](uint32_t i, uint64_t at) {
            const uint64_t base = window_.shape.heap_base;
            if (klasses && random.percent(25)) return wrong.insert({MERAPI_FAULT_BAD_OBJECT, base + at, 0}), kKlass;
            if (!references) return kNothing;
            return wrong.insert({MERAPI_FAULT_BAD_REFERENCE, base + leaf(i) + 4, base + at}), kReference;
          },
          &random);
      // The record is of a generation's first fault.
      if (seed == 1) {
        start();
      } else {
        ASSERT_TRUE(machine_->attach());
        trace(0);
      }
      ASSERT_NE(machine_->fault_after(100'000), 0u);
      const merapi_fault_record fault = machine_->fault();
      const Told told{fault.code, fault.address, fault.detail};
      ASSERT_TRUE(wrong.count(told)) << merapi_fault_name(fault.code) << std::hex << " " << fault.address << " "
                                     << fault.detail;
      met.insert(told);
      ASSERT_TRUE(machine_->run_until([&] { return machine_->state() == MERAPI_DEVICE_STATE_FAULTED; }, kPatience));

      make(
          places, [](uint32_t, uint64_t) { return kNothing; }, &random);
      machine_->abort();
      ASSERT_TRUE(machine_->run_until([&] { return machine_->abort_acknowledged(); }, kPatience));
      ASSERT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
      machine_->complete();
      trace(1);
      ASSERT_TRUE(finish());
      for (uint32_t i = 0; i < kArrays; i++) EXPECT_TRUE(window_.marked(1, leaf(i))) << i;
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), kArrays);
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_SCANNED), 2 * kArrays);
    }
    // One lane always comes to the same one first.
    if (lanes() > 1) {
      EXPECT_GT(met.size(), 1u) << "not what is tested";
    }
  }

 private:
  static WindowShape shape() {
    WindowShape s = directed_shape();
    s.narrow_shift = 2;
    s.narrow_base = s.heap_base;
    return s;
  }
  template <typename F>
  void make(const std::set<uint64_t>& places, F wrong, Random* random) {
    for (int bitmap : {0, 1}) std::memset(window_.bitmap(bitmap), 0, window_.heap_bytes() / 64);
    uint32_t i = 0;
    for (uint64_t at : places) {
      const Wrong what = wrong(i, at);
      make_array(at, kLength);
      if (what == kKlass) klass(at, 0);
      const uint64_t bad = what == kReference ? random->below(kLength) : kLength;
      for (uint64_t k = 0; k < kLength; k++) refer(at + 16 + 4 * k, leaf(i) + (k == bad ? 4 : 0));
      for (int bitmap : {0, 1}) window_.mark(bitmap, at);
      i++;
    }
  }
  void trace(uint32_t bitmap) {
    machine_->begin(bitmap);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
  }
};

TEST_F(RtlFaultsAtOnce, OfReferences) { one_of_them_is_told(true, false); }
TEST_F(RtlFaultsAtOnce, OfObjects) { one_of_them_is_told(false, true); }
TEST_F(RtlFaultsAtOnce, OfBoth) { one_of_them_is_told(true, true); }

}  // namespace
}  // namespace merapi::sim::rtl::test
