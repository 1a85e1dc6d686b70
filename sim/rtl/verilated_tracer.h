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
#if MERAPI_WAVES
#include <verilated_vcd_c.h>
#endif

#include <cstring>
#include <stdexcept>
#include <utility>

#include "sim/rtl/axi_memory.h"

namespace merapi::sim::rtl {

template <typename V, unsigned kPort>
struct Pins;

#define MERAPI_AXI_PINS(n)                                  \
  template <typename V>                                     \
  struct Pins<V, n> {                                       \
    V& v;                                                   \
    auto& ar_valid() { return v.io_axi_##n##_ar_valid; }    \
    auto& ar_ready() { return v.io_axi_##n##_ar_ready; }    \
    auto& ar_id() { return v.io_axi_##n##_ar_bits_id; }     \
    auto& ar_addr() { return v.io_axi_##n##_ar_bits_addr; } \
    auto& r_valid() { return v.io_axi_##n##_r_valid; }      \
    auto& r_ready() { return v.io_axi_##n##_r_ready; }      \
    auto& r_id() { return v.io_axi_##n##_r_bits_id; }       \
    auto& r_data() { return v.io_axi_##n##_r_bits_data; }   \
    auto& r_resp() { return v.io_axi_##n##_r_bits_resp; }   \
    auto& aw_valid() { return v.io_axi_##n##_aw_valid; }    \
    auto& aw_ready() { return v.io_axi_##n##_aw_ready; }    \
    auto& aw_id() { return v.io_axi_##n##_aw_bits_id; }     \
    auto& aw_addr() { return v.io_axi_##n##_aw_bits_addr; } \
    auto& w_valid() { return v.io_axi_##n##_w_valid; }      \
    auto& w_ready() { return v.io_axi_##n##_w_ready; }      \
    auto& w_data() { return v.io_axi_##n##_w_bits_data; }   \
    auto& w_strb() { return v.io_axi_##n##_w_bits_strb; }   \
    auto& b_valid() { return v.io_axi_##n##_b_valid; }      \
    auto& b_ready() { return v.io_axi_##n##_b_ready; }      \
    auto& b_id() { return v.io_axi_##n##_b_bits_id; }       \
    auto& b_resp() { return v.io_axi_##n##_b_bits_resp; }   \
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

#if MERAPI_WAVES
// A VCD file of the cycles that were asked for. A cycle is two units of time: clock low, clock high.
class Waves {
 public:
  template <typename V>
  void begin(VerilatedContext* context, V* v, const WaveOptions& options) {
    options_ = options;
    if (options.file.empty()) return;
    context->traceEverOn(true);
    v->trace(&file_, 99);
    file_.open(options.file.c_str());
    if (!file_.isOpen()) throw std::runtime_error("cannot write the waveform to " + options.file);
    waiting_ = true;
  }
  ~Waves() {
    if (file_.isOpen()) file_.close();
  }
  void half(uint64_t cycle, unsigned high, uint32_t state) {
    if (waiting_ && (options_.on_state != 0 ? state == options_.on_state : cycle >= options_.from)) {
      waiting_ = false;
      first_ = cycle;
      running_ = true;
    }
    if (!running_) return;
    if (cycle - first_ >= options_.cycles) {
      running_ = false;
      file_.close();
      return;
    }
    file_.dump(2 * cycle + high);
  }

 private:
  WaveOptions options_;
  VerilatedVcdC file_;
  bool waiting_ = false, running_ = false;
  uint64_t first_ = 0;
};
#else
class Waves {
 public:
  template <typename V>
  void begin(VerilatedContext*, V*, const WaveOptions& options) {
    if (!options.file.empty())
      throw std::runtime_error("expected a simulation built with waveforms, found one without");
  }
  void half(uint64_t, unsigned, uint32_t) {}
};
#endif

template <typename V, unsigned kPorts>
class Verilated : public Simulation {
 public:
  Verilated(const WindowMemory& memory, std::unique_ptr<Timing> timing, const SimulationOptions& options)
      : options_(options), timing_(std::move(timing)), memory_(memory, timing_.get(), kPorts, options), v_(&context_) {
    random_ = options.seed * 2 + 1;
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
    each_port([this](auto pins, unsigned port) { this->drive(pins, port); });
    v_.clock = 0;
    v_.eval();
    waves_.half(cycles_, 0, v_.io_status_state);
    each_port([this](auto pins, unsigned port) { this->sample(pins, port); });
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

 private:
  struct Store {
    bool addressed = false, filled = false;
    uint32_t id = 0;
    uint64_t address = 0, strobe = 0;
    Line line{};
  };
  struct PortState {
    std::deque<std::pair<uint32_t, uint64_t>> addresses;  // accepted, wait for room in the memory
    std::deque<std::pair<uint32_t, uint64_t>> stores;
    std::deque<std::pair<Line, uint64_t>> data;
    bool r_offered = false, b_offered = false;
  };
  static constexpr size_t kSkid = 4;  // accesses that a port takes before the memory does

  template <typename F>
  void each_port(F f) {
    [&]<unsigned... n>(std::integer_sequence<unsigned, n...>) { (f(Pins<V, n>{v_}, n), ...); }
    (std::make_integer_sequence<unsigned, kPorts>{});
  }
  bool stalled() {
    if (options_.stall_percent == 0) return false;
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return (random_ >> 20) % 100 < options_.stall_percent;
  }
  void edge() {
    v_.clock = 0;
    v_.eval();
    v_.clock = 1;
    v_.eval();
  }

  template <typename P>
  void drive(P pins, unsigned port) {
    PortState& s = state_[port];
    while (!s.addresses.empty() && memory_.takes_read(port, s.addresses.front().second)) {
      memory_.read(port, s.addresses.front().first, s.addresses.front().second);
      s.addresses.pop_front();
    }
    while (!s.stores.empty() && !s.data.empty() && memory_.takes_write(port, s.stores.front().second)) {
      memory_.write(port, s.stores.front().first, s.stores.front().second, s.data.front().first, s.data.front().second);
      s.stores.pop_front();
      s.data.pop_front();
    }
    pins.ar_ready() = s.addresses.size() < kSkid && !stalled();
    pins.aw_ready() = s.stores.size() < kSkid && !stalled();
    pins.w_ready() = s.data.size() < kSkid && !stalled();
    auto& reads = memory_.reads(port);
    // What was offered stays offered.
    s.r_offered = !reads.empty() && (s.r_offered || !stalled());
    pins.r_valid() = s.r_offered;
    if (s.r_offered) {
      pins.r_id() = reads.front().id;
      pins.r_resp() = reads.front().response;
      std::memcpy(&pins.r_data(), reads.front().line.word, 64);
    }
    auto& written = memory_.written(port);
    s.b_offered = !written.empty() && (s.b_offered || !stalled());
    pins.b_valid() = s.b_offered;
    if (s.b_offered) {
      pins.b_id() = written.front().id;
      pins.b_resp() = written.front().response;
    }
  }
  template <typename P>
  void sample(P pins, unsigned port) {
    PortState& s = state_[port];
    if (pins.ar_valid() && pins.ar_ready()) s.addresses.push_back({pins.ar_id(), pins.ar_addr()});
    if (pins.aw_valid() && pins.aw_ready()) s.stores.push_back({pins.aw_id(), pins.aw_addr()});
    if (pins.w_valid() && pins.w_ready()) {
      Line line;
      std::memcpy(line.word, &pins.w_data(), 64);
      s.data.push_back({line, pins.w_strb()});
    }
    if (s.r_offered && pins.r_ready()) {
      memory_.reads(port).pop_front();
      s.r_offered = false;
    }
    if (s.b_offered && pins.b_ready()) {
      memory_.written(port).pop_front();
      s.b_offered = false;
    }
  }

  const SimulationOptions options_;
  std::unique_ptr<Timing> timing_;
  AxiMemory memory_;
  VerilatedContext context_;
  V v_;
  Waves waves_;
  PortState state_[kPorts];
  uint64_t random_ = 1;
  uint64_t cycles_ = 0;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_VERILATED_TRACER_H_
