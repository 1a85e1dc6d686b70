// SPDX-License-Identifier: Apache-2.0
//
// The Verilated tracer as an engine of a device process.
#ifndef MERAPI_SIM_RTL_RTL_ENGINE_H_
#define MERAPI_SIM_RTL_RTL_ENGINE_H_

#include <memory>
#include <string>

#include "sim/rtl/simulation.h"

namespace merapi::sim::rtl {

struct RtlOptions {
  SimulationOptions simulation;
  std::string preset = "sim-small";
  uint32_t slice_cycles = 4000;  // most cycles of one step()
};

class RtlEngine : public Engine {
 public:
  RtlEngine(const WindowMemory& memory, EngineHost* host, std::unique_ptr<Timing> timing, const RtlOptions& options);
  Step step() override;
  uint32_t doorbell_seen() const override { return doorbell_seen_; }
  EngineStatus status() const override;
  const Simulation& simulation() const { return *simulation_; }

 private:
  const WindowMemory memory_;
  EngineHost* const host_;
  const RtlOptions options_;
  std::unique_ptr<Simulation> simulation_;
  uint32_t doorbell_seen_ = 0;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_RTL_ENGINE_H_
