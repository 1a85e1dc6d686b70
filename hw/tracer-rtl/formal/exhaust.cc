// SPDX-License-Identifier: Apache-2.0
//
// core_loop_steady (core_loop.sv) for every heap of three objects with two references each, either place of the third
// one's mark bit, every set of objects marked before and every pair of references of the host: a proof by exhaustion,
// to the last write of each trace; half of them with a fast memory, half with one that is slow for some readers and
// writers. What must hold are the assertions of harness and blocks.
//
//   exhaust [PART PARTS]: one of so many parts (all)
//
// EXHAUST_LANES: the core's lanes.
#include <verilated.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "Vexhaust.h"

namespace {

constexpr uint32_t kPlaces = 2, kReferences = 1 << 12, kGreys = 1 << 4, kMarked = 1 << 3;
constexpr uint32_t kCases = kPlaces * kReferences * kGreys * kMarked;
constexpr int kMost = 300;  // cycles; the harness asserts that it takes less
// Readers and writers of which an answer is fast or slow.
constexpr uint32_t kReaders = 3 * EXHAUST_LANES + 5, kWriters = EXHAUST_LANES + 1;

struct Case {
  explicit Case(uint32_t number) {
    uint32_t pairs = number / kPlaces % kReferences, rest = number / kPlaces / kReferences;
    apart = number % kPlaces;
    for (int i = 0; i < 6; i++) references |= (pairs >> 2 * i & 3) << 3 * i;
    greys = rest % kGreys;
    marked = rest / kGreys;
    uint64_t mixed = number * UINT64_C(11400714819323198485);  // Knuth's hash
    if (mixed >> 63 == 0) {
      slow_readers = mixed >> 24 & ((1u << kReaders) - 1);
      slow_writers = mixed >> 54 & ((1u << kWriters) - 1);
    }
  }
  uint32_t apart, references = 0, greys, marked, slow_readers = 0, slow_writers = 0;
};

// Cycles to the end, or -1.
int trace(const Case& c) {
  VerilatedContext context;
  context.fatalOnError(false);
  Vexhaust top(&context);
  top.clock = 0;
  top.apart = c.apart;
  top.references = c.references;
  top.grey_0 = c.greys & 3;
  top.grey_1 = c.greys >> 2;
  top.marked_before = c.marked;
  top.fast = ~c.slow_readers & ((1u << kReaders) - 1);
  top.fast_done = ~c.slow_writers & ((1u << kWriters) - 1);
  top.eval();
  for (int cycle = 0; cycle < kMost; cycle++) {
    top.clock = 1;
    top.eval();
    top.clock = 0;
    top.eval();
    if (context.gotError()) return -1;
    if (top.finished) return cycle;
  }
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 1 && argc != 3) {
    std::fprintf(stderr, "exhaust: expected PART PARTS or nothing, found %d arguments\n", argc - 1);
    return 2;
  }
  uint32_t part = argc == 3 ? uint32_t(std::atoi(argv[1])) : 0, parts = argc == 3 ? uint32_t(std::atoi(argv[2])) : 1;
  if (part >= parts) {
    std::fprintf(stderr, "exhaust: expected a part below %u, found %u\n", parts, part);
    return 2;
  }
  int longest = 0;
  uint32_t traces = 0;
  for (uint32_t number = part; number < kCases; number += parts, traces++) {
    int cycles = trace(Case(number));
    if (cycles < 0) {
      std::fprintf(stderr, "exhaust: case %u fails; exhaust %u %u begins with it\n", number, number, kCases);
      return 1;
    }
    longest = std::max(longest, cycles);
  }
  std::printf("exhaust (%d lanes): %u traces, the longest of %d cycles\n", EXHAUST_LANES, traces, longest);
  return 0;
}
