// SPDX-License-Identifier: Apache-2.0
//
// Several contexts over one memory, and hosts that work at the same time: each in a thread of its own, while the
// simulation goes on only when all of them wait for it. Hosts share nothing, so a seed is always the same run.
#ifndef MERAPI_SIM_RTL_TEST_CONTEXTS_MACHINE_H_
#define MERAPI_SIM_RTL_TEST_CONTEXTS_MACHINE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/rtl/contexts_simulation.h"
#include "sim/rtl/test/rtl_machine.h"
#include "sim/test/random_trace.h"

namespace merapi::sim::rtl::test {

// Every address that leaves a port is judged here, by what the hosts asked for and not by what the tracers say.
class ContextsMachine {
 public:
  ContextsMachine(const std::string& preset, const RandomTimingOptions& timing, const SimulationOptions& options);

  // Runs the hosts until all have returned. What one throws is thrown here.
  void run(const std::vector<std::function<void()>>& hosts);

  // For hosts: until `cycles` have passed or `done` holds; whether it does.
  bool wait(uint64_t cycles, const std::function<bool()>& done);
  void place(uint64_t base, Window* window);
  void remove(uint64_t base);
  void ask(unsigned context, uint64_t base, uint64_t bytes);

  ContextsSimulation& simulation() { return *simulation_; }
  ContextStatus status(unsigned context) const { return simulation_->status(context); }
  // Told of this context's accesses, at their offset in its window.
  void watch(unsigned context, std::function<void(uint64_t offset, bool write)> told) {
    contexts_[context].told = std::move(told);
  }
  uint64_t accesses(unsigned context) const { return contexts_[context].accesses; }
  // The first access of a context that was not to be; empty when there was none.
  const std::string& stray() const { return stray_; }

 private:
  struct Context {
    uint64_t base = 0, bytes = 0;                // asked for
    bool served = false;                         // opened and not free since:
    uint64_t served_base = 0, served_bytes = 0;  // with this window
    uint64_t accesses = 0;
    std::function<void(uint64_t, bool)> told;
  };
  struct Waiting {
    uint64_t left;
    const std::function<bool()>* done;
    bool over = false, held = false;
  };
  void cycle();
  void judge(uint32_t id, uint64_t address, bool write);

  std::vector<Context> contexts_;
  std::string stray_;
  std::unique_ptr<ContextsSimulation> simulation_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<Waiting*> waiting_;
  size_t alive_ = 0;
};

// A host's side of one context, from a window's opening to its end. Used from within ContextsMachine::run().
class ContextHost : public merapi::sim::test::WindowHost {
 public:
  ContextHost(ContextsMachine* machine, unsigned context, Window* window, uint64_t base);
  // Closes what it has open, and takes the window out of the memory.
  ~ContextHost();

  // Ask for the window until it is served; for none until the context is free. Whether it came to that.
  bool open();
  bool close();
  // The context was asked for something else meanwhile: it is not this host's any more.
  void leave() { mine_ = false; }
  // open() and a handshake.
  bool attach();
  void run(uint64_t cycles) {
    machine.wait(cycles, [] { return false; });
  }
  bool run_until(const std::function<bool()>& done, uint64_t most) { return machine.wait(most, done); }
  bool idle_or_fault(uint64_t most);
  ContextStatus status() const { return machine.status(context); }

  ContextsMachine& machine;
  const unsigned context;
  const uint64_t base;

 private:
  bool mine_ = false;
};

// Where random windows of a context lie: all contexts at once have room for the largest. Every third one touches its
// neighbour's.
uint64_t choose_base(unsigned context, uint64_t bytes, merapi::sim::test::Random* random);

// Devices for random_trace: this context of the machine. `patience`: as in TracedDevice::settle.
merapi::sim::test::DeviceMaker context_devices(ContextsMachine* machine, unsigned context);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_CONTEXTS_MACHINE_H_
