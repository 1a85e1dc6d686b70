// SPDX-License-Identifier: Apache-2.0
//
// Heaps at the borders of the contract (BorderHeap) on the RTL and on the model: both against the naive closure, so
// against each other; where something is wrong with the heap, fault against fault. Several cycles on one device, cycles
// that are replaced while they run, shapes that move in pauses. MERAPI_SEEDS, MERAPI_SEED and MERAPI_PRESET as in
// rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <sstream>

#include "sim/rtl/test/border_heap.h"
#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/answers.h"
#include "sim/test/closure.h"
#include "sim/test/model_device.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Answers;
using merapi::sim::test::Closure;
using merapi::sim::test::ClosureInput;
using merapi::sim::test::DeviceMaker;
using merapi::sim::test::Mapping;
using merapi::sim::test::Random;
using merapi::sim::test::TracedDevice;
using merapi::sim::test::TraceKnobs;
using merapi::sim::test::WindowHost;

struct Knobs {
  bool faults = false, pauses = false, replaces = false;
};

struct Outcome {
  std::string error;
  PlantedFault planted;
  merapi_fault_record fault{};
};

// What a seed's heap and host are does not depend on the device; when they do what does.
class BorderTrace {
 public:
  BorderTrace(uint64_t seed, const Knobs& knobs, bool model)
      : knobs_(knobs),
        heap_random_(seed),
        random_(seed * 2 + model),
        window_(BorderHeap::shape(&heap_random_)),
        heap_(&window_, &heap_random_) {
    TraceKnobs t{};
    t.no_spill = heap_random_.percent(33);
    t.tiny_stack = model && random_.percent(50);
    may_drop_ = t.no_spill || window_.shape.spill_bytes < 1 << 20;
    cycles_ = int(heap_random_.between(1, 3));
    for (int i = 0; knobs_.faults && i < 20 && !planted_; i++) planted_ = heap_.plant();
    const DeviceMaker make =
        model ? DeviceMaker(merapi::sim::test::make_model_device) : rtl_devices(chosen_preset(), {.seed = seed});
    device_ = make(&window_, &random_, t);
    host_ = &device_->host();
  }

  Outcome run() {
    Outcome out;
    if (!device_->attach()) error_ << "no handshake; ";
    for (int i = 0; i < cycles_ && right(); i++) {
      cycle(i);
      if (planted_) {
        out.planted = planted_;
        out.fault = host_->fault();
        if (!faulted()) break;  // what is wrong was not met
        repair();
      } else if (faulted()) {
        error_ << "fault " << merapi_fault_name(host_->fault().code) << std::hex << " address "
               << host_->fault().address << " detail " << host_->fault().detail << std::dec << "; ";
      }
    }
    out.error = error_.str();
    return out;
  }

 private:
  bool right() const { return error_.str().empty(); }
  bool faulted() const { return host_->state() == MERAPI_DEVICE_STATE_FAULTED; }

  // The cycles after it find nothing wrong.
  void repair() {
    planted_.repair();
    planted_ = {};
    host_->abort();
    if (!device_->settle([&] { return host_->abort_acknowledged(); })) error_ << "abort not acknowledged; ";
    read(~size_t{0});
    answers_.forget();
  }

  void mark_roots() {
    Random& h = heap_random_;
    const uint64_t words = (window_.heap_bytes() >> window_.shape.alignment_log2) / 64;
    std::fill_n(window_.bitmap(int(bitmap_)), words, 0);
    const uint32_t percent = h.percent(25) ? 0 : h.percent(60) ? uint32_t(h.between(1, 15)) : 100;
    for (const BorderObject& o : heap_.objects()) {
      if (heap_.below(o) && h.percent(percent)) window_.mark(int(bitmap_), o.at);
    }
  }

  void script_sweeps() {
    Random& h = heap_random_;
    const uint32_t n = window_.shape.regions;
    std::vector<std::pair<uint32_t, uint32_t>> slices;
    // Without a command too, what the host marked is followed in chunks that are swept again, for greys were dropped
    // there, and along a chain.
    const bool all = h.percent(50) || may_drop_ || heap_.is_list(), ones = h.percent(40);
    for (uint32_t at = 0; at < n;) {
      const uint32_t count = ones ? 1 : uint32_t(h.between(1, n - at));
      if (all || h.percent(70)) slices.push_back({at, count});
      at += count;
    }
    // Some of it again.
    for (uint64_t i = h.below(4); i != 0 && h.percent(50); i--) {
      const uint32_t first = uint32_t(h.below(n));
      slices.push_back({first, uint32_t(h.between(1, n - first))});
    }
    for (size_t i = slices.size(); i > 1; i--) std::swap(slices[i - 1], slices[h.below(i)]);
    for (auto [first, count] : slices) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_TRACE_REGION;
      e.arg = first;
      e.payload[0] = count;
      script_.push_back(e);
      for (uint32_t i = first; i < first + count; i++) commanded_.insert(i);
    }
  }
  void script_anywhere(const merapi_submission& e) {
    script_.insert(script_.begin() + long(heap_random_.below(script_.size() + 1)), e);
  }
  void script_greys() {
    Random& h = heap_random_;
    for (uint64_t i = h.below(h.percent(10) ? 40 : 6); i != 0; i--) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_GREY;
      e.count = uint16_t(h.below(MERAPI_ENTRY_WORDS + 1));
      for (int k = 0; k < e.count; k++) greys_.push_back(e.payload[k] = heap_.any_address());
      script_anywhere(e);
    }
    if (planted_.grey == 0) return;
    merapi_submission e{};
    e.opcode = MERAPI_OP_GREY;
    e.count = 1;
    e.payload[0] = planted_.grey;
    script_anywhere(e);
  }
  void script_others() {
    Random& h = heap_random_;
    const uint32_t n = window_.shape.regions;
    for (uint64_t i = h.below(4); i != 0; i--) {
      merapi_submission e{};
      e.opcode = h.percent(50) ? MERAPI_OP_FENCE : h.percent(50) ? MERAPI_OP_NOP : MERAPI_OP_INVALIDATE_SHAPES;
      e.payload[0] = h.next();
      script_anywhere(e);
    }
    if (h.percent(70)) return;
    merapi_submission e{};
    e.opcode = MERAPI_OP_CLEAR_BITMAP;
    e.arg = 1 - bitmap_;
    e.payload[0] = h.below(n);
    e.payload[1] = h.between(1, n - e.payload[0]);
    script_anywhere(e);
  }

  void prepare(int number) {
    Random& h = heap_random_;
    if (number > 0 && !running_) {
      heap_.set_limits();
      if (h.percent(50)) heap_.publish(&h);
    }
    bitmap_ = running_ ? 1 - bitmap_ : uint32_t(h.below(2));
    mark_roots();
    before_ = window_.copy();
    script_.clear();
    commanded_.clear();
    greys_.clear();
    script_sweeps();
    script_greys();
    script_others();
    pending_.clear();
    deferred_.clear();
    unsized_.clear();
    seen_.clear();
  }

  void cycle(int number) {
    prepare(number);
    // The cycle before may have filled the ring with commands: the host goes on reading.
    for (uint64_t turns = 0; !host_->room(); turns++) {
      if (turns > device_->most_turns()) {
        error_ << "no room for a cycle; ";
        return;
      }
      device_->advance(&random_);
      read(~size_t{0});
    }
    const uint64_t begun = host_->produced;
    host_->begin(bitmap_);
    const bool replaced = knobs_.replaces && number + 1 < cycles_ && heap_random_.percent(40);
    const uint64_t leave = replaced ? random_.below(60) : ~uint64_t{0};
    running_ = false;
    for (uint64_t turns = 1; right() && !faulted(); turns++) {
      if (turns > device_->most_turns()) error_ << "no end, state " << host_->state() << "; ";
      running_ = turns > leave && may_be_replaced(begun);
      if (running_) return;
      act();
      if (script_.empty() && pending_.empty() && host_->idle()) return check();
    }
  }
  // The bitmap of the cycle before is the host's when this one has begun, and so is what it had cleared.
  bool may_be_replaced(uint64_t begun) const {
    return script_.empty() && !answers_.waits_for(MERAPI_OP_CLEAR_BITMAP) && host_->executed() > begun;
  }

  void act() {
    const uint64_t dice = random_.below(100);
    if (dice < 60) {
      device_->advance(&random_);
    } else if (dice < 72) {
      submit();
    } else if (dice < 90) {
      read(random_.percent(50) ? ~size_t{0} : random_.between(1, 5));
    } else if (dice < 98) {
      submit_greys();
    } else if (knobs_.pauses && random_.percent(15)) {
      pause();
    }
  }
  void submit() {
    if (script_.empty() || !host_->room()) return;
    merapi_submission e = script_.front();
    script_.pop_front();
    e.cycle = host_->cycle;
    answers_.expect(host_->produced, e);
    host_->submit(e);
  }
  void submit_greys() {
    while (!pending_.empty() && host_->room()) {
      const auto end = pending_.begin() + long(std::min<size_t>(pending_.size(), MERAPI_ENTRY_WORDS));
      host_->grey({pending_.begin(), end});
      pending_.erase(pending_.begin(), end);
    }
  }

  void read(size_t count) {
    for (const merapi_completion& c : host_->complete(count)) {
      if (c.type == MERAPI_COMP_DONE) {
        error_ << answers_.take(c);
      } else if (c.cycle != host_->cycle) {
        continue;  // of the cycle that was replaced
      } else if (c.type == MERAPI_COMP_DEFER) {
        read_deferred(c);
      } else if (c.type == MERAPI_COMP_SHAPE_SEEN) {
        for (int i = 0; i < c.count; i++) {
          if (seen_.insert(c.payload[i]).second) answer(c.payload[i]);
        }
      } else if (c.type != MERAPI_COMP_FAULT) {
        error_ << "type " << int(c.type) << "; ";
      }
    }
  }
  void read_deferred(const merapi_completion& c) {
    const bool unsized = (c.flags >> MERAPI_DEFER_FLAG_UNSIZED & 1) != 0;
    for (int i = 0; i < c.count; i++) {
      const uint64_t offset = c.payload[i] - window_.shape.heap_base;
      if (offset >= window_.heap_bytes()) {
        error_ << "DEFER outside; ";
        continue;
      }
      if (unsized && !unsized_.insert(offset).second) error_ << "unsized twice; ";
      deferred_.insert(offset);
      answer(c.payload[i]);
    }
  }
  void answer(uint64_t key) {
    for (uint64_t a : heap_.answer(key)) pending_.push_back(a);
  }

  // All that a device writes but for the control page.
  std::vector<uint8_t> written() {
    std::vector<uint8_t> all;
    for (int a : {MERAPI_AREA_BITMAP0, MERAPI_AREA_BITMAP1, MERAPI_AREA_LIVE, MERAPI_AREA_COMPLETION}) {
      all.insert(all.end(), window_.area(a), window_.area(a) + window_.layout.area[a].size);
    }
    return all;
  }
  void pause() {
    host_->request_pause();
    if (!device_->settle([&] { return host_->pause_acknowledged(); })) {
      error_ << "pause not acknowledged; ";
      return;
    }
    const std::vector<uint8_t> was = written();
    for (uint64_t i = random_.below(4); i != 0; i--) device_->advance(&random_);
    if (written() != was) error_ << "written while paused; ";
    // A planted fault stays where it is.
    if (host_->room() && random_.percent(50) && !planted_) {
      heap_.publish(&random_);
      merapi_submission e{};
      e.opcode = MERAPI_OP_INVALIDATE_SHAPES;
      e.cycle = host_->cycle;
      host_->submit(e);
    }
    host_->resume();
  }

  void check() {
    if (!answers_.none_missing()) error_ << "a DONE is missing; ";
    if (!device_->settle([&] { return host_->resume_acknowledged(); })) error_ << "resume not acknowledged; ";
    if (host_->state() != MERAPI_DEVICE_STATE_IDLE) error_ << "state " << host_->state() << "; ";
    ClosureInput in = ClosureInput::of_window(before_->base, bitmap_);
    in.commanded = commanded_;
    in.submitted = greys_;
    in.answer_object = in.answer_klass = [&](uint64_t key) { return heap_.answer(key); };
    const Closure want = merapi::sim::test::naive_closure(in);
    error_ << compare_marks(in, want, window_.area(MERAPI_AREA_BITMAP0 + int(bitmap_)));
    compare("deferred", deferred_, want.deferred);
    compare("unsized", unsized_, want.unsized);
    compare("klasses", seen_, want.klasses);
    check_counts(want);
    const uint64_t heap = window_.layout.area[MERAPI_AREA_HEAP].offset;
    if (std::memcmp(window_.heap(), before_->base + heap, window_.heap_bytes()) != 0)
      error_ << "the heap was written; ";
  }
  void check_counts(const Closure& want) {
    for (uint32_t i = 0; i < window_.shape.regions; i++) {
      const auto it = want.live.find(i);
      const uint64_t words = it == want.live.end() ? 0 : it->second;
      if (window_.live()[i] != words) {
        error_ << "live words of region " << i << ": " << window_.live()[i] << " not " << words << "; ";
      }
    }
    if (host_->counter(MERAPI_COUNTER_OBJECTS_MARKED) != want.newly_count) error_ << "counter of marks; ";
    if (host_->counter(MERAPI_COUNTER_LIVE_WORDS) != want.counts.live_words) error_ << "counter of live words; ";
    if (host_->counter(MERAPI_COUNTER_ROUNDS) != host_->produced) error_ << "counter of rounds; ";
  }
  void compare(const char* what, const std::set<uint64_t>& have, const std::set<uint64_t>& want) {
    for (uint64_t x : want) {
      if (have.count(x) == 0) error_ << what << ": " << std::hex << x << std::dec << " is missing; ";
    }
    for (uint64_t x : have) {
      if (want.count(x) == 0) error_ << what << ": " << std::hex << x << std::dec << " too many; ";
    }
  }

  const Knobs knobs_;
  Random heap_random_, random_;
  Window window_;
  BorderHeap heap_;
  std::unique_ptr<TracedDevice> device_;
  WindowHost* host_ = nullptr;
  PlantedFault planted_;
  bool may_drop_ = false;  // greys
  int cycles_ = 1;
  bool running_ = false;  // the cycle that is to be replaced
  uint32_t bitmap_ = 0;
  std::unique_ptr<Mapping> before_;       // the window as the cycle begins
  std::deque<merapi_submission> script_;  // still to be submitted
  std::deque<uint64_t> pending_;          // and answers to what was reported
  Answers answers_;
  std::set<uint32_t> commanded_;
  std::vector<uint64_t> greys_;
  std::set<uint64_t> deferred_, unsized_, seen_;
  std::ostringstream error_;
};

void expect_same_fault(const Outcome& model, const Outcome& rtl) {
  EXPECT_EQ(model.fault.code, rtl.fault.code);
  if (model.planted.same_address) {
    EXPECT_EQ(model.fault.address, rtl.fault.address);
  }
  if (model.planted.same_detail) {
    EXPECT_EQ(model.fault.detail, rtl.fault.detail);
  }
}

void run_seeds(const Knobs& knobs) {
  uint64_t seeds = 0, found = 0;
  each_seed([&](uint64_t seed) {
    const Outcome model = BorderTrace(seed, knobs, true).run(), rtl = BorderTrace(seed, knobs, false).run();
    SCOPED_TRACE(model.planted.what);
    EXPECT_EQ(model.error, "") << "the model";
    EXPECT_EQ(rtl.error, "") << "the RTL";
    expect_same_fault(model, rtl);
    seeds++;
    found += rtl.fault.code != 0;
  });
  // Of a few seeds each one's may lie where no trace comes.
  if (knobs.faults && seeds >= 5) {
    EXPECT_GT(found, 0u) << "not what is tested";
  }
}

}  // namespace

TEST(RtlBorder, Plain) { run_seeds({}); }
TEST(RtlBorder, Pauses) { run_seeds({.pauses = true}); }
TEST(RtlBorder, Replaced) { run_seeds({.pauses = true, .replaces = true}); }
TEST(RtlBorder, Faults) { run_seeds({.faults = true, .pauses = true}); }

}  // namespace merapi::sim::rtl::test
