// SPDX-License-Identifier: Apache-2.0
//
// merapi-age: a saved window with its heap aged. See merapi-age.1.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/replay/age.h"
#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"

namespace {

using namespace merapi::sim;

enum { kDone = 0, kUsage = 2, kCannot = 3 };

struct CloseImage {
  void operator()(merapi_image* image) const { merapi_image_close(image); }
};
struct CloseWindow {
  void operator()(merapi_window* window) const { merapi_close(window); }
};

[[noreturn]] void give_up(const std::string& what) { throw std::runtime_error(what); }

void run(const std::string& from, const std::string& to, const AgeOptions& options) {
  merapi_error error{};
  merapi_image* opened = nullptr;
  if (merapi_image_open(from.c_str(), &opened, &error) < 0) give_up(from + ": " + error.message);
  std::unique_ptr<merapi_image, CloseImage> image(opened);
  DeviceOptions device_options;
  device_options.engine = "model";
  device_options.common.pid = uint64_t(getpid());
  PrivateDevice device(merapi_image_window_bytes(image.get()), device_options);
  merapi_geometry geometry{};
  merapi_image_geometry(image.get(), &geometry);
  merapi_window* made = nullptr;
  if (merapi_open(device.window_name().c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &made, &error) < 0)
    give_up(error.message);
  std::unique_ptr<merapi_window, CloseWindow> window(made);
  if (merapi_image_load(image.get(), window.get(), &error) < 0) give_up(error.message);
  const uint32_t bitmap = merapi_image_bitmap(image.get());
  std::vector<uint8_t> greys;
  {
    LiveHeap heap(window.get());
    const auto* bits = reinterpret_cast<const uint8_t*>(heap.bitmap(bitmap));
    greys.assign(bits, bits + heap.bitmap_bytes());
  }
  // A trace of the model finds what lives.
  ReplayResult traced = replay(image.get(), window.get(), {});
  if (!traced.problem.empty()) give_up("cannot trace " + from + ": " + traced.problem);
  AgedAnswers aged;
  AgeResult result = age(window.get(), bitmap, merapi_image_answers(image.get()), std::move(greys), options, &aged);
  nlohmann::json text = nlohmann::json::parse(merapi_image_json(image.get()), nullptr, false);
  if (!text.is_object()) text = nlohmann::json::object();
  text["aged_percent"] = options.percent;
  text["aged_seed"] = options.seed;
  merapi_answers answers = aged.view();
  if (merapi_image_save(window.get(), to.c_str(), bitmap, &answers, text.dump().c_str(), &error) < 0)
    give_up(to + ": " + error.message);
  std::cout << nlohmann::json{{"live", result.live}, {"moved", result.moved}}.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Age a saved window: live objects of one size change places at random; the graph stays the same.\n"
      "Exit codes: 0 done, 2 wrong command line, 3 the image cannot be used or written.",
      "merapi-age"};
  app.set_version_flag("--version", "merapi-age " MERAPI_DEVICE_VERSION);
  std::string from, to;
  AgeOptions options;
  app.add_option("image", from, "saved window")->required()->check(CLI::ExistingFile);
  app.add_option("aged", to, "file to write")->required();
  app.add_option("--percent", options.percent, "objects that change places")
      ->capture_default_str()
      ->check(CLI::Range(0u, 100u));
  app.add_option("--seed", options.seed, "of the random order")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kDone : kUsage;
  }
  spdlog::set_level(spdlog::level::warn);
  try {
    run(from, to, options);
    return kDone;
  } catch (const std::exception& e) {
    std::cerr << "merapi-age: " << e.what() << "\n";
    return kCannot;
  }
}
