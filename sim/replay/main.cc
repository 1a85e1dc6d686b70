// SPDX-License-Identifier: Apache-2.0
//
// merapi-replay: trace a saved window again. See merapi-replay.1sim.
#include <iostream>

#include "sim/replay/private_device.h"
#include "sim/replay/program.h"
#include "sim/replay/replay.h"
#include "sw/cli/command_line.h"

namespace {

constexpr uint64_t kLongestPatienceUs = UINT64_C(7) * 24 * 3600 * 1'000'000;  // a week

}  // namespace

int main(int argc, char** argv) {
  using namespace merapi::sim;
  std::string socket;
  bool model = false, rtl = false, as_json = false;
  ReplayOptions options;
  DeviceOptions device_options = private_model();
  Program program{
      "merapi-replay",
      "Trace a saved window again, without the program that it came from.\n"
      "Exit codes: 0 finished (and right, with --check), 1 the device failed or its result is wrong, 2 wrong command "
      "line, 3 the image or the device cannot be used, or the output not written."};
  program.options = [&](CLI::App* app) {
    auto* at = app->add_option("--socket", socket, "device process to use")->check(merapi::cli::not_empty());
    auto* own = app->add_flag("--model", model, "the functional model in this process (default)")->excludes(at);
    auto* simulated = app->add_flag("--rtl", rtl, "the tracer's RTL, simulated in this process");
    simulated->excludes(at)->excludes(own);
    add_rtl_options(app, simulated, &device_options.rtl);
    app->add_flag("--check", options.check, "compare the result with a walk on the CPU");
    app->add_flag("--lines", options.lines, "count the memory lines that any tracer needs");
    app->add_flag("--json", as_json, "print one JSON object");
    app->add_option("--pauses", options.pauses, "pause the device so often as soon as it traces");
    app->add_option("--pause-every-us", options.pause_every_us, "pause the device whenever so much time went by");
    app->add_option("--patience-us", options.patience_us, "ask for a sign of life after so long without news")
        ->capture_default_str()
        ->check(CLI::Range(uint64_t{1}, kLongestPatienceUs));
  };
  program.check = [&](const std::string& path) {
    refuse_waves_over(path, device_options.rtl);
    refuse_waves_over(device_options.rtl.memory, device_options.rtl);
  };
  program.work = [&](const std::string& path) {
    if (rtl) {
      device_options.engine = "rtl";
      device_options.common.patience_us = kRtlPatienceUs;
      device_options.common.name.clear();
      RtlChoice choice = choose_rtl(device_options.rtl);
      options.rtl_preset = choice.preset;
      options.memory = choice.memory_name;
    }
    const merapi::graph::Image image(path);
    const ReplayResult result = socket.empty() ? replay(image, PrivateWindow(image, device_options).window(), options)
                                               : replay(image, window_for(image, "device:" + socket), options);
    std::cout << (as_json ? to_json(result) + "\n" : to_text(result));
    return result.problem.empty() ? kDone : kWrong;
  };
  return run(program, argc, argv);
}
