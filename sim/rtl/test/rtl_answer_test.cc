// SPDX-License-Identifier: Apache-2.0
//
// What a host is told, and when: answers to commands, a fault's own entry, counts; and commands that come late or find
// a configuration that could not be read. MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "sim/rtl/test/directed_heap.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::WindowShape;

class RtlAnswers : public testing::Test {
 protected:
  static WindowShape shape() {
    WindowShape s;
    s.submission_entries = 256;
    s.completion_entries = 64;
    return s;
  }
  RtlMachine& start(const RtlMachineOptions& o = {}) {
    machine_.reset();
    machine_ = std::make_unique<RtlMachine>(&window_, o);
    EXPECT_TRUE(machine_->attach());
    machine_->run(kPowerUp);
    return *machine_;
  }
  template <typename F>
  ::testing::AssertionResult until(F what) {
    return machine_->run_until(what, kPatience) ? testing::AssertionSuccess() : testing::AssertionFailure();
  }
  // The ring full of answers to fences.
  void fill_ring() {
    for (uint64_t i = 0; i < window_.shape.completion_entries; i++) machine_->command(MERAPI_OP_FENCE, 0, i, 0);
    ASSERT_TRUE(until([&] { return machine_->completed() - machine_->consumed == window_.shape.completion_entries; }));
  }
  void unknown_command() {
    merapi_submission e{};
    e.opcode = 99;
    e.cycle = machine_->cycle;
    machine_->submit(e);
  }
  bool sleeps() {
    return machine_->run_until([&] { return machine_->simulation->sleeping(); }, 20'000);
  }
  // As a device process runs it: until it sleeps after a look at the host that began now or later.
  bool answers_doorbell() {
    machine_->ring_doorbell();
    const uint64_t looks = machine_->simulation->looks();
    return machine_->run_until(
        [&] { return machine_->simulation->sleeping() && machine_->simulation->looks() > looks; }, 20'000);
  }
  void abort() {
    machine_->abort();
    ASSERT_TRUE(until([&] { return machine_->abort_acknowledged(); }));
    machine_->run(2000);
  }
  // Outside a cycle: commands of this one are taken and ignored.
  void expect_late(uint32_t cycle) {
    machine_->cycle = cycle;
    machine_->trace(0, 1);
    machine_->grey({window_.shape.heap_base + 64});
    machine_->run(5000);
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    EXPECT_EQ(machine_->executed(), machine_->produced);
    EXPECT_FALSE(window_.marked(0, 64));
  }
  // Runs `scenario`, which starts nothing itself, on a tracer that has begun a cycle: once to find the first write of
  // that line of the control page while `watching_`, and once more, `failing_`, with an error for this write.
  template <typename F>
  void with_failing_write(uint64_t line, uint32_t latency, F scenario) {
    uint64_t found = 0;
    for (bool failing : {false, true}) {
      uint64_t writes = 0;
      RtlMachineOptions o;
      o.timing = {latency, latency, 100, 1};
      o.simulation.write_error_at = failing ? found : 0;
      o.simulation.on_access = [&](uint64_t address, bool write) {
        writes += write;
        if (write && watching_ && address == line && found == 0) found = writes;
      };
      failing_ = failing;
      watching_ = false;
      start(o);
      machine_->begin(0);
      scenario();
      if (HasFatalFailure()) return;
      machine_->end_generation();
      machine_->run(2000);
      ASSERT_NE(found, 0u) << "never written";
    }
  }

  bool watching_ = false, failing_ = false;
  Window window_{shape()};
  std::unique_ptr<RtlMachine> machine_;
};

// A cycle begins with dropping all that is under way, but not the answers to commands before it.
TEST_F(RtlAnswers, WaitForRoomBeforeACycleBegins) {
  for (uint8_t opcode : {uint8_t(MERAPI_OP_FENCE), uint8_t(MERAPI_OP_CLEAR_BITMAP)}) {
    RtlMachine& m = start();
    fill_ring();
    m.command(opcode, 1, 0, window_.shape.regions);
    m.begin(1);
    m.run(20'000);
    EXPECT_EQ(m.complete().size(), window_.shape.completion_entries);
    std::vector<merapi_completion> more;
    ASSERT_TRUE(until([&] {
      for (const merapi_completion& c : m.complete()) more.push_back(c);
      return m.idle();
    }));
    ASSERT_EQ(more.size(), 1u);
    EXPECT_EQ(more[0].type, MERAPI_COMP_DONE);
    EXPECT_EQ(more[0].arg, opcode);
    m.end_generation();
    m.run(2000);
  }
}

TEST_F(RtlAnswers, CarryTheCycleOfTheirCommand) {
  RtlMachine& m = start();
  m.cycle = 7;
  m.command(MERAPI_OP_CLEAR_BITMAP, 1, 0, window_.shape.regions);
  m.command(MERAPI_OP_FENCE, 0, 1, 0);
  ASSERT_TRUE(until([&] { return m.completed() == 2; }));
  for (const merapi_completion& c : m.complete()) EXPECT_EQ(c.cycle, 7u) << int(c.arg);
  m.begin(0);
  m.trace(0, 1);
  ASSERT_TRUE(until([&] { return m.completed() == 3; }));
  for (const merapi_completion& c : m.complete()) EXPECT_EQ(c.cycle, m.cycle);
  unknown_command();
  ASSERT_TRUE(until([&] { return m.completed() == 4; }));
  for (const merapi_completion& c : m.complete()) {
    EXPECT_EQ(c.type, MERAPI_COMP_FAULT);
    EXPECT_EQ(c.cycle, m.cycle);
  }
}

// A fault's own entry is published, at once or when there is room; then, and not before, there is nothing to do.
TEST_F(RtlAnswers, AFaultIsPublished) {
  for (uint32_t latency : {1u, 25u, 200u}) {
    for (bool room : {true, false}) {
      RtlMachineOptions o;
      o.timing = {latency, latency, 100, 1};
      RtlMachine& m = start(o);
      m.begin(0);
      if (!room) fill_ring();
      unknown_command();
      ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_COMMAND));
      EXPECT_TRUE(sleeps()) << "room for it: " << room;
      if (room) {
        EXPECT_EQ(m.completed(), 1u) << "a latency of " << latency;
      }
      m.complete();
      EXPECT_TRUE(answers_doorbell());
      if (!room) {
        ASSERT_EQ(m.completed(), window_.shape.completion_entries + 1) << "a latency of " << latency;
        const std::vector<merapi_completion> last = m.complete();
        ASSERT_EQ(last.size(), 1u);
        EXPECT_EQ(last[0].type, MERAPI_COMP_FAULT);
      }
      m.end_generation();
      m.run(2000);
    }
  }
}

// A look at the host goes wrong while a fault's own entry is written, and that write does, too, or not: the entry is
// published if and only if it is in memory.
TEST_F(RtlAnswers, ErrorsWhileAFaultIsPublished) {
  const uint64_t ring = window_.layout.area[MERAPI_AREA_COMPLETION].offset, full = window_.shape.completion_entries;
  uint32_t published = 0, lost = 0;
  for (uint32_t latency : {1u, 2u, 3u, 5u, 8u, 13u}) {
    // Of the accesses: the first read after there is room, and the entry's write.
    uint64_t reads = 0, writes = 0, look = 0, own = 0;
    auto run = [&](uint64_t failing_read, uint64_t failing_write) {
      RtlMachineOptions o;
      o.timing = {latency, latency, 100, 1};
      o.simulation.read_error_at = failing_read;
      o.simulation.write_error_at = failing_write;
      reads = writes = look = own = 0;
      o.simulation.on_access = [&](uint64_t address, bool write) {
        (write ? writes : reads)++;
        if (write && address == ring && look != 0) own = writes;
      };
      start(o);
      machine_->begin(0);
      fill_ring();
      unknown_command();
      ASSERT_EQ(machine_->fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_COMMAND));
      machine_->complete();
      look = reads + 1;
      machine_->ring_doorbell();
      machine_->run(3000);
      ASSERT_NE(own, 0u) << "no entry, a latency of " << latency << ", read " << failing_read - look << ", write "
                         << failing_write << ", fault " << machine_->fault().code << " of " << std::hex
                         << machine_->fault().address;
      if (machine_->completed() == full) {
        lost++;
        EXPECT_EQ(own, failing_write) << "lost, a latency of " << latency << ", read " << failing_read - look;
      } else {
        published++;
        const auto* entry = reinterpret_cast<const merapi_completion*>(window_.base + ring);
        ASSERT_EQ(machine_->completed(), full + 1);
        EXPECT_EQ(entry->type, MERAPI_COMP_FAULT) << "a latency of " << latency << ", read " << failing_read - look;
        EXPECT_EQ(entry->sequence, full + 1);
      }
      machine_->end_generation();
      machine_->run(2000);
    };
    run(0, 0);
    if (HasFatalFailure()) return;
    const uint64_t first = look, entry = own;
    for (uint64_t write : {uint64_t{0}, entry}) {
      for (uint64_t read = first; read < first + 6; read++) {
        run(read, write);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(published, 30u);
  EXPECT_GT(lost, 20u);
}

// The write of a fault's record goes wrong, or the one that publishes its own entry: it is made again.
TEST_F(RtlAnswers, AFaultIsToldAtTheSecondTry) {
  for (uint32_t latency : {1u, 13u}) {
    for (uint64_t line : {MERAPI_FAULT_RECORD_OFFSET, MERAPI_DEVICE_INDEX_OFFSET}) {
      SCOPED_TRACE(testing::Message() << "a latency of " << latency << ", line " << std::hex << line);
      with_failing_write(line, latency, [&] {
        fill_ring();
        watching_ = line == MERAPI_FAULT_RECORD_OFFSET;
        unknown_command();
        ASSERT_TRUE(until([&] { return machine_->state() == MERAPI_DEVICE_STATE_FAULTED; }));
        ASSERT_TRUE(sleeps());
        EXPECT_EQ(machine_->fault().code, uint32_t(MERAPI_FAULT_BAD_COMMAND));
        machine_->complete();
        watching_ = true;  // there is room for the entry
        EXPECT_TRUE(answers_doorbell());
        EXPECT_EQ(machine_->completed(), window_.shape.completion_entries + 1);
      });
      if (HasFatalFailure()) return;
    }
  }
}

// The write of an acknowledgement goes wrong: it comes with the fault.
TEST_F(RtlAnswers, AnAcknowledgementComesWithTheFaultOfItsWrite) {
  for (bool aborts : {false, true}) {
    with_failing_write(MERAPI_DEVICE_ACK_OFFSET, 13, [&] {
      RtlMachine& m = *machine_;
      ASSERT_TRUE(until([&] { return m.idle(); }));
      watching_ = true;
      aborts ? m.abort() : m.request_pause();
      EXPECT_TRUE(until([&] { return aborts ? m.abort_acknowledged() : m.pause_acknowledged(); }));
      m.run(2000);
      EXPECT_EQ(m.state() == MERAPI_DEVICE_STATE_FAULTED, failing_);
    });
    if (HasFatalFailure()) return;
  }
}

// The same of a tracer that has faulted before.
TEST_F(RtlAnswers, AnAcknowledgementAfterAFaultIsWrittenAtTheSecondTry) {
  for (bool resumes : {false, true}) {
    with_failing_write(MERAPI_DEVICE_ACK_OFFSET, 13, [&] {
      RtlMachine& m = *machine_;
      unknown_command();
      ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_COMMAND));
      ASSERT_TRUE(sleeps());
      watching_ = !resumes;
      m.request_pause();
      EXPECT_TRUE(until([&] { return m.pause_acknowledged(); }));
      EXPECT_TRUE(sleeps());
      watching_ = true;
      m.resume();
      EXPECT_TRUE(until([&] { return m.resume_acknowledged(); }));
      EXPECT_TRUE(sleeps());
      EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_BAD_COMMAND));
    });
    if (HasFatalFailure()) return;
  }
}

// ROUNDS counts submissions that were consumed, executed or not.
TEST_F(RtlAnswers, WhatAnAbortDropsIsCounted) {
  RtlMachine& m = start();
  m.begin(0);
  ASSERT_TRUE(until([&] { return m.idle(); }));
  m.request_pause();
  ASSERT_TRUE(until([&] { return m.pause_acknowledged(); }));
  for (int i = 0; i < 10; i++) m.command(MERAPI_OP_NOP, 0, 0, 0);
  abort();
  EXPECT_EQ(m.executed(), 11u);
  m.begin(0);
  ASSERT_TRUE(until([&] { return m.idle(); }));
  EXPECT_EQ(m.executed(), 12u);
  EXPECT_EQ(m.counter(MERAPI_COUNTER_ROUNDS), 12u);
}

// Commands of the cycle that was replaced last are late, also when the one that replaced it never began.
TEST_F(RtlAnswers, LateCommandsAfterACycleThatDidNotBegin) {
  RtlMachine& m = start();
  m.begin(0);
  const uint32_t replaced = m.cycle;
  ASSERT_TRUE(until([&] { return m.idle(); }));
  const uint8_t shift = window_.config()->narrow_oop_shift;
  window_.config()->narrow_oop_shift = 9;
  m.begin(0);
  ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_CONFIG));
  window_.config()->narrow_oop_shift = shift;
  abort();
  ASSERT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
  expect_late(replaced);
}

// Commands of the cycle that was aborted are late, also after a further abort, of a fault outside of any cycle.
TEST_F(RtlAnswers, LateCommandsOfAnAbortedCycle) {
  RtlMachine& m = start();
  m.begin(0);
  const uint32_t aborted = m.cycle;
  ASSERT_TRUE(until([&] { return m.idle(); }));
  abort();
  for (bool again : {false, true}) {
    if (again) {
      unknown_command();
      ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_COMMAND));
      abort();
    }
    ASSERT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    SCOPED_TRACE(testing::Message() << "aborts after a fault: " << again);
    expect_late(aborted);
    EXPECT_EQ(m.completed(), again) << "a fault's own entry alone";
  }
}

// A DONE says that the scan of the slice has passed its end: every line of its bitmap was read then.
TEST_F(RtlAnswers, AScanIsDoneWhenItHasPassedItsEnd) {
  const uint64_t lines = window_.region_bytes() >> (window_.shape.alignment_log2 + 9);  // of a region's bitmap
  const uint32_t regions = window_.shape.regions;
  ASSERT_GE(regions, 4u);
  for (uint32_t r = 0; r < regions; r++) window_.limits()[r] = (r + 1) * window_.region_bytes();
  for (uint32_t latency : {1u, 30u, 300u}) {
    std::set<uint64_t> read;
    RtlMachineOptions o;
    o.timing = {latency, latency, 100, 1};
    o.simulation.on_access = [&](uint64_t address, bool write) {
      if (!write) read.insert(address / MERAPI_LINE_BYTES);
    };
    RtlMachine& m = start(o);
    m.begin(0);
    for (auto [first, count] : {std::pair{0u, 1u}, {1u, regions - 3}, {regions - 2, 2u}}) {
      m.trace(first, count);
      ASSERT_TRUE(until([&] { return m.completed() != m.consumed; }));
      const uint64_t at = window_.layout.area[MERAPI_AREA_BITMAP0].offset / MERAPI_LINE_BYTES;
      uint64_t missing = 0;
      for (uint64_t line = first * lines; line < (first + count) * lines; line++) missing += read.count(at + line) == 0;
      EXPECT_EQ(missing, 0u) << "lines of regions from " << first << ", a latency of " << latency;
      m.complete();
    }
    m.end_generation();
    m.run(2000);
  }
}

// Counters are of the time of the answer when a FENCE or a CLEAR_BITMAP is answered, though nobody was idle since.
TEST_F(RtlAnswers, CountersComeWithFencesAndClears) {
  constexpr uint32_t kObjects = 40;
  window_.put_instance(kNode, kNodeBytes / 8);
  window_.fill_regions();
  std::vector<uint64_t> nodes;
  for (uint64_t i = 0; i < kObjects; i++) {
    std::memcpy(window_.heap() + 64 + 1024 * i + 8, &kNode, 4);
    nodes.push_back(window_.shape.heap_base + 64 + 1024 * i);
  }
  for (uint8_t opcode : {uint8_t(MERAPI_OP_FENCE), uint8_t(MERAPI_OP_CLEAR_BITMAP)}) {
    RtlMachineOptions o;
    o.timing = {60, 60, 100, 1};
    RtlMachine& m = start(o);
    window_.clear_area(MERAPI_AREA_BITMAP0);
    m.begin(0);
    m.grey(nodes);
    m.command(opcode, 1, 0, 1);
    const uint64_t own = m.produced;
    m.grey(nodes);
    bool done = false;
    ASSERT_TRUE(until([&] {
      for (const merapi_completion& c : m.complete()) done |= c.type == MERAPI_COMP_DONE;
      return done;
    }));
    ASSERT_FALSE(m.idle());
    EXPECT_GE(m.counter(MERAPI_COUNTER_GREYS_SUBMITTED), kObjects) << int(opcode);
    EXPECT_GE(m.counter(MERAPI_COUNTER_ROUNDS), own) << int(opcode);
    if (opcode == MERAPI_OP_FENCE) {
      EXPECT_LE(m.counter(MERAPI_COUNTER_GREYS_SUBMITTED), 2 * kObjects);
    }
    m.end_generation();
    m.run(2000);
  }
}

// The read of a line of the directory fails while the configuration is latched. Nothing of that is left for the next
// cycle, or for the next host, however soon they come.
TEST_F(RtlAnswers, AConfigurationThatCouldNotBeReadIsForgotten) {
  for (uint32_t latency : {1u, 4u, 10u, 20u, 30u}) {
    uint64_t reads = 0, which = 0;
    for (bool fails : {false, true}) {
      RtlMachineOptions o;
      o.timing = {latency, latency, 100, 1};
      o.simulation.read_error_at = fails ? which : 0;
      reads = which = 0;
      o.simulation.on_access = [&](uint64_t address, bool write) {
        reads += !write;
        if (!write && address == MERAPI_DIRECTORY_OFFSET + 64 && which == 0) which = reads;
      };
      start(o);
      machine_->begin(0);
      if (fails) {
        ASSERT_EQ(machine_->fault_after(kPatience), uint32_t(MERAPI_FAULT_MEMORY)) << latency;
        machine_->abort();
        ASSERT_TRUE(until([&] { return machine_->abort_acknowledged(); }));
        machine_->begin(0);
      }
      ASSERT_TRUE(until(
          [&] { return machine_->complete(), machine_->idle() || machine_->state() == MERAPI_DEVICE_STATE_FAULTED; }));
      EXPECT_TRUE(machine_->idle()) << "a latency of " << latency;
      machine_->end_generation();
      machine_->run(2000);
    }
  }
}

TEST_F(RtlAnswers, AHandshakeAfterAConfigurationThatCouldNotBeRead) {
  for (uint32_t latency : {1u, 10u, 30u}) {
    RtlMachineOptions o;
    o.timing = {latency, latency, 100, 1};
    o.simulation.read_error_line = MERAPI_DIRECTORY_OFFSET + 64;
    start(o);
    for (uint64_t wait = 0; wait < 600; wait += 20) {
      machine_->begin(0);
      machine_->run(wait);
      const uint64_t odd = machine_->end_generation();
      machine_->run(10);
      machine_->begin_generation(odd);
      ASSERT_TRUE(until([&] { return machine_->generation_answered(); }));
      ASSERT_EQ(machine_->fault().code, 0u)
          << "a latency of " << latency << ", " << wait << " cycles after the command";
    }
    machine_->end_generation();
    machine_->run(2000);
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
