// SPDX-License-Identifier: Apache-2.0
//
// What can go wrong with a device, one entry a way: when it strikes, what it does to the window, and how the device
// behaves from then on until the host starts a new generation.
#ifndef MERAPI_SIM_TEST_ROGUE_FAULTS_H_
#define MERAPI_SIM_TEST_ROGUE_FAULTS_H_

#include <string_view>
#include <vector>

#include "sim/test/rogue/target.h"

namespace merapi::rogue {

enum class When {
  kHandshake,  // in place of the answer to a new generation
  kTracing,    // in the middle of a trace
  kAlways,     // never: it is another device from the start
};

enum class After {
  kGoOn,    // as if nothing had happened
  kObey,    // acknowledges pause, resume and abort, and does nothing else
  kDeaf,    // does nothing at all
  kIdle,    // obeys, and claims to be idle again after every submission
  kLate,    // acknowledges the next pause long after its patience, then goes on
  kHangUp,  // closes the connection and offers itself anew
  kCount,   // obeys, and counts what it does not do
  kDefer,   // obeys, and counts deferred objects for a while, nothing else
  kChat,    // obeys, and fills the completion ring with what says nothing whenever there is room
  // From the start (kAlways):
  kForget,  // no klass has a shape, and each DEFER comes twice
  kDoze,    // never looks by itself, but when the doorbell was rung
  kSlow,    // traces little at a time and rests between, in so many cycles
};

struct Fault {
  std::string_view name;
  When when;
  After after;
  void (*strike)(Target& target);
  std::string_view doc;
};

const std::vector<Fault>& faults();
// nullptr when there is none of that name.
const Fault* find_fault(std::string_view name);

}  // namespace merapi::rogue

#endif  // MERAPI_SIM_TEST_ROGUE_FAULTS_H_
