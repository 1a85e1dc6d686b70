// SPDX-License-Identifier: Apache-2.0
//
// The functional model as an engine: handshake, requests, submission ring, idle record and counters around a Tracer.
//
// Order in step(), which is also the order of importance: memory errors, generation, abort, pause, completions that
// wait for room, submissions, tracing, idle. The tracer runs in slices of TracerOptions::slice units (a few
// microseconds), so that each of the former is looked at that often. A pause needs no ring space and no draining:
// everything held is in private memory and is checked again afterwards.
#ifndef MERAPI_SIM_MODEL_MODEL_H_
#define MERAPI_SIM_MODEL_MODEL_H_

#include <cstdint>
#include <deque>

#include "sim/engine/engine.h"
#include "sim/model/completions.h"
#include "sim/model/geometry.h"
#include "sim/model/tracer.h"
#include "sim/model/window.h"

namespace merapi::sim {

class Model : public Engine {
 public:
  Model(const WindowMemory& memory, EngineHost* host, const EngineOptions& options, const TracerOptions& tracer);

  Step step() override;
  uint32_t doorbell_seen() const override { return doorbell_; }
  EngineStatus status() const override { return status_; }

 private:
  enum class Phase { kDetached, kReady, kCycle, kFaulted };
  // A command that was taken from the ring and is executed in order.
  struct Task {
    merapi_submission command{};
    uint64_t index = 0;
    uint64_t at = 0;  // progress: bitmap words cleared, live words zeroed; for TRACE_REGION the slice's number
  };
  static constexpr size_t kMaxTasks = 65536;

  // One look at everything; false when step() should return `*result`.
  bool turn(Step* result);
  bool attend(Step* result);
  void handshake(uint64_t generation);
  Fault accept_window();
  void detach();
  void abort(uint32_t request);
  void enter_pause(uint32_t request);
  // False: there is more to be done for it.
  bool leave_pause(uint32_t request);

  void take_submissions();
  // Returns false to leave the entry in the ring for now.
  bool take(const merapi_submission& entry, uint64_t index);
  bool trace_region(const merapi_submission& entry, uint64_t index);
  bool begin_cycle(const merapi_submission& entry, uint64_t index);
  bool clear_bitmap(const merapi_submission& entry, uint64_t index);
  void bad_command(const merapi_submission& entry, uint64_t index);
  // Execute tasks as far as possible without tracing. False: the first one needs the tracer to go on.
  bool run_tasks();
  bool zero_live(Task& task);
  bool clear_words(Task& task);
  void post_done(const Task& task);

  // Stops the context; detaches it instead when the host has revoked meanwhile.
  void fault(Fault fault);
  // After a fault nothing more is executed.
  bool stopped() const { return phase_ == Phase::kFaulted || phase_ == Phase::kDetached; }
  void set_state(uint32_t state);
  void set_idle(bool idle);
  void refresh_counters();
  // Write what waits, tell the host if it is time to.
  void publish(bool now);
  bool tasks_ready() const;

  WindowMemory memory_;
  EngineHost* host_;
  EngineOptions options_;
  const bool strict_;
  const int64_t longest_slice_;
  int64_t slice_;  // adapts to how long the last ones took
  const uint64_t step_ns_;
  Control control_;
  Completions completions_;
  Tracer tracer_;
  EngineStatus status_;

  Phase phase_ = Phase::kDetached;
  uint64_t generation_ = 0;
  uint32_t doorbell_ = 0;
  uint32_t abort_seen_ = 0, pause_acked_ = 0;
  bool paused_ = false;
  bool refreshing_ = false;  // a resume was seen and the limits are being read
  bool fault_recorded_ = false;
  bool memory_gone_ = false;  // a memory error ended the context
  bool rings_ok_ = false;     // the ring areas of this generation passed the checks
  Rings rings_;
  Geometry geometry_;
  uint32_t bitmap_ = 0;
  uint32_t cycle_ = 0, dropped_cycle_ = 0;
  uint64_t consumed_ = 0;
  uint64_t slices_commanded_ = 0;
  std::deque<Task> tasks_;
  bool beginning_ = false;  // BEGIN_CYCLE was taken and the live table is not zero yet
  bool idle_ = false;
  bool strict_checked_ = false;

  uint64_t partial_since_ = 0;  // when the oldest batched completion was seen waiting
  uint64_t notified_ = 0;
  uint64_t rounds_ = 0, pauses_ = 0, pause_max_ = 0;
  uint64_t tracing_ns_ = 0, cpu_start_ = 0, stall_ns_ = 0;
  uint64_t marked_base_ = 0, read_base_ = 0;  // totals of the cycles before this one
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_MODEL_H_
