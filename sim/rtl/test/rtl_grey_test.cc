// SPDX-License-Identifier: Apache-2.0
//
// References of the host that no grey can be kept for: a host that submits and does not read, without a spill area.
// MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <set>
#include <vector>

#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
constexpr uint64_t kPatience = 50'000;
constexpr uint64_t kPowerUp = 20'000;  // on-chip memories are swept
constexpr uint32_t kDeferred = 0x1000;
constexpr uint64_t kWords = 3;
constexpr uint64_t kApart = 72;

struct Knobs {
  bool pauses = false, aborts = false;
};

// Objects that the host scans, all of them named by the host: the completion ring fills, lanes wait for it, the grey
// store fills behind them, and then banks refuse.
class FullStore {
 public:
  FullStore(uint64_t seed, const Knobs& knobs)
      : r_(seed), knobs_(knobs), window_(shape()), options_(options(&r_)), objects_(count()) {
    window_.directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    merapi_shape s{};
    s.klass_word = kDeferred;
    s.kind = MERAPI_SHAPE_KIND_REFERENCE;
    s.size_words = kWords;
    window_.put_shape(s);
    for (uint32_t i = 0; i < window_.shape.regions; i++) {
      window_.limits()[i] = (uint64_t{i} + 1) << window_.shape.region_log2;
    }
    for (uint64_t i = 0; i < objects_; i++) std::memcpy(window_.heap() + offset(i) + 8, &kDeferred, 4);
    machine_ = std::make_unique<RtlMachine>(&window_, options_);
  }

  // References that were offered again after a mark: only those are found marked.
  void run(uint64_t* again) {
    ASSERT_TRUE(machine_->attach(100'000));
    machine_->run(kPowerUp);
    start();
    for (int turn = 0; !(entries_.empty() && machine_->idle()); turn++) {
      ASSERT_LT(turn, 60'000) << "no end, " << entries_.size() << " entries left";
      ASSERT_EQ(machine_->fault().code, 0u);
      act();
      if (testing::Test::HasFatalFailure()) return;
    }
    *again += machine_->counter(MERAPI_COUNTER_REFS_MARKED);
    EXPECT_TRUE(fences_.empty());
    EXPECT_EQ(deferred_.size(), objects_);
    for (uint64_t i = 0; i < objects_; i++) EXPECT_TRUE(window_.marked(0, offset(i))) << i;
    uint64_t live = 0;
    for (uint32_t i = 0; i < window_.shape.regions; i++) live += window_.live()[i];
    EXPECT_EQ(live, objects_ * kWords);
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_OBJECTS_MARKED), objects_);
    EXPECT_EQ(machine_->counter(MERAPI_COUNTER_GREYS_SUBMITTED), submitted_);
  }

 private:
  struct Fence {
    uint64_t token;
    std::vector<uint64_t> before;  // objects named by then
  };
  static WindowShape shape() {
    WindowShape s;
    s.region_log2 = 20;
    s.regions = 4;
    return s;
  }
  static RtlMachineOptions options(Random* r) {
    RtlMachineOptions o;
    o.timing.least = uint32_t(r->between(1, 20));
    o.timing.most = o.timing.least + uint32_t(r->below(60));
    o.timing.seed = r->next();
    return o;
  }
  // More than ring, slots and stores hold.
  uint64_t count() const { return is_small() ? 1000 * lanes() : lanes() == 4 ? 6500 : 24000; }
  static uint64_t offset(uint64_t i) { return 64 + i * kApart; }

  void start() {
    std::memset(window_.bitmap(0), 0, window_.heap_bytes() / 64);
    entries_.clear();
    fences_.clear();
    deferred_.clear();
    named_.clear();
    submitted_ = 0;
    reads_after_ = 20 + int(r_.below(60));
    machine_->begin(0);
    std::vector<uint64_t> order(objects_);
    for (uint64_t i = 0; i < objects_; i++) order[i] = i;
    for (uint64_t i = objects_; i > 1; i--) std::swap(order[i - 1], order[r_.below(i)]);
    for (uint64_t i = 0; i < objects_;) {
      std::vector<uint64_t> entry;
      uint64_t words = r_.between(1, MERAPI_ENTRY_WORDS);
      for (; entry.size() < words && i < objects_; i++) {
        // Some end in the filter already.
        if (entry.size() + 1 < words && r_.percent(10)) entry.push_back(0);
        entry.push_back(window_.shape.heap_base + offset(order[i]));
      }
      entries_.push_back(entry);
    }
  }

  void act() {
    uint64_t dice = r_.below(100);
    if (dice < 55) {
      machine_->run(r_.between(1, 200));
    } else if (dice < 85) {
      while (!entries_.empty() && machine_->room() && !r_.percent(5)) submit();
    } else if (dice < 95) {
      // It reads when the ring has been full for a while.
      bool full = machine_->completed() - machine_->consumed == window_.shape.completion_entries;
      if (full && reads_after_ > 0) reads_after_--;
      if (reads_after_ == 0 || entries_.empty()) read();
    } else if (dice < 99) {
      if (knobs_.pauses) pause();
    } else if (knobs_.aborts && aborts_ < 3 && r_.percent(30)) {
      aborts_++;
      machine_->abort();
      ASSERT_TRUE(machine_->run_until([&] { return machine_->abort_acknowledged(); }, kPatience)) << "abort";
      machine_->complete();
      start();
    }
  }

  void submit() {
    // While the ring has room and when the store is full: a fence in between would keep the store from filling.
    if ((named_.size() < 300 || named_.size() > objects_ / 4 * 3) && r_.percent(3)) {
      machine_->command(MERAPI_OP_FENCE, 0, named_.size(), 0);
      fences_.push_back({named_.size(), named_});
      return;
    }
    for (uint64_t a : entries_.front()) {
      if (a != 0) named_.push_back(a - window_.shape.heap_base);
    }
    submitted_ += entries_.front().size();
    machine_->grey(entries_.front());
    entries_.pop_front();
  }

  void read() {
    for (const merapi_completion& c : machine_->complete(r_.between(1, 64))) {
      if (c.cycle != machine_->cycle) continue;
      if (c.type == MERAPI_COMP_DEFER) {
        // Some twice: an object that is given back while its report leaves is reported again.
        for (int i = 0; i < c.count; i++) deferred_.insert(c.payload[i]);
      }
      if (c.type != MERAPI_COMP_DONE) continue;
      ASSERT_FALSE(fences_.empty());
      EXPECT_EQ(c.payload[2], fences_.front().token);
      for (uint64_t at : fences_.front().before) ASSERT_TRUE(window_.marked(0, at)) << "not marked at its fence";
      fences_.pop_front();
    }
  }

  void pause() {
    machine_->request_pause();
    ASSERT_TRUE(machine_->run_until([&] { return machine_->pause_acknowledged(); }, kPatience)) << "pause";
    machine_->run(r_.below(500));
    machine_->resume();
  }

  Random r_;
  const Knobs knobs_;
  Window window_;
  const RtlMachineOptions options_;
  const uint64_t objects_;
  std::unique_ptr<RtlMachine> machine_;
  std::deque<std::vector<uint64_t>> entries_;  // still to be submitted
  std::deque<Fence> fences_;
  std::set<uint64_t> deferred_;
  std::vector<uint64_t> named_;
  uint64_t submitted_ = 0;
  int reads_after_ = 0, aborts_ = 0;
};

void run_seeds(const Knobs& knobs) {
  uint64_t again = 0;
  for (uint64_t seed = 1; seed <= 6; seed++) {
    FullStore trace(seed, knobs);
    trace.run(&again);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(again, 0u) << "no bank refused anything: not what is tested";
}

TEST(RtlGrey, FullStore) { run_seeds({}); }
TEST(RtlGrey, FullStoreWithPauses) { run_seeds({.pauses = true}); }
TEST(RtlGrey, FullStoreWithAborts) { run_seeds({.pauses = true, .aborts = true}); }

}  // namespace
}  // namespace merapi::sim::rtl::test
