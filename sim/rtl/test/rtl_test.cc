// SPDX-License-Identifier: Apache-2.0
//
// The RTL against the naive closure over generated heaps. MERAPI_SEEDS: how many seeds each case runs (default 10);
// MERAPI_SEED: run this one alone; MERAPI_PRESET: the preset (default sim-small).
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/rtl_machine.h"

namespace merapi::sim::rtl::test {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

void run_seeds(const merapi::sim::test::TraceKnobs& knobs) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string preset = chosen_preset();
  uint64_t first = from_environment("MERAPI_FIRST_SEED", 1), count = from_environment("MERAPI_SEEDS", 10);
  if (uint64_t only = from_environment("MERAPI_SEED", 0)) first = only, count = 1;
  for (uint64_t seed = first; seed < first + count; seed++) {
    std::string error = merapi::sim::test::random_trace(seed, knobs, rtl_devices(preset));
    EXPECT_EQ(error, "") << "replay: MERAPI_PRESET=" << preset << " MERAPI_SEED=" << seed
                         << " build/rtl/sim/test/rtl_test --gtest_filter=" << info->test_suite_name() << "."
                         << info->name();
    if (!error.empty()) return;
  }
}

}  // namespace

TEST(RtlTrace, Plain) { run_seeds({.pauses = false, .reclaims = false, .aborts = false}); }
TEST(RtlTrace, EveryCounter) { run_seeds({.pauses = false, .reclaims = false, .aborts = false, .once = true}); }
TEST(RtlTrace, Pauses) { run_seeds({.reclaims = false, .aborts = false}); }
TEST(RtlTrace, PausesWithReclaim) { run_seeds({.aborts = false}); }
TEST(RtlTrace, Aborts) { run_seeds({}); }
TEST(RtlTrace, RegionsFall) { run_seeds({.reclaims = false, .falls = true, .aborts = false}); }
TEST(RtlTrace, Drops) { run_seeds({.no_spill = true}); }
TEST(RtlTrace, SlowHost) { run_seeds({.slow_host = true}); }

}  // namespace merapi::sim::rtl::test
