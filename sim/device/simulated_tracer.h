// SPDX-License-Identifier: Apache-2.0
//
// Loads the simulated tracer of a preset (sim/rtl/plugin.h) and makes engines with it.
#ifndef MERAPI_SIM_DEVICE_SIMULATED_TRACER_H_
#define MERAPI_SIM_DEVICE_SIMULATED_TRACER_H_

#include <memory>
#include <string>

#include "sim/engine/engine.h"
#include "sim/rtl/plugin.h"

namespace merapi::sim {

// A simulated cycle is as long as one of this clock.
constexpr double kClockMhz = 250;

// The command line's choice.
struct RtlOptions {
  std::string folder;  // of the shared objects; empty: beside this program (../../rtl/lib or ../lib/merapi/rtl)
  std::string preset = "ddr4-1ch";
  std::string memory;  // ideal, a configuration in folder/memory, or the path of one; empty: what suits the preset
  rtl::WaveOptions waves;
};

// Where the waveform of the process' first, second, ... window goes: FILE.vcd, FILE-2.vcd, ...
std::string wave_file(const std::string& file, uint64_t window);

// What was chosen, complete.
struct RtlChoice {
  std::string library, preset, memory_name, memory;
};
// Throws std::runtime_error when the preset or the memory is not there or cannot be used, with what is and what to do.
// The tracer's shared object is loaded, and stays so until the process ends.
RtlChoice choose_rtl(const RtlOptions& options);

// Throws std::runtime_error.
std::unique_ptr<Engine> make_rtl_engine(const RtlOptions& options, const EngineOptions& common,
                                        const WindowMemory& memory, EngineHost* host);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_SIMULATED_TRACER_H_
