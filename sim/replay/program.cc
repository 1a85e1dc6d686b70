// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/program.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <iostream>

#include "sw/cli/command_line.h"
#include "sw/cli/short_memory.h"
#include "sw/cli/standard_streams.h"
#include "sw/cli/truncation.h"

namespace merapi::sim {

namespace {

Ended act(const Program& program, int argc, char** argv) {
  CLI::App app{program.help, program.name};
  app.set_version_flag("--version", program.name + std::string(" " MERAPI_DEVICE_VERSION));
  std::string image;
  app.add_option("image", image, "saved window")->required()->check(cli::not_empty());
  program.options(&app);
  cli::take_numbers(&app);
  try {
    cli::parse(&app, argc, argv);
    program.check(image);
  } catch (const CLI::ParseError& e) {
    return cli::leave(app, e) == 0 ? kDone : kUsage;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt(program.name));
  spdlog::set_level(spdlog::level::warn);
  try {
    return program.work(image);
  } catch (const std::exception& e) {
    std::cerr << program.name << ": " << cli::with_name(image, e.what()) << "\n";
    return kCannot;
  }
}

}  // namespace

int run(const Program& program, int argc, char** argv) {
  cli::hold_standard_streams();
  cli::catch_truncation(program.name, kCannot);
  cli::tell_short_memory();
  return cli::written(program.name, act(program, argc, argv), kCannot);
}

}  // namespace merapi::sim
