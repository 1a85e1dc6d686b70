// SPDX-License-Identifier: Apache-2.0
//
// The pins of a Verilated class's AXI ports, and what a memory does at them in a cycle: back-pressure, stalls, and that
// what was offered stays offered. With MERAPI_PORT_RULES the tracer's side is judged in every cycle.
#ifndef MERAPI_SIM_RTL_VERILATED_PORTS_H_
#define MERAPI_SIM_RTL_VERILATED_PORTS_H_

#include <cstring>
#include <deque>
#include <utility>

#include "sim/rtl/axi_memory.h"
#include "sim/rtl/port_rules.h"
#include "sim/rtl/xorshift.h"

#ifndef MERAPI_PORT_RULES
#define MERAPI_PORT_RULES 0
#endif

namespace merapi::sim::rtl {

template <typename V, unsigned kPort>
struct Pins;

#define MERAPI_AXI_PINS(n)                                                                                             \
  template <typename V>                                                                                                \
  struct Pins<V, n> {                                                                                                  \
    V& v;                                                                                                              \
    auto& ar_valid() { return v.io_axi_##n##_ar_valid; }                                                               \
    auto& ar_ready() { return v.io_axi_##n##_ar_ready; }                                                               \
    auto& ar_id() { return v.io_axi_##n##_ar_bits_id; }                                                                \
    auto& ar_addr() { return v.io_axi_##n##_ar_bits_addr; }                                                            \
    bool ar_is_line() {                                                                                                \
      return v.io_axi_##n##_ar_bits_len == 0 && v.io_axi_##n##_ar_bits_size == 6 && v.io_axi_##n##_ar_bits_burst == 1; \
    }                                                                                                                  \
    auto& r_valid() { return v.io_axi_##n##_r_valid; }                                                                 \
    auto& r_ready() { return v.io_axi_##n##_r_ready; }                                                                 \
    auto& r_id() { return v.io_axi_##n##_r_bits_id; }                                                                  \
    auto& r_data() { return v.io_axi_##n##_r_bits_data; }                                                              \
    auto& r_resp() { return v.io_axi_##n##_r_bits_resp; }                                                              \
    auto& aw_valid() { return v.io_axi_##n##_aw_valid; }                                                               \
    auto& aw_ready() { return v.io_axi_##n##_aw_ready; }                                                               \
    auto& aw_id() { return v.io_axi_##n##_aw_bits_id; }                                                                \
    auto& aw_addr() { return v.io_axi_##n##_aw_bits_addr; }                                                            \
    bool aw_is_line() {                                                                                                \
      return v.io_axi_##n##_aw_bits_len == 0 && v.io_axi_##n##_aw_bits_size == 6 && v.io_axi_##n##_aw_bits_burst == 1; \
    }                                                                                                                  \
    auto& w_valid() { return v.io_axi_##n##_w_valid; }                                                                 \
    auto& w_ready() { return v.io_axi_##n##_w_ready; }                                                                 \
    auto& w_data() { return v.io_axi_##n##_w_bits_data; }                                                              \
    auto& w_strb() { return v.io_axi_##n##_w_bits_strb; }                                                              \
    auto& w_last() { return v.io_axi_##n##_w_bits_last; }                                                              \
    auto& b_valid() { return v.io_axi_##n##_b_valid; }                                                                 \
    auto& b_ready() { return v.io_axi_##n##_b_ready; }                                                                 \
    auto& b_id() { return v.io_axi_##n##_b_bits_id; }                                                                  \
    auto& b_resp() { return v.io_axi_##n##_b_bits_resp; }                                                              \
  };
MERAPI_AXI_PINS(0)
MERAPI_AXI_PINS(1)
MERAPI_AXI_PINS(2)
MERAPI_AXI_PINS(3)
MERAPI_AXI_PINS(4)
MERAPI_AXI_PINS(5)
MERAPI_AXI_PINS(6)
MERAPI_AXI_PINS(7)
#undef MERAPI_AXI_PINS

template <typename V, unsigned kPorts>
class VerilatedPorts {
  static_assert(kPorts <= 8, "pins of as many ports as MERAPI_AXI_PINS are there for");

 public:
  VerilatedPorts(V* v, AxiMemory* memory, const SimulationOptions& options)
      : v_(v), memory_(memory), options_(options), random_(options.seed * 2 + 1) {}

  // Inputs for a cycle, before it is evaluated; what was taken and given in it, before the clock's edge.
  void drive() {
    each_port([this](auto pins, unsigned port) { this->drive(pins, port); });
  }
  void sample() {
    each_port([this](auto pins, unsigned port) { this->sample(pins, port); });
  }

 private:
  struct PortState {
    std::deque<std::pair<uint32_t, uint64_t>> addresses;  // accepted, wait for room in the memory
    std::deque<std::pair<uint32_t, uint64_t>> stores;
    std::deque<std::pair<Line, uint64_t>> data;
    bool r_offered = false, b_offered = false;
    bool ar_waits = false, aw_waits = false, w_waits = false;  // offered in the last cycle and not taken
    PortRules rules;
  };
  static constexpr size_t kSkid = 4;  // accesses that a port takes before the memory does

  template <typename F>
  void each_port(F f) {
    [&]<unsigned... n>(std::integer_sequence<unsigned, n...>) { (f(Pins<V, n>{*v_}, n), ...); }
    (std::make_integer_sequence<unsigned, kPorts>{});
  }
  bool stalled() { return random_.percent(options_.stall_percent); }
  template <typename P>
  void drive(P pins, unsigned port) {
    PortState& s = state_[port];
    while (!s.addresses.empty() && memory_->takes_read(port, s.addresses.front().second)) {
      memory_->read(port, s.addresses.front().first, s.addresses.front().second);
      s.addresses.pop_front();
    }
    while (!s.stores.empty() && !s.data.empty() && memory_->takes_write(port, s.stores.front().second)) {
      memory_->write(port, s.stores.front().first, s.stores.front().second, s.data.front().first,
                     s.data.front().second);
      s.stores.pop_front();
      s.data.pop_front();
    }
    pins.ar_ready() = s.addresses.size() < kSkid && !stalled();
    pins.aw_ready() = s.stores.size() < kSkid && !stalled();
    pins.w_ready() = s.data.size() < kSkid && !stalled();
    if (options_.readiness != Readiness::kAlways) wait_for_valid(pins, s);
    auto& reads = memory_->reads(port);
    // What was offered stays offered.
    s.r_offered = !reads.empty() && (s.r_offered || !stalled());
    pins.r_valid() = s.r_offered;
    if (s.r_offered) {
      pins.r_id() = reads.front().id;
      pins.r_resp() = reads.front().response;
      std::memcpy(&pins.r_data(), reads.front().line.word, 64);
    }
    auto& written = memory_->written(port);
    s.b_offered = !written.empty() && (s.b_offered || !stalled());
    pins.b_valid() = s.b_offered;
    if (s.b_offered) {
      pins.b_id() = written.front().id;
      pins.b_resp() = written.front().response;
    }
  }
  template <typename P>
  void wait_for_valid(P pins, const PortState& s) {
    // Of a write whose one part has been taken the other is no longer waited for.
    const bool both = options_.readiness != Readiness::kAfterBoth || ((s.aw_waits || s.stores.size() > s.data.size()) &&
                                                                      (s.w_waits || s.data.size() > s.stores.size()));
    if (!s.ar_waits) pins.ar_ready() = 0;
    if (!s.aw_waits || !both) pins.aw_ready() = 0;
    if (!s.w_waits || !both) pins.w_ready() = 0;
  }
  template <typename P>
  void sample(P pins, unsigned port) {
    PortState& s = state_[port];
    if constexpr (MERAPI_PORT_RULES) judge(pins, &s);
    s.ar_waits = pins.ar_valid() && !pins.ar_ready();
    s.aw_waits = pins.aw_valid() && !pins.aw_ready();
    s.w_waits = pins.w_valid() && !pins.w_ready();
    if (pins.ar_valid() && pins.ar_ready()) {
      if (options_.on_address) options_.on_address(pins.ar_id(), pins.ar_addr(), false);
      s.addresses.push_back({pins.ar_id(), pins.ar_addr()});
    }
    if (pins.aw_valid() && pins.aw_ready()) {
      if (options_.on_address) options_.on_address(pins.aw_id(), pins.aw_addr(), true);
      s.stores.push_back({pins.aw_id(), pins.aw_addr()});
    }
    if (pins.w_valid() && pins.w_ready()) {
      Line line;
      std::memcpy(line.word, &pins.w_data(), 64);
      s.data.push_back({line, pins.w_strb()});
    }
    if (s.r_offered && pins.r_ready()) {
      memory_->reads(port).pop_front();
      s.r_offered = false;
    }
    if (s.b_offered && pins.b_ready()) {
      memory_->written(port).pop_front();
      s.b_offered = false;
    }
  }

  // An id is free in the cycle after its answer.
  template <typename P>
  static void judge(P pins, PortState* s) {
    PortRules& rules = s->rules;
    rules.reads.offered(pins.ar_valid(), pins.ar_ready(), pins.ar_id(), pins.ar_addr(), pins.ar_is_line());
    rules.writes.offered(pins.aw_valid(), pins.aw_ready(), pins.aw_id(), pins.aw_addr(), pins.aw_is_line());
    rules.data(pins.w_valid(), pins.w_ready(), &pins.w_data(), pins.w_strb() == ~uint64_t{0} && pins.w_last());
    if (s->r_offered && pins.r_ready()) rules.reads.answered(pins.r_id());
    if (s->b_offered && pins.b_ready()) rules.writes.answered(pins.b_id());
  }

  V* const v_;
  AxiMemory* const memory_;
  const SimulationOptions options_;
  PortState state_[kPorts];
  Xorshift random_;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_VERILATED_PORTS_H_
