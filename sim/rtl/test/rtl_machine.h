// SPDX-License-Identifier: Apache-2.0
//
// A host in the same thread as the simulated tracer: every interleaving can be chosen and replayed.
#ifndef MERAPI_SIM_RTL_TEST_RTL_MACHINE_H_
#define MERAPI_SIM_RTL_TEST_RTL_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/rtl/rtl_engine.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::rtl::test {

using merapi::sim::test::Window;

struct RtlMachineOptions {
  std::string preset = "sim-small";
  RandomTimingOptions timing;
  SimulationOptions simulation;
};

class RtlMachine {
 public:
  RtlMachine(Window* window, const RtlMachineOptions& options);

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

  bool attach(uint64_t most = 20000);
  bool room() const;
  void submit(merapi_submission entry);
  void begin(uint32_t bitmap);
  void command(uint8_t opcode, uint32_t arg, uint64_t first, uint64_t count);
  void grey(const std::vector<uint64_t>& references);
  std::vector<merapi_completion> complete(size_t count = ~size_t{0});
  bool idle() const;
  const merapi_fault_record& fault() const;
  uint32_t state() const;
  uint64_t counter(int which) const;
  void request_pause();
  bool pause_acknowledged() const;
  void resume();
  bool resume_acknowledged() const;
  void abort();
  bool abort_acknowledged() const;
  // Wait for a fault; its code.
  uint32_t fault_after(uint64_t most);

  Window& window;
  std::unique_ptr<Simulation> simulation;
  uint32_t cycle = 0;
  uint64_t produced = 0, consumed = 0;

 private:
  merapi_host_index* host() const { return window.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET); }
  merapi_host_request* request() const { return window.control<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET); }
  merapi_device_index* index() const { return window.control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET); }
  merapi_device_ack* ack() const { return window.control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET); }
};

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_RTL_MACHINE_H_
