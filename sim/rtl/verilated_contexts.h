// SPDX-License-Identifier: Apache-2.0
//
// ContextsSimulation over one Verilated class.
#ifndef MERAPI_SIM_RTL_VERILATED_CONTEXTS_H_
#define MERAPI_SIM_RTL_VERILATED_CONTEXTS_H_

#include <verilated.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "sim/rtl/contexts_simulation.h"
#include "sim/rtl/verilated_ports.h"

namespace merapi::sim::rtl {

template <typename V, unsigned kContext>
struct ContextPins;

#define MERAPI_CONTEXT_PINS(n)                                                            \
  template <typename V>                                                                   \
  struct ContextPins<V, n> {                                                              \
    V& v;                                                                                 \
    auto& base() { return v.io_contexts_##n##_asked_base; }                               \
    auto& bytes() { return v.io_contexts_##n##_asked_bytes; }                             \
    auto& kind() { return v.io_contexts_##n##_who_kind; }                                 \
    auto& coherence() { return v.io_contexts_##n##_who_coherence; }                       \
    auto& patience() { return v.io_contexts_##n##_who_patienceUs; }                       \
    auto& pid() { return v.io_contexts_##n##_who_pid; }                                   \
    auto& name() { return v.io_contexts_##n##_who_name; }                                 \
    ContextStatus status() {                                                              \
      return {v.io_contexts_##n##_open != 0,    v.io_contexts_##n##_free != 0,            \
              v.io_contexts_##n##_refused != 0, v.io_contexts_##n##_status_sleeping != 0, \
              v.io_contexts_##n##_status_state, v.io_contexts_##n##_status_cycle};        \
    }                                                                                     \
  };
MERAPI_CONTEXT_PINS(0)
MERAPI_CONTEXT_PINS(1)
MERAPI_CONTEXT_PINS(2)
MERAPI_CONTEXT_PINS(3)
#undef MERAPI_CONTEXT_PINS

template <typename V, unsigned kPorts, unsigned kContexts>
class VerilatedContexts : public ContextsSimulation {
  static_assert(kContexts <= 4, "pins of as many contexts as MERAPI_CONTEXT_PINS are there for");

 public:
  VerilatedContexts(ContextIds ids, std::unique_ptr<Timing> timing, const SimulationOptions& options)
      : ids_(ids),
        timing_(std::move(timing)),
        memory_(&map_, timing_.get(), kPorts, options),
        v_(&context_),
        ports_(&v_, &memory_, options) {
    context_.commandArgs(0, static_cast<const char**>(nullptr));
    for (unsigned i = 0; i < kContexts; i++) ask(i, 0, 0);
    for (unsigned i = 0; i < kContexts; i++) identify(i, options.common);
    v_.reset = 1;
    for (int i = 0; i < 4; i++) {
      v_.clock = 0;
      v_.eval();
      v_.clock = 1;
      v_.eval();
    }
    v_.reset = 0;
  }
  ~VerilatedContexts() override { v_.final(); }

  unsigned contexts() const override { return kContexts; }
  ContextIds ids() const override { return ids_; }
  void cycle() override {
    memory_.tick();
    ports_.drive();
    v_.clock = 0;
    v_.eval();
    ports_.sample();
    v_.clock = 1;
    v_.eval();
    cycles_++;
  }
  uint64_t cycles() const override { return cycles_; }
  void ask(unsigned context, uint64_t base, uint64_t bytes) override {
    with(context, [&](auto pins) {
      pins.base() = base;
      pins.bytes() = bytes;
    });
  }
  void identify(unsigned context, const EngineOptions& who) override {
    with(context, [&](auto pins) {
      pins.kind() = MERAPI_DEVICE_KIND_RTL;
      pins.coherence() = who.coherence;
      pins.patience() = who.patience_us;
      pins.pid() = who.pid;
      char name[24] = {};
      std::memcpy(name, who.name.data(), std::min(who.name.size(), sizeof name - 1));
      std::memcpy(&pins.name(), name, sizeof name);
    });
  }
  ContextStatus status(unsigned context) const override {
    ContextStatus s{};
    with(context, [&](auto pins) { s = pins.status(); });
    return s;
  }
  MemoryMap* memory() override { return &map_; }

 private:
  template <typename F>
  void with(unsigned context, F f) const {
    if (context >= kContexts) throw std::out_of_range("context");
    [&]<unsigned... n>(std::integer_sequence<unsigned, n...>) {
      ((n == context ? f(ContextPins<V, n>{v_}) : void()), ...);
    }
    (std::make_integer_sequence<unsigned, kContexts>{});
  }

  const ContextIds ids_;
  std::unique_ptr<Timing> timing_;
  MemoryMap map_;
  AxiMemory memory_;
  VerilatedContext context_;
  mutable V v_;  // its pins are read as they are written
  VerilatedPorts<V, kPorts> ports_;
  uint64_t cycles_ = 0;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_VERILATED_CONTEXTS_H_
