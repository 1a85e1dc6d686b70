// SPDX-License-Identifier: Apache-2.0
//
// merapi-age: a saved window with its heap aged. See merapi-age.1.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "sim/replay/age.h"
#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"
#include "sim/replay/room.h"
#include "sw/cli/command_line.h"
#include "sw/cli/short_memory.h"
#include "sw/cli/standard_streams.h"
#include "sw/cli/truncation.h"

namespace {

using namespace merapi::sim;
namespace graph = merapi::graph;

enum { kDone = 0, kUsage = 2, kCannot = 3 };

void run(const std::string& from, const std::string& to, const AgeOptions& options) {
  const graph::Image image(from);
  require_room_to_rewrite(image);
  const PrivateWindow own(image, private_model());
  const graph::Window& window = own.window();
  window.load(image);
  const graph::Bits greys = graph::ObjectGraph(window).bitmap(image.bitmap());
  // A trace of the model finds what lives.
  ReplayResult traced = replay(image, window, {});
  if (!traced.problem.empty()) throw std::runtime_error("cannot trace " + from + ": " + traced.problem);
  AgedAnswers aged;
  AgeResult result = age(window, image.bitmap(), image.answers(), greys, options, &aged);
  nlohmann::json text = nlohmann::json::parse(image.text(), nullptr, false);
  if (!text.is_object()) text = nlohmann::json::object();
  text["aged_percent"] = options.percent;
  text["aged_seed"] = options.seed;
  merapi_answers answers = aged.view();
  // Behind an image on standard output it would be a part of it.
  std::ostream& told_in = merapi_output_is(to.c_str(), STDOUT_FILENO) ? std::cerr : std::cout;
  graph::save(window, to, image.bitmap(), &answers, text.dump());
  told_in << nlohmann::json{{"live", result.live}, {"moved", result.moved}}.dump() << "\n";
}

int act(int argc, char** argv) {
  CLI::App app{
      "Age a saved window: live objects of one size change places at random; the graph stays the same.\n"
      "Exit codes: 0 done, 2 wrong command line, 3 the image cannot be used or written, or the output not written.",
      "merapi-age"};
  app.set_version_flag("--version", "merapi-age " MERAPI_DEVICE_VERSION);
  std::string from, to;
  AgeOptions options;
  app.add_option("image", from, "saved window")->required()->check(merapi::cli::not_empty());
  app.add_option("aged", to, "file to write")->required()->check(merapi::cli::not_empty());
  app.add_option("--percent", options.percent, "objects that change places")
      ->capture_default_str()
      ->check(CLI::Range(0u, 100u));
  app.add_option("--seed", options.seed, "of the random order")->capture_default_str();
  merapi::cli::take_numbers(&app);
  try {
    merapi::cli::parse(&app, argc, argv);
    merapi::cli::refuse_same_file("aged", from, to);
  } catch (const CLI::ParseError& e) {
    return merapi::cli::leave(app, e) == 0 ? kDone : kUsage;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("merapi-age"));
  spdlog::set_level(spdlog::level::warn);
  try {
    run(from, to, options);
    return kDone;
  } catch (const std::exception& e) {
    std::cerr << "merapi-age: " << e.what() << "\n";
    return kCannot;
  }
}

}  // namespace

int main(int argc, char** argv) {
  merapi::cli::hold_standard_streams();
  merapi::cli::catch_truncation("merapi-age", kCannot);
  merapi::cli::tell_short_memory();
  return merapi::cli::written("merapi-age", act(argc, argv), kCannot);
}
