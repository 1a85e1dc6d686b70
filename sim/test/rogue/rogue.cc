// SPDX-License-Identifier: Apache-2.0
#include "sim/test/rogue/rogue.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

namespace merapi::rogue {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::microseconds(200);
constexpr uint64_t kDozeUs = 600'000'000;
constexpr auto kRest = std::chrono::milliseconds(5);
// Twice as long as a host of these tests waits for a counter that grows.
constexpr auto kDeferring = std::chrono::seconds(5);

sim::EngineOptions engine_options(const Plan& plan) {
  sim::EngineOptions options;
  options.name = "rogue";
  options.patience_us = plan.patience_us;
  options.pid = static_cast<uint64_t>(getpid());
  return options;
}

// One turn a step: a short trace, too, is met in its middle, however fast the machine is.
sim::TracerOptions tracer_options(const Plan& plan) {
  sim::TracerOptions options;
  options.step_ns = 0;
  options.forgetful = plan.fault->after == After::kForget;
  if (plan.fault->after == After::kSlow) options.slice = 64;
  return options;
}

}  // namespace

Rogue::Rogue(merapi_lease* lease, Plan* plan)
    : lease_(lease),
      plan_(plan),
      memory_{static_cast<uint8_t*>(merapi_lease_base(lease)), merapi_lease_bytes(lease)},
      target_(
          memory_, [this] { notify(); }, plan->seed),
      model_(memory_, this, engine_options(*plan), tracer_options(*plan)) {}

bool Rogue::step() {
  if (merapi_lease_gone(lease_)) return false;
  uint64_t generation = sim::load(target_.control.host->generation);
  if (struck_generation_ != 0) {
    if (generation == struck_generation_) return misbehave();
    struck_generation_ = 0;
  }
  if (strikes_at_handshake(generation)) {
    struck_generation_ = generation;
    strike();
    return true;
  }
  if (generation != answered_) std::this_thread::sleep_for(std::chrono::microseconds(plan_->answer_after_us));
  answered_ = generation;
  sim::Step next = model_.step();
  if (next.next == sim::Step::kEnded) return false;
  if (strikes_in_trace()) {
    struck_generation_ = generation;
    After after = plan_->fault->after;
    strike();
    if (after == After::kGoOn) struck_generation_ = 0;
    return after != After::kHangUp;
  }
  if (next.next == sim::Step::kSleep) {
    uint64_t sleep_us = plan_->fault->after == After::kDoze ? kDozeUs : std::min<uint64_t>(next.sleep_us, 50'000);
    merapi_lease_sleep(lease_, model_.doorbell_seen(), sleep_us);
  }
  return true;
}

bool Rogue::strikes_at_handshake(uint64_t generation) {
  return plan_->fault->when == When::kHandshake && plan_->times != 0 && generation != 0 && generation % 2 == 0 &&
         generation != answered_;
}

bool Rogue::strikes_in_trace() {
  sim::EngineStatus status = model_.status();
  if (status.cycles_begun != cycles_seen_) {
    cycles_seen_ = status.cycles_begun;
    cycle_began_ = Clock::now();
    slow_ = plan_->fault->after == After::kSlow && plan_->times != 0;
    if (slow_ && plan_->times > 0) plan_->times--;
    if (plan_->fault->after == After::kDoze) {
      std::fprintf(stderr, "cycle %u begun, pauses asked for: %u\n", status.cycle,
                   sim::load(target_.control.request->pause));
    }
  }
  if (slow_ && status.state == MERAPI_DEVICE_STATE_TRACING) std::this_thread::sleep_for(kRest);
  if (plan_->fault->when != When::kTracing || plan_->times == 0) return false;
  if (status.state != MERAPI_DEVICE_STATE_TRACING || status.cycles_begun < plan_->cycle) return false;
  if (status.cycles_begun % plan_->every != 0) return false;
  if (Clock::now() - cycle_began_ < std::chrono::microseconds(plan_->after_us)) return false;
  target_.cycle = status.cycle;
  return target_.look();
}

void Rogue::strike() {
  if (plan_->times > 0) plan_->times--;
  struck_ = Clock::now();
  counts_ = true;
  std::fprintf(stderr, "strike %.*s cycle %u generation %llu\n", static_cast<int>(plan_->fault->name.size()),
               plan_->fault->name.data(), target_.cycle, static_cast<unsigned long long>(struck_generation_));
  std::fflush(stderr);
  plan_->fault->strike(target_);
}

bool Rogue::misbehave() {
  switch (plan_->fault->after) {
    case After::kHangUp:
      return false;
    case After::kObey:
      acknowledge();
      break;
    case After::kIdle:
      acknowledge();
      claim_idle();
      break;
    case After::kCount:
      acknowledge();
      count(MERAPI_COUNTER_OBJECTS_SCANNED);
      break;
    case After::kDefer:
      acknowledge();
      count_deferred();
      break;
    case After::kChat:
      acknowledge();
      target_.chat();
      return true;  // as fast as the host makes room
    case After::kLate:
      if (sim::load(target_.control.request->pause) != sim::load(target_.control.ack->pause)) {
        std::this_thread::sleep_for(std::chrono::microseconds(5 * uint64_t{plan_->patience_us}));
        acknowledge();
        struck_generation_ = 0;
        return true;
      }
      break;
    case After::kGoOn:
    case After::kDeaf:
    case After::kForget:
    case After::kDoze:
    case After::kSlow:
      break;
  }
  std::this_thread::sleep_for(kPoll);
  return true;
}

void Rogue::acknowledge() {
  sim::Control& control = target_.control;
  uint32_t abort = sim::load(control.request->abort);
  uint32_t resume = sim::load(control.request->resume);
  uint32_t pause = sim::load(control.request->pause);
  if (abort == sim::load(control.ack->abort) && pause == sim::load(control.ack->pause) &&
      resume == sim::load(control.ack->resume)) {
    return;
  }
  sim::store(control.ack->abort, abort);
  sim::store(control.ack->pause, pause);
  sim::store(control.ack->resume, resume);
  notify();
}

void Rogue::count(enum merapi_counter which) {
  uint64_t& counter = target_.control.counters->value[which];
  sim::store(counter, sim::load(counter) + 1);
}

void Rogue::count_deferred() {
  if (!counts_) return;
  count(MERAPI_COUNTER_DEFERRED);
  if (Clock::now() - struck_ < kDeferring) return;
  counts_ = false;
  std::fprintf(stderr, "counts no more\n");
  std::fflush(stderr);
}

void Rogue::claim_idle() {
  sim::Control& control = target_.control;
  uint64_t submitted = sim::load(control.host->submission_produced);
  if (sim::load(control.idle->idle) == 1 && sim::load(control.idle->consumed) == submitted) return;
  sim::store(control.index->submission_consumed, submitted);
  target_.claim_idle(submitted, target_.produced());
}

}  // namespace merapi::rogue
