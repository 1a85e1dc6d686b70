// SPDX-License-Identifier: Apache-2.0
//
// When DRAMsim3 ends which access of many streams: a number for each memory and stream, to be compared between builds.
// Arguments are how many accesses a stream has and configurations.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "memory_system.h"

namespace {

struct Stream {
  const char* name;
  unsigned under_way;      // accesses at most
  unsigned writes;         // of 16
  unsigned jumps;          // of 16: to a line anywhere; the others go on from the line before
  uint64_t lines, stride;  // where jumps go: a multiple of the stride
  unsigned rests;          // of 65536 cycles, in so many nothing is asked for some refreshes' time
};
constexpr Stream kStreams[] = {
    {"sequence", 64, 2, 0, 1, 1, 0},
    {"random", 64, 2, 16, uint64_t{1} << 26, 1, 0},
    {"mixed", 200, 5, 4, uint64_t{1} << 24, 1, 0},
    {"few", 4, 5, 4, uint64_t{1} << 24, 1, 0},
    {"lines again", 16, 8, 16, 64, 1, 0},
    {"rows of few banks", 64, 2, 16, 512, 1 << 11, 0},
    {"resting", 32, 4, 8, uint64_t{1} << 20, 1, 4},
};

uint64_t digest_of(const std::string& memory, const Stream& stream, uint64_t accesses) {
  uint64_t digest = 1469598103934665603, cycle = 0, over = 0, sent = 0, line = 0;
  auto add = [&digest](uint64_t x) {
    digest = (digest ^ x) * 1099511628211;
    digest ^= digest >> 29;
  };
  auto ends = [&](bool write) {
    return [&, write](uint64_t address) {
      add(address | write);
      add(cycle);
      over++;
    };
  };
  dramsim3::MemorySystem channel(memory, ".", ends(false), ends(true));
  std::mt19937_64 random(stream.under_way);
  while (over < accesses) {
    for (int i = 0; i < 2 && sent < accesses && sent - over < stream.under_way; i++) {
      bool write = random() % 16 < stream.writes;
      line = random() % 16 < stream.jumps ? random() % stream.lines * stream.stride : line + 1;
      if (!channel.WillAcceptTransaction(line * 64, write)) break;
      channel.AddTransaction(line * 64, write);
      sent++;
    }
    for (uint64_t rest = random() % 65536 < stream.rests ? 30'000 : 1; rest > 0; rest--) {
      channel.ClockTick();
      cycle++;
    }
  }
  return digest;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 2; i < argc; i++) {
    for (const Stream& stream : kStreams) {
      std::printf("%s, %s: %016lx\n", argv[i], stream.name,
                  (unsigned long)digest_of(argv[i], stream, std::strtoull(argv[1], nullptr, 10)));
    }
  }
}
