// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_MODEL_CLOCK_H_
#define MERAPI_SIM_MODEL_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace merapi::sim {

inline uint64_t clock_ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000 + uint64_t(t.tv_nsec);
}
inline uint64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
// Of the calling thread.
inline uint64_t cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_CLOCK_H_
