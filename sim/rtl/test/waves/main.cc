// SPDX-License-Identifier: Apache-2.0
// Writes a waveform of Top.sv: main FILE CYCLES. Status 7 when it cannot be written.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "VTop.h"
#include "sim/rtl/waves.h"

int main(int, char** arguments) {
  const auto cycles = std::strtoull(arguments[2], nullptr, 10);
  VerilatedContext context;
  VTop top(&context);
  merapi::sim::rtl::WaveOptions options;
  options.file = arguments[1];
  try {
    merapi::sim::rtl::Waves waves;
    waves.begin(&context, &top, options);
    for (unsigned long long cycle = 0; cycle < cycles; ++cycle) {
      for (unsigned clock : {0U, 1U}) {
        top.clock = clock;
        top.reset = cycle < 4;
        top.in = cycle & 0xffffU;
        top.valid = 1;
        top.eval();
        waves.half(cycle, clock, 0);
      }
    }
  } catch (const std::runtime_error& e) {
    std::fprintf(stderr, "told: %s\n", e.what());
    return 7;
  }
  std::puts("simulated to the end");
}
