// SPDX-License-Identifier: Apache-2.0
//
// The host's whole wait for a pause, from its request until it sees the acknowledgement: 5 us at 250 MHz in heaps
// of up to 32,768 regions, whatever the tracer has in hand, with a memory that answers after 100 ns and takes one line
// a cycle at each port. Each trace ends all the same and leaves what the closure says. MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/rtl/test/directed_heap.h"
#include "sim/test/closure.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Closure;
using merapi::sim::test::ClosureInput;
using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;

constexpr uint64_t kMost = 1250;
constexpr uint32_t kLeaf = 0x5000;
constexpr uint64_t kLeafBytes = 16, kHeaderBytes = 16;
constexpr uint64_t kBitmapLine = 4096;  // bytes of the heap

WindowShape shape_of(uint32_t regions, uint8_t region_log2, uint8_t oop_bytes = 4) {
  WindowShape s;
  s.regions = regions;
  s.region_log2 = region_log2;
  s.oop_bytes = oop_bytes;
  s.spill_bytes = 1 << 20;
  return s;
}

// A heap that hangs from an array at 64, and a host that pauses its trace.
class PausedTrace {
 public:
  PausedTrace(const WindowShape& s, uint64_t seed) : random(seed), window(s) {
    window.put_instance(kLeaf, kLeafBytes / 8);
    window.put_instance(kNode, uint32_t(node_bytes() / 8), {{node_field(), 2}});
    window.put_object_array(kArray, kHeaderBytes);
    window.fill_regions();
  }

  // ---- the heap
  uint64_t region(uint64_t r) const { return r << window.shape.region_log2; }
  uint32_t node_field() const { return window.shape.oop_bytes == 4 ? 12 : 16; }
  uint64_t node_bytes() const { return (node_field() + 2 * window.shape.oop_bytes + 7) / 8 * 8; }
  uint64_t array_bytes(uint64_t length) const { return (kHeaderBytes + length * window.shape.oop_bytes + 7) / 8 * 8; }
  void make(uint64_t at, uint32_t klass) { std::memcpy(window.heap() + at + 8, &klass, sizeof klass); }
  void make_array(uint64_t at, uint32_t length) {
    make(at, kArray);
    std::memcpy(window.heap() + at + 12, &length, sizeof length);
  }
  void refer(uint64_t field, uint64_t to) {
    const WindowShape& s = window.shape;
    const uint64_t value = s.oop_bytes == 8 ? s.heap_base + to : (s.heap_base + to - s.narrow_base) >> s.narrow_shift;
    std::memcpy(window.heap() + field, &value, s.oop_bytes);
  }
  void refer_element(uint64_t array, uint64_t i, uint64_t to) {
    refer(array + kHeaderBytes + i * window.shape.oop_bytes, to);
  }
  void refer_node(uint64_t node, uint64_t i, uint64_t to) {
    refer(node + node_field() + i * window.shape.oop_bytes, to);
  }
  template <typename T>
  void shuffle(std::vector<T>* v) {
    for (size_t i = v->size(); i > 1; i--) std::swap((*v)[i - 1], (*v)[random.below(i)]);
  }

  // Nodes at these places, each with two references to any of them, and the array of all.
  void make_graph(const std::vector<uint64_t>& places) {
    make_array(64, uint32_t(places.size()));
    for (size_t i = 0; i < places.size(); i++) {
      make(places[i], kNode);
      refer_element(64, i, places[i]);
      for (int k : {0, 1}) refer_node(places[i], uint64_t(k), random.pick(places));
    }
  }
  // Arrays of some lines each, one behind the other from `at` on, with references to any of these places, and the array
  // of all.
  void make_arrays(uint64_t at, uint32_t count, const std::vector<uint64_t>& places) {
    make_array(64, count);
    for (uint64_t place : places) make(place, kLeaf);
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t length = uint32_t(random.between(8, 160));
      // In one region.
      if (at / region(1) != (at + array_bytes(length)) / region(1)) at = (at / region(1) + 1) * region(1);
      make_array(at, length);
      refer_element(64, i, at);
      for (uint32_t k = 0; k < length; k++) refer_element(at, k, random.pick(places));
      at += array_bytes(length);
    }
  }

  // ---- the host
  void find_closure() {
    window.mark(0, 64);
    ClosureInput in = ClosureInput::of_window(window.base, 0);
    for (uint32_t r = 0; r < commanded; r++) in.commanded.insert(r);
    in.answer_object = in.answer_klass = [](uint64_t) { return std::vector<uint64_t>{}; };
    closure_ = merapi::sim::test::naive_closure(in);
  }
  void attach() {
    find_closure();
    RtlMachineOptions options;
    options.timing = {25, 25, 100, 1};
    machine = std::make_unique<RtlMachine>(&window, options);
    ASSERT_TRUE(machine->attach());
    machine->run(kPowerUp);
  }
  void begin() {
    window.clear_area(MERAPI_AREA_BITMAP0);
    window.mark(0, 64);
    machine->begin(0);
    machine->trace(0, commanded);
  }
  bool ended() {
    machine->complete();
    return machine->idle() || machine->fault().code != 0;
  }
  // `what` is in the message when it takes too long.
  void pause(const std::string& what) {
    const uint64_t asked = machine->simulation->cycles();
    machine->request_pause();
    ASSERT_TRUE(machine->run_until([&] { return machine->pause_acknowledged(); }, kPatience)) << what;
    const uint64_t waited = machine->simulation->cycles() - asked;
    // What was counted is the host's now. (Before anything was, the table may be that of the cycle before.)
    const uint64_t *live = window.live(), counted = machine->counter(MERAPI_COUNTER_LIVE_WORDS);
    if (counted != 0) {
      EXPECT_EQ(std::accumulate(live, live + window.shape.regions, uint64_t{0}), counted) << what;
    }
    pauses_++;
    if (waited <= longest_) return;
    longest_ = waited;
    longest_what_ = what + ", asked for in cycle " + std::to_string(asked);
  }
  void resume() {
    machine->resume();
    ASSERT_TRUE(machine->run_until([&] { return machine->resume_acknowledged(); }, kPatience));
  }
  void finish() {
    ASSERT_TRUE(machine->run_until([&] { return ended(); }, kPatience));
    ASSERT_EQ(machine->fault().code, 0u) << merapi_fault_name(machine->fault().code);
    ClosureInput in = ClosureInput::of_window(window.base, 0);
    EXPECT_EQ(compare_marks(in, closure_, window.area(MERAPI_AREA_BITMAP0)), "");
    for (uint32_t r = 0; r < window.shape.regions; r++) {
      auto it = closure_.live.find(r);
      ASSERT_EQ(window.live()[r], it == closure_.live.end() ? 0 : it->second) << "live words of region " << r;
    }
    EXPECT_EQ(machine->counter(MERAPI_COUNTER_OBJECTS_MARKED), closure_.newly_count);
  }
  // A cycle with pauses so long after each other, until the trace has ended; then the host has waited no longer than it
  // may.
  void run(const std::string& what, uint64_t least, uint64_t most) {
    begin();
    uint64_t rested = random.between(least, most);
    for (uint64_t i = 0; i < kPauses; i++) {
      if (machine->run_until([&] { return ended(); }, rested)) break;
      ASSERT_NO_FATAL_FAILURE(pause(what));
      ASSERT_NO_FATAL_FAILURE(resume());
      rested = random.between(least, most);
    }
    finish();
  }
  void expect_short(uint64_t pauses) {
    EXPECT_GE(pauses_, pauses) << "not what is tested";
    EXPECT_LE(longest_, kMost) << longest_what_ << ", the longest of " << pauses_ << " pauses";
    // Of all traces of a case.
    static std::map<std::string, uint64_t> of_case;
    uint64_t& most = of_case[testing::UnitTest::GetInstance()->current_test_info()->name()];
    most = std::max(most, longest_);
    testing::Test::RecordProperty("longest_pause_cycles", int(most));
  }

  Random random;
  Window window;
  uint32_t commanded = window.shape.regions;  // the first of them
  std::unique_ptr<RtlMachine> machine;

 private:
  static constexpr uint64_t kPauses = 400;  // of one cycle, at most

  Closure closure_;
  uint64_t longest_ = 0, pauses_ = 0;
  std::string longest_what_;
};

// Places for objects of so many bytes, `each` in every region from `first` on, `apart` regions from one to the next.
std::vector<uint64_t> spread(const PausedTrace& t, uint32_t first, uint32_t apart, uint64_t each) {
  const uint64_t step = t.region(1) / each / 64 * 64;
  std::vector<uint64_t> places;
  for (uint64_t r = first; r < t.window.shape.regions; r += apart) {
    // Not all in the same columns of lines.
    for (uint64_t i = 0; i < each; i++) places.push_back(t.region(r) + i * step + (r * 7 + i * 3) % 8 * 8 % step);
  }
  return places;
}

// References to objects each of which has a line of the bitmap of its own: every one of a line that is in hand misses.
TEST(RtlPauseBound, ArraysOfReferences) {
  for (uint8_t oop_bytes : {4, 8}) {
    PausedTrace t(shape_of(128, 20, oop_bytes), oop_bytes);
    const uint32_t arrays = is_small() ? 250 : 1200;
    std::vector<uint64_t> leaves;
    for (uint64_t at = t.region(16); at < t.window.heap_bytes(); at += kBitmapLine) {
      leaves.push_back(at + t.random.below((kBitmapLine - kLeafBytes) / 8) * 8);
    }
    t.make_arrays(t.region(1), arrays, leaves);
    ASSERT_NO_FATAL_FAILURE(t.attach());
    ASSERT_NO_FATAL_FAILURE(t.run("references of " + std::to_string(oop_bytes) + " bytes", 200, 6000));
    t.expect_short(20);
  }
}

// Live words of more than a thousand regions are to be written.
TEST(RtlPauseBound, ManyRegions) {
  PausedTrace t(shape_of(2048, 16), 1);
  std::vector<uint64_t> places = spread(t, 3, 2, is_small() ? 4 : 30);
  t.shuffle(&places);
  t.make_graph(places);
  ASSERT_NO_FATAL_FAILURE(t.attach());
  ASSERT_NO_FATAL_FAILURE(t.run("a graph", 1000, 8000));
  t.expect_short(20);
}

// A fence is what the tracer is at, or about to be, when a pause is asked for.
TEST(RtlPauseBound, BehindAFence) {
  PausedTrace t(shape_of(512, 18), 2);
  std::vector<uint64_t> places = spread(t, 1, 1, is_small() ? 12 : 100);
  t.shuffle(&places);
  t.make_graph(places);
  ASSERT_NO_FATAL_FAILURE(t.attach());
  t.begin();
  uint64_t fences = 0, answers = 0;
  while (!t.machine->run_until([&] { return t.ended(); }, t.random.between(500, 7000))) {
    // As many greys of the host before it, now and then, as are under way at a time.
    if (t.random.percent(30)) {
      std::vector<uint64_t> greys;
      for (int i = 0; i < 6; i++) greys.push_back(t.window.shape.heap_base + t.random.pick(places));
      t.machine->grey(greys);
    }
    t.machine->command(MERAPI_OP_FENCE, 0, fences++, 0);
    if (t.random.percent(70)) t.machine->run(t.random.below(600));
    ASSERT_NO_FATAL_FAILURE(t.pause("behind a fence"));
    ASSERT_NO_FATAL_FAILURE(t.resume());
    ASSERT_TRUE(t.machine->run_until(
        [&] {
          for (const merapi_completion& c : t.machine->complete()) {
            if (c.type == MERAPI_COMP_DONE && c.arg == MERAPI_OP_FENCE) {
              EXPECT_EQ(c.payload[2], answers++);
            }
          }
          return answers == fences;
        },
        kPatience));
    ASSERT_LT(fences, 400u) << "nothing goes on between pauses";
  }
  ASSERT_NO_FATAL_FAILURE(t.finish());
  t.expect_short(15);
}

// More regions than any checker keeps limits of: two, four and eight times as many in the largest presets.
TEST(RtlPauseBound, ManyMoreRegions) {
  for (uint32_t regions : is_small() ? std::vector<uint32_t>{4096} : std::vector<uint32_t>{8192, 16384, 32768}) {
    for (uint8_t oop_bytes : {4, 8}) {
      PausedTrace t(shape_of(regions, 16, oop_bytes), oop_bytes);
      std::vector<uint64_t> leaves = spread(t, 64, 1, 1);
      t.make_arrays(t.region(16), is_small() ? 60 : 300, leaves);
      ASSERT_NO_FATAL_FAILURE(t.attach());
      ASSERT_NO_FATAL_FAILURE(
          t.run(std::to_string(regions) + " regions, arrays with references of " + std::to_string(oop_bytes) + " bytes",
                1000, is_small() ? 9000 : 16'000));
      t.expect_short(15);
    }
  }
}

// What an idle device owes is under way: marks and live words are written, or chunks that greys were dropped in are
// swept again.
TEST(RtlPauseBound, BeforeIdle) {
  {
    PausedTrace t(shape_of(is_small() ? 256 : 2048, 16), 3);
    std::vector<uint64_t> places = spread(t, 3, 2, 1);
    t.shuffle(&places);
    t.make_graph(places);
    t.commanded = 1;  // a sweep of all would be most of the time
    ASSERT_NO_FATAL_FAILURE(t.attach());
    t.begin();
    const uint64_t began = t.machine->simulation->cycles();
    ASSERT_NO_FATAL_FAILURE(t.finish());
    const uint64_t whole = t.machine->simulation->cycles() - began;
    const uint64_t last = is_small() ? 2000 : 4000;
    for (int trial = 0; trial < 30; trial++) {
      t.begin();
      const uint64_t rested = whole - std::min(whole, t.random.below(last));
      if (!t.machine->run_until([&] { return t.ended(); }, rested)) {
        ASSERT_NO_FATAL_FAILURE(t.pause("a trace is about to end"));
        ASSERT_NO_FATAL_FAILURE(t.resume());
      }
      ASSERT_NO_FATAL_FAILURE(t.finish());
    }
    t.expect_short(15);
  }
  {
    PausedTrace t(shape_of(64, 17), 4);
    t.window.directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    std::vector<uint64_t> places = spread(t, 1, 1, is_small() ? 40 : 120 * lanes());
    t.shuffle(&places);
    t.make_graph(places);
    ASSERT_NO_FATAL_FAILURE(t.attach());
    for (int trial = 0; trial < 2; trial++) {
      ASSERT_NO_FATAL_FAILURE(t.run("chunks are swept again", 1000, 20'000));
      EXPECT_GT(t.machine->counter(MERAPI_COUNTER_GREYS_DROPPED), 0u) << "not what is tested";
      EXPECT_GT(t.machine->counter(MERAPI_COUNTER_RESCANS), 0u) << "not what is tested";
    }
    t.expect_short(15);
  }
}

// The next pause comes as soon as the resume is asked for, or soon after it was acknowledged; with some time for what a
// first object needs, something goes on each time.
TEST(RtlPauseBound, BehindAResume) {
  constexpr uint64_t kSoon = 700;
  PausedTrace t(shape_of(256, 17), 5);
  std::vector<uint64_t> places = spread(t, 1, 1, is_small() ? 4 : 24);
  t.shuffle(&places);
  t.make_graph(places);
  ASSERT_NO_FATAL_FAILURE(t.attach());
  t.begin();
  auto work = [&] {
    return t.machine->counter(MERAPI_COUNTER_BITMAP_READS) + t.machine->counter(MERAPI_COUNTER_OBJECTS_SCANNED) +
           t.machine->counter(MERAPI_COUNTER_REFERENCES_READ);
  };
  uint64_t before = 0, still = 0;
  for (int pauses = 0; !t.ended(); pauses++) {
    ASSERT_LT(pauses, 2500) << "nothing goes on between pauses";
    ASSERT_NO_FATAL_FAILURE(t.pause("soon after a resume"));
    still += work() == before;
    before = work();
    while (t.random.percent(25)) {
      t.machine->resume();
      t.machine->run(t.random.below(60));
      ASSERT_NO_FATAL_FAILURE(t.pause("as soon as a resume is asked for"));
      before = work();
    }
    ASSERT_NO_FATAL_FAILURE(t.resume());
    t.machine->run(t.random.between(kSoon / 2, kSoon));
  }
  // The last one may come when nothing is left, and the first before the cycle has begun.
  EXPECT_LE(still, 2u) << "pauses before which nothing went on";
  ASSERT_NO_FATAL_FAILURE(t.finish());
  t.expect_short(40);
}

}  // namespace
}  // namespace merapi::sim::rtl::test
