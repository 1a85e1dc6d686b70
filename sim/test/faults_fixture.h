// SPDX-License-Identifier: Apache-2.0
//
// What stops a context, and what a stopped one still answers: a window with a shape of each kind. GUARD is not here:
// the model has no address that it writes to and did not check at BEGIN_CYCLE, so nothing can reach it.
#ifndef MERAPI_SIM_TEST_FAULTS_FIXTURE_H_
#define MERAPI_SIM_TEST_FAULTS_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "sim/test/machine.h"

namespace merapi::sim::test {

class Faults : public testing::Test {
 protected:
  static constexpr uint32_t kKlass = 0x1000, kArray = 0x2000, kMirror = 0x3000, kBytes = 0x4000;

  Faults() { build({}); }

  void build(const WindowShape& shape, bool strict = false) {
    machine_.reset();
    window_ = std::make_unique<Window>(shape);
    TracerOptions o;
    o.strict = strict;
    if (strict) o.step_ns = 0;  // one turn a step, so that a test can interfere between two
    machine_ = std::make_unique<Machine>(window_.get(), o);
    merapi_shape s{};
    s.klass_word = kKlass;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = 4;
    window_->put_shape(s, {{12, 2}});
    s = {};
    s.klass_word = kArray;
    s.kind = MERAPI_SHAPE_KIND_OBJ_ARRAY;
    s.header_bytes = 16;
    s.element_log2 = 2;
    window_->put_shape(s);
    s = {};
    s.klass_word = kMirror;
    s.kind = MERAPI_SHAPE_KIND_MIRROR;
    window_->put_shape(s);
    s = {};
    s.klass_word = kBytes;
    s.kind = MERAPI_SHAPE_KIND_PRIM_ARRAY;
    s.header_bytes = 16;
    window_->put_shape(s);
    window_->fill_regions();
  }

  void klass(uint64_t offset, uint32_t word) { std::memcpy(window_->heap() + offset + 8, &word, 4); }
  void u32(uint64_t offset, uint32_t value) { std::memcpy(window_->heap() + offset, &value, 4); }
  void reference(uint64_t field, uint64_t offset) { u32(field, uint32_t((window_->shape.heap_base + offset) >> 3)); }
  uint64_t address(uint64_t offset) const { return window_->shape.heap_base + offset; }

  void steps(int n = 200) {
    for (int i = 0; i < n; i++) machine_->step();
  }
  merapi_fault_record record() { return *window_->control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET); }

  // A cycle with a grey at 0 that refers to an object at 4096; nothing is commanded yet.
  void begin_with_two_objects() {
    klass(0, kKlass);
    reference(12, 4096);
    klass(4096, kKlass);
    ASSERT_TRUE(machine_->attach());
    window_->mark(0, 0);
    machine_->begin(0);
  }

  // A trace of the object at 0, paused when that is marked.
  void pause_in_the_first_object() {
    ASSERT_TRUE(machine_->attach());
    machine_->begin(0);
    machine_->grey({address(0)});
    while (!window_->marked(0, 0)) machine_->step();
    machine_->request_pause();
    while (!machine_->pause_acknowledged()) machine_->step();
  }

  // Mark the object at `offset` and trace everything.
  void trace_from(uint64_t offset) {
    ASSERT_TRUE(machine_->attach());
    window_->mark(0, offset);
    machine_->begin(0);
    machine_->trace(0, window_->shape.regions);
    steps();
  }

  void expect_fault(uint32_t code, uint64_t address, uint64_t detail) {
    merapi_fault_record f = record();
    EXPECT_EQ(f.code, code);
    EXPECT_EQ(f.address, address);
    EXPECT_EQ(f.detail, detail);
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
    EXPECT_FALSE(machine_->idle());
    bool told = false;
    for (const merapi_completion& c : machine_->complete()) {
      if (c.type == MERAPI_COMP_FAULT) {
        told = true;
        EXPECT_EQ(c.arg, code);
        EXPECT_EQ(c.payload[0], address);
        EXPECT_EQ(c.payload[1], detail);
      }
    }
    EXPECT_TRUE(told);
    // A stopped context still acknowledges, and an abort makes it usable again.
    machine_->request_pause();
    steps(3);
    EXPECT_TRUE(machine_->pause_acknowledged());
    machine_->abort();
    steps(3);
    EXPECT_TRUE(machine_->abort_acknowledged());
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
  }

  std::unique_ptr<Window> window_;
  std::unique_ptr<Machine> machine_;
};

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_FAULTS_FIXTURE_H_
