// SPDX-License-Identifier: Apache-2.0
//
// One randomly generated heap, traced under a randomly chosen interleaving of host and device, checked against the
// naive closure. Any device of the contract can be put in: the model (model_device.h) and the simulated RTL are.
#ifndef MERAPI_SIM_TEST_RANDOM_TRACE_H_
#define MERAPI_SIM_TEST_RANDOM_TRACE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sim/test/random.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::test {

struct TraceKnobs {
  bool pauses = true;
  bool reclaims = true;  // humongous primitive arrays disappear in pauses
  bool falls = false;    // any region falls to its start in a pause, marks and live words with it; without reclaims
  bool aborts = true;
  bool tiny_stack = false;  // little on-chip storage for greys, where that can be chosen
  bool no_spill = false;    // and no spill area: greys are dropped
  bool slow_host = false;   // leaves completions in the ring for long
  bool overwrites = false;  // the program overwrites references meanwhile, and owes what was there; without falls
  bool redefines = false;   // shapes are withdrawn and replaced in pauses, published always; no reclaims, falls, aborts
  bool hasty = false;       // many pauses, one right behind the other, some taken back before they are acknowledged
  bool once = false;        // no command makes the device scan an object twice: every counter has one value
};

// What a device keeps beyond the contract; what it keeps is checked.
struct DevicePromises {
  bool marks_before_reports = false;  // the mark of a deferred object is in the window when it is reported
  bool reports_once = false;          // and nothing of an object that was reclaimed
  bool follows_ahead = false;         // marks with references that it has not counted as read
  bool counts_once = false;           // a reference counts once, whatever storage was full
  bool sweeps_greys_only = false;     // marks of the host in regions that were not commanded are not looked at
  bool counts_events = false;         // completions come with an event in the window
  bool counts_leaves = false;         // instances without a reference are OBJECTS_SCANNED too
};

struct Accesses {
  uint64_t reads = 0, writes = 0;  // lines
};

// What a device's memory has seen.
struct AreaAccesses {
  Accesses area[MERAPI_AREA_COUNT];
  Accesses cycle_bitmap;  // the one of the cycle that runs
  Accesses all;
};

// A device and its host, one thread: it works only when told.
class TracedDevice {
 public:
  virtual ~TracedDevice() = default;
  virtual WindowHost& host() = 0;
  virtual bool attach() = 0;
  // Work for a random while.
  virtual void advance(Random* random) = 0;
  // Work until `done`; false when it was not within the time that an acknowledgement may take.
  virtual bool settle(const std::function<bool()>& done) = 0;
  virtual DevicePromises promises() const = 0;
  // Accesses since begin_count(); nullptr when the memory is not watched.
  virtual const AreaAccesses* accesses() const { return nullptr; }
  // Count from here on, for a cycle with this bitmap.
  virtual void begin_count(uint32_t) {}
  // The device's clock, 0 when it has none.
  virtual uint64_t clock() const { return 0; }
  // Cycles of it since begin_count() in which the device said that it traces; 0 when nobody watches.
  virtual uint64_t traced() const { return 0; }
  // A trace that needs more turns of host and device than this has no end.
  virtual uint64_t most_turns() const = 0;
};

// Called when the heap is made. May change the window's directory.
using DeviceMaker =
    std::function<std::unique_ptr<TracedDevice>(Window* window, Random* random, const TraceKnobs& knobs)>;

// Empty when everything was as it should be, otherwise what was not.
std::string random_trace(uint64_t seed, const TraceKnobs& knobs, const DeviceMaker& make_device);

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_RANDOM_TRACE_H_
