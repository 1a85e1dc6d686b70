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
  struct Counts {
    uint64_t cycles = 0, objects_marked = 0, references_read = 0;
    bool operator==(const Counts& o) const {
      return cycles == o.cycles && objects_marked == o.objects_marked && references_read == o.references_read;
    }
  };
  void count_events();
  void sum_counters();
  uint64_t word(uint64_t offset) const;
  uint64_t counter(int which) const;
  const WindowMemory memory_;
  EngineHost* const host_;
  const std::unique_ptr<Simulation> simulation_;
  uint32_t doorbell_seen_ = 0;
  uint32_t last_cycle_ = 0, last_state_ = 0;
  uint64_t cycles_begun_ = 0, faults_ = 0;
  Counts published_;                                   // as last seen in the control page
  uint64_t counted_of_ = 0;                            // in which of cycles_begun_
  uint64_t objects_marked_ = 0, references_read_ = 0;  // of the cycles before that one
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_RTL_ENGINE_H_
