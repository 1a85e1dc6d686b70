// SPDX-License-Identifier: Apache-2.0
//
// The window as a misbehaving device touches it: past the model, with nothing that keeps it from writing what the
// contract forbids.
#ifndef MERAPI_SIM_TEST_ROGUE_TARGET_H_
#define MERAPI_SIM_TEST_ROGUE_TARGET_H_

#include <cstdint>
#include <functional>
#include <random>

#include "sim/engine/engine.h"
#include "sim/model/geometry.h"
#include "sim/model/window.h"

namespace merapi::rogue {

class Target {
 public:
  Target(const sim::WindowMemory& memory, std::function<void()> notify, uint64_t seed)
      : control(memory.base), memory_(memory), notify_(std::move(notify)), random_(seed) {}

  sim::Control control;

  uint64_t random() { return random_(); }
  void notify() { notify_(); }
  uint64_t window_bytes() const { return memory_.bytes; }

  // Read rings and geometry from the window; false when it holds none that make sense.
  bool look();
  const sim::Geometry& geometry() const { return geometry_; }
  uint64_t ring_entries() const { return rings_.completion_entries; }
  uint64_t produced() const { return sim::load(control.index->completion_produced); }
  uint64_t room() const {
    return rings_.completion_entries - (produced() - sim::load(control.host->completion_consumed));
  }

  // The cycle of the newest BEGIN_CYCLE among the entries consumed so far, as the caller knows it.
  uint32_t cycle = 0;
  uint32_t bitmap() const;

  // A well-formed entry that says nothing: DONE of a NOP.
  merapi_completion harmless() const;
  // Write `entry` to the slot of `index`, with this sequence number.
  void write(uint64_t index, merapi_completion entry, uint32_t sequence);
  // Write at the present end of the ring, properly, and publish.
  void push(const merapi_completion& entry);
  void publish(uint64_t produced);
  // Fill the ring with entries that say nothing; one slot stays free.
  void chat();
  // One completion of `type` that carries `value`.
  merapi_completion entry(uint8_t type, uint64_t value) const;

  // An aligned heap address below its region's limit whose mark bit is clear; 0 when there is none.
  uint64_t unmarked() const;
  // One such that is no object: it and the places before and behind it have the same klass word, which is `beyond` that
  // of a shape.
  uint64_t inside(uint32_t beyond = 0) const;
  // Set the mark bit of an address; none at 0.
  void mark(uint64_t address);
  void claim_idle(uint64_t consumed, uint64_t produced);

 private:
  // The first aligned heap address below its region's limit whose mark bit is clear and that is as wanted; 0 when none
  // is.
  uint64_t find_unmarked(const std::function<bool(uint64_t offset)>& wanted) const;

  sim::WindowMemory memory_;
  std::function<void()> notify_;
  std::mt19937_64 random_;
  sim::Rings rings_;
  sim::Geometry geometry_;
};

}  // namespace merapi::rogue

#endif  // MERAPI_SIM_TEST_ROGUE_TARGET_H_
