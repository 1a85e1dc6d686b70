// SPDX-License-Identifier: Apache-2.0
//
// A simulated tracer as a shared object of its own, one per preset (merapi-rtl-PRESET.so): device process and replay
// are built without Verilator and load the preset that they are asked for. Both sides come from the same tree and
// compiler; the tag is there to say so in words when they do not.
#ifndef MERAPI_SIM_RTL_PLUGIN_H_
#define MERAPI_SIM_RTL_PLUGIN_H_

#include <cstdint>
#include <string>

#include "sim/engine/engine.h"

namespace merapi::sim::rtl {

// Changes whenever anything changes that both sides see: this header or sim/engine/engine.h.
inline constexpr uint32_t kPluginTag = 0x4d525401;

struct WaveOptions {
  std::string file;                // VCD; empty: none
  uint64_t from = 0;               // first cycle
  uint32_t on_state = 0;           // or, when not 0: the first cycle in this state (enum merapi_device_state)
  uint64_t cycles = ~uint64_t{0};  // how many
};

struct PluginRequest {
  EngineOptions common;
  std::string memory;  // ideal, or the path of a DRAMsim3 configuration
  double clock_mhz = 250;
  WaveOptions waves;
};

// Symbols of the shared object, C linkage. make throws std::runtime_error for what it cannot do.
using PluginTag = uint32_t (*)();
using PluginMake = Engine* (*)(const WindowMemory& memory, EngineHost* host, const PluginRequest& request);
inline constexpr const char* kPluginTagSymbol = "merapi_rtl_tag";
inline constexpr const char* kPluginMakeSymbol = "merapi_rtl_make";

}  // namespace merapi::sim::rtl

#endif  // MERAPI_SIM_RTL_PLUGIN_H_
