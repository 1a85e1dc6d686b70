// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/rtl_engine.h"

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
    // What was read where memory is gone has not reached the tracer yet, and never does.
    if (host_->take_memory_fault(&offset) != MERAPI_FAULT_NONE) return {Step::kEnded, 0};
    if (simulation_->take_news()) host_->notify();
    if (simulation_->sleeping() && simulation_->looks() > look) {
      result = {Step::kSleep, 100000};
      break;
    }
  }
  if (simulation_->trace_cycle_id() != last_cycle_) {
    last_cycle_ = simulation_->trace_cycle_id();
    cycles_begun_ += last_cycle_ != 0;
  }
  return result;
}

EngineStatus RtlEngine::status() const {
  auto word = [this](uint64_t offset) {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(memory_.base + offset), __ATOMIC_RELAXED);
  };
  auto counter = [&](int which) { return word(MERAPI_COUNTERS_OFFSET + 8 * uint64_t(which)); };
  EngineStatus s;
  s.generation = word(MERAPI_DEVICE_INDEX_OFFSET);
  s.state = simulation_->state();
  s.cycle = simulation_->trace_cycle_id();
  s.cycles_begun = cycles_begun_;
  s.device_cycles = counter(MERAPI_COUNTER_CYCLES);
  s.objects_marked = counter(MERAPI_COUNTER_OBJECTS_MARKED);
  s.references_read = counter(MERAPI_COUNTER_REFERENCES_READ);
  s.last_fault = uint32_t(word(MERAPI_FAULT_RECORD_OFFSET));
  s.faults = s.last_fault != 0;
  return s;
}

}  // namespace merapi::sim::rtl
