// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_TEST_RANDOM_H_
#define MERAPI_SIM_TEST_RANDOM_H_

#include <cstdint>
#include <vector>

namespace merapi::sim::test {

// splitmix64: the same numbers on every machine and library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * UINT64_C(0x9E3779B97F4A7C15) + 1) {}
  uint64_t next() {
    uint64_t z = (state_ += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
  }
  // Uniform in [0, n).
  uint64_t below(uint64_t n) { return next() % n; }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool percent(uint32_t p) { return below(100) < p; }
  template <typename T>
  const T& pick(const std::vector<T>& v) {
    return v[below(v.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_RANDOM_H_
