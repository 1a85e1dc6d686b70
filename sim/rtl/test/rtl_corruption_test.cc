// SPDX-License-Identifier: Apache-2.0
//
// Windows that are corrupted while the tracer works on them: bits turn over in whatever host, device and program keep
// there, and requests come out of turn. What is traced meanwhile means nothing, and may end with a fault. But the
// tracer writes nowhere else than it may, and once the host's part is as it was it acknowledges an abort, begins a new
// generation and traces what is there. MERAPI_SEEDS, MERAPI_SEED and MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sim/rtl/test/border_heap.h"
#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/closure.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Closure;
using merapi::sim::test::ClosureInput;
using merapi::sim::test::Mapping;
using merapi::sim::test::Random;

// Cycles in which a request is acknowledged, and in which a trace ends.
constexpr uint64_t kAcknowledged = 400'000, kTraced = 4'000'000;

class CorruptedWindow {
 public:
  explicit CorruptedWindow(uint64_t seed)
      : random_(seed), window_(BorderHeap::shape(&random_)), heap_(&window_, &random_) {
    if (random_.percent(33)) window_.directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    allow();
    RtlMachineOptions options = choose_machine(chosen_preset(), &random_);
    choose_memory(chosen_preset(), seed, &options.simulation);
    options.simulation.on_access = [this](uint64_t address, bool write) { judge(address, write); };
    // What a device says of itself to a host that is out of its mind need not make sense.
    options.simulation.on_page = [](const uint8_t*, uint64_t, const Line&) {};
    machine_ = std::make_unique<RtlMachine>(&window_, options);
  }

  // What was wrong.
  std::string run() {
    if (!machine_->attach()) return "no handshake";
    right_ = window_.copy();
    for (uint64_t round = 1; round <= 3 && fine(); round++) {
      corrupt();
      faults_ += machine_->fault().code != 0;
      repair();
      if (random_.percent(50)) abort();
      // One that no flip can have made.
      host_index()->generation = round << 32;
      if (fine() && !machine_->attach(kAcknowledged))
        error_ << "no handshake again, state " << machine_->state() << "; ";
      if (fine()) trace();
    }
    return error_.str();
  }
  // Rounds that ended with a fault.
  uint64_t faults() const { return faults_; }

 private:
  bool fine() const { return error_.str().empty(); }
  merapi_host_index* host_index() { return window_.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET); }
  merapi_host_request* request() { return window_.control<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET); }
  merapi_device_index* index() { return window_.control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET); }
  merapi_device_ack* ack() { return window_.control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET); }

  // Where the device may write: its lines of the control page, and its areas as they were configured.
  void allow() {
    allowed_ = {{MERAPI_DEVICE_IDENTITY_OFFSET, MERAPI_FAULT_RECORD_OFFSET + MERAPI_LINE_BYTES},
                {MERAPI_COUNTERS_OFFSET, MERAPI_CONTROL_BYTES}};
    for (int a :
         {MERAPI_AREA_COMPLETION, MERAPI_AREA_LIVE, MERAPI_AREA_BITMAP0, MERAPI_AREA_BITMAP1, MERAPI_AREA_SPILL}) {
      const merapi_area_desc area = window_.directory()->area[a];
      allowed_.push_back({area.offset, area.offset + area.size});
    }
  }
  void judge(uint64_t address, bool write) {
    const auto holds = [=](const auto& range) { return address >= range.first && address < range.second; };
    if (address >= window_.bytes) error_ << "access outside the window at " << std::hex << address << std::dec << "; ";
    if (write && std::none_of(allowed_.begin(), allowed_.end(), holds))
      error_ << "write at " << std::hex << address << std::dec << "; ";
  }

  void flip(uint8_t* byte) { *byte ^= uint8_t(1u << random_.below(8)); }
  void flip_in_page(uint64_t from, uint64_t bytes) { flip(window_.base + from + random_.below(bytes)); }
  void flip_in(int area, uint64_t most) {
    const uint64_t bytes = std::min(most, window_.directory()->area[area].size);
    if (bytes != 0) flip(window_.base + window_.directory()->area[area].offset + random_.below(bytes));
  }
  void flip_something() {
    const uint64_t regions = window_.shape.regions * sizeof(uint64_t);
    switch (random_.below(13)) {
      case 0:  // indexes of the rings
        return flip_in_page(MERAPI_HOST_INDEX_OFFSET + offsetof(merapi_host_index, submission_produced), 16);
      case 1:
        if (random_.percent(20)) flip_in_page(MERAPI_HOST_INDEX_OFFSET + offsetof(merapi_host_index, generation), 8);
        return;
      case 2:
        return flip_in_page(MERAPI_HOST_REQUEST_OFFSET, 12);
      case 3:
        return flip_in(MERAPI_AREA_SUBMISSION, 16 * MERAPI_LINE_BYTES);
      case 4:
      case 5:
        return flip_in(MERAPI_AREA_SHAPES, ~uint64_t{0});
      case 6:
        return flip_in(MERAPI_AREA_SHAPE_EXTENSION, 2048);
      case 7:
        return flip_in(MERAPI_AREA_LIMITS, regions);
      case 8:
        return flip_in(MERAPI_AREA_LIVE, regions);
      case 9:
        return flip_in(MERAPI_AREA_BITMAP0 + int(random_.below(2)), window_.heap_bytes() / 64);
      case 10:
        return flip_in(MERAPI_AREA_SPILL, 4096);
      default: {
        const uint64_t at = random_.pick(heap_.objects()).at + random_.below(24);
        if (at < window_.heap_bytes()) flip(window_.heap() + at);
      }
    }
  }

  void begin(uint32_t percent) {
    bitmap_ = uint32_t(random_.below(2));
    window_.clear_area(MERAPI_AREA_BITMAP0 + int(bitmap_));
    for (const BorderObject& o : heap_.objects()) {
      if (heap_.below(o) && random_.percent(percent)) window_.mark(int(bitmap_), o.at);
    }
    before_ = window_.copy();
    answered_.clear();
    pending_.clear();
    machine_->begin(bitmap_);
    machine_->trace(0, window_.shape.regions);
  }

  void corrupt() {
    begin(uint32_t(random_.between(1, 30)));
    for (uint64_t turns = random_.between(1, 40); turns != 0 && fine(); turns--) {
      machine_->run(random_.percent(70) ? random_.below(60) : random_.below(2500));
      if (random_.percent(60)) flip_something();
      if (random_.percent(50)) read_anything();
      if (random_.percent(5)) machine_->request_pause();
      if (random_.percent(5)) machine_->resume();
      if (random_.percent(2)) machine_->abort();
    }
  }
  // A host that goes on with whatever it finds.
  void read_anything() {
    try {
      read();
    } catch (const std::runtime_error&) {
      machine_->consumed = machine_->completed();
    }
  }
  void read() {
    for (const merapi_completion& c : machine_->complete()) {
      if (c.cycle != machine_->cycle || (c.type != MERAPI_COMP_DEFER && c.type != MERAPI_COMP_SHAPE_SEEN)) continue;
      for (int i = 0; i < std::min<int>(c.count, MERAPI_ENTRY_WORDS); i++) {
        if (!answered_.insert(c.payload[i]).second) continue;
        for (uint64_t a : heap_.answer(c.payload[i])) pending_.push_back(a);
      }
    }
    while (!pending_.empty() && machine_->room()) {
      const auto end = pending_.begin() + long(std::min<size_t>(pending_.size(), MERAPI_ENTRY_WORDS));
      machine_->grey({pending_.begin(), end});
      pending_.erase(pending_.begin(), end);
    }
  }

  // All that the host wrote, but for its indexes and requests.
  void repair() {
    for (int a : {MERAPI_AREA_SHAPES, MERAPI_AREA_SHAPE_EXTENSION, MERAPI_AREA_LIMITS, MERAPI_AREA_HEAP}) {
      const merapi_area_desc area = window_.layout.area[a];
      std::memcpy(window_.base + area.offset, right_->base + area.offset, area.size);
    }
  }
  // In the generation that runs, if it is not over: a flip may have ended it.
  void abort() {
    if (!fine() || !machine_->generation_answered() || machine_->state() == MERAPI_DEVICE_STATE_DETACHED) return;
    machine_->produced = host_index()->submission_produced = index()->submission_consumed;
    machine_->consumed = host_index()->completion_consumed = index()->completion_produced;
    machine_->run(400);
    request()->pause = request()->resume = ack()->pause;
    request()->abort = ack()->abort + 1;
    if (!machine_->run_until([&] { return ack()->abort == request()->abort; }, kAcknowledged))
      error_ << "abort not acknowledged, state " << machine_->state() << "; ";
  }

  void trace() {
    begin(20);
    bool ended = false;
    for (uint64_t i = 0; i < kTraced && fine() && !ended; i += 64) {
      machine_->run(64);
      read();
      ended = pending_.empty() && machine_->idle();
      if (machine_->fault().code != 0) error_ << "fault " << merapi_fault_name(machine_->fault().code) << "; ";
    }
    if (!fine()) return;
    if (!ended) {
      error_ << "no end, state " << machine_->state() << "; ";
      return;
    }
    ClosureInput in = ClosureInput::of_window(before_->base, bitmap_);
    for (uint32_t i = 0; i < window_.shape.regions; i++) in.commanded.insert(i);
    in.answer_object = in.answer_klass = [&](uint64_t key) { return heap_.answer(key); };
    const Closure want = merapi::sim::test::naive_closure(in);
    error_ << compare_marks(in, want, window_.area(MERAPI_AREA_BITMAP0 + int(bitmap_)));
    for (uint32_t i = 0; i < window_.shape.regions; i++) {
      const auto it = want.live.find(i);
      if (window_.live()[i] != (it == want.live.end() ? 0 : it->second)) error_ << "live words of region " << i << "; ";
    }
  }

  Random random_;
  Window window_;
  BorderHeap heap_;
  std::vector<std::pair<uint64_t, uint64_t>> allowed_;  // from, to
  std::ostringstream error_;
  std::unique_ptr<RtlMachine> machine_;
  std::unique_ptr<Mapping> right_, before_;  // the window without a flip, and as the cycle begins
  uint32_t bitmap_ = 0;
  std::set<uint64_t> answered_;
  std::deque<uint64_t> pending_;
  uint64_t faults_ = 0;
};

}  // namespace

TEST(RtlCorruption, EndsAndServesAgain) {
  uint64_t seeds = 0, faults = 0;
  each_seed([&](uint64_t seed) {
    CorruptedWindow window(seed);
    EXPECT_EQ(window.run(), "");
    seeds++;
    faults += window.faults();
  });
  if (seeds >= 5) {
    EXPECT_GT(faults, 0u) << "not what is tested";
  }
}

}  // namespace merapi::sim::rtl::test
