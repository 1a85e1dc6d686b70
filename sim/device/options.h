// SPDX-License-Identifier: Apache-2.0
//
// The command line of merapi-device.
#ifndef MERAPI_SIM_DEVICE_OPTIONS_H_
#define MERAPI_SIM_DEVICE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "sim/device/simulated_tracer.h"
#include "sim/engine/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace merapi::sim {

// Exit codes, also in merapi-device.1.
enum ExitCode {
  kExitClean = 0,    // ended by SIGTERM, SIGINT or SIGHUP
  kExitUsage = 2,    // wrong command line
  kExitServe = 3,    // could not listen at the socket or serve a window
  kExitNothing = 4,  // every window that was served has ended by a fault
};

struct DeviceOptions {
  std::string engine;  // "model" or "rtl"
  RtlOptions rtl;
  std::string socket;
  std::vector<std::string> windows;
  uint64_t size = 0;  // bytes that window files are made at least; 0: take them as they are
  EngineOptions common;
  uint32_t stack_entries = 512 * 1024;
  bool no_spill = false;
  bool strict = false;
  uint32_t spin_us = 20;
  bool realtime = false;  // windows are served before all ordinary threads
  std::string log_level = "info";
  bool json = false;
};

// How long hosts wait for an acknowledgement of a simulated tracer: thousands of its cycles, on a busy machine.
inline constexpr uint32_t kRtlPatienceUs = 30'000'000;

// Options that choose a simulated tracer, for any command line. None is taken without the flag `rtl`, the caller's own:
// another engine's result would be read as this one's.
void add_rtl_options(CLI::App* app, CLI::Option* rtl, RtlOptions* options);

// Throws CLI::ValidationError where the waveform of one of so many windows would replace what is read. Of a parsed
// line.
void refuse_waves_over(const std::string& read, const RtlOptions& options, uint64_t windows = 1);

// What --window names: PATH, or PATH@OFFSET+BYTES for a part of a file or device.
struct WindowPart {
  std::string path;
  uint64_t offset = 0, bytes = 0;  // 0: up to the end
};
WindowPart part_of(const std::string& window);

// Parse; prints help, version or what is wrong, and returns false with the exit code when the process is to end.
bool parse_options(int argc, char** argv, DeviceOptions* options, int* exit_code);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_OPTIONS_H_
