// SPDX-License-Identifier: Apache-2.0
//
// Simulation over one Verilated class. A source file per preset instantiates it: Verilator's classes have no common
// base, and each port is a set of members of its own. With MERAPI_WAVES the class was made with --trace.
#ifndef MERAPI_SIM_RTL_VERILATED_TRACER_H_
#define MERAPI_SIM_RTL_VERILATED_TRACER_H_

#include <verilated.h>

#ifndef MERAPI_WAVES
#define MERAPI_WAVES 0
#endif

#include <cstring>
#include <stdexcept>
#include <utility>

#include "sim/rtl/verilated_ports.h"
#if MERAPI_WAVES
#include "sim/rtl/waves.h"
#endif

namespace merapi::sim::rtl {

#if !MERAPI_WAVES
class Waves {
 public:
  template <typename V>
  void begin(VerilatedContext*, V*, const WaveOptions& options) {
    if (!options.file.empty())
      throw std::runtime_error("expected a simulation built with waveforms (make rtl-waves), found one without");
  }
  void half(uint64_t, unsigned, uint32_t) {}
};
#endif

template <typename V, unsigned kPorts>
class Verilated : public Simulation {
 public:
  Verilated(const WindowMemory& memory, std::unique_ptr<Timing> timing, const SimulationOptions& options)
      : timing_(std::move(timing)),
        map_{{0, memory}},
        memory_(&map_, timing_.get(), kPorts, options),
        v_(powered(&context_, options.power_up)),
        ports_(&v_, &memory_, options) {
    context_.commandArgs(0, static_cast<const char**>(nullptr));
    v_.io_windowBytes = memory.bytes;
    v_.io_who_kind = MERAPI_DEVICE_KIND_RTL;
    v_.io_who_coherence = options.common.coherence;
    v_.io_who_patienceUs = options.common.patience_us;
    v_.io_who_pid = options.common.pid;
    char name[24] = {};
    std::memcpy(name, options.common.name.data(), std::min(options.common.name.size(), sizeof name - 1));
    std::memcpy(&v_.io_who_name, name, sizeof name);
    waves_.begin(&context_, &v_, options.waves);
    v_.reset = 1;
    for (int i = 0; i < 4; i++) edge();
    v_.reset = 0;
  }
  ~Verilated() override { v_.final(); }

  void cycle() override {
    memory_.tick();
    ports_.drive();
    v_.clock = 0;
    v_.eval();
    waves_.half(cycles_, 0, v_.io_status_state);
    ports_.sample();
    v_.clock = 1;
    v_.eval();
    waves_.half(cycles_, 1, v_.io_status_state);
    cycles_++;
  }
  bool sleeping() const override { return v_.io_status_sleeping; }
  uint32_t state() const override { return v_.io_status_state; }
  uint32_t trace_cycle_id() const override { return v_.io_status_cycle; }
  uint64_t cycles() const override { return cycles_; }
  uint64_t looks() const override { return memory_.looks(); }
  AccessCounts accesses() const override { return memory_.counts(); }
  bool take_news() override { return memory_.take_news(); }
  bool upset_live_addresses(uint64_t bits) override { return upset(&v_, bits); }

 private:
  // Only who includes the class behind V knows its memories.
  template <typename T>
  static bool upset(T* v, uint64_t bits) {
    if constexpr (requires { v->rootp->Tracer__DOT__core__DOT__live__DOT__places_ext__DOT__Memory; }) {
      auto& places = v->rootp->Tracer__DOT__core__DOT__live__DOT__places_ext__DOT__Memory.m_storage;
      for (auto& place : places) place ^= bits;
      if constexpr (requires { v->rootp->gate_due; })
        v->rootp->gate_due = ~uint64_t(0);  // gate_model.py knows nothing of it
      return true;
    }
    return false;
  }

  // Before the class is made: what its variables hold at first is chosen then.
  static VerilatedContext* powered(VerilatedContext* context, uint64_t seed) {
    ::Verilated::threadContextp(context);
    if (seed != 0) {
      context->randReset(2);
      context->randSeed(int(seed % 0x7ffffffe) + 1);
    }
    return context;
  }
  void edge() {
    v_.clock = 0;
    v_.eval();
    v_.clock = 1;
    v_.eval();
  }

  std::unique_ptr<Timing> timing_;
  const MemoryMap map_;
  AxiMemory memory_;
  VerilatedContext context_;
  V v_;
  Waves waves_;
  VerilatedPorts<V, kPorts> ports_;
  uint64_t cycles_ = 0;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_VERILATED_TRACER_H_
