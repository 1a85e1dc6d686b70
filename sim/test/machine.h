// SPDX-License-Identifier: Apache-2.0
//
// The model and a host for it, side by side in one thread.
#ifndef MERAPI_SIM_TEST_MACHINE_H_
#define MERAPI_SIM_TEST_MACHINE_H_

#include <cstdint>
#include <functional>

#include "sim/engine/engine.h"
#include "sim/model/model.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::test {

class Machine : public WindowHost, public EngineHost {
 public:
  Machine(Window* window, const TracerOptions& options);

  void notify() override {
    notified++;
    if (on_notify) on_notify();
  }
  uint32_t take_memory_fault(uint64_t* offset) override;

  // Handshake; false when the device did not answer.
  bool attach();
  // Runs the device.
  Step step() { return model.step(); }

  Model model;
  uint64_t notified = 0;
  std::function<void()> on_notify;       // what the host does while the device is in the midst of a step
  std::function<void()> on_memory_look;  // likewise, when the device asks for memory faults
  uint32_t memory_fault = 0;
  uint64_t memory_fault_offset = 0;
};

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_MACHINE_H_
