// SPDX-License-Identifier: Apache-2.0
//
// Configurations and directories with anything in them, on the RTL and on the model: both take them, or both refuse
// them for the same field. MERAPI_SEEDS, MERAPI_SEED and MERAPI_PRESET as in rtl_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "sim/rtl/test/rtl_device.h"
#include "sim/rtl/test/seeds.h"
#include "sim/test/machine.h"
#include "sim/test/random.h"

namespace merapi::sim::rtl::test {
namespace {

using merapi::sim::test::Machine;
using merapi::sim::test::Random;
using merapi::sim::test::WindowShape;

constexpr int kTrials = 60;
constexpr uint64_t kPatience = 60'000;
constexpr int kModelSteps = 40;
// Of larger heaps the model takes some that the RTL does not.
constexpr uint64_t kHeapLog2OfBoth = 40;

WindowShape some_shape(Random* r) {
  WindowShape s;
  s.alignment_log2 = uint8_t(r->between(3, 8));
  s.region_log2 = uint8_t(std::max<uint64_t>(s.alignment_log2 + 9, r->between(16, 22)));
  s.regions = uint32_t(r->between(1, 40));
  s.oop_bytes = r->percent(50) ? 4 : 8;
  s.klass_bytes = r->percent(50) ? 4 : 8;
  const uint64_t bytes = uint64_t{s.regions} << s.region_log2;
  s.heap_base = r->percent(30) ? 0 - bytes : r->next() >> 4 & ~uint64_t{255};
  s.spill_bytes = uint64_t{4096} << r->below(4);
  s.shape_slots = 64u << r->below(5);
  return s;
}

// One thing of the window's configuration changes.
void spoil(Window* w, Random* r) {
  merapi_config* config = w->config();
  merapi_directory* directory = w->directory();
  auto area = [&] { return &directory->area[r->below(r->percent(80) ? 10 : std::size(directory->area))]; };
  auto flip = [&](void* what, uint64_t bytes) {
    static_cast<uint8_t*>(what)[r->below(bytes)] ^= uint8_t(1u << r->below(8));
  };
  auto some_pages = [&] { return 4096 * r->below(5) - 8192; };
  switch (r->below(12)) {
    case 0:
      return flip(config, sizeof *config);
    case 1:
      return flip(directory, sizeof *directory);
    case 2:
      config->region_count += uint32_t(r->between(0, 4)) - 2;
      return;
    case 3:
      config->region_log2 = uint8_t(r->between(14, 38));
      return;
    case 4:
      config->alignment_log2 = uint8_t(r->between(2, 9));
      return;
    case 5:
      config->heap_base =
          r->percent(50) ? 0 - (r->next() & 0xffffffff) : 0 - w->heap_bytes() + (r->below(3) << 8) - 256;
      return;
    case 6:
      area()->offset += some_pages();
      return;
    case 7:
      area()->size += some_pages();
      return;
    case 8:
      return std::swap(*area(), *area());
    case 9:
      *area() = {0, 0};
      return;
    case 10:
      area()->size = uint64_t{1} << r->below(64);
      return;
    default:
      area()->offset = r->percent(50) ? w->bytes - (r->below(4) << 12) : r->next() >> r->below(60) << r->below(22);
  }
}

// Either command that reads the configuration.
void submit(const merapi_submission& e, merapi::sim::test::WindowHost* host) {
  if (e.opcode == MERAPI_OP_BEGIN_CYCLE)
    host->begin(e.arg);
  else
    host->command(MERAPI_OP_CLEAR_BITMAP, e.arg, e.payload[0], e.payload[1]);
}

struct Verdicts {
  uint64_t trials = 0, refused = 0;
};

void compare(uint64_t seed, Verdicts* verdicts) {
  Random r(seed);
  const WindowShape shape = some_shape(&r);
  Window of_rtl(shape), of_model(shape);
  RtlMachineOptions options;
  options.timing.least = 3;
  options.timing.most = 9;
  RtlMachine rtl(&of_rtl, options);
  merapi::sim::TracerOptions at_once;
  at_once.step_ns = 0;
  Machine model(&of_model, at_once);
  const merapi_config config = *of_rtl.config();
  const merapi_directory directory = *of_rtl.directory();
  for (int i = 0; i < kTrials && !testing::Test::HasFailure(); i++) {
    SCOPED_TRACE("trial " + std::to_string(i));
    // A generation of its own: no fault is left over.
    *of_rtl.config() = *of_model.config() = config;
    *of_rtl.directory() = *of_model.directory() = directory;
    ASSERT_TRUE(rtl.attach() && model.attach());
    for (uint64_t n = r.percent(60) ? 1 : r.between(1, 4); n != 0; n--) spoil(&of_rtl, &r);
    *of_model.config() = *of_rtl.config();
    *of_model.directory() = *of_rtl.directory();
    merapi_submission e{};
    e.opcode = r.percent(80) ? MERAPI_OP_BEGIN_CYCLE : MERAPI_OP_CLEAR_BITMAP;
    e.arg = e.opcode == MERAPI_OP_BEGIN_CYCLE ? r.percent(20) : uint32_t(r.below(2));
    e.payload[0] = r.below(45);
    e.payload[1] = r.below(45);
    submit(e, &rtl);
    submit(e, &model);
    EXPECT_TRUE(rtl.run_until(
        [&] {
          rtl.complete();
          return rtl.state() == MERAPI_DEVICE_STATE_FAULTED ||
                 (rtl.executed() == rtl.produced && rtl.simulation->sleeping());
        },
        kPatience));
    for (int k = 0; k < kModelSteps; k++) {
      model.step();
      model.complete();
    }
    const uint64_t heap_log2 =
        of_rtl.config()->region_log2 + uint64_t(32 - __builtin_clz(of_rtl.config()->region_count | 1));
    if (heap_log2 > kHeapLog2OfBoth) continue;
    EXPECT_EQ(rtl.fault().code, model.fault().code);
    EXPECT_EQ(rtl.fault().address, model.fault().address);
    EXPECT_EQ(rtl.fault().detail, model.fault().detail);
    verdicts->trials++;
    verdicts->refused += rtl.fault().code != 0;
  }
}

}  // namespace

TEST(RtlConfigRandom, AsTheModel) {
  Verdicts verdicts;
  each_seed([&](uint64_t seed) { compare(seed, &verdicts); });
  EXPECT_GT(verdicts.refused, verdicts.trials / 2) << "not what is tested";
  EXPECT_LT(verdicts.refused, verdicts.trials) << "not what is tested";
}

}  // namespace merapi::sim::rtl::test
