// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/rtl_device.h"

#include <vector>

#include "sim/rtl/test/area_counter.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::DevicePromises;
using merapi::sim::test::Random;
using merapi::sim::test::TracedDevice;
using merapi::sim::test::TraceKnobs;
using merapi::sim::test::WindowHost;

// Each area at a pace of its own: some of the heap, the rings and the control page is up to 150 cycles late, some of
// all others up to 1500.
Lateness uneven(const Window& window, Random* r) {
  std::vector<uint64_t> most(MERAPI_AREA_COUNT + 1);  // the last: what lies in no area
  for (uint32_t area = 0; area < most.size(); area++) {
    const bool often = area == MERAPI_AREA_SUBMISSION || area == MERAPI_AREA_COMPLETION || area == MERAPI_AREA_HEAP ||
                       area == MERAPI_AREA_COUNT;
    if (r->percent(50)) most[area] = r->between(1, often ? 150 : 1500);
  }
  return [=, layout = window.layout, random = Random(r->next())](uint64_t, uint64_t address, bool) mutable {
    uint32_t area = 0;
    while (area < MERAPI_AREA_COUNT && address - layout.area[area].offset >= layout.area[area].size) area++;
    return random.below(most[area] + 1);
  };
}

// Time in which anything that needs the memory alone must be over, in cycles: on-chip sweeps and slow memories
// included.
constexpr uint64_t kPatience = 200'000;

RtlMachineOptions watched(RtlMachineOptions o, AreaCounter* counter) {
  o.simulation.on_access = [counter](uint64_t address, bool write) { counter->count(address, write); };
  return o;
}

class RtlDevice : public TracedDevice {
 public:
  RtlDevice(Window* window, const RtlMachineOptions& options, const std::function<void(RtlMachine*)>& at_end)
      : counter_(window), machine_(window, watched(options, &counter_)), at_end_(at_end) {}
  ~RtlDevice() override {
    if (at_end_) at_end_(&machine_);
  }
  WindowHost& host() override { return machine_; }
  bool attach() override { return machine_.attach(); }
  void advance(Random* r) override {
    for (uint64_t left = r->percent(80) ? r->between(1, 100) : r->between(100, 3000); left > 0; left--) cycle();
  }
  bool settle(const std::function<bool()>& done) override {
    for (uint64_t left = kPatience; left > 0 && !done(); left--) cycle();
    return done();
  }
  DevicePromises promises() const override {
    return {.follows_ahead = true, .counts_events = true, .counts_leaves = true};
  }
  const merapi::sim::test::AreaAccesses* accesses() const override { return &counter_.counts(); }
  void begin_count(uint32_t bitmap) override {
    counter_.begin(bitmap);
    traced_ = 0;
  }
  uint64_t traced() const override { return traced_; }
  uint64_t clock() const override { return machine_.simulation->cycles(); }
  uint64_t most_turns() const override { return 400'000; }

 private:
  void cycle() {
    machine_.simulation->cycle();
    traced_ += machine_.simulation->state() == MERAPI_DEVICE_STATE_TRACING;
  }

  AreaCounter counter_;
  RtlMachine machine_;
  const std::function<void(RtlMachine*)> at_end_;
  uint64_t traced_ = 0;
};

}  // namespace

RtlMachineOptions choose_machine(const std::string& preset, Random* r) {
  RtlMachineOptions o;
  o.preset = preset;
  o.timing.least = uint32_t(r->between(1, 20));
  o.timing.most = o.timing.least + uint32_t(r->percent(50) ? r->below(20) : r->below(300));
  o.timing.accept_percent = uint32_t(r->percent(50) ? 100 : r->between(20, 90));
  o.timing.seed = r->next();
  o.simulation.stall_percent = uint32_t(r->percent(50) ? 0 : r->between(5, 70));
  o.simulation.seed = r->next();
  return o;
}

void choose_memory(const std::string& preset, uint64_t seed, SimulationOptions* options) {
  constexpr uint64_t kRecorded = 3;
  if (preset == "sim-small" && seed <= kRecorded) return;
  // In turns, so that two seeds have both what is usual and what is not.
  constexpr Readiness kTurns[] = {Readiness::kAfterValid, Readiness::kAlways, Readiness::kAfterBoth};
  Random random(~seed);
  options->readiness = kTurns[seed % 3];
  options->at_once_percent = seed % 4 < 2 ? 0 : uint32_t(random.between(10, 100));
}

merapi::sim::test::DeviceMaker rtl_devices(const std::string& preset, const RtlDeviceOptions& chosen) {
  return [=](Window* window, Random* r, const TraceKnobs& knobs) -> std::unique_ptr<TracedDevice> {
    if (knobs.no_spill) window->directory()->area[MERAPI_AREA_SPILL] = {0, 0};
    RtlMachineOptions options = choose_machine(preset, r);
    options.simulation.power_up = chosen.power_up;
    if (chosen.seed != 0) choose_memory(preset, chosen.seed, &options.simulation);
    if (chosen.uneven) options.late = uneven(*window, r);
    return std::make_unique<RtlDevice>(window, options, chosen.at_end);
  };
}

}  // namespace merapi::sim::rtl::test
