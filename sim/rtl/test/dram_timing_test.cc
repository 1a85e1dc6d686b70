// SPDX-License-Identifier: Apache-2.0
//
// The memory's time, as figures are made of it: what DRAMsim3's channels take for streams of lines is between the bus's
// peak and what a controller of that kind reaches.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "sim/rtl/timing.h"

namespace merapi::sim::rtl::test {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kLines = 200'000;
// Faster than any memory here: what is offered does not bound what is taken.
constexpr double kFastMhz = 1000;
constexpr double kTracerMhz = 250;

struct Memory {
  std::string name;
  double peak;     // GB/s: bus width times transfers a second
  double latency;  // ns from a row to the line's last byte: tRCD, CL and the burst
  double row;      // ns from a row to the next one of its bank: tRAS and tRP
};

class DramTiming : public testing::TestWithParam<Memory> {
 protected:
  std::unique_ptr<Timing> make(double clock_mhz, unsigned ports = 1) {
    clock_mhz_ = clock_mhz;
    return make_dram_timing(std::string(MERAPI_MEMORIES) + "/" + GetParam().name + ".ini",
                            {.ports = ports, .interleave_log2 = 8, .clock_mhz = clock_mhz});
  }
  double ns(uint64_t cycles) const { return double(cycles) * 1e3 / clock_mhz_; }

  // Cycles until `lines` accesses are over, one offered in each cycle; the most that were under way.
  struct Streamed {
    uint64_t cycles = 0, under_way = 0;
  };
  static Streamed stream(Timing* timing, uint64_t lines, bool write, const std::function<uint64_t(uint64_t)>& address) {
    Streamed result;
    std::vector<uint32_t> finished;
    for (uint64_t sent = 0, over = 0; over < lines; result.cycles++) {
      if (sent < lines && timing->accepts(0, address(sent), write)) {
        timing->start(0, address(sent), write, uint32_t(sent));
        sent++;
      }
      finished.clear();
      timing->tick(&finished);
      over += finished.size();
      result.under_way = std::max(result.under_way, sent - over);
    }
    return result;
  }
  double bandwidth(const Streamed& s) const { return double(kLines * kLine) / ns(s.cycles); }
  static uint64_t in_sequence(uint64_t i) { return i * kLine; }

  double clock_mhz_ = 0;
};

TEST_P(DramTiming, ReadsInSequenceComeAtThePeak) {
  const double reached = bandwidth(stream(make(kFastMhz).get(), kLines, false, in_sequence));
  RecordProperty("gb_s", std::to_string(reached));
  EXPECT_LE(reached, 1.01 * GetParam().peak);
  EXPECT_GE(reached, 0.88 * GetParam().peak) << "refreshes take less than that";
}

TEST_P(DramTiming, OneLineACycleAtTheTracersClock) {
  const double port = kLine * kTracerMhz / 1e3;
  const double reached = bandwidth(stream(make(kTracerMhz).get(), kLines, false, in_sequence));
  EXPECT_LE(reached, port);
  EXPECT_GE(reached, 0.88 * std::min(port, GetParam().peak));
}

TEST_P(DramTiming, WritesTakeTheBusAsReadsDo) {
  const double reached = bandwidth(stream(make(kFastMhz).get(), kLines, true, in_sequence));
  EXPECT_LE(reached, 1.01 * GetParam().peak);
  EXPECT_GE(reached, 0.7 * GetParam().peak);
}

TEST_P(DramTiming, RandomReadsMeetClosedRows) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> addresses(kLines);
  for (uint64_t& a : addresses) a = random() % (uint64_t{1} << 32) / kLine * kLine;
  const Streamed s = stream(make(kFastMhz).get(), kLines, false, [&](uint64_t i) { return addresses[i]; });
  RecordProperty("gb_s", std::to_string(bandwidth(s)));
  EXPECT_LE(bandwidth(s), 0.92 * GetParam().peak);
  EXPECT_GE(bandwidth(s), 0.2 * GetParam().peak);
  EXPECT_LE(s.under_way, 256u) << "a controller's queues are finite";
}

TEST_P(DramTiming, RowsOfOneBankTakeTurns) {
  // The bits from the 24th on are a row's alone.
  const uint64_t lines = 2000;
  const Streamed s = stream(make(kFastMhz).get(), lines, false, [](uint64_t i) { return i % 64 << 24; });
  EXPECT_GE(ns(s.cycles), double(lines - 64) * GetParam().row);
  EXPECT_LE(ns(s.cycles), 1.5 * double(lines) * GetParam().row);
}

TEST_P(DramTiming, ALineAloneTakesRowColumnAndBurst) {
  auto timing = make(kFastMhz);
  std::vector<uint32_t> finished;
  uint64_t least = ~uint64_t{0};
  for (uint64_t i = 0; i < 200; i++) {
    ASSERT_TRUE(timing->accepts(0, i << 22, false));
    timing->start(0, i << 22, false, 0);
    uint64_t cycles = 0;
    for (finished.clear(); finished.empty(); cycles++) timing->tick(&finished);
    least = std::min(least, cycles);
    EXPECT_LE(ns(cycles), 12 * GetParam().latency) << "a refresh comes in between";
    for (int wait = 0; wait < 300; wait++) timing->tick(&finished);
  }
  EXPECT_GE(ns(least), GetParam().latency);
  EXPECT_LE(ns(least), 3 * GetParam().latency);
}

// DRAMsim3 names accesses by their address.
TEST_P(DramTiming, AccessesToOneLineEndInTheirOrder) {
  for (const bool write : {false, true}) {
    auto timing = make(kFastMhz);
    std::vector<uint32_t> finished;
    uint32_t sent = 0;
    for (int i = 0; i < 5000; i++) {
      if (sent < 100 && timing->accepts(0, 0, write)) timing->start(0, 0, write, sent++);
      timing->tick(&finished);
    }
    ASSERT_EQ(finished.size(), 100u);
    for (uint32_t i = 0; i < finished.size(); i++) EXPECT_EQ(finished[i], i);
  }
}

// Turns of 256 bytes: each of four ports has a memory of its own.
TEST_P(DramTiming, PortsDoNotWaitForEachOther) {
  auto alone = make(kTracerMhz), four = make(kTracerMhz, 4);
  const uint64_t own = 1024;
  uint64_t cycles = 0;
  std::vector<uint32_t> finished;
  uint64_t sent[4] = {};
  for (; finished.size() < 4 * own; cycles++) {
    for (unsigned port = 0; port < 4; port++) {
      const uint64_t address = sent[port] / 4 * 1024 + port * 256 + sent[port] % 4 * kLine;
      if (sent[port] == own || !four->accepts(port, address, false)) continue;
      four->start(port, address, false, uint32_t(port << 16 | sent[port]++));
    }
    four->tick(&finished);
  }
  const uint64_t one = stream(alone.get(), own, false, in_sequence).cycles;
  EXPECT_EQ(cycles, one) << "a port's share has no gaps";
}

// DDR4-2400: 8 bytes, 17-17-39 clocks of 0.83 ns, bursts of 4 of them. HBM2, a channel of 128 bits: 14-14-34 clocks of
// 1 ns, bursts of 2.
INSTANTIATE_TEST_SUITE_P(Of, DramTiming,
                         testing::Values(Memory{"ddr4-2400", 19.2, 31.5, 46.4}, Memory{"hbm2", 32.0, 30.0, 48.0}),
                         [](const auto& p) { return p.param.name == "hbm2" ? "Hbm2" : "Ddr4"; });

}  // namespace
}  // namespace merapi::sim::rtl::test
