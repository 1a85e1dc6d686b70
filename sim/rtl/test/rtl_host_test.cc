// SPDX-License-Identifier: Apache-2.0
//
// What a host sees of the tracer besides marks: who it is, rings that go round many times, when it sleeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "sim/rtl/rtl_engine.h"
#include "sim/rtl/test/directed_heap.h"
#include "sim/rtl/test/page_check.h"
#include "sim/rtl/test/rtl_machine.h"
#include "sim/rtl/test/waves.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowHost;
using merapi::sim::test::WindowShape;
constexpr uint64_t kPatience = 200'000;
constexpr uint64_t kPowerUp = 20'000;  // on-chip memories are swept

TEST(RtlHost, Identity) {
  Random r(1);
  for (int trial = 0; trial < 6; trial++) {
    Window window(WindowShape{});
    RtlMachineOptions o;
    o.simulation.common.coherence = uint8_t(r.next());
    o.simulation.common.patience_us = uint32_t(r.next());
    o.simulation.common.pid = r.next();
    // Each bit of the longest name once set, once not; then names of any length.
    o.simulation.common.name = std::string(23, trial == 0 ? '\x55' : '\xaa');
    if (trial >= 2) o.simulation.common.name.resize(r.below(24));
    if (trial >= 2)
      for (char& c : o.simulation.common.name) c = char(r.between(1, 255));
    RtlMachine m(&window, o);
    ASSERT_TRUE(m.attach());
    auto* who = window.control<merapi_device_identity>(MERAPI_DEVICE_IDENTITY_OFFSET);
    EXPECT_EQ(who->magic, MERAPI_DEVICE_MAGIC);
    EXPECT_EQ(who->version_major, MERAPI_VERSION_MAJOR);
    EXPECT_EQ(who->version_minor, MERAPI_VERSION_MINOR);
    EXPECT_EQ(who->capabilities,
              1u << MERAPI_CAP_SCOPE_HEAP | 1u << MERAPI_CAP_CLEAR_BITMAP | 1u << MERAPI_CAP_DOORBELL);
    EXPECT_EQ(who->kind, MERAPI_DEVICE_KIND_RTL);
    EXPECT_EQ(who->coherence, o.simulation.common.coherence);
    EXPECT_EQ(who->patience_us, o.simulation.common.patience_us);
    EXPECT_EQ(who->pid, o.simulation.common.pid);
    EXPECT_EQ(who->window_bytes, window.bytes);
    EXPECT_GE(who->lanes, 1u);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(who->name)), o.simulation.common.name);
    const auto* index = window.control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
    EXPECT_LE(index->sleeping, 1u);
    EXPECT_EQ(index->reserved0 | index->reserved[0] | index->reserved[1] | index->reserved[2], 0u);
  }
}

class RtlHostCounts : public DirectedHeap {
 protected:
  void expect_none() {
    for (int i = 0; i < int(MERAPI_COUNTER_COUNT); i++) EXPECT_EQ(machine_->counter(i), 0u) << "counter " << i;
  }
};

// Counters are zero when a handshake ends: the first, and one that ends another generation's cycle.
TEST_F(RtlHostCounts, AreNoneAfterAHandshake) {
  const uint32_t objects = 3000;
  make_array(64, objects);
  for (uint32_t i = 0; i < objects; i++) {
    make_node(i);
    refer(64 + 16 + 4 * uint64_t{i}, node(i));
  }
  machine_ = std::make_unique<RtlMachine>(&window_, options_);
  ASSERT_TRUE(machine_->attach());
  expect_none();
  machine_->run(kPowerUp);
  for (uint64_t trial = 0; trial < 10; trial++) {
    std::fill_n(window_.bitmap(0), window_.heap_bytes() / 512, 0);
    window_.mark(0, 64);
    machine_->begin(0);
    machine_->trace(0, window_.shape.regions);
    machine_->run(2000 + trial * 101);
    const uint64_t ended = machine_->end_generation();
    machine_->run(1000 + trial * 37);
    machine_->begin_generation(ended);
    ASSERT_TRUE(machine_->run_until([&] { return machine_->generation_answered(); }, kPatience));
    expect_none();
  }
}

// An abort ends what a pause was for, not the host's right to pause again at once: what it is told then is a pause.
TEST(RtlHost, PausesAgainAfterAnAbort) {
  Window window(WindowShape{});
  RtlMachine m(&window, RtlMachineOptions{});
  ASSERT_TRUE(m.attach());
  m.run(kPowerUp);
  m.begin(0);
  ASSERT_TRUE(m.run_until([&] { return m.idle(); }, kPatience));
  for (int trial = 0; trial < 2; trial++) {
    m.request_pause();
    ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
    EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_PAUSED)) << trial;
    if (trial > 0) break;
    m.abort();
    ASSERT_TRUE(m.run_until([&] { return m.abort_acknowledged(); }, kPatience));
  }
  m.resume();
  ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
  EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
}

// Every entry of both rings again and again, in rings of every small size; completions carry what was submitted.
TEST(RtlHost, RingsGoRound) {
  for (uint32_t entries : {64u, 128u, 512u}) {
    WindowShape s;
    s.submission_entries = entries;
    s.completion_entries = std::max(64u, 8192 / entries);
    Window window(s);
    RtlMachineOptions o;
    o.timing = {1, 6, 100, entries};
    o.simulation.stall_percent = entries == 128 ? 30 : 0;
    RtlMachine m(&window, o);
    ASSERT_TRUE(m.attach());
    m.begin(0);
    Random r(entries);
    const uint64_t count = 5 * entries;
    std::vector<std::pair<uint64_t, uint64_t>> fences;  // submission's index, token
    uint64_t done = 0;
    for (uint64_t i = 0; i < count; i++) {
      ASSERT_TRUE(m.run_until(
          [&] {
            for (const merapi_completion& c : m.complete(1 + r.below(3))) {
              EXPECT_EQ(c.type, MERAPI_COMP_DONE);
              EXPECT_EQ(c.cycle, m.cycle);
              EXPECT_EQ(c.count, 0u);
              EXPECT_EQ(c.arg, uint32_t(MERAPI_OP_FENCE));
              EXPECT_EQ(c.payload[0], fences[done].first);
              EXPECT_EQ(c.payload[2], fences[done].second);
              done++;
            }
            return m.room();
          },
          kPatience));
      if (r.percent(20)) {
        fences.push_back({m.produced, r.next()});
        m.command(MERAPI_OP_FENCE, uint32_t(r.next()), fences.back().second, r.next());
      } else {
        m.command(r.percent(90) ? MERAPI_OP_NOP : MERAPI_OP_INVALIDATE_SHAPES, 0, r.next(), r.next());
      }
    }
    ASSERT_TRUE(m.run_until(
        [&] {
          done += m.complete().size();
          return m.idle();
        },
        kPatience));
    EXPECT_EQ(done, fences.size());
    EXPECT_EQ(m.counter(MERAPI_COUNTER_ROUNDS), count + 1);
    EXPECT_EQ(m.fault().code, 0u);
  }
}

// Indexes have nothing to do with what a ring holds: both go on beyond 2^17, and what was taken of the completions with
// them. Presets with the same control unit that are simulated more slowly go less far.
TEST(RtlHost, IndexesGoOn) {
  WindowShape s;
  s.submission_entries = s.completion_entries = 1024;
  Window window(s);
  RtlMachineOptions o;
  o.timing = {2, 2, 100, 1};
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  const uint64_t count = (chosen_preset() == "sim-small" ? UINT64_C(1) << 17 : 0) + 3 * s.completion_entries;
  for (uint64_t asked = 0, done = 0; done < count;) {
    for (; asked < count && m.room(); asked++) m.command(MERAPI_OP_FENCE, 0, asked, 0);
    const uint64_t half = std::min(count, done + s.completion_entries / 2);
    ASSERT_TRUE(m.run_until([&] { return m.completed() >= half; }, kPatience)) << done << " of " << count;
    for (const merapi_completion& c : m.complete()) ASSERT_EQ(c.payload[2], done++);
  }
  EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_EQ(m.executed(), count + 1);
  EXPECT_EQ(m.completed(), count);
}

// Entries whose number has many ones say all that others say.
TEST(RtlHost, GreysOfHighNumbers) {
  WindowShape s;
  s.submission_entries = s.completion_entries = 1024;
  Window window(s);
  window.put_instance(0x1000, 3);
  window.fill_regions();
  Random r(1);
  std::set<uint64_t> greys;
  while (greys.size() < 4000) {
    const uint64_t at = r.below(window.heap_bytes() / 64) * 64;
    const uint32_t klass = 0x1000;
    std::memcpy(window.heap() + at + 8, &klass, 4);
    greys.insert(s.heap_base + at);
  }
  RtlMachineOptions o;
  o.timing = {2, 2, 100, 1};
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  for (int i = 0; i < (1 << 14) - 1024; i++) {
    ASSERT_TRUE(m.run_until([&] { return m.room(); }, kPatience));
    m.command(MERAPI_OP_NOP, 0, 0, 0);
  }
  ASSERT_TRUE(m.run_until([&] { return m.executed() == m.produced; }, kPatience));
  m.grey({greys.begin(), greys.end()});
  ASSERT_TRUE(m.idle_or_fault(kPatience));
  for (uint64_t grey : greys) ASSERT_TRUE(window.marked(0, grey - s.heap_base)) << grey;
  EXPECT_EQ(m.fault().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_EQ(m.executed(), m.produced);
}

// Generations, cycle ids and the numbers of pauses and aborts are the host's: any bit of them, in one tracer.
TEST(RtlHost, NumbersOfTheHostBeginAnywhere) {
  Random r(11);
  Window window(WindowShape{});
  RtlMachineOptions o;
  o.timing = {1, 6, 100, 1};
  RtlMachine m(&window, o);
  auto* index = window.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  auto* request = window.control<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET);
  for (int trial = 0; trial < 24; trial++) {
    index->generation = trial == 0 ? ~UINT64_C(2) : r.next();
    uint64_t odd = m.end_generation();
    m.run(2000);
    m.begin_generation(odd);
    ASSERT_TRUE(m.run_until([&] { return m.generation_answered(); }, kPatience));
    request->pause = request->resume = uint32_t(r.next());
    request->abort = uint32_t(r.next());
    ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged() && m.abort_acknowledged(); }, kPatience));
    m.cycle = uint32_t(r.next());
    m.begin(0);
    m.command(MERAPI_OP_FENCE, uint32_t(r.next()), r.next(), 0);
    ASSERT_TRUE(m.run_until([&] { return m.completed() == 1; }, kPatience));
    auto completions = m.complete();
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].cycle, m.cycle);
    ASSERT_TRUE(m.run_until([&] { return m.idle(); }, kPatience));
    m.request_pause();
    ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
    EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_PAUSED));
    m.resume();
    ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
    m.command(MERAPI_OP_TRACE_REGION, window.shape.regions, 1, 0);
    ASSERT_EQ(m.fault_after(kPatience), uint32_t(MERAPI_FAULT_BAD_COMMAND));
    EXPECT_EQ(m.fault().cycle, m.cycle);
    m.abort();
    ASSERT_TRUE(m.run_until([&] { return m.abort_acknowledged(); }, kPatience));
    EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
  }
}

// A pause may follow a resume at once: it is acknowledged and counted as another one.
TEST(RtlHost, EveryPauseIsCounted) {
  Random r(5);
  Window window(WindowShape{});
  RtlMachineOptions o;
  o.timing = {1, 30, 100, 1};
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  m.begin(0);
  ASSERT_TRUE(m.run_until([&] { return m.idle(); }, kPatience));
  for (uint64_t pauses = 1; pauses <= 40; pauses++) {
    m.request_pause();
    ASSERT_TRUE(m.run_until([&] { return m.pause_acknowledged(); }, kPatience));
    EXPECT_EQ(m.counter(MERAPI_COUNTER_PAUSES), pauses);
    EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_PAUSED));
    m.resume();
    if (r.percent(60)) m.run(r.below(400));
  }
  ASSERT_TRUE(m.run_until([&] { return m.resume_acknowledged(); }, kPatience));
}

// Of the process around an engine. `gone`: memory that the process has found missing since the last question.
struct Process : EngineHost {
  void notify() override { news++; }
  uint32_t take_memory_fault(uint64_t*) override {
    uint32_t code = gone;
    gone = MERAPI_FAULT_NONE;
    return code;
  }
  uint64_t news = 0;
  uint32_t gone = MERAPI_FAULT_NONE;
};

class EngineHostSide : public WindowHost {
 public:
  explicit EngineHostSide(Window* w, const RtlMachineOptions& o) : WindowHost(w) {
    engine = std::make_unique<RtlEngine>(
        WindowMemory{w->base, w->bytes}, &events,
        make_simulation(o.preset, {w->base, w->bytes}, make_random_timing(o.timing), with_waves(o.simulation)));
  }
  // Steps until the tracer says that it waits for the host; false when it does not.
  bool sleeps(int most = 2000) {
    for (int i = 0; i < most; i++) {
      if (engine->step().next == Step::kSleep) return true;
    }
    return false;
  }
  Process events;
  std::unique_ptr<RtlEngine> engine;
};

// An answer that waited for room in the ring is there before the tracer sleeps, in each cycle and whatever the memory
// does: who simulates it stops the clock then.
TEST(RtlHost, AnswersAreThereBeforeItSleeps) {
  for (uint64_t seed = 1; seed <= 30; seed++) {
    Random r(seed);
    WindowShape s;
    s.submission_entries = 2 * s.completion_entries;
    Window window(s);
    RtlMachineOptions o;
    o.timing.least = uint32_t(r.between(1, 12));
    o.timing.most = o.timing.least + uint32_t(r.below(6));
    o.timing.seed = seed;
    RtlMachine m(&window, o);
    ASSERT_TRUE(m.attach());
    const uint64_t answers = s.completion_entries + 1;
    for (uint64_t i = 0; i < answers; i++) m.command(MERAPI_OP_FENCE, 0, i, 0);
    ASSERT_TRUE(m.run_until([&] { return m.completed() == s.completion_entries; }, kPatience));
    m.run(400 + r.below(200));
    ASSERT_EQ(m.completed(), s.completion_entries);
    EXPECT_FALSE(m.simulation->sleeping()) << "seed " << seed;
    m.complete();
    ASSERT_TRUE(m.run_until([&] { return m.simulation->sleeping(); }, kPatience));
    ASSERT_EQ(m.completed(), answers) << "seed " << seed;
  }
}

// A tracer sleeps when, and only when, nothing is left to do before the host does something; nothing that the host
// asked for before may then be unanswered.
TEST(RtlHost, SleepsWhenNothingIsLeft) {
  for (uint64_t seed = 1; seed <= 6; seed++) {
    Random r(seed);
    WindowShape shape;
    shape.submission_entries = 2 * shape.completion_entries;
    Window window(shape);
    RtlMachineOptions o;
    o.timing.most = uint32_t(r.between(10, 60));
    o.timing.seed = seed;
    EngineHostSide m(&window, o);
    for (int i = 0; i < 8; i++) m.engine->step();  // the power-up
    EXPECT_TRUE(m.sleeps()) << "before the handshake";
    m.begin_generation(m.end_generation());
    ASSERT_TRUE(m.sleeps());
    EXPECT_TRUE(m.generation_answered());
    EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
    m.begin(0);
    ASSERT_TRUE(m.sleeps());
    EXPECT_TRUE(m.idle());
    EXPECT_GT(m.events.news, 0u);
    for (int round = 0; round < 12; round++) {
      switch (r.below(5)) {
        case 0: {
          // More answers than the ring has room for: the tracer waits for the host, and goes on when it reads.
          const uint64_t answers = shape.completion_entries + r.between(1, 40);
          for (uint64_t i = 0; i < answers; i++) m.command(MERAPI_OP_FENCE, 0, i, 0);
          EXPECT_FALSE(m.sleeps(4)) << "nobody told it when there is room";
          EXPECT_EQ(m.complete().size(), shape.completion_entries);
          ASSERT_TRUE(m.sleeps());
          EXPECT_EQ(m.complete().size(), answers - shape.completion_entries);
          break;
        }
        case 1:
          m.request_pause();
          ASSERT_TRUE(m.sleeps());
          EXPECT_TRUE(m.pause_acknowledged());
          reached("state", m.state());
          EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_PAUSED));
          m.resume();
          ASSERT_TRUE(m.sleeps());
          EXPECT_TRUE(m.resume_acknowledged());
          break;
        case 2:
          m.trace(0, window.shape.regions);
          ASSERT_TRUE(m.sleeps());
          EXPECT_EQ(m.complete().size(), 1u);
          break;
        case 3:
          m.abort();
          ASSERT_TRUE(m.sleeps());
          EXPECT_TRUE(m.abort_acknowledged());
          EXPECT_EQ(m.state(), uint32_t(MERAPI_DEVICE_STATE_READY));
          m.complete();
          m.begin(uint32_t(r.below(2)));
          break;
        default:
          m.grey({window.shape.heap_base + window.heap_bytes() + 64, 0});
      }
      ASSERT_TRUE(m.sleeps());
      m.complete();
      ASSERT_TRUE(m.sleeps());
      EXPECT_TRUE(m.idle()) << "seed " << seed << " round " << round;
      EXPECT_EQ(m.fault().code, 0u);
      EngineStatus s = m.engine->status();
      EXPECT_EQ(s.cycle, m.cycle);
      EXPECT_EQ(s.state, m.state());
    }
    // A new generation, without a word to the old one.
    m.begin_generation(m.end_generation());
    ASSERT_TRUE(m.sleeps());
    EXPECT_TRUE(m.generation_answered());
  }
}

// The status sums over all marking cycles, also when two of them are the same to the last count, several begin in one
// step, or a generation ends.
class RtlHostStatus : public DirectedHeap {};
TEST_F(RtlHostStatus, SumsOverAllCycles) {
  make_array(64, 3);
  for (uint32_t i = 0; i < 3; i++) {
    make_node(i);
    refer(64 + 16 + 4 * uint64_t{i}, node(i));
  }
  options_.timing = {20, 20, 100, 1};
  EngineHostSide m(&window_, options_);
  for (int i = 0; i < 8; i++) m.engine->step();
  m.begin_generation(m.end_generation());
  ASSERT_TRUE(m.sleeps());
  EngineStatus s;
  uint64_t cycles = 0;
  for (uint64_t round = 1; round <= 3; round++) {
    window_.clear_area(MERAPI_AREA_BITMAP0);
    window_.mark(0, 64);
    m.begin(0);
    m.trace(0, window_.shape.regions);
    cycles++;
    ASSERT_TRUE(m.sleeps());
    m.complete();
    s = m.engine->status();
    EXPECT_EQ(s.cycles_begun, cycles);
    EXPECT_EQ(s.objects_marked, 3 * round);
    EXPECT_GE(s.references_read, 3 * round);
    if (round == 2) {
      m.begin_generation(m.end_generation());
      ASSERT_TRUE(m.sleeps());
    }
  }
  for (int i = 0; i < 3; i++) m.begin(0);
  cycles += 3;
  ASSERT_TRUE(m.sleeps());
  m.complete();
  EXPECT_EQ(m.engine->status().cycles_begun, cycles);
  for (uint64_t faults = 1; faults <= 2; faults++) {
    m.command(200, 0, 0, 0);
    ASSERT_TRUE(m.sleeps());
    s = m.engine->status();
    EXPECT_EQ(s.state, uint32_t(MERAPI_DEVICE_STATE_FAULTED));
    EXPECT_EQ(s.faults, faults);
    m.abort();
    ASSERT_TRUE(m.sleeps());
    m.complete();
    m.begin(0);
    ASSERT_TRUE(m.sleeps());
  }
  EXPECT_EQ(m.engine->status().objects_marked, s.objects_marked);
}

// A process whose page is gone puts zeros in its place, which look like nulls. A trace that met them does not end.
class RtlHostMemory : public DirectedHeap {};
TEST_F(RtlHostMemory, WhatIsReadWhereItIsGoneIsNotUsed) {
  make_array(64, 1);
  make_node(0);
  refer(64 + 16, node(0));
  window_.mark(0, 64);
  const uint64_t heap = window_.layout.area[MERAPI_AREA_HEAP].offset;
  EngineHostSide* host = nullptr;
  options_.simulation.on_access = [&](uint64_t address, bool write) {
    if (!write && address == heap + node(0) / 64 * 64) host->events.gone = MERAPI_FAULT_MEMORY;
  };
  EngineHostSide m(&window_, options_);
  host = &m;
  for (int i = 0; i < 8; i++) m.engine->step();
  m.begin_generation(m.end_generation());
  ASSERT_TRUE(m.sleeps());
  m.begin(0);
  m.trace(0, window_.shape.regions);
  Step s{};
  for (int i = 0; i < 50 && s.next != Step::kEnded; i++) s = m.engine->step();
  EXPECT_EQ(s.next, Step::kEnded);
  EXPECT_FALSE(window_.control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET)->idle);
}

// A tracer ends (its process, or by a reset) and another one begins in its place while the host stays attached, at any
// time of a cycle and whatever the host has read of its completions. What was said to the first one is not executed
// again: by then regions may be free, and the bitmap the host's.
class RtlHostRestart : public DirectedHeap {
 protected:
  // A tracer whose indexes begin anew in the generation that another one has served, and which refuses one after the
  // other: other faults follow the first.
  void replace() {
    machine_.reset();
    RtlMachineOptions o = options_;
    o.simulation.on_page = [](const uint8_t* window, uint64_t address, const Line& line) {
      const bool anew = address == MERAPI_DEVICE_INDEX_OFFSET || address == MERAPI_FAULT_RECORD_OFFSET;
      if (!anew) check_page_write(window, address, line);
    };
    o.simulation.on_access = [this](uint64_t address, bool write) {
      (address >= MERAPI_CONTROL_BYTES ? writes_ : page_writes_) += write;
    };
    writes_ = page_writes_ = 0;
    machine_ = std::make_unique<RtlMachine>(&window_, o);
  }
  // It has answered, and stays as it is.
  void expect_refused(uint64_t address) {
    machine_->run(3000);
    EXPECT_TRUE(machine_->generation_answered());
    EXPECT_EQ(machine_->fault().code, uint32_t(MERAPI_FAULT_RING_OVERRUN));
    EXPECT_EQ(machine_->fault().address, address);
    EXPECT_EQ(machine_->fault().detail, 0u);
    EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
    EXPECT_FALSE(machine_->idle());
    EXPECT_EQ(machine_->completed(), 0u);
    EXPECT_EQ(writes_, 0u) << "beyond the control page";
  }
  uint64_t writes_ = 0, page_writes_ = 0;
};

TEST_F(RtlHostRestart, WhatAnotherTracerWasToldIsNotExecuted) {
  make_host_objects(20);
  klass(region(1), kNode);
  for (uint64_t cycles : {UINT64_C(300), UINT64_C(1500), UINT64_C(4000), UINT64_C(40'000)}) {
    for (bool read : {false, true}) {
      SCOPED_TRACE(testing::Message() << cycles << " cycles, completions read: " << read);
      const auto clear = [&] {
        window_.clear_area(MERAPI_AREA_BITMAP0);
        window_.clear_area(MERAPI_AREA_LIVE);
        window_.mark(0, 64);
      };
      clear();
      start();
      machine_->grey({window_.shape.heap_base + region(1)});
      machine_->run(cycles);
      if (read) machine_->complete();
      if (cycles == 40'000) {
        EXPECT_EQ(machine_->idle(), read);
        EXPECT_TRUE(window_.marked(0, region(1)));
      }
      const uint64_t submitted = machine_->produced;
      // A full collection has moved everything; of the old cycle nothing is left.
      replace();
      clear();
      machine_->run(kPowerUp);
      expect_refused(submitted);
      EXPECT_EQ(machine_->executed(), 0u);
      // No request of the host that is still there changes that.
      machine_->request_pause();
      expect_refused(submitted);
      EXPECT_TRUE(machine_->pause_acknowledged());
      machine_->resume();
      machine_->abort();
      expect_refused(submitted);
      EXPECT_TRUE(machine_->abort_acknowledged());
      // It begins a new generation.
      ASSERT_TRUE(machine_->attach());
      EXPECT_EQ(machine_->fault().code, uint32_t(MERAPI_FAULT_NONE));
      machine_->begin(0);
      machine_->trace(0, window_.shape.regions);
      ASSERT_TRUE(finish());
      EXPECT_TRUE(window_.marked(0, node(19)));
      EXPECT_FALSE(window_.marked(0, region(1)));
    }
  }
}

// One bit of either index says it. A tracer that nothing was said to is replaced by any other.
TEST_F(RtlHostRestart, AHostAsksWithEmptyRings) {
  auto* index = window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  replace();
  machine_->run(kPowerUp);
  for (unsigned bit = 0; bit < 64; bit++) {
    for (bool taken : {false, true}) {
      SCOPED_TRACE(testing::Message() << "bit " << bit << " of completions " << taken);
      machine_->begin_generation(machine_->end_generation());
      (taken ? index->completion_consumed : index->submission_produced) = UINT64_C(1) << bit;
      expect_refused(taken ? 0 : UINT64_C(1) << bit);
    }
  }
  // What is wrong with the window comes first.
  const uint64_t odd = machine_->end_generation();
  window_.control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->magic = 5;
  machine_->begin_generation(odd);
  index->submission_produced = 1;
  ASSERT_TRUE(machine_->run_until([&] { return machine_->generation_answered(); }, kPatience));
  EXPECT_EQ(machine_->fault().code, uint32_t(MERAPI_FAULT_BAD_MAGIC));
  window_.control<merapi_identity>(MERAPI_IDENTITY_OFFSET)->magic = MERAPI_MAGIC;

  ASSERT_TRUE(machine_->attach());
  replace();
  machine_->run(kPowerUp);
  EXPECT_TRUE(machine_->generation_answered());
  EXPECT_EQ(machine_->fault().code, uint32_t(MERAPI_FAULT_NONE));
  EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_READY));
  machine_->begin(0);
  ASSERT_TRUE(finish());
}

// When a line cannot be written later, the record is written once more: as it was, in every bit.
TEST_F(RtlHostRestart, ARefusalIsToldAgainAsItWas) {
  constexpr uint64_t kBits = 0x5555'5555'5555'5555;
  auto* index = window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  auto* record = window_.control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET);
  for (uint64_t submitted : {kBits, ~kBits}) {
    // Refused, and asked for an abort after it, with an error at one write of the page; how many there are.
    const auto refuse = [&](uint64_t error_at, uint64_t* before, uint64_t* all) {
      SCOPED_TRACE(testing::Message() << "error at write " << error_at);
      options_.simulation.write_error_at = error_at;
      index->generation |= 1;
      replace();
      machine_->run(kPowerUp);
      machine_->begin_generation(index->generation);
      index->submission_produced = submitted;
      expect_refused(submitted);
      *before = page_writes_;
      record->address = 0;
      machine_->abort();
      machine_->run(3000);
      EXPECT_TRUE(machine_->abort_acknowledged());
      EXPECT_EQ(record->address, error_at == 0 ? 0 : submitted);
      EXPECT_EQ(machine_->state(), uint32_t(MERAPI_DEVICE_STATE_FAULTED));
      *all = page_writes_;
    };
    uint64_t before = 0, all = 0, with_error = 0;
    refuse(0, &before, &all);
    ASSERT_GT(all, before);
    for (uint64_t nth = before + 1; nth <= all && !HasFailure(); nth++) {
      uint64_t again = 0;
      refuse(nth, &again, &with_error);
      EXPECT_EQ(again, before);
      EXPECT_GT(with_error, all);
    }
  }
}

// While the generation is odd nothing is written (after what was in flight), whatever command was under way; of traces
// RtlHostRevokes sees to it.
TEST(RtlHost, RevokedAtAnyTime) {
  Random r(7);
  for (int trial = 0; trial < 12; trial++) {
    Window window(WindowShape{});
    uint64_t writes = 0;
    RtlMachineOptions o;
    o.timing = {5, 40, 100, uint64_t(trial) + 1};
    o.simulation.on_access = [&](uint64_t, bool write) { writes += write; };
    RtlMachine m(&window, o);
    ASSERT_TRUE(m.attach());
    m.run(kPowerUp);
    m.begin(0);
    for (uint32_t i = 0; i < 20; i++) m.command(MERAPI_OP_FENCE, 0, i, 0);
    m.command(MERAPI_OP_CLEAR_BITMAP, 1, 0, window.shape.regions);
    m.run(r.below(3000));
    uint64_t odd = m.end_generation();
    m.run(3000);
    uint64_t before = writes;
    m.run(3000);
    EXPECT_EQ(writes, before);
    m.begin_generation(odd);
    ASSERT_TRUE(m.run_until([&] { return m.generation_answered(); }, kPatience));
    EXPECT_EQ(m.executed(), 0u);
    EXPECT_EQ(m.completed(), 0u);
    m.begin(1);
    ASSERT_TRUE(m.run_until([&] { return m.idle(); }, kPatience));
  }
}

// An abort looks at the host once more before it is acknowledged. A look, that one or any other, that shows a host that
// is gone is followed by no write.
TEST(RtlHost, AnAbortSeesThatTheHostIsGone) {
  Window window(WindowShape{});
  bool gone = false, seen = false;
  uint64_t writes = 0, aborted = 0, before_that = 0;
  RtlMachineOptions o;
  o.timing = {30, 30, 100, 1};
  o.simulation.on_access = [&](uint64_t address, bool write) {
    seen |= gone && !write && address / 64 == MERAPI_HOST_INDEX_OFFSET / 64;
    writes += seen && write;
  };
  RtlMachine m(&window, o);
  ASSERT_TRUE(m.attach());
  m.run(kPowerUp);
  for (uint64_t after = 0; after < 300; after++) {
    m.begin(0);
    ASSERT_TRUE(m.run_until([&] { return m.idle(); }, kPatience));
    m.abort();
    m.run(after);
    const uint64_t odd = m.end_generation();
    gone = true;
    m.run(1500);
    EXPECT_TRUE(seen);
    ASSERT_EQ(writes, 0u) << "the host was gone " << after << " cycles after it asked for the abort";
    (m.abort_acknowledged() ? aborted : before_that)++;
    gone = seen = false;
    m.begin_generation(odd);
    ASSERT_TRUE(m.run_until([&] { return m.generation_answered(); }, kPatience));
  }
  EXPECT_GT(aborted, 0u);
  EXPECT_GT(before_that, 0u);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
