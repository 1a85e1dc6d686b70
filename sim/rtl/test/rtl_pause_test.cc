// SPDX-License-Identifier: Apache-2.0
//
// What a host does to a tracer that it has paused: regions are freed, completions are read, shapes change their places.
// What the tracer held then must not be believed afterwards, and nothing may depend on what is gone. MERAPI_PRESET as
// in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "sim/rtl/test/directed_heap.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
constexpr uint32_t kLeaf = 0x5000;
constexpr uint64_t kLeafBytes = 16;

class RtlPause : public DirectedHeap {
 protected:
  static WindowShape many_regions() {
    WindowShape s = directed_shape();
    s.region_log2 = 16;
    s.regions = 256;
    return s;
  }
  explicit RtlPause(const WindowShape& s = directed_shape()) : DirectedHeap(s) {
    window_.put_instance(kLeaf, kLeafBytes / 8);
  }
  uint64_t address(uint64_t at) const { return window_.shape.heap_base + at; }
  void pause() {
    machine_->request_pause();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->pause_acknowledged(); }, kPatience));
  }
  // A trace of the references that the host sends.
  void start_with(const std::vector<uint64_t>& greys) {
    machine_ = std::make_unique<RtlMachine>(&window_, options_);
    ASSERT_TRUE(machine_->attach());
    machine_->run(kPowerUp);
    machine_->begin(0);
    machine_->grey(greys);
  }
  void resume() {
    machine_->resume();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->resume_acknowledged(); }, kPatience));
  }
  // While paused: nothing in it is left.
  void free_region(uint32_t r) {
    const uint64_t bytes = window_.region_bytes() >> (window_.shape.alignment_log2 + 3);
    std::memset(reinterpret_cast<uint8_t*>(window_.bitmap(0)) + r * bytes, 0, bytes);
    window_.live()[r] = 0;
    window_.limits()[r] = region(r);
  }
};

// Twins refer to the same object, one from regions that are freed, one from a region that stays. That the first one's
// reference was dropped, because nothing had room for a grey, must not keep the second one's from being followed.
class RtlPauseTwins : public RtlPause {
 protected:
  static constexpr uint32_t kRoot = 0x6000, kTwin = 0x7000;
  static constexpr uint32_t kFillers = 400, kRoots = 4, kPairs = 30, kTwins = kRoots * kPairs, kBallast = 40;
  static constexpr uint32_t kGoing = 4, kGoingRegions = 3;
  static constexpr uint64_t kTwinBytes = 192;
  RtlPauseTwins() : RtlPause(many_regions()) {
    window_.directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    window_.put_instance(kRoot, 17, {{12, kPairs}});
    window_.put_instance(kTwin, kTwinBytes / 8, {{12, kBallast + 1}});
    Random random(7);
    for (uint32_t i = 0; i < kFillers; i++) klass(filler(i), kLeaf);
    for (uint32_t r = 0; r < kRoots; r++) {
      klass(root(r), kRoot);
      for (uint32_t i = 0; i < kPairs; i++) make_pair(root(r) + 12 + 4 * uint64_t{i}, r * kPairs + i, random.below(2));
    }
  }
  void make_pair(uint64_t field, uint32_t k, bool first) {
    const uint64_t pair = region(1) + k * kNodeBytes;
    klass(pair, kNode);
    refer(field, pair);
    refer(pair + 12, first ? goes(k) : stays(k));
    refer(pair + 16, first ? stays(k) : goes(k));
    klass(target(k), kLeaf);
    for (uint64_t twin : {goes(k), stays(k)}) {
      klass(twin, kTwin);
      refer(twin + 12 + 4 * uint64_t{kBallast}, target(k));
    }
    // What takes the last room before the target comes.
    for (uint32_t b = k * kBallast; b < (k + 1) * kBallast; b++) {
      klass(ballast(b), kLeaf);
      refer(goes(k) + 12 + 4 * uint64_t{b % kBallast}, ballast(b));
    }
  }
  uint64_t filler(uint32_t i) const { return 64 + kLeafBytes * i; }
  uint64_t root(uint32_t r) const { return 0x4000 + 136 * r; }
  // First twins lie together, each second one has a region of its own: chunks are scanned again as a whole.
  uint64_t goes(uint32_t k) const { return region(kGoing) + kTwinBytes * k; }
  uint64_t stays(uint32_t k) const { return region(16 + k); }
  // Targets and ballast do not push each other out of the filter of what was tested lately.
  uint64_t place(uint32_t i) const { return i / 512 * 32768 + i % 512 / 16 * 512 + i % 16 * kLeafBytes; }
  uint64_t target(uint32_t k) const { return region(8) + 256 + place(k); }
  uint64_t ballast(uint32_t b) const { return region(9) + place(b); }

  // One pause, after so many cycles.
  void run(uint64_t before) {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    for (uint32_t r = kGoing; r < kGoing + kGoingRegions; r++) window_.limits()[r] = region(r + 1);
    for (uint32_t i = 0; i < kFillers; i++) window_.mark(0, filler(i));
    for (uint32_t r = 0; r < kRoots; r++) window_.mark(0, root(r));
    start();
    machine_->run(before);
    machine_->complete();
    pause();
    if (is_small()) {
      EXPECT_GT(machine_->counter(MERAPI_COUNTER_GREYS_DROPPED), 0u) << "not what is tested";
    }
    for (uint32_t r = kGoing; r < kGoing + kGoingRegions; r++) free_region(r);
    resume();
    ASSERT_TRUE(finish());
    EXPECT_EQ(machine_->fault().code, 0u);
    uint32_t twins = 0, targets = 0;
    for (uint32_t k = 0; k < kTwins; k++) {
      twins += window_.marked(0, stays(k));
      targets += window_.marked(0, target(k));
    }
    EXPECT_EQ(twins, kTwins);
    EXPECT_EQ(targets, kTwins) << "objects that marked ones refer to, a pause after " << before << " cycles";
    EXPECT_EQ(window_.live()[8], kTwins * kLeafBytes / 8);
  }
};

TEST_F(RtlPauseTwins, WhatTheFirstDroppedTheSecondMarks) {
  for (uint64_t before : {12'000, 16'000, 20'000, 28'000, 40'000}) {
    run(before);
    if (HasFatalFailure()) return;
  }
}

// The completion ring as small as it can be, and full of a fence's answers.
class RtlPauseFullRing : public RtlPause {
 protected:
  static WindowShape small_ring() {
    WindowShape s = directed_shape();
    s.submission_entries = 256;
    s.completion_entries = 64;
    return s;
  }
  RtlPauseFullRing() : RtlPause(small_ring()) {}
  void begin() {
    if (!machine_) {
      machine_ = std::make_unique<RtlMachine>(&window_, options_);
      ASSERT_TRUE(machine_->attach());
      machine_->run(kPowerUp);
    }
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    machine_->begin(0);
  }
  void fill_ring() {
    for (uint64_t i = 0; i < window_.shape.completion_entries; i++) machine_->command(MERAPI_OP_FENCE, 0, i, 0);
    ASSERT_TRUE(machine_->run_until(
        [&] { return machine_->completed() - machine_->consumed == window_.shape.completion_entries; }, kPatience));
  }
  // Klass words and addresses that are reported in this cycle.
  void read(size_t most = ~size_t{0}) {
    for (const merapi_completion& c : machine_->complete(most)) {
      if (c.cycle != machine_->cycle) continue;
      for (uint32_t i = 0; i < c.count; i++) {
        if (c.type == MERAPI_COMP_SHAPE_SEEN) seen_.insert(c.payload[i]);
        if (c.type == MERAPI_COMP_DEFER) deferred_.insert(c.payload[i]);
      }
    }
  }
  void read_to_the_end() {
    ASSERT_TRUE(machine_->run_until([&] { return read(), machine_->idle(); }, kPatience));
    EXPECT_EQ(machine_->fault().code, 0u);
  }
  // A place in a region, all of them of the same lane: it follows from a line's number in the bitmap.
  uint64_t in_lane(uint32_t r) const { return region(r) + r * 16384; }
  std::set<uint64_t> seen_, deferred_;
};

// The first object of a klass, whose report waits for room, dies in a pause; the second one went its way meanwhile. So
// many klasses before them as fill the queues of reports to any degree.
TEST_F(RtlPauseFullRing, AKlassIsReportedThoughItsFirstObjectDied) {
  const uint32_t kFirst = 0x10000, least = 8, most = 32;
  for (uint32_t i = 0; i <= most; i++) window_.put_instance(kFirst + 8 * i, kLeafBytes / 8);
  for (uint32_t i = 0; i <= most; i++) klass(in_lane(1) + 64 * i, kFirst + 8 * i);
  const uint64_t dies = in_lane(2), stays = in_lane(3);
  for (uint32_t before = least; before < most; before++) {
    klass(dies, kFirst + 8 * before);
    klass(stays, kFirst + 8 * before);
    window_.limits()[2] = region(3);
    seen_.clear();
    begin();
    fill_ring();
    std::vector<uint64_t> others;
    for (uint32_t i = 0; i < before; i++) others.push_back(address(in_lane(1) + 64 * i));
    machine_->grey(others);
    machine_->run(3000);
    machine_->grey({address(dies)});
    machine_->run(1000);
    machine_->grey({address(stays)});
    machine_->run(1000);
    pause();
    free_region(2);
    resume();
    read_to_the_end();
    if (HasFatalFailure()) return;
    for (uint32_t i = 0; i < before; i++) EXPECT_EQ(seen_.count(kFirst + 8 * i), 1u) << i << " of " << before;
    EXPECT_TRUE(window_.marked(0, stays));
    EXPECT_EQ(seen_.count(kFirst + 8 * before), 1u) << before << " klasses were reported before";
  }
}

// Objects for the host wait for room in the ring when their region is given up: each is reported, or counted as stale.
TEST_F(RtlPauseFullRing, WhatIsNotReportedAnyMoreIsCounted) {
  constexpr uint32_t kHost = 0x3000;
  merapi_shape host{};
  host.klass_word = kHost;
  host.kind = MERAPI_SHAPE_KIND_HOST;
  host.size_words = kLeafBytes / 8;
  host.flags = 1u << MERAPI_SHAPE_FLAG_QUIET;
  window_.put_shape(host);
  uint64_t stale = 0;
  for (uint32_t objects : {20u, 100u, 400u}) {
    window_.limits()[2] = region(3);
    deferred_.clear();
    begin();
    fill_ring();
    std::vector<uint64_t> named;
    for (uint64_t i = 0; i < objects; i++) {
      klass(region(2) + 1024 * i, kHost);  // of all lanes
      named.push_back(address(region(2) + 1024 * i));
    }
    machine_->grey(named);
    ASSERT_TRUE(machine_->run_until([&] { return machine_->executed() == machine_->produced; }, kPatience));
    machine_->run(20'000);
    pause();
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), objects);
    free_region(2);
    resume();
    read_to_the_end();
    if (HasFatalFailure()) return;
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_GREYS_STALE), objects - deferred_.size()) << objects;
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_DEFERRED), deferred_.size()) << objects;
    stale += machine_->counter(MERAPI_COUNTER_GREYS_STALE);
  }
  EXPECT_GT(stale, 100u) << "not what is tested";
}

// A host that makes room in the ring while the tracer is paused gets nothing before the resume, and everything after.
class RtlPauseCompletions : public RtlPauseFullRing {
 protected:
  void nothing_comes_while_paused() {
    const merapi_area_desc& ring = window_.layout.area[MERAPI_AREA_COMPLETION];
    const uint64_t completed = machine_->completed();
    const std::vector<uint8_t> before(window_.base + ring.offset, window_.base + ring.offset + ring.size);
    for (uint64_t some : {1, 7, 30, 64}) {
      read(some);
      machine_->ring_doorbell();
      machine_->run(5000);
      EXPECT_EQ(machine_->completed(), completed);
      EXPECT_TRUE(std::memcmp(before.data(), window_.base + ring.offset, ring.size) == 0) << "the ring was written";
    }
  }
};

TEST_F(RtlPauseCompletions, ObjectsForTheHostWait) {
  const uint32_t objects = 2000;
  make_host_objects(objects);
  begin();
  machine_->grey({address(64)});
  for (int pauses = 0; pauses < 3; pauses++) {
    machine_->run(20'000);
    ASSERT_EQ(machine_->completed() - machine_->consumed, window_.shape.completion_entries);
    pause();
    nothing_comes_while_paused();
    resume();
    if (HasFatalFailure()) return;
  }
  read_to_the_end();
  EXPECT_EQ(deferred_.size(), objects);
  EXPECT_GT(machine_->counter(MERAPI_COUNTER_STALL_COMPLETION), 0u);
  EXPECT_LE(machine_->counter(MERAPI_COUNTER_STALL_COMPLETION), machine_->counter(MERAPI_COUNTER_CYCLES))
      << "pauses are counted";
}

TEST_F(RtlPauseCompletions, AnswersToFencesWait) {
  begin();
  fill_ring();
  const uint64_t more = 9;
  for (uint64_t i = 0; i < more; i++) machine_->command(MERAPI_OP_FENCE, 0, 100 + i, 0);
  machine_->run(5000);
  pause();
  nothing_comes_while_paused();
  resume();
  if (HasFatalFailure()) return;
  uint64_t answers = 0;
  ASSERT_TRUE(machine_->run_until(
      [&] {
        for (const merapi_completion& c : machine_->complete()) {
          EXPECT_EQ(c.type, MERAPI_COMP_DONE);
          EXPECT_EQ(c.payload[2], 100 + answers++);
        }
        return machine_->idle();
      },
      kPatience));
  EXPECT_EQ(answers, more);
}

// A lane that rests because nothing is traced is not stopped by anything: neither in a pause, whatever it holds, nor
// after the trace has ended.
class RtlPauseStalls : public RtlPause {
 protected:
  static constexpr uint64_t kRest = 200'000;
  uint64_t longest_stall() const {
    uint64_t most = 0;
    for (int stall : {MERAPI_COUNTER_STALL_MEMORY, MERAPI_COUNTER_STALL_BITMAP, MERAPI_COUNTER_STALL_GREY,
                      MERAPI_COUNTER_STALL_SHAPE}) {
      most = std::max(most, machine_->counter(stall));
    }
    return most;
  }
};

TEST_F(RtlPauseStalls, AreOfTheTraceAlone) {
  const uint32_t length = 20'000;
  make_array(64, length);
  for (uint32_t i = 0; i < length; i++) {
    make_node(i);
    refer(64 + 16 + 4 * uint64_t{i}, node(i));
  }
  window_.mark(0, 64);
  start();
  machine_->run(10'000);
  pause();
  ASSERT_FALSE(machine_->idle());
  machine_->run(kRest);
  resume();
  ASSERT_TRUE(finish());
  EXPECT_LE(longest_stall(), lanes() * machine_->counter(MERAPI_COUNTER_CYCLES)) << "a pause is counted";
  machine_->run(kRest);
  const uint64_t executed = machine_->executed();
  machine_->grey({address(node(0))});
  ASSERT_TRUE(machine_->run_until([&] { return machine_->executed() > executed && machine_->idle(); }, kPatience));
  EXPECT_LE(longest_stall(), lanes() * machine_->counter(MERAPI_COUNTER_CYCLES)) << "idle is counted";
}

// Klass words mean other klasses after a pause, in which the host says so. That they were reported before does not keep
// them from being reported, however soon after the resume an object of them comes.
class RtlPauseKlasses : public RtlPause {
 protected:
  static constexpr uint32_t kOther = 0x8000, kKlasses = 96, kLate = 128;  // the first region of late objects
  // An early object of each klass, and a late one that is alone in its region: its live words tell whether it was met.
  RtlPauseKlasses() : RtlPause(many_regions()) {
    make_array(64, 2 * kKlasses);
    for (uint32_t k = 0; k < kKlasses; k++) {
      window_.put_instance(kOther + 8 * k, kLeafBytes / 8);
      const uint64_t early = region(1) + kLeafBytes * k, late = region(kLate + k);
      klass(early, kOther + 8 * k);
      klass(late, kOther + 8 * k);
      // What is read last goes first.
      refer(64 + 16 + 4 * uint64_t{k}, late);
      refer(64 + 16 + 4 * uint64_t{kKlasses + k}, early);
    }
  }
  std::vector<bool> reported() {
    std::vector<bool> klasses(kKlasses);
    for (const merapi_completion& c : machine_->complete()) {
      for (int k = 0; k < c.count; k++) {
        if (c.type == MERAPI_COMP_SHAPE_SEEN && c.payload[k] >= kOther) klasses[(c.payload[k] - kOther) / 8] = true;
      }
    }
    return klasses;
  }
};

TEST_F(RtlPauseKlasses, TheirWordsMeanOthers) {
  start();
  ASSERT_TRUE(finish());
  uint32_t between = 0;
  // Two lanes are soon through: as many pauses as that some come between.
  const uint32_t trials = lanes() == 1 ? 60 : 90;
  for (uint32_t trial = 0; trial < trials; trial++) {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    window_.mark(0, 64);
    machine_->begin(0);
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    // From when the first are reported.
    ASSERT_TRUE(machine_->run_until([&] { return machine_->completed() != machine_->consumed; }, kPatience));
    machine_->run(trial * (2700 / trials));
    pause();
    const std::vector<bool> before = reported();
    std::vector<bool> again(kKlasses);
    for (uint32_t k = 0; k < kKlasses; k++) again[k] = before[k] && window_.live()[kLate + k] == 0;
    // Behind a sweep that takes its time.
    machine_->command(MERAPI_OP_TRACE_REGION, 0, window_.shape.regions, 0);
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    resume();
    std::vector<bool> after(kKlasses);
    ASSERT_TRUE(machine_->run_until(
        [&] {
          const std::vector<bool> now = reported();
          for (uint32_t k = 0; k < kKlasses; k++) after[k] = after[k] || now[k];
          return machine_->idle();
        },
        kPatience));
    if (HasFatalFailure()) return;
    for (uint32_t k = 0; k < kKlasses; k++) {
      between += again[k];
      ASSERT_TRUE(after[k] || !again[k]) << "klass " << k << " in trial " << trial;
    }
  }
  // Others have so much in flight that a pause seldom comes between.
  if (is_small()) {
    EXPECT_GT(between, 200u) << "not what is tested";
  }
}

// Shapes with dozens of lines of blocks, whose blocks change their places in every pause: what stood there is another
// klass's, or nothing that makes sense.
class RtlPauseExtensions : public RtlPause {
 protected:
  static constexpr uint32_t kLong = 0x8000, kBlocks = 256, kObjects = 12;
  static constexpr uint64_t kApart = 16, kBytes = 16 + kBlocks * kApart;
  RtlPauseExtensions() {
    merapi_shape s{};
    s.klass_word = kLong;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = kBytes / 8;
    for (uint32_t i = 0; i < kBlocks; i++) blocks_.push_back({uint32_t(16 + i * kApart), 1});
    window_.put_shape(s, blocks_);  // the extension's first lines
    slot_ = slot(kLong);
    for (uint32_t o = 0; o < kObjects; o++) {
      klass(object(o), kLong);
      for (uint32_t i = 0; i < kBlocks; i++) {
        refer(object(o) + 16 + i * kApart, target(o * kBlocks + i));
        klass(target(o * kBlocks + i), kLeaf);
      }
    }
  }
  uint64_t object(uint32_t o) const { return 64 + kBytes * o; }
  uint64_t target(uint32_t i) const { return region(4) + kLeafBytes * i; }
  // While paused.
  void move_blocks(bool garbage) {
    const uint64_t size = kBlocks * sizeof(merapi_ref_block);
    uint8_t* extension = window_.area(MERAPI_AREA_SHAPE_EXTENSION);
    uint8_t* old = extension + slot_->extension;
    slot_->extension = slot_->extension == 0 ? size : 0;
    std::memcpy(extension + slot_->extension, blocks_.data(), size);
    // Of another klass: fields between references.
    std::vector<merapi_ref_block> others(kBlocks);
    for (uint32_t i = 0; i < kBlocks; i++) {
      others[i] = {uint32_t(20 + i * kApart), 1};
      if (garbage) others[i] = {~0u - i, ~0u};
    }
    std::memcpy(old, others.data(), size);
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
  }
  std::vector<merapi_ref_block> blocks_;
  merapi_shape* slot_;
};

TEST_F(RtlPauseExtensions, BlocksMayMove) {
  Random random(9);
  for (bool garbage : {false, true}) {
    for (uint64_t first : {400, 1000, 1700, 2900, 4500}) {
      std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
      for (uint32_t o = 0; o < kObjects; o++) window_.mark(0, object(o));
      start();
      machine_->run(first);
      for (int pauses = 0; pauses < 10 && !machine_->idle() && machine_->fault().code == 0; pauses++) {
        pause();
        move_blocks(garbage);
        resume();
        if (HasFatalFailure()) return;
        machine_->run(random.between(500, 4000));
        machine_->complete();
      }
      ASSERT_TRUE(machine_->idle_or_fault(kPatience));
      ASSERT_EQ(machine_->fault().code, 0u)
          << merapi_fault_name(machine_->fault().code) << ", first pause after " << first;
      uint32_t marked = 0;
      for (uint32_t i = 0; i < kObjects * kBlocks; i++) marked += window_.marked(0, target(i));
      EXPECT_EQ(marked, kObjects * kBlocks) << "first pause after " << first;
    }
  }
}

// An instance of one long run of references, whose shape is replaced while it is scanned: what is left of it is by the
// shape that it has then, also what another lane has taken over.
class RtlPauseLong : public RtlPause {
 protected:
  static constexpr uint32_t kLong = 0xa000, kReferences = 2000;
  static constexpr uint64_t kObject = 64, kBytes = 16 + 4 * kReferences;
  RtlPauseLong() {
    klass(kObject, kLong);
    klass(target(), kLeaf);
    klass(decoy(), kLeaf);
  }
  uint64_t target() const { return region(4) + 64; }
  uint64_t decoy() const { return region(5) + 64; }
  void put_long(uint8_t kind, uint32_t references) {
    merapi_shape s{};
    s.klass_word = kLong;
    s.kind = kind;
    s.size_words = kind == MERAPI_SHAPE_KIND_INSTANCE ? kBytes / 8 : 0;
    s.header_bytes = kind == MERAPI_SHAPE_KIND_INSTANCE ? 0 : 16;
    if (kind == MERAPI_SHAPE_KIND_OBJ_ARRAY) s.element_log2 = 2;
    std::vector<merapi_ref_block> blocks;
    if (references > 0) blocks = {{16, references}};
    window_.put_shape(s, blocks);
  }
  // A traced cycle that comes to the instance of so many nulls.
  void begin_long() {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    std::memset(window_.heap() + kObject + 12, 0, kBytes - 12);
    window_.clear_area(MERAPI_AREA_SHAPES);
    window_.put_instance(kLeaf, kLeafBytes / 8);
    put_long(MERAPI_SHAPE_KIND_INSTANCE, kReferences);
    start_with({address(kObject)});
  }
  // How many references have been read.
  uint64_t paused_after(uint64_t cycles) {
    machine_->run(cycles);
    machine_->complete();
    pause();
    return machine_->counter(MERAPI_COUNTER_REFERENCES_READ);
  }
  void replaced_by(uint8_t kind, uint32_t references) {
    put_long(kind, references);
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    resume();
  }
  void ends_without_fault() {
    EXPECT_TRUE(machine_->idle_or_fault(kPatience));
    EXPECT_EQ(machine_->fault().code, 0u) << merapi_fault_name(machine_->fault().code);
  }
  // Paused after so many cycles; then an instance of one reference, or an array of bytes. How many references of the
  // long one had been read then.
  uint64_t replaced_after(uint64_t cycles, bool bytes) {
    begin_long();
    const uint64_t read = paused_after(cycles);
    for (uint32_t i = 1; i < kReferences; i++) refer(kObject + 16 + 4 * uint64_t{i}, decoy());
    refer(kObject + 16, target());
    replaced_by(bytes ? MERAPI_SHAPE_KIND_PRIM_ARRAY : MERAPI_SHAPE_KIND_INSTANCE, bytes ? 0 : 1);
    ends_without_fault();
    EXPECT_EQ(window_.marked(0, target()), !bytes && read < kReferences);
    EXPECT_FALSE(window_.marked(0, decoy()));
    return read;
  }
};

TEST_F(RtlPauseLong, GoesOnByTheShapeThatItHasThen) {
  for (bool bytes : {false, true}) {
    int middle = 0;
    for (uint64_t cycles = 100, read = 0; read < kReferences && cycles < 10'000; cycles += 80) {
      SCOPED_TRACE(testing::Message() << cycles << " cycles");
      read = replaced_after(cycles, bytes);
      middle += read > 0 && read < kReferences;
      if (HasFailure()) return;
    }
    EXPECT_GE(middle, 3);
  }
}

// The instance begins again as an array of references in one pause and its klass word means an array of bytes in the
// next: an array goes on by the length and element size that were read.
class RtlPauseTwice : public RtlPauseLong {
 protected:
  RtlPauseTwice() {
    for (uint32_t i = 0; i < kReferences; i++) klass(element(i), kLeaf);
  }
  uint64_t element(uint32_t i) const { return region(4) + kLeafBytes * i; }
};

TEST_F(RtlPauseTwice, AnArrayGoesOnThatBeganAsAnInstance) {
  int middle = 0;
  for (uint64_t first : {900, 1200, 1600}) {
    for (uint64_t second : {200, 300, 500, 700}) {
      SCOPED_TRACE(testing::Message() << first << " and " << second << " cycles");
      begin_long();
      const uint64_t as_instance = paused_after(first);
      std::memcpy(window_.heap() + kObject + 12, &kReferences, 4);
      for (uint32_t i = 0; i < kReferences; i++) refer(kObject + 16 + 4 * uint64_t{i}, element(i));
      replaced_by(MERAPI_SHAPE_KIND_OBJ_ARRAY, 0);
      const uint64_t as_array = paused_after(second) - as_instance;
      replaced_by(MERAPI_SHAPE_KIND_PRIM_ARRAY, 0);
      ends_without_fault();
      // Not when it was read as an instance to its end, or not begun as an array.
      if (as_instance == 0 || as_instance == kReferences || as_array == 0) continue;
      middle += as_array < kReferences;
      uint32_t marked = 0;
      for (uint32_t i = 0; i < kReferences; i++) marked += window_.marked(0, element(i));
      EXPECT_EQ(marked, kReferences);
    }
  }
  EXPECT_GE(middle, 3);
}

// The host withdraws its pauses before the tracer has seen them, and submits: the tracer goes on, so no object that is
// on its way may begin again. A line of an object that was taken for its first would show a null for its klass.
class RtlPauseWithdrawn : public RtlPause {
 protected:
  static constexpr uint32_t kSpread = 0xb000, kObjects = 400, kLines = 3, kLast = 4;
  static constexpr uint32_t kReferences = (64 * kLines - 16) / 4;
  RtlPauseWithdrawn() {
    window_.put_instance(kSpread, 8 * kLines, {{16, kReferences}});
    make_array(64, kObjects);
    for (uint32_t o = 0; o < kObjects; o++) {
      klass(object(o), kSpread);
      refer(64 + 16 + 4 * uint64_t{o}, object(o));
      for (uint32_t i = 0; i < kLast; i++) {
        klass(target(kLast * o + i), kLeaf);
        refer(object(o) + 64 * kLines - 4 * (i + 1), target(kLast * o + i));
      }
    }
  }
  uint64_t object(uint32_t o) const { return region(2) + 64 * kLines * o; }
  uint64_t target(uint32_t i) const { return region(5) + kLeafBytes * i; }
};

TEST_F(RtlPauseWithdrawn, NothingBeginsAgain) {
  Random random(41);
  for (uint64_t late : {0, 200}) {
    SCOPED_TRACE(testing::Message() << "the heap " << late << " cycles late");
    const merapi_area_desc& heap = window_.layout.area[MERAPI_AREA_HEAP];
    options_.late = [=](uint64_t, uint64_t at, bool) { return at - heap.offset < heap.size ? late : 0; };
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    start_with({address(64)});
    uint64_t withdrawn = 0;
    for (; !machine_->idle() && machine_->fault().code == 0 && withdrawn < 100'000; withdrawn++) {
      machine_->request_pause();
      machine_->run(random.below(100));
      machine_->resume();
      machine_->run(random.below(150));
      if (machine_->room()) machine_->command(MERAPI_OP_NOP, 0, 0, 0);
      machine_->run(random.below(300));
      machine_->complete();
    }
    ASSERT_EQ(machine_->fault().code, 0u) << merapi_fault_name(machine_->fault().code) << " after " << withdrawn;
    ASSERT_TRUE(machine_->idle());
    uint32_t marked = 0;
    for (uint32_t i = 0; i < kObjects * kLast; i++) marked += window_.marked(0, target(i));
    EXPECT_EQ(marked, kObjects * kLast);
  }
}

// Klass words that mean mirrors in one pause and arrays in the next: an object's size is read where its shape of that
// time says, and never taken for another kind's.
class RtlPauseKinds : public RtlPause {
 protected:
  static constexpr uint32_t kEither = 0x9000, kObjects = 300, kMirrorWords = 8, kArrayWords = 16;
  static constexpr uint64_t kApart = 256, kInLine = 40;  // a mirror's size is in the line after its klass word's
  RtlPauseKinds() {
    merapi_shape s{};
    s.klass_word = kEither;
    s.kind = MERAPI_SHAPE_KIND_MIRROR;
    window_.put_shape(s);
    slot_ = slot(kEither);
    make_array(64, kObjects);
    for (uint32_t i = 0; i < kObjects; i++) {
      const uint64_t at = region(2) + i * kApart + kInLine;
      const uint32_t words = kMirrorWords, length = 8 * kArrayWords - 16;
      klass(at, kEither);
      std::memcpy(window_.heap() + at + 12, &length, 4);
      std::memcpy(window_.heap() + at + window_.shape.mirror_size_offset, &words, 4);
      refer(64 + 16 + 4 * uint64_t{i}, at);
    }
  }
  // While paused.
  void change_kind() {
    const bool mirror = slot_->kind == MERAPI_SHAPE_KIND_MIRROR;
    slot_->kind = mirror ? MERAPI_SHAPE_KIND_PRIM_ARRAY : MERAPI_SHAPE_KIND_MIRROR;
    slot_->header_bytes = mirror ? 16 : 0;
    slot_->element_log2 = 0;
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
  }
  merapi_shape* slot_;
};

TEST_F(RtlPauseKinds, ASizeIsOfTheShapeThatSaysWhereItIs) {
  Random random(17);
  for (uint64_t first = 300; first < 1300; first += 100) {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    machine_ = std::make_unique<RtlMachine>(&window_, options_);
    ASSERT_TRUE(machine_->attach());
    machine_->run(kPowerUp);
    machine_->begin(0);
    machine_->grey({address(64)});
    machine_->run(first);
    int pauses = 0;
    for (; pauses < 20 && !machine_->idle() && machine_->fault().code == 0; pauses++) {
      pause();
      change_kind();
      resume();
      if (HasFatalFailure()) return;
      machine_->run(random.between(150, 600));
      machine_->complete();
    }
    ASSERT_TRUE(machine_->run_until(
        [&] { return machine_->complete(), machine_->idle() || machine_->fault().code != 0; }, kPatience));
    ASSERT_EQ(machine_->fault().code, 0u)
        << merapi_fault_name(machine_->fault().code) << ", first pause after " << first;
    uint32_t marked = 0;
    for (uint32_t i = 0; i < kObjects; i++) marked += window_.marked(0, region(2) + i * kApart + kInLine);
    EXPECT_EQ(marked, kObjects);
    // Each is of one size or the other.
    const uint64_t live = window_.live()[2];
    EXPECT_EQ(live % kMirrorWords, 0u) << live << ", first pause after " << first << ", " << pauses << " pauses";
    EXPECT_GE(live, kObjects * kMirrorWords);
    EXPECT_LE(live, kObjects * kArrayWords);
  }
}

// A sweep over many regions goes on after a pause without those that were freed: nobody reads their marks any more.
class RtlPauseSweep : public RtlPause {
 protected:
  static WindowShape many_regions() {
    WindowShape s = directed_shape();
    s.region_log2 = 17;
    s.regions = 64;
    return s;
  }
  RtlPauseSweep() : RtlPause(many_regions()) {
    for (uint32_t r = 0; r < window_.shape.regions; r++) {
      for (uint64_t at = 64; at < window_.region_bytes(); at += 4096) klass(region(r) + at, kLeaf);
    }
    options_.simulation.on_access = [this](uint64_t at, bool) {
      const merapi_area_desc& bitmap = window_.layout.area[MERAPI_AREA_BITMAP0];
      if (at < bitmap.offset || at >= bitmap.offset + bitmap.size) return;
      const uint64_t r = (at - bitmap.offset) * 64 >> window_.shape.region_log2;
      if (r < window_.shape.regions && window_.limits()[r] == region(uint32_t(r))) touched_.insert(uint32_t(r));
    };
  }
  std::set<uint32_t> touched_;
};

TEST_F(RtlPauseSweep, MarksOfFreedRegionsAreNotTouched) {
  Random random(13);
  for (int trial = 0; trial < 16; trial++) {
    window_.fill_regions();
    for (uint32_t r = 0; r < window_.shape.regions; r++) {
      for (uint64_t at = 64; at < window_.region_bytes(); at += 4096) window_.mark(0, region(r) + at);
    }
    touched_.clear();
    start();
    machine_->run(random.between(400, 8000));
    pause();
    ASSERT_TRUE(touched_.empty());
    std::set<uint32_t> freed;
    for (uint32_t r = 0; r < window_.shape.regions; r++) {
      if (random.percent(40)) free_region(r), freed.insert(r);
    }
    resume();
    ASSERT_TRUE(finish());
    EXPECT_EQ(machine_->fault().code, 0u);
    EXPECT_TRUE(touched_.empty()) << touched_.size() << " regions, the first " << *touched_.begin() << ", trial "
                                  << trial;
  }
}

}  // namespace
}  // namespace merapi::sim::rtl::test
