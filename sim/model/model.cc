// SPDX-License-Identifier: Apache-2.0
#include "sim/model/model.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "sim/model/clock.h"

namespace merapi::sim {
namespace {

// Deferred objects wait at most this long for company, so that the host works while the device traces.
constexpr uint64_t kBatchNs = 30'000;
// Aim between two looks at the host's requests, well below the 100 us that a pause may take.
constexpr uint64_t kSliceNs = 15'000;
constexpr int64_t kShortestSlice = 64;
constexpr uint64_t kNotifyNs = 20'000;
// While the completion ring is full the host's doorbell wakes us; this bounds what a lost one costs.
constexpr uint64_t kStallSleepUs = 1000;

}  // namespace

Model::Model(const WindowMemory& memory, EngineHost* host, const EngineOptions& options, const TracerOptions& tracer)
    : memory_(memory),
      host_(host),
      options_(options),
      strict_(tracer.strict),
      longest_slice_(tracer.slice),
      slice_(tracer.slice),
      step_ns_(tracer.step_ns),
      control_(memory.base),
      completions_(control_, tracer.forgetful),
      tracer_(memory, tracer, &completions_) {}

Step Model::step() {
  uint64_t start = now_ns();
  Step result;
  while (turn(&result)) {
    if (now_ns() - start >= step_ns_) return {Step::kAgain, 0};
  }
  return result;
}

bool Model::turn(Step* result) {
  doorbell_ = load(control_.host->doorbell);
  if (!attend(result)) return false;
  if (Fault f = completions_.look()) {
    fault(f);
    return true;
  }
  if (Fault f = completions_.drain()) {
    fault(f);
    return true;
  }
  if (completions_.full()) {
    uint64_t start = now_ns();
    publish(true);
    // publish() fenced before the host's index was last read or the host rings: see merapi_complete.
    if (Fault f = completions_.drain()) fault(f);
    stall_ns_ += now_ns() - start;
    if (!completions_.full()) return true;
    refresh_counters();
    *result = {Step::kSleep, kStallSleepUs};
    return false;
  }
  take_submissions();
  if (stopped()) return true;
  if (run_tasks()) {
    publish(false);
    return true;
  }
  if (phase_ == Phase::kCycle && !beginning_ && tracer_.busy()) {
    if (idle_) set_idle(false);
    set_state(MERAPI_DEVICE_STATE_TRACING);
    uint64_t start = now_ns();
    Tracer::Exit exit = tracer_.run(slice_);
    uint64_t took = now_ns() - start;
    tracing_ns_ += took;
    // A unit of work costs 5 ns in a dense heap and a hundred times that when every reference misses the caches.
    if (took > kSliceNs) {
      slice_ = std::max(slice_ / 2, std::min<int64_t>(kShortestSlice, longest_slice_));
    } else if (took < kSliceNs / 2) {
      slice_ = std::min(slice_ + slice_ / 4 + 1, longest_slice_);
    }
    if (exit == Tracer::Exit::kFault) {
      fault(tracer_.fault());
    } else {
      publish(false);
    }
    return true;
  }
  if (!tasks_.empty()) return true;
  // Nothing to do: everything is flushed before the idle record says so.
  if (completions_.flush()) {
    if (Fault f = completions_.drain()) fault(f);
    return true;
  }
  if (load(control_.host->submission_produced) != consumed_) return true;
  if (phase_ == Phase::kCycle && !idle_) {
    if (strict_ && !strict_checked_) {
      strict_checked_ = true;
      if (Fault f = tracer_.check_idle()) {
        fault(f);
        return true;
      }
    }
    set_idle(true);
  }
  if (phase_ == Phase::kReady) set_state(MERAPI_DEVICE_STATE_READY);
  publish(true);
  *result = {Step::kSleep, 100000};
  return false;
}

// Requests of the host. False: nothing may be done now.
bool Model::attend(Step* result) {
  uint64_t offset = 0;
  if (!memory_gone_) {
    if (uint32_t code = host_->take_memory_fault(&offset)) {
      memory_gone_ = true;
      fault({code, offset, 0});
    }
  }
  if (memory_gone_) {
    *result = {Step::kEnded, 0};
    return false;
  }
  uint64_t generation = load(control_.host->generation);
  if (generation != generation_) {
    // Whatever was held belongs to a generation that the host has ended: not one more write for it.
    detach();
    if (generation != 0 && generation % 2 == 0) handshake(generation);
  }
  uint32_t request = load(control_.request->abort);
  if (phase_ != Phase::kDetached && request != abort_seen_) abort(request);
  if (phase_ == Phase::kDetached) {
    *result = {Step::kSleep, 100000};
    return false;
  }
  // resume first: read the other way round, a pause that ends and a new one that begins could look like none.
  uint32_t resume = load(control_.request->resume);
  uint32_t pause = load(control_.request->pause);
  if (pause != resume) {
    if (!paused_ || pause != pause_acked_) enter_pause(pause);
    *result = {Step::kSleep, 100000};
    return false;
  }
  if ((paused_ || pause != pause_acked_) && !leave_pause(pause)) {
    *result = {Step::kAgain, 0};
    return false;
  }
  if (stopped()) {
    *result = {Step::kSleep, 100000};
    return false;
  }
  return true;
}

// ------------------------------------------------- generations and requests

void Model::detach() {
  phase_ = Phase::kDetached;
  generation_ = 0;
  paused_ = refreshing_ = false;
  idle_ = false;
  beginning_ = false;
  tasks_.clear();
  tracer_.drop();
  completions_.drop();
  status_.state = MERAPI_DEVICE_STATE_DETACHED;
  status_.cycle = 0;
}

Fault Model::accept_window() {
  uint64_t magic = load(control_.identity->magic);
  if (magic != MERAPI_MAGIC) return {MERAPI_FAULT_BAD_MAGIC, magic, 0};
  uint16_t major = load(control_.identity->version_major);
  uint16_t minor = load(control_.identity->version_minor);
  if (major != MERAPI_VERSION_MAJOR || minor > MERAPI_VERSION_MINOR) {
    return {MERAPI_FAULT_BAD_VERSION, MERAPI_IDENTITY_OFFSET + offsetof(merapi_identity, version_major),
            uint64_t{major} << 16 | minor};
  }
  return latch_rings(memory_, &rings_);
}

void Model::handshake(uint64_t generation) {
  merapi_device_identity who{};
  who.magic = MERAPI_DEVICE_MAGIC;
  who.version_major = MERAPI_VERSION_MAJOR;
  who.version_minor = MERAPI_VERSION_MINOR;
  who.capabilities = 1u << MERAPI_CAP_SCOPE_HEAP | 1u << MERAPI_CAP_CLEAR_BITMAP | 1u << MERAPI_CAP_DOORBELL;
  who.kind = MERAPI_DEVICE_KIND_MODEL;
  who.coherence = options_.coherence;
  who.lanes = 1;
  who.patience_us = options_.patience_us;
  who.pid = options_.pid;
  who.window_bytes = memory_.bytes;
  std::memcpy(who.name, options_.name.data(), std::min(options_.name.size(), sizeof who.name - 1));
  std::memcpy(control_.device, &who, sizeof who);

  std::memset(control_.ack, 0, sizeof *control_.ack);
  std::memset(control_.idle, 0, sizeof *control_.idle);
  std::memset(control_.fault, 0, sizeof *control_.fault);
  std::memset(control_.counters, 0, sizeof *control_.counters);
  store(control_.index->submission_consumed, uint64_t{0});
  store(control_.index->completion_produced, uint64_t{0});

  generation_ = generation;
  consumed_ = 0;
  slices_commanded_ = 0;
  cycle_ = dropped_cycle_ = 0;
  abort_seen_ = load(control_.request->abort);
  pause_acked_ = 0;
  rounds_ = pauses_ = pause_max_ = tracing_ns_ = stall_ns_ = 0;
  cpu_start_ = cpu_ns();
  tracer_.forget_counts();
  completions_.forget_counts();
  fault_recorded_ = false;
  phase_ = Phase::kReady;
  status_.generation = generation;
  marked_base_ = status_.objects_marked;
  read_base_ = status_.references_read;
  Fault refused = accept_window();
  // A host asks with empty rings. What is in them was said to another device, which has answered this generation
  // before: it may be of cycles that are over.
  const uint64_t submitted = load(control_.host->submission_produced);
  if (!refused && (submitted != 0 || load(control_.host->completion_consumed) != 0)) {
    refused = {MERAPI_FAULT_RING_OVERRUN, submitted, consumed_};
  }
  rings_ok_ = !refused;
  if (refused) {
    // The generation is answered all the same, so that the host reads at once why the window was refused.
    fault(refused);
    if (phase_ == Phase::kDetached) return;
    std::memset(control_.counters, 0, sizeof *control_.counters);  // a fault tells what time it took
  } else {
    completions_.reset(rings_);
    set_state(MERAPI_DEVICE_STATE_READY);
  }
  store(control_.index->generation, generation);
  host_->notify();
}

// Wins over everything else that was asked for.
void Model::abort(uint32_t request) {
  if (idle_) set_idle(false);
  refresh_counters();
  tasks_.clear();
  tracer_.drop();
  completions_.drop();
  beginning_ = false;
  // A fault outside a cycle leaves the one that was aborted before.
  if (cycle_ != 0) dropped_cycle_ = cycle_;
  cycle_ = 0;
  status_.cycle = 0;
  uint64_t produced = load(control_.host->submission_produced);
  if (rings_ok_ && produced >= consumed_ && produced - consumed_ <= rings_.submission_entries) {
    rounds_ += produced - consumed_;
    consumed_ = produced;
    store(control_.index->submission_consumed, consumed_);
    phase_ = Phase::kReady;
    set_state(MERAPI_DEVICE_STATE_READY);
  } else if (rings_ok_) {
    fault({MERAPI_FAULT_RING_OVERRUN, produced, consumed_});
    if (phase_ == Phase::kDetached) return;
  }
  abort_seen_ = request;
  store(control_.ack->abort, request);
  host_->notify();
}

void Model::enter_pause(uint32_t request) {
  uint64_t start = now_ns();
  paused_ = true;
  refreshing_ = false;
  pauses_++;
  if (phase_ == Phase::kReady || phase_ == Phase::kCycle) {
    completions_.flush();
    if (Fault f = completions_.drain()) fault(f);
    if (phase_ == Phase::kDetached) return;
  }
  if (phase_ != Phase::kFaulted) set_state(MERAPI_DEVICE_STATE_PAUSED);
  refresh_counters();
  pause_acked_ = request;
  store(control_.ack->pause, request);
  completions_.take_news();
  host_->notify();
  pause_max_ = std::max(pause_max_, now_ns() - start);
}

bool Model::leave_pause(uint32_t request) {
  if (paused_ && phase_ == Phase::kCycle && !beginning_) {
    if (!refreshing_) {
      // Among what waits may be INVALIDATE_SHAPES, behind commands that take their time or more than one turn takes.
      if (load(control_.host->submission_produced) != consumed_) tracer_.renew_shapes();
      tracer_.begin_refresh();
      refreshing_ = true;
    }
    if (!tracer_.refresh_some()) return false;
    if (tracer_.fault()) fault(tracer_.fault());
    if (phase_ == Phase::kDetached) return true;
    strict_checked_ = false;
  }
  refreshing_ = false;
  paused_ = false;
  pause_acked_ = request;
  if (phase_ == Phase::kReady) set_state(MERAPI_DEVICE_STATE_READY);
  if (phase_ == Phase::kCycle) set_state(idle_ ? MERAPI_DEVICE_STATE_IDLE : MERAPI_DEVICE_STATE_TRACING);
  store(control_.ack->pause, request);
  store(control_.ack->resume, request);
  host_->notify();
  return true;
}

// ------------------------------------------------------------ what is told

void Model::fault(Fault f) {
  // What was read where memory is missing looks like anything: the missing memory is the cause.
  uint64_t offset = 0;
  if (uint32_t code = memory_gone_ ? 0u : host_->take_memory_fault(&offset)) {
    memory_gone_ = true;
    f = {code, offset, 0};
  }
  // A host that has revoked owns the whole window, and may have zeroed or replaced what looked wrong.
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (!memory_gone_ && load(control_.host->generation) != generation_) return detach();
  if (idle_) set_idle(false);
  refresh_counters();
  tasks_.clear();
  tracer_.drop();
  beginning_ = false;
  status_.faults++;
  status_.last_fault = f.code;
  if (!fault_recorded_) {
    fault_recorded_ = true;
    merapi_fault_record* record = control_.fault;
    store(record->cycle, cycle_);
    store(record->address, f.address);
    store(record->detail, f.detail);
    store(record->code, f.code);
  }
  bool ring_usable = rings_ok_ && phase_ != Phase::kFaulted;
  phase_ = Phase::kFaulted;
  set_state(MERAPI_DEVICE_STATE_FAULTED);
  if (ring_usable) {
    merapi_completion entry{};
    entry.type = MERAPI_COMP_FAULT;
    entry.arg = f.code;
    entry.payload[0] = f.address;
    entry.payload[1] = f.detail;
    entry.cycle = cycle_;
    completions_.post(entry);
    completions_.drain();
  }
  completions_.take_news();
  host_->notify();
}

void Model::set_state(uint32_t state) {
  if (status_.state == state) return;
  status_.state = state;
  store(control_.index->state, state);
}

void Model::set_idle(bool idle) {
  idle_ = idle;
  merapi_idle_record* record = control_.idle;
  if (!idle) {
    store(record->idle, 0u);
    // Cleared before anything that follows becomes visible.
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return;
  }
  refresh_counters();
  set_state(MERAPI_DEVICE_STATE_IDLE);
  store(record->consumed, consumed_);
  store(record->produced, completions_.produced());
  // cycle and idle are one word for the host.
  store(*reinterpret_cast<uint64_t*>(record), uint64_t{cycle_} | uint64_t{1} << 32);
  host_->notify();
  completions_.take_news();
}

void Model::publish(bool now) {
  if (completions_.partial() || completions_.full()) {
    uint64_t time = now_ns();
    if (partial_since_ == 0) {
      partial_since_ = time;
    } else if (time - partial_since_ >= kBatchNs) {
      completions_.flush();
      partial_since_ = 0;
      if (Fault f = completions_.drain()) return fault(f);
    }
    if (!now && time - notified_ < kNotifyNs) return;
    notified_ = time;
  } else {
    partial_since_ = 0;
  }
  if (completions_.take_news()) host_->notify();
}

void Model::refresh_counters() {
  uint64_t v[MERAPI_COUNTER_ROUNDS + 1] = {};
  tracer_.export_counters(v);
  v[MERAPI_COUNTER_NANOSECONDS] = tracing_ns_;
  v[MERAPI_COUNTER_CPU_NANOSECONDS] = cpu_ns() - cpu_start_;
  v[MERAPI_COUNTER_DEFERRED] = completions_.deferred;
  v[MERAPI_COUNTER_SHAPES_SEEN] = completions_.shapes_seen;
  v[MERAPI_COUNTER_PAUSES] = pauses_;
  v[MERAPI_COUNTER_PAUSE_MAX] = pause_max_;
  v[MERAPI_COUNTER_STALL_COMPLETION] = stall_ns_;
  v[MERAPI_COUNTER_ROUNDS] = rounds_;
  for (uint32_t i = 0; i <= MERAPI_COUNTER_ROUNDS; i++) store(control_.counters->value[i], v[i]);
  status_.objects_marked = marked_base_ + v[MERAPI_COUNTER_OBJECTS_MARKED];
  status_.references_read = read_base_ + v[MERAPI_COUNTER_REFERENCES_READ];
}

}  // namespace merapi::sim
