// SPDX-License-Identifier: Apache-2.0
//
// A memory that fails once where a fault is told: the write of the fault record itself. Whatever the host asks for
// meanwhile, it finds the record in the end.
#include <gtest/gtest.h>

#include <memory>

#include "sim/rtl/axi_memory.h"
#include "sim/rtl/test/directed_heap.h"
#include "sim/rtl/test/rtl_device.h"

namespace merapi::sim::rtl::test {
namespace {

constexpr uint64_t kSome = 5000;

class RtlRecordError : public DirectedHeap {
 protected:
  RtlRecordError() : DirectedHeap(shape()) {
    options_.preset = chosen_preset();
    options_.timing = {20, 20, 100, 1};
    options_.simulation.response_of = [this](uint64_t address, bool write) {
      const bool fails = armed_ && write && address == MERAPI_FAULT_RECORD_OFFSET;
      if (fails) armed_ = false;
      failed_ += fails;
      return fails ? AxiMemory::kSlaveError : AxiMemory::kOkay;
    };
  }
  static merapi::sim::test::WindowShape shape() {
    merapi::sim::test::WindowShape s = directed_shape();
    s.submission_entries = 2 * s.completion_entries;
    return s;
  }
  // A command that is none, and so many cycles later what the host asks for.
  template <typename Asks>
  void beside(Asks asks) {
    for (bool full : {false, true}) {
      uint32_t tried = 0, told = 0;
      for (uint32_t cycles = 0; cycles < 400; cycles += 29) {
        SCOPED_TRACE(std::to_string(cycles) + " cycles later" + (full ? ", the ring full" : ""));
        armed_ = false;
        start();
        ASSERT_TRUE(machine_->idle_or_fault(kPatience));
        // The fault's own entry has no room then.
        while (full && machine_->completed() < window_.shape.completion_entries) {
          machine_->command(MERAPI_OP_FENCE, 0, 0, 0);
          machine_->run(400);
        }
        machine_->run(kSome);
        ASSERT_EQ(machine_->fault().code, 0u);
        failed_ = 0;
        armed_ = true;
        machine_->command(200, 0, 0, 0);
        machine_->run(cycles);
        asks();
        machine_->run(kSome);
        // What the host asks for may come before the command, which is executed later then or never.
        EXPECT_EQ(machine_->fault().code, failed_ == 1 ? uint32_t(MERAPI_FAULT_BAD_COMMAND) : 0u);
        EXPECT_TRUE(machine_->pause_acknowledged());
        tried++;
        told += failed_;
      }
      EXPECT_GT(2 * told, tried) << "not what is tested";
    }
  }
  void refuse() {
    machine_ = std::make_unique<RtlMachine>(&window_, options_);
    machine_->run(kSome);
    window_.control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->magic = 5;
    const uint64_t next = machine_->end_generation();
    machine_->run(2000);
    armed_ = true;
    machine_->begin_generation(next);
    ASSERT_TRUE(machine_->run_until([&] { return machine_->generation_answered(); }, kSome));
  }
  bool armed_ = false;
  uint32_t failed_ = 0;
};

TEST_F(RtlRecordError, BesideAPause) {
  beside([&] { machine_->request_pause(); });
}
TEST_F(RtlRecordError, BesideAPauseThatIsTakenBack) {
  beside([&] {
    machine_->request_pause();
    machine_->resume();
  });
}
TEST_F(RtlRecordError, BesideAnAbort) {
  beside([&] { machine_->abort(); });
}

// Who reads that its generation was answered finds why it was refused.
TEST_F(RtlRecordError, OfARefusal) {
  refuse();
  EXPECT_EQ(failed_, 1u);
  EXPECT_NE(machine_->fault().code, 0u);
  EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
}
TEST_F(RtlRecordError, OfARefusalBesideAPause) {
  refuse();
  machine_->request_pause();
  ASSERT_TRUE(machine_->run_until([&] { return machine_->pause_acknowledged(); }, kSome));
  EXPECT_NE(machine_->fault().code, 0u);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
