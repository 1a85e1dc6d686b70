// SPDX-License-Identifier: Apache-2.0
//
// A host that does anything that it may, in any order: commands of all kinds, cycles that replace each other, pauses,
// aborts, faults, revocations, and completions read late. Every answer comes, once, in order, with its command's cycle;
// every request is acknowledged though nobody reads completions. MERAPI_SEEDS, MERAPI_SEED and MERAPI_PRESET as in
// rtl_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>

#include "sim/rtl/test/directed_heap.h"
#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/answers.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;
// Cycles in which a request is acknowledged, and in which all commands of a full ring are executed.
constexpr uint64_t kAcknowledged = 300'000, kExecuted = 3'000'000;
constexpr uint32_t kRegions = 6, kSmall = 0x10000, kSmallKlasses = 60, kShapeless = 0x55550;

class AnyHost {
 public:
  explicit AnyHost(uint64_t seed) : random_(seed), window_(shape(&random_)) {
    make_klasses();
    for (uint32_t r = 0; r < kRegions; r++) fill(r);
    RtlMachineOptions options = choose_machine(chosen_preset(), &random_);
    choose_memory(chosen_preset(), seed, &options.simulation);
    machine_ = std::make_unique<RtlMachine>(&window_, options);
  }
  // What was wrong.
  std::string run() {
    if (!machine_->attach()) return "no handshake";
    for (int i = 0; i < 260 && right(); i++) act();
    if (right() && attached_) end();
    return error_.str();
  }

 private:
  static WindowShape shape(Random* r) {
    WindowShape s;
    s.regions = kRegions;
    s.submission_entries = 256;
    s.spill_bytes = r->percent(50) ? 4096 : 1 << 20;
    return s;
  }
  void make_klasses() {
    window_.put_object_array(kArray, 16);
    window_.put_instance(kNode, kNodeBytes / 8, {{12, 2}});
    for (uint32_t k = 0; k < kSmallKlasses; k++) {
      merapi_shape s{};
      s.klass_word = kSmall + 8 * k;
      s.kind = k % 2 == 0 ? MERAPI_SHAPE_KIND_INSTANCE : MERAPI_SHAPE_KIND_HOST;
      s.size_words = kNodeBytes / 8;
      window_.put_shape(s);
    }
  }
  // An array of objects, some of which refer to other regions' arrays.
  void fill(uint32_t r) {
    window_.limits()[r] = (r + 1) * window_.region_bytes();
    const uint32_t n = uint32_t(random_.below(300));
    const uint64_t array = array_of(r);
    put(array, kArray);
    std::memcpy(window_.heap() + array + 12, &n, 4);
    for (uint32_t i = 0; i < n; i++) {
      const uint64_t object = r * window_.region_bytes() + 0x2000 + kNodeBytes * i;
      put(object, some_klass());
      refer(array + 16 + 4 * uint64_t{i}, object);
      if (random_.percent(50)) refer(object + 12, array_of(uint32_t(random_.below(kRegions))));
    }
  }
  uint32_t some_klass() {
    if (random_.percent(40)) return kNode;
    return random_.percent(90) ? kSmall + 8 * uint32_t(random_.below(kSmallKlasses)) : kShapeless;
  }
  uint64_t array_of(uint32_t region) const { return region * window_.region_bytes() + 64; }
  void put(uint64_t at, uint32_t klass) {
    std::memset(window_.heap() + at, 0, kNodeBytes);
    std::memcpy(window_.heap() + at + 8, &klass, 4);
  }
  void refer(uint64_t field, uint64_t to) {
    const uint32_t narrow = uint32_t((window_.shape.heap_base + to) >> window_.shape.narrow_shift);
    std::memcpy(window_.heap() + field, &narrow, 4);
  }

  bool right() const { return error_.str().empty(); }
  template <typename F>
  bool until(const char* what, F done, uint64_t most = kAcknowledged) {
    const bool is = machine_->run_until(done, most);
    if (!is) error_ << "not within " << most << " cycles: " << what << ", state " << machine_->state() << "; ";
    return is;
  }
  bool faulted() const { return machine_->state() == MERAPI_DEVICE_STATE_FAULTED; }
  bool room(uint64_t n = 1) const {
    return machine_->produced + n - machine_->executed() <= window_.shape.submission_entries;
  }

  void act() {
    if (!attached_) return attach_again();
    const uint64_t dice = random_.below(100);
    if (dice < 25) {
      machine_->run(random_.percent(80) ? random_.between(1, 200) : random_.between(200, 4000));
    } else if (dice < 65) {
      commands();
    } else if (dice < 75) {
      read(random_.percent(30) ? ~size_t{0} : random_.between(1, 12));
    } else if (dice < 86) {
      pause();
    } else if (dice < 90) {
      begin();
    } else if (dice < 93) {
      abort();
    } else if (dice < 95) {
      fault();
    } else if (dice < 96) {
      revoke();
    }
  }

  // Everything that was asked for is answered.
  void end() {
    const auto all = [&] {
      read(~size_t{0});
      return !right() || (answers_.none_missing() && !commands_left() && (!in_cycle_ || machine_->idle()));
    };
    until("the end", all, kExecuted);
    if (faulted()) error_ << "fault " << merapi_fault_name(machine_->fault().code) << "; ";
    if (machine_->counter(MERAPI_COUNTER_ROUNDS) > machine_->produced) error_ << "counter of rounds; ";
  }
  bool commands_left() const { return machine_->executed() != machine_->produced; }

  void revoke() {
    machine_->end_generation();
    machine_->run(random_.between(1, 3000));
    attached_ = false;
  }
  void attach_again() {
    machine_->begin_generation(machine_->end_generation());
    until("the handshake", [&] { return machine_->generation_answered(); });
    if (machine_->fault().code != 0) error_ << "refused; ";
    attached_ = true;
    forget();
  }
  // After an abort or a handshake nothing is owed, and it may be that nobody knows which cycle was the last one that
  // began.
  void forget() {
    answers_.forget();
    in_cycle_ = false;
    dropped_ = 0;
  }

  void submit(merapi_submission e, uint32_t cycle) {
    e.cycle = cycle;
    answers_.expect(machine_->produced, e);
    machine_->submit(e);
  }
  void commands() {
    for (uint64_t n = random_.percent(80) ? 1 : random_.between(2, 40); n != 0 && room(); n--) command();
  }
  void command() {
    merapi_submission e{};
    switch (random_.below(8)) {
      case 0:
      case 1:
        e.opcode = MERAPI_OP_FENCE;
        e.payload[0] = random_.next();
        submit(e, random_.percent(80) ? machine_->cycle : uint32_t(random_.next()));
        break;
      case 2:
        e.opcode = MERAPI_OP_CLEAR_BITMAP;
        e.arg = in_cycle_ ? 1 - bitmap_ : uint32_t(random_.below(2));
        e.payload[0] = random_.below(kRegions);
        e.payload[1] = random_.between(1, kRegions - e.payload[0]);
        submit(e, machine_->cycle);
        break;
      case 3:
        e.opcode = random_.percent(50) ? MERAPI_OP_NOP : MERAPI_OP_INVALIDATE_SHAPES;
        submit(e, machine_->cycle);
        break;
      case 4:
        grey();
        break;
      default:
        if (!in_cycle_) break;
        e.opcode = MERAPI_OP_TRACE_REGION;
        e.arg = uint32_t(random_.below(kRegions));
        e.payload[0] = random_.between(1, kRegions - e.arg);
        submit(e, machine_->cycle);
    }
  }
  // Late ones, of the cycle that was replaced or aborted, too.
  void grey() {
    merapi_submission e{};
    e.opcode = MERAPI_OP_GREY;
    e.count = uint16_t(random_.below(MERAPI_ENTRY_WORDS + 1));
    for (int i = 0; i < e.count; i++) {
      e.payload[i] = window_.shape.heap_base + array_of(uint32_t(random_.below(kRegions)));
    }
    const bool late = dropped_ != 0 && (!in_cycle_ || random_.percent(20));
    if (in_cycle_ || late) submit(e, late ? dropped_ : machine_->cycle);
  }
  // The bitmap is as some cycle left it, or cleared.
  void begin() {
    if (!room(3)) return;
    if (in_cycle_) dropped_ = machine_->cycle;
    bitmap_ = in_cycle_ ? 1 - bitmap_ : uint32_t(random_.below(2));
    begin_ = machine_->produced;
    machine_->begin(bitmap_);
    in_cycle_ = true;
    if (random_.percent(30)) begin();
  }

  // The host asks for a pause and takes that back, or gives the cycle up, before it knows of it.
  void withdraw_pause() {
    machine_->request_pause();
    machine_->run(random_.below(300));
    if (random_.percent(30)) return abort();
    machine_->resume();
    if (random_.percent(50)) until("a resume", [&] { return machine_->resume_acknowledged(); });
  }
  void request_pause() {
    machine_->request_pause();
    if (random_.percent(30) && !faulted()) commands();
    until("a pause", [&] { return machine_->pause_acknowledged(); });
  }
  void pause() {
    if (random_.percent(15)) return withdraw_pause();
    request_pause();
    if (!right()) return;
    const uint64_t completed = machine_->completed();
    if (random_.percent(60)) commands();
    if (random_.percent(10)) begin();
    if (random_.percent(40)) read(~size_t{0});
    machine_->run(random_.below(2000));
    if (machine_->completed() != completed) error_ << "completions in a pause; ";
    if (random_.percent(15)) return abort();
    machine_->resume();
    if (random_.percent(30)) machine_->run(random_.below(150));
    if (random_.percent(20)) return pause();
    if (random_.percent(50)) until("a resume", [&] { return machine_->resume_acknowledged(); });
  }
  // Perhaps with a pause behind it, asked for at any time.
  void abort() {
    const bool began = in_cycle_ && !faulted() && machine_->executed() > begin_, pauses = random_.percent(30);
    const uint32_t aborted = machine_->cycle;
    machine_->abort();
    if (pauses) {
      if (random_.percent(50)) machine_->run(random_.below(300));
      machine_->request_pause();
    }
    if (!until("an abort", [&] { return machine_->abort_acknowledged(); })) return;
    if (commands_left()) error_ << "abort left submissions; ";
    if (faulted()) error_ << "faulted after an abort; ";
    read(~size_t{0});
    forget();
    if (began) dropped_ = aborted;
    if (!pauses || !until("an abort's pause", [&] { return machine_->pause_acknowledged(); })) return;
    if (machine_->state() != MERAPI_DEVICE_STATE_PAUSED) error_ << "state " << machine_->state() << " in a pause; ";
    machine_->run(random_.below(1000));
    machine_->resume();
    if (random_.percent(50)) until("a resume", [&] { return machine_->resume_acknowledged(); });
  }

  // An unknown command, or a cycle whose configuration is wrong: whoever latches it before finds that too.
  void spoil() {
    merapi_submission e{};
    e.opcode = 77;
    if (random_.percent(40)) {
      window_.config()->narrow_oop_shift = 9;
      machine_->cycle++;
      e.opcode = MERAPI_OP_BEGIN_CYCLE;
    }
    submit(e, machine_->cycle);
  }
  void fault() {
    if (!room(2)) return;
    spoil();
    if (random_.percent(50)) {  // never executed
      merapi_submission e{};
      e.opcode = MERAPI_OP_FENCE;
      machine_->submit(e);
    }
    // Commands before it wait for room in the ring of completions.
    const auto seen = [&] {
      const bool full = machine_->completed() - machine_->consumed == window_.shape.completion_entries;
      if (full || random_.percent(1)) read(random_.between(1, 10));
      return faulted();
    };
    until("a fault", seen, kExecuted);
    if (machine_->fault().code == 0) error_ << "no record; ";
    machine_->run(random_.below(3000));
    window_.config()->narrow_oop_shift = window_.shape.narrow_shift;
    if (random_.percent(30)) pause_of_a_fault();
    random_.percent(70) ? abort() : revoke();
  }
  void pause_of_a_fault() {
    machine_->request_pause();
    until("a fault's pause", [&] { return machine_->pause_acknowledged(); });
    if (random_.percent(50)) return;
    machine_->resume();
    until("a fault's resume", [&] { return machine_->resume_acknowledged(); });
  }

  void read(size_t count) {
    for (const merapi_completion& c : machine_->complete(count)) {
      if (c.type == MERAPI_COMP_DONE) {
        error_ << answers_.take(c);
      } else if (c.type != MERAPI_COMP_FAULT && (c.cycle > machine_->cycle || c.cycle == 0)) {
        error_ << "a report of cycle " << c.cycle << "; ";
      }
    }
  }

  Random random_;
  Window window_;
  std::unique_ptr<RtlMachine> machine_;
  merapi::sim::test::Answers answers_;
  bool attached_ = true, in_cycle_ = false;
  uint32_t bitmap_ = 0;
  uint64_t begin_ = 0;    // the last cycle's own submission
  uint32_t dropped_ = 0;  // the cycle that was replaced or aborted last; 0: none, or nobody knows
  std::ostringstream error_;
};

}  // namespace

TEST(RtlAnyHost, DoesAnything) {
  each_seed([](uint64_t seed) { EXPECT_EQ(AnyHost(seed).run(), ""); });
}

}  // namespace merapi::sim::rtl::test
