// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>

#include "memory_system.h"
#include "sim/rtl/timing.h"

namespace merapi::sim::rtl {
namespace {

// DRAMsim3's clock runs at 1/tCK; the tracer's cycles are converted exactly in picoseconds, so that the ratio need not
// be whole.
class DramTiming : public Timing {
 public:
  DramTiming(const std::string& config, const DramOptions& o)
      : config_(config),
        port_log2_(log2(o.ports)),
        interleave_log2_(o.interleave_log2),
        cycle_ps_(uint64_t(1e6 / o.clock_mhz + 0.5)),
        ports_(o.ports) {
    for (Port& port : ports_) {
      auto over = [this, &port](bool write) {
        return [this, &port, write](uint64_t address) { finish(port, address, write); };
      };
      // "." is where statistics would go; the configuration asks for none.
      port.memory = std::make_unique<dramsim3::MemorySystem>(config, ".", over(false), over(true));
    }
    tick_ps_ = uint64_t(ports_[0].memory->GetTCK() * 1000 + 0.5);
    if (tick_ps_ == 0) throw std::runtime_error("expected a DRAM clock in " + config + ", found none");
  }

  bool accepts(unsigned port, uint64_t address, bool write) override {
    return ports_[port].memory->WillAcceptTransaction(share(address), write);
  }
  void start(unsigned port, uint64_t address, bool write, uint32_t token) override {
    uint64_t own = share(address);
    ports_[port].waiting.push_back({own, write, token});
    ports_[port].memory->AddTransaction(own, write);
  }
  void tick(std::vector<uint32_t>* finished) override {
    credit_ps_ += cycle_ps_;
    while (credit_ps_ >= tick_ps_) {
      credit_ps_ -= tick_ps_;
      for (Port& p : ports_) p.memory->ClockTick();
    }
    finished->insert(finished->end(), finished_.begin(), finished_.end());
    finished_.clear();
  }
  std::string name() const override { return config_; }

 private:
  struct Waiting {
    uint64_t address;
    bool write;
    uint32_t token;
  };
  struct Port {
    std::unique_ptr<dramsim3::MemorySystem> memory;
    // DRAMsim3 names an access by its address: of several to one address the oldest ends first. They are some dozens,
    // the oldest in front, where most are found.
    std::vector<Waiting> waiting;
  };
  static unsigned log2(unsigned n) {
    unsigned log = 0;
    while ((2u << log) <= n) log++;
    return log;
  }
  uint64_t share(uint64_t address) const {
    uint64_t below = address & ((uint64_t{1} << interleave_log2_) - 1);
    return address >> (interleave_log2_ + port_log2_) << interleave_log2_ | below;
  }
  void finish(Port& port, uint64_t address, bool write) {
    auto it =
        std::ranges::find_if(port.waiting, [&](const Waiting& w) { return w.address == address && w.write == write; });
    if (it == port.waiting.end()) return;
    finished_.push_back(it->token);
    port.waiting.erase(it);
  }
  const std::string config_;
  const unsigned port_log2_, interleave_log2_;
  const uint64_t cycle_ps_;
  uint64_t tick_ps_ = 0, credit_ps_ = 0;
  std::vector<Port> ports_;
  std::vector<uint32_t> finished_;
};

}  // namespace

std::unique_ptr<Timing> make_dram_timing(const std::string& config, const DramOptions& options) {
  return std::make_unique<DramTiming>(config, options);
}

}  // namespace merapi::sim::rtl
