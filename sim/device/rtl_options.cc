// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <map>

#include "merapi/contract.h"
#include "sim/device/options.h"
#include "sw/cli/command_line.h"

namespace merapi::sim {

void add_rtl_options(CLI::App* app, CLI::Option* rtl, RtlOptions* o) {
  static const std::map<std::string, uint32_t> kStates = {{"tracing", MERAPI_DEVICE_STATE_TRACING},
                                                          {"idle", MERAPI_DEVICE_STATE_IDLE},
                                                          {"paused", MERAPI_DEVICE_STATE_PAUSED},
                                                          {"faulted", MERAPI_DEVICE_STATE_FAULTED}};
  app->add_option("--preset", o->preset, "with --rtl: which tracer (ddr4-1ch, sim-small, ...)")
      ->capture_default_str()
      ->check(cli::not_empty())
      ->needs(rtl);
  app->add_option(
         "--memory", o->memory,
         "with --rtl: memory time; ideal, ddr4-2400 or hbm2 (DRAMsim3, a channel for each port), or a DRAMsim3 "
         "configuration; by default what suits the preset")
      ->check(cli::not_empty())
      ->needs(rtl);
  app->add_option("--rtl-folder", o->folder, "with --rtl: where the simulated tracers are")
      ->check(cli::not_empty())
      ->needs(rtl);
  auto* waves = app->add_option("--trace-waves", o->waves.file, "with --rtl: write a waveform (VCD) to this file");
  waves->check(cli::not_empty())->needs(rtl);
  auto* from = app->add_option("--trace-from", o->waves.from, "its first cycle");
  app->add_option_function<std::string>(
         "--trace-on", [o](const std::string& state) { o->waves.on_state = kStates.at(state); },
         "or: begin when the device first comes into this state")
      ->check(CLI::IsMember(kStates))
      ->excludes(from)
      ->needs(waves);
  app->add_option("--trace-cycles", o->waves.cycles, "cycles in it")->needs(waves);
  from->needs(waves);
}

void refuse_waves_over(const std::string& read, const RtlOptions& o, uint64_t windows) {
  if (o.waves.file.empty() || read.empty()) return;
  for (uint64_t i = 1; i <= windows; i++) cli::refuse_same_file("--trace-waves", read, wave_file(o.waves.file, i));
}

}  // namespace merapi::sim
