// SPDX-License-Identifier: Apache-2.0
//
// A device that works properly (the model traces) until its fault strikes.
//
// After a strike the model is not stepped until the host has started a new generation: what the fault left in the
// window stays as it is, and the host's judgement of it is not overtaken by the model's next proper write.
#ifndef MERAPI_SIM_TEST_ROGUE_ROGUE_H_
#define MERAPI_SIM_TEST_ROGUE_ROGUE_H_

#include <chrono>
#include <cstdint>

#include "merapi/merapi.h"
#include "sim/model/model.h"
#include "sim/test/rogue/faults.h"

namespace merapi::rogue {

struct Plan {
  const Fault* fault = nullptr;
  int times = 1;             // how often it strikes; for ever when negative
  uint64_t cycle = 1;        // not before this cycle (counted by the device)
  uint64_t every = 1;        // only in cycles whose number this divides
  uint64_t after_us = 3000;  // nor before this long into the cycle
  uint64_t seed = 1;
  uint64_t answer_after_us = 0;                        // how long each handshake waits for its answer
  uint32_t patience_us = MERAPI_PATIENCE_HARDWARE_US;  // stated at the handshake by the model
};

class Rogue : private sim::EngineHost {
 public:
  // The lease stays the caller's. `plan` is shared by all leases of a process: strikes are counted there.
  Rogue(merapi_lease* lease, Plan* plan);

  // Work for a few milliseconds, or sleep. False: the lease is to be ended.
  bool step();

 private:
  void notify() override { merapi_lease_notify(lease_); }
  uint32_t take_memory_fault(uint64_t*) override { return MERAPI_FAULT_NONE; }

  bool strikes_at_handshake(uint64_t generation);
  bool strikes_in_trace();
  void strike();
  bool misbehave();
  void acknowledge();
  void count(enum merapi_counter which);
  void count_deferred();
  void claim_idle();

  merapi_lease* lease_;
  Plan* plan_;
  sim::WindowMemory memory_;
  Target target_;
  sim::Model model_;

  uint64_t struck_generation_ = 0;  // 0: not misbehaving
  std::chrono::steady_clock::time_point struck_;
  bool counts_ = false;    // of a strike that counts for a while
  uint64_t answered_ = 0;  // generation seen last
  uint64_t cycles_seen_ = 0;
  bool slow_ = false;  // in this cycle
  std::chrono::steady_clock::time_point cycle_began_;
};

}  // namespace merapi::rogue

#endif  // MERAPI_SIM_TEST_ROGUE_ROGUE_H_
