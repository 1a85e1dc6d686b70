// SPDX-License-Identifier: Apache-2.0
//
// Faults between generations: handshakes, refusals, one device after another, and what follows a fault.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "sim/test/faults_fixture.h"

namespace merapi::sim::test {
namespace {

TEST_F(Faults, BadMagic) {
  window_->control<merapi_identity>(0)->magic = 77;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_MAGIC));
  EXPECT_EQ(record().address, 77u);
}

TEST_F(Faults, BadVersion) {
  window_->control<merapi_identity>(0)->version_major = MERAPI_VERSION_MAJOR + 1;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_VERSION));
  window_->control<merapi_identity>(0)->version_major = MERAPI_VERSION_MAJOR;
  window_->control<merapi_identity>(0)->version_minor = MERAPI_VERSION_MINOR + 1;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_VERSION));
  window_->control<merapi_identity>(0)->version_minor = MERAPI_VERSION_MINOR;
  EXPECT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
}

TEST_F(Faults, RingAreasAreCheckedAtTheHandshake) {
  merapi_area_desc good = window_->directory()->area[MERAPI_AREA_COMPLETION];
  for (merapi_area_desc bad :
       {merapi_area_desc{0, 4096}, merapi_area_desc{64, 4096}, merapi_area_desc{good.offset, 12288},
        merapi_area_desc{window_->bytes, 4096}, merapi_area_desc{good.offset, ~UINT64_C(4095)},
        window_->directory()->area[MERAPI_AREA_SUBMISSION]}) {
    window_->directory()->area[MERAPI_AREA_COMPLETION] = bad;
    EXPECT_TRUE(machine_->attach());
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_CONFIG));
    machine_->abort();
    steps(3);
    EXPECT_TRUE(machine_->abort_acknowledged());
  }
}

// In a larger window than there is memory for: none of it but the control page is read.
TEST_F(Faults, TablesAreBounded) {
  const WindowMemory memory{window_->base, uint64_t{1} << 42};
  const uint64_t most = uint64_t{MERAPI_TABLE_ENTRIES_MAX} * MERAPI_LINE_BYTES, free = uint64_t{1} << 41;
  auto latch = [&] {
    Rings rings;
    Geometry geometry;
    const Fault fault = latch_rings(memory, &rings);
    return fault ? fault : latch_geometry(memory, rings, MERAPI_COHERENCE_COHERENT, &geometry);
  };
  for (int i : {MERAPI_AREA_SUBMISSION, MERAPI_AREA_COMPLETION, MERAPI_AREA_SHAPES}) {
    merapi_area_desc& area = window_->directory()->area[i];
    const merapi_area_desc was = area;
    area = {free, most};
    EXPECT_FALSE(latch()) << i;
    area.size *= 2;
    const Fault fault = latch();
    EXPECT_EQ(fault.code, uint32_t(MERAPI_FAULT_BAD_CONFIG)) << i;
    EXPECT_EQ(fault.address, MERAPI_DIRECTORY_OFFSET + 16 * uint64_t(i) + 8);
    EXPECT_EQ(fault.detail, 2 * most);
    area = was;
  }
}

// A device ends and another one begins on the same window while the host stays attached, at any time of a cycle and
// whatever the host has read of its completions. What was said to the first one is not executed again: by then regions
// may be free, and the bitmap the host's.
TEST_F(Faults, WhatAnotherDeviceWasToldIsNotExecuted) {
  for (int turns : {0, 1, 3, 200}) {
    for (bool read : {false, true}) {
      SCOPED_TRACE(testing::Message() << turns << " turns, completions read: " << read);
      build({}, true);
      klass(64, kKlass);
      reference(64 + 12, 128);
      for (uint64_t mirror : {128, 256}) {
        klass(mirror, kMirror);
        u32(mirror + window_->shape.mirror_size_offset, 8);
      }
      ASSERT_TRUE(machine_->attach());
      window_->mark(0, 64);
      machine_->begin(0);
      machine_->trace(0, window_->shape.regions);
      machine_->grey({address(256)});
      steps(turns);
      if (read) machine_->complete();
      EXPECT_EQ(machine_->idle(), turns == 200 && read);
      const uint64_t submitted = machine_->produced;
      const uint64_t generation = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation;
      machine_ = std::make_unique<Machine>(window_.get(), TracerOptions{});
      // A full collection has moved everything; of the old cycle nothing is left.
      window_->clear_area(MERAPI_AREA_BITMAP0);
      window_->clear_area(MERAPI_AREA_LIVE);
      window_->mark(0, 64);
      const std::unique_ptr<Mapping> before = window_->copy();
      const auto expect_refused = [&] {
        steps();
        EXPECT_EQ(window_->control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET)->generation, generation);
        EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
        EXPECT_EQ(record().address, submitted);
        EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
        EXPECT_FALSE(machine_->idle());
        EXPECT_EQ(machine_->completed(), 0u);
        EXPECT_EQ(std::memcmp(before->base + MERAPI_CONTROL_BYTES, window_->base + MERAPI_CONTROL_BYTES,
                              window_->bytes - MERAPI_CONTROL_BYTES),
                  0);
      };
      expect_refused();
      EXPECT_EQ(machine_->executed(), 0u);
      // No request of the host that is still there changes that.
      machine_->request_pause();
      expect_refused();
      EXPECT_TRUE(machine_->pause_acknowledged());
      machine_->resume();
      machine_->abort();
      expect_refused();
      EXPECT_TRUE(machine_->abort_acknowledged());
      // It begins a new generation.
      ASSERT_TRUE(machine_->attach());
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
      machine_->begin(0);
      machine_->trace(0, window_->shape.regions);
      steps();
      machine_->complete();
      EXPECT_TRUE(machine_->idle());
      EXPECT_TRUE(window_->marked(0, 128));
      EXPECT_FALSE(window_->marked(0, 256));
    }
  }
}

// One bit of either index says it. A device that nothing was said to is replaced by any other.
TEST_F(Faults, AHostAsksWithEmptyRings) {
  const auto ask = [&](uint64_t submitted, uint64_t taken) {
    auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
    host->generation = 2;
    host->submission_produced = submitted;
    host->completion_consumed = taken;
    steps(3);
    EXPECT_TRUE(machine_->generation_answered());
  };
  for (unsigned bit = 0; bit < 64; bit++) {
    for (bool taken : {false, true}) {
      SCOPED_TRACE(testing::Message() << "bit " << bit << " of completions " << taken);
      build({});
      const uint64_t index = UINT64_C(1) << bit;
      ask(taken ? 0 : index, taken ? index : 0);
      EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
      EXPECT_EQ(record().address, taken ? 0 : index);
      EXPECT_EQ(record().detail, 0u);
    }
  }
  // What is wrong with the window comes first.
  build({});
  window_->control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->magic = 5;
  ask(1, 0);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_MAGIC));

  build({});
  for (int device = 0; device < 2; device++) {
    ask(0, 0);
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    if (device == 0) machine_ = std::make_unique<Machine>(window_.get(), TracerOptions{});
  }
  machine_->begin(0);
  steps(10);
  EXPECT_TRUE(machine_->idle());
}

// A refused window is answered with the counters of no cycle, as an accepted one is.
TEST_F(Faults, ARefusalLeavesNoCountersBehind) {
  auto* identity = window_->control<merapi_identity>(MERAPI_IDENTITY_OFFSET);
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  merapi_area_desc* ring = &window_->directory()->area[MERAPI_AREA_COMPLETION];
  klass(0, kMirror);
  u32(window_->shape.mirror_size_offset, 8);
  for (uint32_t code : {MERAPI_FAULT_NONE, MERAPI_FAULT_BAD_MAGIC, MERAPI_FAULT_BAD_VERSION, MERAPI_FAULT_BAD_CONFIG,
                        MERAPI_FAULT_RING_OVERRUN}) {
    SCOPED_TRACE(code);
    trace_from(0);
    ASSERT_NE(machine_->counter(MERAPI_COUNTER_DEFERRED), 0u);
    ASSERT_NE(machine_->counter(MERAPI_COUNTER_SHAPES_SEEN), 0u);
    const merapi_identity was = *identity;
    const merapi_area_desc ring_was = *ring;
    if (code == MERAPI_FAULT_BAD_MAGIC) identity->magic = 1;
    if (code == MERAPI_FAULT_BAD_VERSION) identity->version_major = 99;
    if (code == MERAPI_FAULT_BAD_CONFIG) ring->size = 12288;
    const uint64_t odd = machine_->end_generation();
    steps(1);
    machine_->begin_generation(odd);
    if (code == MERAPI_FAULT_RING_OVERRUN) host->submission_produced = 1;
    steps(1);
    ASSERT_TRUE(machine_->generation_answered());
    EXPECT_EQ(record().code, code);
    for (int i = 0; i < int(MERAPI_COUNTER_COUNT); i++) EXPECT_EQ(machine_->counter(i), 0u) << "counter " << i;
    machine_->request_pause();
    steps(1);
    for (int i : {MERAPI_COUNTER_DEFERRED, MERAPI_COUNTER_SHAPES_SEEN}) EXPECT_EQ(machine_->counter(i), 0u) << i;
    *identity = was;
    *ring = ring_was;
  }
}

// A host that detaches makes its generation odd and then zeroes its indexes, perhaps between the device's look at the
// one and at the others.
TEST_F(Faults, IndexesOfARevokedGenerationAreNoOverrun) {
  auto* host = window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  auto* index = window_->control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
  merapi_submission fence{};
  fence.opcode = MERAPI_OP_FENCE;
  bool revoked = false;
  const auto revoke = [&] {
    if (revoked) return;
    revoked = true;
    host->generation |= 1;
    host->submission_produced = 0;
    host->completion_consumed = 0;
  };
  // The first look of a step comes before the generation's, the second with the fault.
  const auto revoke_at_a_fault = [&] {
    return [&, looks = 0]() mutable {
      if (looks++ == 1) revoke();
    };
  };
  const auto expect_detached = [&](const char* when) {
    const merapi_device_index before = *index;
    steps(3);
    EXPECT_TRUE(revoked) << when;
    EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE)) << when;
    EXPECT_EQ(machine_->model.status().faults, 0u) << when;
    EXPECT_EQ(machine_->model.status().state, uint32_t(MERAPI_DEVICE_STATE_DETACHED)) << when;
    EXPECT_EQ(std::memcmp(&before, index, sizeof before), 0) << when;
    machine_->on_notify = nullptr;
    revoked = false;
    EXPECT_TRUE(machine_->attach()) << when;
    machine_->submit(fence);
    steps(3);
    EXPECT_EQ(machine_->complete().size(), 1u) << when;
  };

  // The submission ring's, behind a resume and behind an abort.
  for (const bool abort : {false, true}) {
    ASSERT_TRUE(machine_->attach());
    machine_->submit({});
    steps(3);
    machine_->request_pause();
    steps(3);
    if (abort) {
      machine_->abort();
    } else {
      machine_->resume();
    }
    machine_->on_notify = revoke;
    machine_->step();
    expect_detached(abort ? "abort" : "resume");
  }

  // An abort that reads them itself.
  ASSERT_TRUE(machine_->attach());
  machine_->submit({});
  steps(3);
  machine_->request_pause();
  steps(3);
  const uint32_t acknowledged = window_->control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET)->abort;
  machine_->on_memory_look = revoke_at_a_fault();
  host->submission_produced = 0;
  machine_->abort();
  machine_->step();
  machine_->on_memory_look = nullptr;
  EXPECT_EQ(window_->control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET)->abort, acknowledged);
  expect_detached("abort of a window that was revoked");

  // The completion ring's, as an answer is written.
  ASSERT_TRUE(machine_->attach());
  machine_->submit(fence);
  machine_->on_memory_look = revoke_at_a_fault();
  host->completion_consumed = 3;
  machine_->step();
  machine_->on_memory_look = nullptr;
  expect_detached("an answer");
}

TEST_F(Faults, HandshakeAfterAFaultStartsAnew) {
  trace_from(128);
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_BAD_OBJECT));
  klass(128, kKlass);
  ASSERT_TRUE(machine_->attach());
  EXPECT_EQ(record().code, uint32_t(MERAPI_FAULT_NONE));
  machine_->begin(0);
  machine_->trace(0, 16);
  steps();
  machine_->complete();
  steps();
  EXPECT_TRUE(machine_->idle());
}

// What was counted stays over an abort, and is gone after a handshake, whoever asks for it then.
TEST_F(Faults, CountersEndWithACycleOrAGeneration) {
  for (uint64_t i = 0; i < 100; i++) {
    klass(i * 32, kKlass);
    reference(i * 32 + 12, (i + 1) * 32);
  }
  klass(3200, kKlass);
  reference(3212, 15 * window_->region_bytes());
  window_->limits()[15] = 15 * window_->region_bytes();
  trace_from(0);
  machine_->grey({address(64)});
  steps();
  machine_->complete();
  steps();
  EXPECT_TRUE(machine_->idle());
  const auto counters = [&] {
    machine_->request_pause();
    steps(3);
    EXPECT_TRUE(machine_->pause_acknowledged());
    std::vector<uint64_t> values;
    for (int i = 0; i <= MERAPI_COUNTER_ROUNDS; i++) {
      // These go on with time.
      const bool goes_on = i == MERAPI_COUNTER_PAUSES || i == MERAPI_COUNTER_PAUSE_MAX ||
                           i == MERAPI_COUNTER_CPU_NANOSECONDS || i == MERAPI_COUNTER_NANOSECONDS;
      values.push_back(goes_on ? 0 : machine_->counter(i));
    }
    machine_->resume();
    steps(3);
    return values;
  };
  const std::vector<uint64_t> traced = counters();
  for (int i : {MERAPI_COUNTER_OBJECTS_MARKED, MERAPI_COUNTER_OBJECTS_SCANNED, MERAPI_COUNTER_REFERENCES_READ,
                MERAPI_COUNTER_REFS_NULL, MERAPI_COUNTER_REFS_ABOVE_LIMIT, MERAPI_COUNTER_LIVE_WORDS,
                MERAPI_COUNTER_SHAPE_MISSES, MERAPI_COUNTER_GREYS_SUBMITTED, MERAPI_COUNTER_ROUNDS}) {
    EXPECT_NE(traced[i], 0u) << "counter " << i << ": not what is tested";
  }
  const uint64_t total = machine_->model.status().objects_marked;
  machine_->abort();
  steps(3);
  EXPECT_TRUE(machine_->abort_acknowledged());
  EXPECT_EQ(counters(), traced);
  EXPECT_EQ(machine_->model.status().objects_marked, total);
  ASSERT_TRUE(machine_->attach());
  EXPECT_EQ(counters(), std::vector<uint64_t>(traced.size()));
  machine_->abort();
  steps(3);
  EXPECT_EQ(counters(), std::vector<uint64_t>(traced.size()));
  EXPECT_EQ(machine_->model.status().objects_marked, total);
}

TEST_F(Faults, RevokedDeviceStopsTouchingTheWindow) {
  for (uint64_t i = 0; i < 1000; i++) {
    klass(i * 32, kKlass);
    reference(i * 32 + 12, (i + 1) * 32);
  }
  klass(32000, kKlass);
  TracerOptions slow;
  slow.slice = 4;
  slow.step_ns = 0;
  machine_ = std::make_unique<Machine>(window_.get(), slow);
  ASSERT_TRUE(machine_->attach());
  window_->mark(0, 0);
  machine_->begin(0);
  machine_->trace(0, 16);
  steps(50);
  EXPECT_FALSE(window_->marked(0, 32000));
  window_->control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->generation |= 1;
  std::vector<uint8_t> before(window_->base, window_->base + window_->bytes);
  steps();
  EXPECT_EQ(std::memcmp(before.data(), window_->base, window_->bytes), 0);
}

}  // namespace
}  // namespace merapi::sim::test
