// SPDX-License-Identifier: Apache-2.0
//
// Several Verilated contexts (TracerContexts) over one memory: what a shell does with them, and windows at any place.
#ifndef MERAPI_SIM_RTL_CONTEXTS_SIMULATION_H_
#define MERAPI_SIM_RTL_CONTEXTS_SIMULATION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "sim/rtl/axi_memory.h"
#include "sim/rtl/simulation.h"

namespace merapi::sim::rtl {

struct ContextStatus {
  bool open, free, refused;  // of what is asked for
  bool sleeping;
  uint32_t state, cycle;
};

// Ids that leave the ports: the context's number stands above a tracer's own.
struct ContextIds {
  unsigned read_bits, write_bits;
  unsigned context(uint32_t id, bool write) const { return id >> (write ? write_bits : read_bits); }
};

class ContextsSimulation {
 public:
  virtual ~ContextsSimulation() = default;
  virtual unsigned contexts() const = 0;
  virtual ContextIds ids() const = 0;
  virtual void cycle() = 0;
  virtual uint64_t cycles() const = 0;
  // From the next cycle on; bytes 0: no window.
  virtual void ask(unsigned context, uint64_t base, uint64_t bytes) = 0;
  virtual void identify(unsigned context, const EngineOptions& who) = 0;
  virtual ContextStatus status(unsigned context) const = 0;
  // Windows that are there; one may go when no access to it is under way.
  virtual MemoryMap* memory() = 0;
};

// Whether this build contains `preset` with several contexts.
bool has_contexts(const std::string& preset);
// Throws std::runtime_error for a preset of which has_contexts() is false.
std::unique_ptr<ContextsSimulation> make_contexts_simulation(const std::string& preset, std::unique_ptr<Timing> timing,
                                                             const SimulationOptions& options);

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_CONTEXTS_SIMULATION_H_
