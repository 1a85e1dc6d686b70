// SPDX-License-Identifier: Apache-2.0
//
// Which seeds a random case runs: MERAPI_SEEDS of them (10) from MERAPI_FIRST_SEED (1) on, or MERAPI_SEED alone.
#ifndef MERAPI_SIM_RTL_TEST_SEEDS_H_
#define MERAPI_SIM_RTL_TEST_SEEDS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "sim/rtl/test/port_digest.h"
#include "sim/test/environment.h"

namespace merapi::sim::rtl::test {

using merapi::sim::test::from_environment;

// The command that runs this test again, by this program on this preset, to be given in the current folder. What is set
// chooses the seed, such as MERAPI_SEED=3.
std::string replay(const std::string& test, const std::string& set);
// Of the test that runs now.
std::string replay(const std::string& set);

// A test that ends the program, as a failed assertion of the RTL does, says this command last: that of the seed that
// runs, 0: of the test, which has none.
void remember_replay(uint64_t seed);

// f(seed) until the test has failed: the command that runs that seed alone is its last failure. What leaves the ports
// meanwhile is that seed's.
template <typename F>
void each_seed(F f) {
  uint64_t first = from_environment("MERAPI_FIRST_SEED", 1), count = from_environment("MERAPI_SEEDS", 10, 1);
  if (uint64_t only = from_environment("MERAPI_SEED", 0)) first = only, count = 1;
  for (uint64_t seed = first; seed < first + count; seed++) {
    digest_seed(seed);
    remember_replay(seed);
    f(seed);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "replay: " << replay("MERAPI_SEED=" + std::to_string(seed));
      break;
    }
  }
  digest_seed(0);
  remember_replay(0);
}

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_SEEDS_H_
