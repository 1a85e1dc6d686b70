// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/rtl_engine.h"

#include <cstddef>
#include <utility>

#include "merapi/contract.h"

namespace merapi::sim::rtl {

namespace {

// Most cycles of one step(): some milliseconds, after which the process looks whether its host is still there.
constexpr uint32_t kSliceCycles = 4000;

}  // namespace

RtlEngine::RtlEngine(const WindowMemory& memory, EngineHost* host, std::unique_ptr<Simulation> simulation)
    : memory_(memory), host_(host), simulation_(std::move(simulation)) {}

Step RtlEngine::step() {
  auto* index = reinterpret_cast<const merapi_host_index*>(memory_.base + MERAPI_HOST_INDEX_OFFSET);
  doorbell_seen_ = __atomic_load_n(&index->doorbell, __ATOMIC_ACQUIRE);
  // Asleep means: the tracer looked at the host after the doorbell was read, and found nothing to do.
  const uint64_t look = simulation_->looks();
  Step result{Step::kAgain, 0};
  uint64_t offset = 0;
  for (uint32_t i = 0; i < kSliceCycles; i++) {
    simulation_->cycle();
    // Nothing that follows from what was read where memory is gone has left the tracer yet, and nothing does.
    if (host_->take_memory_fault(&offset) != MERAPI_FAULT_NONE) return {Step::kEnded, 0};
    count_events();
    if (simulation_->take_news()) {
      host_->notify();
      sum_counters();
    }
    if (simulation_->sleeping() && simulation_->looks() > look) {
      result = {Step::kSleep, 100000};
      break;
    }
  }
  return result;
}

// Of each clock cycle: several commands may be executed in one step.
void RtlEngine::count_events() {
  const uint32_t cycle = simulation_->trace_cycle_id(), state = simulation_->state();
  cycles_begun_ += cycle != last_cycle_ && cycle != 0;
  faults_ += state != last_state_ && state == MERAPI_DEVICE_STATE_FAULTED;
  last_cycle_ = cycle;
  last_state_ = state;
}

// The tracer's counters are those of the present marking cycle, and the control page has them as they were last
// written: after the begin of another cycle, still those of the one before, until they differ or the idle record is
// this cycle's. A handshake writes zeros.
void RtlEngine::sum_counters() {
  const Counts now{counter(MERAPI_COUNTER_CYCLES), counter(MERAPI_COUNTER_OBJECTS_MARKED),
                   counter(MERAPI_COUNTER_REFERENCES_READ)};
  if (counted_of_ != cycles_begun_ || now.cycles < published_.cycles) {
    const bool idle = uint32_t(word(MERAPI_IDLE_RECORD_OFFSET)) == last_cycle_;
    if (now == published_ && !idle) return;
    objects_marked_ += published_.objects_marked;
    references_read_ += published_.references_read;
    counted_of_ = cycles_begun_;
  }
  published_ = now;
}

uint64_t RtlEngine::word(uint64_t offset) const {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(memory_.base + offset), __ATOMIC_RELAXED);
}

uint64_t RtlEngine::counter(int which) const { return word(MERAPI_COUNTERS_OFFSET + 8 * uint64_t(which)); }

EngineStatus RtlEngine::status() const {
  EngineStatus s;
  s.generation = word(MERAPI_DEVICE_INDEX_OFFSET);
  // Revoked, the tracer drops what it holds and goes on to show the state that it had.
  if (word(MERAPI_HOST_INDEX_OFFSET + offsetof(merapi_host_index, generation)) == s.generation) {
    s.state = simulation_->state();
    s.cycle = simulation_->trace_cycle_id();
  }
  s.cycles_begun = cycles_begun_;
  s.device_cycles = counter(MERAPI_COUNTER_CYCLES);
  s.objects_marked = objects_marked_ + published_.objects_marked;
  s.references_read = references_read_ + published_.references_read;
  s.last_fault = uint32_t(word(MERAPI_FAULT_RECORD_OFFSET));
  s.faults = faults_;
  return s;
}

}  // namespace merapi::sim::rtl
