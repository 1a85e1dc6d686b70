// SPDX-License-Identifier: Apache-2.0
//
// Heaps that a test puts together object by object, and a host that has all of them traced.
#ifndef MERAPI_SIM_RTL_TEST_DIRECTED_HEAP_H_
#define MERAPI_SIM_RTL_TEST_DIRECTED_HEAP_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "sim/rtl/test/rtl_machine.h"

namespace merapi::sim::rtl::test {

inline constexpr uint64_t kPatience = 20'000'000;
inline constexpr uint64_t kPowerUp = 20'000;  // on-chip memories are swept
inline constexpr uint32_t kNode = 0x1000, kArray = 0x2000;
inline constexpr uint64_t kNodeBytes = 24;

inline merapi::sim::test::WindowShape directed_shape() {
  merapi::sim::test::WindowShape s;
  s.region_log2 = 20;
  s.regions = 8;
  s.spill_bytes = 1 << 20;
  return s;
}

// Nodes of two references in the upper half of the heap, arrays in the lower one.
class DirectedHeap : public testing::Test {
 protected:
  explicit DirectedHeap(const merapi::sim::test::WindowShape& s = directed_shape()) : window_(s) {
    window_.put_instance(kNode, kNodeBytes / 8, {{12, 2}});
    window_.put_object_array(kArray, 16);
    for (uint32_t r = 0; r < window_.shape.regions; r++) {
      window_.limits()[r] = (uint64_t{r} + 1) << window_.shape.region_log2;
    }
    options_.timing = {25, 25, 100, 1};
  }
  uint64_t region(uint32_t r) const { return uint64_t{r} << window_.shape.region_log2; }
  merapi_shape* slot(uint64_t klass_word) {
    auto* table = reinterpret_cast<merapi_shape*>(window_.area(MERAPI_AREA_SHAPES));
    return std::find_if(table, table + window_.shape.shape_slots, [=](auto& x) { return x.klass_word == klass_word; });
  }
  void klass(uint64_t at, uint32_t word) { std::memcpy(window_.heap() + at + 8, &word, 4); }
  void refer(uint64_t field, uint64_t to) {
    uint32_t narrow =
        uint32_t((window_.shape.heap_base + to - window_.shape.narrow_base) >> window_.shape.narrow_shift);
    std::memcpy(window_.heap() + field, &narrow, 4);
  }
  uint64_t node(uint64_t i) const {
    return window_.shape.regions / 2 * (uint64_t{1} << window_.shape.region_log2) + i * kNodeBytes;
  }
  void make_node(uint64_t i) { klass(node(i), kNode); }
  void make_array(uint64_t at, uint32_t length) {
    klass(at, kArray);
    std::memcpy(window_.heap() + at + 12, &length, 4);
  }
  // An array at 64 of so many nodes that the host scans.
  void make_host_objects(uint32_t count) {
    constexpr uint32_t kHost = 0x3000;
    merapi_shape host{};
    host.klass_word = kHost;
    host.kind = MERAPI_SHAPE_KIND_HOST;
    host.size_words = kNodeBytes / 8;
    window_.put_shape(host);
    make_array(64, count);
    for (uint32_t i = 0; i < count; i++) {
      klass(node(i), kHost);
      refer(64 + 16 + 4 * uint64_t{i}, node(i));
    }
  }
  RtlMachine& start() {
    machine_ = std::make_unique<RtlMachine>(&window_, options_);
    EXPECT_TRUE(machine_->attach());
    machine_->run(kPowerUp);
    machine_->begin(0);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    return *machine_;
  }
  bool finish() {
    return machine_->run_until(
        [&] {
          machine_->complete();
          return machine_->idle();
        },
        kPatience);
  }

  Window window_;
  RtlMachineOptions options_;
  std::unique_ptr<RtlMachine> machine_;
};

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_DIRECTED_HEAP_H_
