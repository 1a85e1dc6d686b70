// SPDX-License-Identifier: Apache-2.0
#include "sim/test/model_device.h"

#include "sim/test/machine.h"

namespace merapi::sim::test {
namespace {

class ModelDevice : public TracedDevice {
 public:
  ModelDevice(Window* window, const TracerOptions& options) : machine_(window, options) {}
  WindowHost& host() override { return machine_; }
  bool attach() override { return machine_.attach(); }
  void advance(Random*) override { machine_.step(); }
  bool settle(const std::function<bool()>& done) override {
    for (int i = 0; i < 3 && !done(); i++) machine_.step();
    return done();
  }
  DevicePromises promises() const override {
    return {.marks_before_reports = true, .reports_once = true, .counts_once = true, .sweeps_greys_only = true};
  }
  uint64_t most_turns() const override { return 3'000'000; }

 private:
  Machine machine_;
};

}  // namespace

std::unique_ptr<TracedDevice> make_model_device(Window* window, Random* r, const TraceKnobs& knobs) {
  TracerOptions o;
  o.strict = r->percent(50);
  o.stack_entries = knobs.tiny_stack ? uint32_t(r->between(2, 12)) : r->percent(50) ? 64 : 4096;
  o.use_spill = !knobs.no_spill;
  o.slice = int64_t(r->percent(50) ? r->between(1, 40) : r->between(40, 2000));
  o.step_ns = 0;
  if (r->percent(50)) {
    o.piece_log2 = uint8_t(r->between(3, 5));
    o.pieces_at_once = uint32_t(r->between(1, 4));
  }
  return std::make_unique<ModelDevice>(window, o);
}

}  // namespace merapi::sim::test
