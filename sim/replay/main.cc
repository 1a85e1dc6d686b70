// SPDX-License-Identifier: Apache-2.0
//
// merapi-replay: trace a saved window again. See merapi-replay.1sim.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"
#include "sw/cli/command_line.h"
#include "sw/cli/short_memory.h"
#include "sw/cli/standard_streams.h"
#include "sw/cli/truncation.h"

namespace {

enum { kRight = 0, kWrong = 1, kUsage = 2, kCannot = 3 };

constexpr uint64_t kLongestPatienceUs = UINT64_C(7) * 24 * 3600 * 1'000'000;  // a week

int act(int argc, char** argv) {
  using namespace merapi::sim;
  CLI::App app{
      "Trace a saved window again, without the program that it came from.\n"
      "Exit codes: 0 finished (and right, with --check), 1 the device failed or its result is wrong, 2 wrong command "
      "line, 3 the image or the device cannot be used, or the output not written.",
      "merapi-replay"};
  app.set_version_flag("--version", "merapi-replay " MERAPI_DEVICE_VERSION);
  std::string path, socket;
  bool model = false, rtl = false, as_json = false;
  ReplayOptions options;
  DeviceOptions device_options = private_model();
  app.add_option("image", path, "saved window")->required()->check(merapi::cli::not_empty());
  auto* at = app.add_option("--socket", socket, "device process to use")->check(merapi::cli::not_empty());
  auto* own = app.add_flag("--model", model, "the functional model in this process (default)")->excludes(at);
  auto* simulated = app.add_flag("--rtl", rtl, "the tracer's RTL, simulated in this process");
  simulated->excludes(at)->excludes(own);
  add_rtl_options(&app, simulated, &device_options.rtl);
  app.add_flag("--check", options.check, "compare the result with a walk on the CPU");
  app.add_flag("--lines", options.lines, "count the memory lines that any tracer needs");
  app.add_flag("--json", as_json, "print one JSON object");
  app.add_option("--pauses", options.pauses, "pause the device so often as soon as it traces");
  app.add_option("--pause-every-us", options.pause_every_us, "pause the device whenever so much time went by");
  app.add_option("--patience-us", options.patience_us, "ask for a sign of life after so long without news")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, kLongestPatienceUs));
  merapi::cli::take_numbers(&app);
  try {
    merapi::cli::parse(&app, argc, argv);
    refuse_waves_over(path, device_options.rtl);
    refuse_waves_over(device_options.rtl.memory, device_options.rtl);
  } catch (const CLI::ParseError& e) {
    return merapi::cli::leave(app, e) == 0 ? kRight : kUsage;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("merapi-replay"));
  spdlog::set_level(spdlog::level::warn);
  if (rtl) {
    device_options.engine = "rtl";
    device_options.common.patience_us = kRtlPatienceUs;
    device_options.common.name.clear();
  }
  try {
    if (rtl) {
      RtlChoice choice = choose_rtl(device_options.rtl);
      options.rtl_preset = choice.preset;
      options.memory = choice.memory_name;
    }
    const merapi::graph::Image image(path);
    const ReplayResult result = socket.empty() ? replay(image, PrivateWindow(image, device_options).window(), options)
                                               : replay(image, window_for(image, "device:" + socket), options);
    std::cout << (as_json ? to_json(result) + "\n" : to_text(result));
    return result.problem.empty() ? kRight : kWrong;
  } catch (const std::exception& e) {
    std::cerr << "merapi-replay: " << path << ": " << e.what() << "\n";
    return kCannot;
  }
}

}  // namespace

int main(int argc, char** argv) {
  merapi::cli::hold_standard_streams();
  merapi::cli::catch_truncation("merapi-replay", kCannot);
  merapi::cli::tell_short_memory();
  return merapi::cli::written("merapi-replay", act(argc, argv), kCannot);
}
