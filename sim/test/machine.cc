// SPDX-License-Identifier: Apache-2.0
#include "sim/test/machine.h"

namespace merapi::sim::test {

Machine::Machine(Window* w, const TracerOptions& options)
    : WindowHost(w), model(WindowMemory{w->base, w->bytes}, this, EngineOptions{}, options) {}

uint32_t Machine::take_memory_fault(uint64_t* offset) {
  if (on_memory_look) on_memory_look();
  uint32_t code = memory_fault;
  *offset = memory_fault_offset;
  memory_fault = 0;
  return code;
}

bool Machine::attach() {
  uint64_t odd = end_generation();
  model.step();
  begin_generation(odd);
  model.step();
  return generation_answered();
}

}  // namespace merapi::sim::test
