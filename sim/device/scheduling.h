// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_DEVICE_SCHEDULING_H_
#define MERAPI_SIM_DEVICE_SCHEDULING_H_

#include <cstdint>

namespace merapi::sim {

// Ask for a short scheduling slice for the calling thread (sched_setattr(2), Linux 6.12's EEVDF and later): the thread
// gets no more of a processor than before, but gets it sooner when it has had to wait. A pause is acknowledged by this
// thread while the whole JVM stands still. Whoever gave the process another policy than SCHED_OTHER chose it: it stays
// as it is. False where the kernel does not know slices: nothing changes then.
bool ask_for_short_slice(uint64_t nanoseconds);

// Put the calling thread before all ordinary ones (sched_setattr(2), SCHED_RR at its lowest priority; threads that it
// starts are ordinary ones). 0, or the error: EPERM without CAP_SYS_NICE and without RLIMIT_RTPRIO.
int ask_for_realtime();

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_SCHEDULING_H_
