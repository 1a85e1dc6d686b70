// SPDX-License-Identifier: Apache-2.0
//
// What the programs for saved windows have in common: the image that comes first on the command line, and how they end.
#ifndef MERAPI_SIM_REPLAY_PROGRAM_H_
#define MERAPI_SIM_REPLAY_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace merapi::sim {

enum Ended { kDone = 0, kWrong = 1, kUsage = 2, kCannot = 3 };

struct Program {
  const char* name;
  const char* help;
  // Adds to what every one of them takes.
  std::function<void(CLI::App* app)> options{};
  // Throws CLI::ParseError when options that are right alone do not go together.
  std::function<void(const std::string& image)> check{};
  // What it throws is told, and the program ends with kCannot.
  std::function<Ended(const std::string& image)> work{};
};

// All of main.
int run(const Program& program, int argc, char** argv);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_REPLAY_PROGRAM_H_
