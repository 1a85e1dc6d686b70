// SPDX-License-Identifier: Apache-2.0
#include "sim/device/scheduling.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace merapi::sim {
namespace {

// sched_setattr has no wrapper before glibc 2.41, whose structure has another name; this is the kernel's first layout.
struct SchedulingAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};
static_assert(sizeof(SchedulingAttributes) == 48);

constexpr uint64_t kResetOnFork = 1;  // SCHED_FLAG_RESET_ON_FORK

int set(SchedulingAttributes attributes) {
  attributes.size = sizeof attributes;
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0 ? 0 : errno;
}

}  // namespace

bool ask_for_short_slice(uint64_t nanoseconds) {
  if ((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_OTHER) return true;
  SchedulingAttributes attributes{};
  attributes.policy = SCHED_OTHER;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  attributes.runtime = nanoseconds;
  return set(attributes) == 0;
}

int ask_for_realtime() {
  SchedulingAttributes attributes{};
  attributes.policy = SCHED_RR;
  attributes.flags = kResetOnFork;
  attributes.priority = uint32_t(sched_get_priority_min(SCHED_RR));
  return set(attributes);
}

}  // namespace merapi::sim
