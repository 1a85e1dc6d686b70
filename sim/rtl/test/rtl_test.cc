// SPDX-License-Identifier: Apache-2.0
//
// The RTL against the naive closure over generated heaps. MERAPI_SEEDS: how many seeds each case runs (default 10);
// MERAPI_SEED: run this one alone; MERAPI_PRESET: the preset (default sim-small).
#include <gtest/gtest.h>

#include <string>

#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/rtl_machine.h"
#include "sim/rtl/test/seeds.h"

namespace merapi::sim::rtl::test {
namespace {

struct Ran {
  uint64_t seeds = 0, dropped = 0;  // greys, of all of them
};

Ran run_seeds(const merapi::sim::test::TraceKnobs& knobs) {
  const std::string preset = chosen_preset();
  Ran ran;
  const auto at_end = [&](RtlMachine* machine) { ran.dropped += machine->counter(MERAPI_COUNTER_GREYS_DROPPED); };
  each_seed([&](uint64_t seed) {
    EXPECT_EQ(merapi::sim::test::random_trace(seed, knobs, rtl_devices(preset, {.at_end = at_end, .seed = seed})), "");
    ran.seeds++;
  });
  return ran;
}

// Half of these heaps fit into the stores of four lanes, all into those of a larger preset.
void expect_drops(const Ran& ran) {
  if (is_small() && ran.seeds >= 4) {
    EXPECT_GT(ran.dropped, 0u) << "not what is tested";
  }
}

}  // namespace

// On-chip memory and registers without a reset hold anything when the tracer's power comes: another thing in each seed.
TEST(RtlPowerUp, MemoriesHoldAnything) {
  const std::string preset = chosen_preset();
  each_seed([&](uint64_t seed) {
    const merapi::sim::test::TraceKnobs knobs{.no_spill = seed % 3 == 0, .slow_host = seed % 4 == 0};
    EXPECT_EQ(merapi::sim::test::random_trace(seed, knobs, rtl_devices(preset, {.power_up = seed})), "");
  });
}

// A memory that serves one area fast and another slowly: what is usually over first comes last.
TEST(RtlUneven, EachAreaAtItsPace) {
  const std::string preset = chosen_preset();
  each_seed([&](uint64_t seed) {
    const merapi::sim::test::TraceKnobs knobs{.no_spill = seed % 4 == 0, .slow_host = seed % 3 == 0};
    EXPECT_EQ(merapi::sim::test::random_trace(seed, knobs, rtl_devices(preset, {.uneven = true})), "");
  });
}

TEST(RtlTrace, Plain) { run_seeds({.pauses = false, .reclaims = false, .aborts = false}); }
TEST(RtlTrace, EveryCounter) { run_seeds({.pauses = false, .reclaims = false, .aborts = false, .once = true}); }
TEST(RtlTrace, Pauses) { run_seeds({.reclaims = false, .aborts = false}); }
TEST(RtlTrace, PausesWithReclaim) { run_seeds({.aborts = false}); }
TEST(RtlTrace, Aborts) { run_seeds({}); }
TEST(RtlTrace, RegionsFall) { run_seeds({.reclaims = false, .falls = true, .aborts = false}); }
TEST(RtlTrace, Drops) { expect_drops(run_seeds({.no_spill = true})); }
TEST(RtlTrace, SlowHost) { run_seeds({.slow_host = true}); }
TEST(RtlTrace, Redefines) { run_seeds({.reclaims = false, .aborts = false, .redefines = true}); }
TEST(RtlTrace, Overwrites) { run_seeds({.reclaims = false, .aborts = false, .overwrites = true}); }
TEST(RtlTrace, OverwritesWithDrops) { expect_drops(run_seeds({.no_spill = true, .overwrites = true})); }

// What makes a tracer begin again what it had in hand, at the same time: pauses behind one another, little room for
// what it holds, hosts and memories that are late.
TEST(RtlTrace, Hasty) {
  const std::string preset = chosen_preset();
  each_seed([&](uint64_t seed) {
    merapi::sim::test::TraceKnobs knobs{.aborts = false, .hasty = true};
    knobs.no_spill = seed % 2 == 0;
    knobs.slow_host = seed % 3 == 0;
    knobs.overwrites = seed % 4 == 1;
    knobs.redefines = seed % 4 == 2;
    knobs.falls = seed % 4 == 3;
    knobs.reclaims = seed % 4 == 0;
    EXPECT_EQ(
        merapi::sim::test::random_trace(seed, knobs, rtl_devices(preset, {.uneven = seed % 5 == 4, .seed = seed})), "");
  });
}

}  // namespace merapi::sim::rtl::test
