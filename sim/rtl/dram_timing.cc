// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <unordered_map>

#include "memory_system.h"
#include "sim/rtl/timing.h"

namespace merapi::sim::rtl {
namespace {

// One DRAMsim3 memory system per port. Its clock runs at 1/tCK; the tracer's cycles are converted exactly in
// picoseconds, so that the ratio need not be whole.
class DramTiming : public Timing {
 public:
  DramTiming(const std::string& config, unsigned ports, double clock_mhz)
      : config_(config), cycle_ps_(uint64_t(1e6 / clock_mhz + 0.5)) {
    for (unsigned port = 0; port < ports; port++) {
      Port& p = ports_.emplace_back();
      auto over = [this, port](bool write) {
        return [this, port, write](uint64_t address) { finish(port, address, write); };
      };
      p.memory = std::make_unique<dramsim3::MemorySystem>(config, ".", over(false), over(true));
    }
    tick_ps_ = uint64_t(ports_[0].memory->GetTCK() * 1000 + 0.5);
    if (tick_ps_ == 0) throw std::runtime_error("expected a DRAM clock in " + config + ", found none");
  }

  bool accepts(unsigned port, uint64_t address, bool write) override {
    return ports_[port].memory->WillAcceptTransaction(address, write);
  }
  void start(unsigned port, uint64_t address, bool write, uint32_t token) override {
    ports_[port].waiting.insert({address * 2 + write, token});
    ports_[port].memory->AddTransaction(address, write);
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
  struct Port {
    std::unique_ptr<dramsim3::MemorySystem> memory;
    // DRAMsim3 names an access by its address; several to one address end in the order of their start.
    std::unordered_multimap<uint64_t, uint32_t> waiting;
  };
  void finish(unsigned port, uint64_t address, bool write) {
    auto it = ports_[port].waiting.find(address * 2 + write);
    if (it == ports_[port].waiting.end()) return;
    finished_.push_back(it->second);
    ports_[port].waiting.erase(it);
  }
  const std::string config_;
  const uint64_t cycle_ps_;
  uint64_t tick_ps_ = 0, credit_ps_ = 0;
  std::vector<Port> ports_;
  std::vector<uint32_t> finished_;
};

}  // namespace

std::unique_ptr<Timing> make_dram_timing(const std::string& config, unsigned ports, double clock_mhz) {
  return std::make_unique<DramTiming>(config, ports, clock_mhz);
}

}  // namespace merapi::sim::rtl
