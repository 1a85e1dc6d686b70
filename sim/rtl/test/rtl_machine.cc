// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/rtl_machine.h"

#include <cstdlib>
#include <utility>

#include "sim/rtl/test/page_check.h"
#include "sim/rtl/test/port_digest.h"
#include "sim/rtl/test/waves.h"

namespace merapi::sim::rtl::test {

std::string chosen_preset() {
  const char* chosen = std::getenv("MERAPI_PRESET");
  return chosen != nullptr ? chosen : "sim-small";
}

bool is_small() { return chosen_preset().starts_with("sim-"); }

unsigned lanes() { return lanes_of(chosen_preset()); }

unsigned ports() { return ports_of(chosen_preset()); }

RtlMachine::RtlMachine(Window* w, const RtlMachineOptions& o) : WindowHost(w) {
  SimulationOptions s = with_waves(o.simulation);
  s.events = true;
  if (!s.on_page) s.on_page = check_page_write;
  // What Verilator chooses for power-up decides which of two ways an entry takes: no record knows.
  if (s.power_up == 0) s.on_request = digest_request;
  std::unique_ptr<Timing> timing = make_random_timing(o.timing);
  if (o.late) timing = make_late_timing(std::move(timing), o.late);
  simulation = make_simulation(o.preset, {w->base, w->bytes}, std::move(timing), s);
}

RtlMachine::RtlMachine(std::unique_ptr<Simulation> used, Window* w) : WindowHost(w), simulation(std::move(used)) {}

void RtlMachine::run(uint64_t cycles) {
  for (uint64_t i = 0; i < cycles; i++) simulation->cycle();
}

bool RtlMachine::attach(uint64_t most) {
  uint64_t odd = end_generation();
  run(2000);
  begin_generation(odd);
  return run_until([&] { return generation_answered(); }, most);
}

bool RtlMachine::idle_or_fault(uint64_t most) {
  return run_until(
      [&] {
        complete();
        return idle() || fault().code != 0;
      },
      most);
}

uint32_t RtlMachine::fault_after(uint64_t most) {
  run_until([&] { return fault().code != 0; }, most);
  return fault().code;
}

}  // namespace merapi::sim::rtl::test
