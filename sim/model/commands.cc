// SPDX-License-Identifier: Apache-2.0
//
// The model's submissions: taken in order, checked, executed as bounded pieces of work.
#include <algorithm>
#include <cstring>

#include "sim/model/clock.h"
#include "sim/model/model.h"

namespace merapi::sim {

// ------------------------------------------------------------- submissions

void Model::take_submissions() {
  uint64_t produced = load(control_.host->submission_produced);
  if (produced == consumed_) return;
  if (produced < consumed_ || produced - consumed_ > rings_.submission_entries) {
    return fault({MERAPI_FAULT_RING_OVERRUN, produced, consumed_});
  }
  if (idle_) set_idle(false);
  uint64_t before = consumed_;
  while (consumed_ != produced && !stopped() && !beginning_ && tasks_.size() < kMaxTasks) {
    merapi_submission entry;
    std::memcpy(&entry, &rings_.submission[consumed_ & (rings_.submission_entries - 1)], sizeof entry);
    __atomic_thread_fence(__ATOMIC_ACQ_REL);  // only the copy is looked at
    if (entry.sequence != uint32_t(consumed_ + 1)) {
      fault({MERAPI_FAULT_BAD_SEQUENCE, consumed_, entry.sequence});
      break;
    }
    if (!take(entry, consumed_)) break;
    consumed_++;
    // Bounded work per turn: requests are looked at again after this many entries.
    if (consumed_ - before >= 64) break;
  }
  if (consumed_ == before || phase_ == Phase::kDetached) return;
  rounds_ += consumed_ - before;
  strict_checked_ = false;
  store(control_.index->submission_consumed, consumed_);
}

bool Model::take(const merapi_submission& e, uint64_t index) {
  if (e.flags != 0) {
    bad_command(e, index);
    return true;
  }
  switch (e.opcode) {
    case MERAPI_OP_NOP:
      return true;
    case MERAPI_OP_BEGIN_CYCLE:
      return begin_cycle(e, index);
    case MERAPI_OP_CLEAR_BITMAP:
      return clear_bitmap(e, index);
    case MERAPI_OP_FENCE:
      tasks_.push_back({e, index, 0});
      return true;
    case MERAPI_OP_INVALIDATE_SHAPES:
      tracer_.invalidate_shapes();
      return true;
    case MERAPI_OP_TRACE_REGION:
    case MERAPI_OP_GREY:
      break;
    default:
      bad_command(e, index);
      return true;
  }
  // Work of a cycle that was aborted or replaced: late, not wrong.
  if (phase_ != Phase::kCycle && (e.cycle != dropped_cycle_ || dropped_cycle_ == 0)) {
    bad_command(e, index);
    return true;
  }
  if (phase_ != Phase::kCycle || e.cycle != cycle_) return true;
  if (e.opcode == MERAPI_OP_TRACE_REGION) return trace_region(e, index);
  if (e.count > MERAPI_ENTRY_WORDS) {
    bad_command(e, index);
    return true;
  }
  if (tracer_.waits()) return false;
  for (uint32_t i = 0; i < e.count; i++) tracer_.submit(e.payload[i]);
  if (tracer_.fault()) fault(tracer_.fault());
  return true;
}

bool Model::trace_region(const merapi_submission& e, uint64_t index) {
  uint64_t count = e.payload[0];
  if (count == 0 || e.arg >= geometry_.region_count || count > geometry_.region_count - e.arg ||
      e.payload[1] != (MERAPI_SCOPE_HEAP | MERAPI_ORDER_ANY << 8)) {
    bad_command(e, index);
    return true;
  }
  tracer_.command(e.arg, uint32_t(count));
  tasks_.push_back({e, index, ++slices_commanded_});
  return true;
}

bool Model::begin_cycle(const merapi_submission& e, uint64_t index) {
  // Commands are executed in order: slices and fences of the cycle before come first, its closure does not.
  if (!tasks_.empty()) return false;
  if (e.arg > 1 || e.cycle == 0) {
    bad_command(e, index);
    return true;
  }
  if (Fault f = latch_geometry(memory_, rings_, options_.coherence, &geometry_)) {
    fault(f);
    return true;
  }
  refresh_counters();
  marked_base_ = status_.objects_marked;
  read_base_ = status_.references_read;
  completions_.begin(e.cycle);
  if (Fault f = completions_.drain()) {
    fault(f);
    return true;
  }
  bitmap_ = e.arg;
  tracer_.begin(geometry_, bitmap_);
  slices_commanded_ = 0;
  cycle_ = e.cycle;
  phase_ = Phase::kCycle;
  status_.cycle = cycle_;
  status_.cycles_begun++;
  tracing_ns_ = stall_ns_ = pauses_ = pause_max_ = 0;
  cpu_start_ = cpu_ns();
  beginning_ = true;
  tasks_.push_back({e, index, 0});
  set_state(MERAPI_DEVICE_STATE_TRACING);
  return true;
}

bool Model::clear_bitmap(const merapi_submission& e, uint64_t index) {
  if (phase_ == Phase::kReady) {
    // Outside cycles nothing is latched; what the command needs is checked now, and is not what another one works with.
    if (!tasks_.empty()) return false;
    if (Fault f = latch_geometry(memory_, rings_, options_.coherence, &geometry_)) {
      fault(f);
      return true;
    }
  }
  uint64_t first = e.payload[0], count = e.payload[1];
  if (e.arg > 1 || (phase_ == Phase::kCycle && e.arg == bitmap_) || count == 0 || first >= geometry_.region_count ||
      count > geometry_.region_count - first) {
    bad_command(e, index);
    return true;
  }
  tasks_.push_back({e, index, 0});
  return true;
}

void Model::bad_command(const merapi_submission& e, uint64_t index) {
  fault({MERAPI_FAULT_BAD_COMMAND, index, e.opcode});
}

// ------------------------------------------------------------------- tasks

bool Model::tasks_ready() const {
  if (tasks_.empty()) return false;
  const Task& task = tasks_.front();
  if (task.command.opcode == MERAPI_OP_FENCE) return phase_ != Phase::kCycle || !tracer_.waits();
  return task.command.opcode != MERAPI_OP_TRACE_REGION || tracer_.slices_swept() >= task.at;
}

// A bounded piece of work on the first task. False: there is none, or it waits for the tracer.
bool Model::run_tasks() {
  if (!tasks_ready()) return false;
  Task& task = tasks_.front();
  bool finished = true;
  switch (task.command.opcode) {
    case MERAPI_OP_BEGIN_CYCLE:
      finished = tracer_.clear_some() && zero_live(task);
      break;
    case MERAPI_OP_CLEAR_BITMAP:
      finished = clear_words(task);
      break;
    case MERAPI_OP_FENCE:
      if (phase_ == Phase::kCycle && tracer_.settle() == Tracer::Exit::kFault) {
        fault(tracer_.fault());
        return true;
      }
      break;
    default:
      break;
  }
  if (!finished) return true;
  // A fault drops all tasks: this one is taken out before it is answered.
  const Task done = task;
  tasks_.pop_front();
  if (done.command.opcode == MERAPI_OP_BEGIN_CYCLE) {
    beginning_ = false;
  } else {
    post_done(done);
  }
  return true;
}

bool Model::zero_live(Task& task) {
  uint64_t end = std::min<uint64_t>(task.at + 4096, geometry_.region_count);
  std::fill(geometry_.live + task.at, geometry_.live + end, 0);
  task.at = end;
  return end == geometry_.region_count;
}

bool Model::clear_words(Task& task) {
  uint64_t first = task.command.payload[0] * geometry_.region_words();
  uint64_t total = task.command.payload[1] * geometry_.region_words();
  uint64_t end = std::min<uint64_t>(task.at + 4096, total);
  uint64_t* words = geometry_.bitmap[task.command.arg] + first;
  // Words that are zero are not written: a page that nobody used stays unallocated in the window's file.
  for (; task.at < end; task.at++) {
    if (words[task.at] != 0) words[task.at] = 0;
  }
  return task.at == total;
}

void Model::post_done(const Task& task) {
  merapi_completion done{};
  done.type = MERAPI_COMP_DONE;
  done.arg = task.command.opcode;
  done.payload[0] = task.index;
  done.payload[1] = task.command.arg;
  done.payload[2] = task.command.payload[0];
  done.cycle = task.command.cycle;
  if (task.command.opcode != MERAPI_OP_TRACE_REGION) refresh_counters();
  completions_.post(done);
  if (Fault f = completions_.drain()) fault(f);
}

}  // namespace merapi::sim
