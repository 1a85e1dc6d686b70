// SPDX-License-Identifier: Apache-2.0
//
// merapi-replay: trace a saved window again. See merapi-replay.1.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"

namespace {

enum { kRight = 0, kWrong = 1, kUsage = 2, kCannot = 3 };

struct CloseImage {
  void operator()(merapi_image* image) const { merapi_image_close(image); }
};
struct CloseWindow {
  void operator()(merapi_window* window) const { merapi_close(window); }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace merapi::sim;
  CLI::App app{
      "Trace a saved window again, without the program that it came from.\n"
      "Exit codes: 0 finished (and right, with --check), 1 the device failed or its result is wrong, 2 wrong command "
      "line, 3 the image or the device cannot be used.",
      "merapi-replay"};
  app.set_version_flag("--version", "merapi-replay " MERAPI_DEVICE_VERSION);
  std::string path, socket;
  bool model = false, rtl = false, as_json = false;
  ReplayOptions options;
  DeviceOptions device_options;
  app.add_option("image", path, "saved window")->required()->check(CLI::ExistingFile);
  auto* at = app.add_option("--socket", socket, "device process to use");
  auto* own = app.add_flag("--model", model, "the functional model in this process (default)")->excludes(at);
  app.add_flag("--rtl", rtl, "the tracer's RTL, simulated in this process")->excludes(at)->excludes(own);
  add_rtl_options(&app, &device_options.rtl);
  app.add_flag("--check", options.check, "compare the result with a naive closure");
  app.add_flag("--lines", options.lines, "count the memory lines that any tracer needs");
  app.add_flag("--json", as_json, "print one JSON object");
  app.add_option("--pauses", options.pauses, "pause the device so often while it traces");
  app.add_option("--patience-us", options.patience_us, "give up without news for so long")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kRight : kUsage;
  }
  spdlog::set_level(spdlog::level::warn);
  device_options.engine = rtl ? "rtl" : "model";
  device_options.common.pid = uint64_t(getpid());
  if (rtl) device_options.common.patience_us = kRtlPatienceUs;

  merapi_error error{};
  merapi_image* opened = nullptr;
  if (merapi_image_open(path.c_str(), &opened, &error) < 0) {
    std::cerr << "merapi-replay: " << path << ": " << error.message << "\n";
    return kCannot;
  }
  std::unique_ptr<merapi_image, CloseImage> image(opened);
  try {
    std::unique_ptr<PrivateDevice> device;
    std::string name = "device:" + socket;
    if (rtl) {
      RtlChoice choice = choose_rtl(device_options.rtl);
      options.rtl_preset = choice.preset;
      options.memory = choice.memory_name;
    }
    if (socket.empty()) {
      device = std::make_unique<PrivateDevice>(merapi_image_window_bytes(image.get()), device_options);
      name = device->window_name();
    }
    merapi_geometry geometry{};
    merapi_image_geometry(image.get(), &geometry);
    merapi_window* made = nullptr;
    if (merapi_open(name.c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &made, &error) < 0) {
      std::cerr << "merapi-replay: " << error.message << "\n";
      return kCannot;
    }
    std::unique_ptr<merapi_window, CloseWindow> window(made);
    ReplayResult result = replay(image.get(), window.get(), options);
    std::cout << (as_json ? to_json(result) + "\n" : to_text(result));
    return result.problem.empty() ? kRight : kWrong;
  } catch (const std::exception& e) {
    std::cerr << "merapi-replay: " << e.what() << "\n";
    return kCannot;
  }
}
