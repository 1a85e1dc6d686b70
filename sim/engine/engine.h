// SPDX-License-Identifier: Apache-2.0
//
// The one interface between a device process and what executes the contract on a window: the functional model
// or a Verilated tracer. An engine knows nothing of sockets, files or threads.
#ifndef MERAPI_SIM_ENGINE_H_
#define MERAPI_SIM_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "merapi/contract.h"

namespace merapi::sim {

// A window as the device sees it. The bytes come from the lease, never from the window.
struct WindowMemory {
  uint8_t* base = nullptr;
  uint64_t bytes = 0;
};

// What an engine asks of its surroundings. Called from the thread that calls step().
class EngineHost {
 public:
  virtual ~EngineHost() = default;
  // There is news for the host: increment device_index.event and wake it if it waits.
  virtual void notify() = 0;
  // A memory error inside the window since the last call: MERAPI_FAULT_TRUNCATED or MERAPI_FAULT_MEMORY and the
  // window offset, or MERAPI_FAULT_NONE. What was read since then may be zeros; what was written may be lost.
  virtual uint32_t take_memory_fault(uint64_t* offset) = 0;
};

// What the caller of step() does next.
struct Step {
  enum Next {
    kAgain,  // there is more to do
    kSleep,  // nothing to do until the doorbell moves on from doorbell_seen(), at most sleep_us
    kEnded,  // the context is over (its memory is gone); do not call step() again
  };
  Next next = kSleep;
  uint64_t sleep_us = 100000;
};

// For status lines. A simulated tracer tells its generation, counters and last fault by the window alone.
struct EngineStatus {
  uint64_t generation = 0;
  uint32_t state = 0;  // enum merapi_device_state
  uint32_t cycle = 0;
  uint64_t cycles_begun = 0;
  uint64_t objects_marked = 0;   // over all cycles
  uint64_t references_read = 0;  // likewise
  uint64_t device_cycles = 0;    // clock cycles of the present marking cycle; 0 for the model
  uint64_t faults = 0;
  uint32_t last_fault = 0;  // enum merapi_fault
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Work for a bounded time (a few milliseconds); requests of the host are answered from within.
  virtual Step step() = 0;
  // host_index.doorbell as read before the last look at rings and requests.
  virtual uint32_t doorbell_seen() const = 0;
  virtual EngineStatus status() const = 0;
};

// What is common to all engines of a process.
struct EngineOptions {
  std::string name = "merapi-model";                // device_identity.name, at most 23 bytes are shown
  uint32_t patience_us = MERAPI_PATIENCE_MODEL_US;  // device_identity.patience_us
  uint8_t coherence = 1;                            // enum merapi_coherence
  uint64_t pid = 0;                                 // device_identity.pid
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_ENGINE_H_
