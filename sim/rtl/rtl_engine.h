// SPDX-License-Identifier: Apache-2.0
//
// The Verilated tracer as an engine of a device process.
#ifndef MERAPI_SIM_RTL_RTL_ENGINE_H_
#define MERAPI_SIM_RTL_RTL_ENGINE_H_

#include <memory>

#include "sim/rtl/simulation.h"

namespace merapi::sim::rtl {

class RtlEngine : public Engine {
 public:
  RtlEngine(const WindowMemory& memory, EngineHost* host, std::unique_ptr<Simulation> simulation);
  Step step() override;
  uint32_t doorbell_seen() const override { return doorbell_seen_; }
  EngineStatus status() const override;
  const Simulation& simulation() const { return *simulation_; }

 private:
  const WindowMemory memory_;
  EngineHost* const host_;
  const std::unique_ptr<Simulation> simulation_;
  uint32_t doorbell_seen_ = 0;
  uint32_t last_cycle_ = 0;
  uint64_t cycles_begun_ = 0;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_RTL_ENGINE_H_
