// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_RTL_XORSHIFT_H_
#define MERAPI_SIM_RTL_XORSHIFT_H_

#include <cstdint>

namespace merapi::sim::rtl {

// Chance in the memory beside a tracer, asked in every cycle: Marsaglia's xorshift (13, 7, 17), three operations. The
// same numbers everywhere; the low bits are the worse ones.
class Xorshift {
 public:
  explicit Xorshift(uint64_t state) : state_(state) {}  // not 0
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 11;
  }
  // Takes a number only where there is something to decide.
  bool percent(uint32_t p) { return p != 0 && (next() >> 9) % 100 < p; }

 private:
  uint64_t state_;
};

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_XORSHIFT_H_
