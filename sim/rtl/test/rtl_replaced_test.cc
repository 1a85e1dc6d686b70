// SPDX-License-Identifier: Apache-2.0
//
// A cycle that is replaced while it runs leaves nothing behind, least of all a fault: what the core was not given any
// more is nobody's. MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>

#include "sim/rtl/test/directed_heap.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

class RtlReplaced : public DirectedHeap {
 protected:
  // Mirrors whose size is in the line after their klass word's: taken for zero, it is the fault BAD_OBJECT.
  RtlReplaced() {
    constexpr uint32_t kMirror = 0x9000, kMirrors = 300, kWords = 8;
    constexpr uint64_t kApart = 128, kInLine = 40;
    merapi_shape s{};
    s.klass_word = kMirror;
    s.kind = MERAPI_SHAPE_KIND_MIRROR;
    window_.put_shape(s);
    make_array(64, kMirrors);
    for (uint32_t i = 0; i < kMirrors; i++) {
      const uint64_t at = region(2) + i * kApart + kInLine;
      klass(at, kMirror);
      std::memcpy(window_.heap() + at + window_.shape.mirror_size_offset, &kWords, 4);
      refer(64 + 16 + 4 * uint64_t{i}, at);
    }
  }
  // Nothing but the array is marked.
  void clear(uint32_t bitmap) {
    std::memset(window_.bitmap(int(bitmap)), 0, window_.heap_bytes() / 64);
    window_.mark(int(bitmap), 64);
  }
  void replace(uint32_t bitmap) {
    machine_->begin(bitmap);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    ASSERT_TRUE(machine_->run_until(
        [&] { return machine_->executed() == machine_->produced || machine_->fault().code != 0; }, kPatience));
    ASSERT_EQ(machine_->fault().code, 0u)
        << merapi_fault_name(machine_->fault().code) << " of " << std::hex << machine_->fault().address << std::dec
        << " in cycle " << machine_->cycle << ", memory accepts " << options_.timing.accept_percent << " %";
  }
};

TEST_F(RtlReplaced, LeavesNoFault) {
  for (uint32_t accept : {30u, 100u}) {
    merapi::sim::test::Random random(1);
    options_.timing = {5, 60, accept, 1};
    for (uint32_t bitmap : {0u, 1u}) clear(bitmap);
    start();
    for (uint32_t i = 1; i <= 30; i++) {
      machine_->run(random.between(100, 900));
      machine_->complete();
      replace(i % 2);
      if (HasFatalFailure()) return;
      clear(1 - i % 2);  // of the cycle before: it is the host's
    }
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
