// SPDX-License-Identifier: Apache-2.0
//
// A host in the same thread as the simulated tracer: every interleaving can be chosen and replayed.
#ifndef MERAPI_SIM_RTL_TEST_RTL_MACHINE_H_
#define MERAPI_SIM_RTL_TEST_RTL_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "sim/rtl/rtl_engine.h"
#include "sim/rtl/test/late_timing.h"
#include "sim/rtl/test/reached.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::rtl::test {

using merapi::sim::test::Window;

// MERAPI_PRESET, else sim-small.
std::string chosen_preset();
// Whether it is one of those in which everything overflows.
bool is_small();
// Lanes and memory ports of that preset.
unsigned lanes();
unsigned ports();

struct RtlMachineOptions {
  std::string preset = chosen_preset();
  RandomTimingOptions timing;
  Lateness late;  // none: the memory is equally fast everywhere
  SimulationOptions simulation;
};

class RtlMachine : public merapi::sim::test::WindowHost {
 public:
  RtlMachine(Window* window, const RtlMachineOptions& options);
  // A tracer that served another window in the same memory.
  RtlMachine(std::unique_ptr<Simulation> used, Window* window);
  ~RtlMachine() { reached_window(&window); }

  void run(uint64_t cycles);
  // Run until `what` holds; false when it did not within `most` cycles.
  template <typename F>
  bool run_until(F what, uint64_t most) {
    for (uint64_t i = 0; i < most; i++) {
      if (what()) return true;
      simulation->cycle();
    }
    return what();
  }

  // Handshake; false when the device did not answer.
  bool attach(uint64_t most = 20000);
  // Read completions until the trace has ended or a fault has; false when neither did within `most` cycles.
  bool idle_or_fault(uint64_t most);
  // Wait for a fault; its code.
  uint32_t fault_after(uint64_t most);

  std::unique_ptr<Simulation> simulation;
};

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_RTL_MACHINE_H_
