// SPDX-License-Identifier: Apache-2.0
//
// merapi-age: a saved window with its heap aged. See merapi-age.1.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "sim/replay/age.h"
#include "sim/replay/private_device.h"
#include "sim/replay/program.h"
#include "sim/replay/replay.h"
#include "sim/replay/room.h"
#include "sw/cli/command_line.h"
#include "sw/cli/json_text.h"

namespace {

using namespace merapi::sim;
namespace graph = merapi::graph;

void write_aged(const std::string& from, const std::string& to, const AgeOptions& options) {
  const graph::Image image(from);
  require_room_to_rewrite(image);
  const PrivateWindow own(image, private_model());
  const graph::Window& window = own.window();
  window.load(image);
  const graph::Bits greys = graph::ObjectGraph(window).bitmap(image.bitmap());
  // A trace of the model finds what lives.
  ReplayResult traced = replay(image, window, {});
  if (!traced.problem.empty()) throw std::runtime_error("the image does not replay: " + traced.problem);
  AgedAnswers aged;
  AgeResult result = age(window, image.bitmap(), image.answers(), greys, options, &aged);
  nlohmann::json text = merapi::cli::parse_json(image.text());
  if (!text.is_object()) text = nlohmann::json::object();
  text["aged_percent"] = options.percent;
  text["aged_seed"] = options.seed;
  merapi_answers answers = aged.view();
  // Behind an image on standard output it would be a part of it.
  std::ostream& told_in = merapi_output_is(to.c_str(), STDOUT_FILENO) ? std::cerr : std::cout;
  graph::save(window, to, image.bitmap(), &answers, text.dump());
  told_in << nlohmann::json{{"live", result.live}, {"moved", result.moved}}.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  std::string to;
  AgeOptions options;
  Program program{"merapi-age",
                  "Age a saved window: live objects of one size change places at random; the graph stays the same.\n"
                  "Exit codes: 0 done, 2 wrong command line, 3 the image cannot be used or written, or the output not "
                  "written."};
  program.options = [&](CLI::App* app) {
    merapi::cli::take_output(app->add_option("aged", to, "file to write; - for standard output")->required());
    app->add_option("--percent", options.percent, "objects that change places")
        ->capture_default_str()
        ->check(CLI::Range(0u, 100u));
    app->add_option("--seed", options.seed, "of the random order")->capture_default_str();
  };
  program.check = [&](const std::string& from) { merapi::cli::refuse_same_file("aged", from, to); };
  program.work = [&](const std::string& from) {
    write_aged(from, to, options);
    return kDone;
  };
  return run(program, argc, argv);
}
