// SPDX-License-Identifier: Apache-2.0
//
// merapi-strip: a saved window without its program's data. See merapi-strip.1.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "sim/replay/strip.h"
#include "sw/cli/command_line.h"
#include "sw/cli/short_memory.h"
#include "sw/cli/standard_streams.h"
#include "sw/cli/truncation.h"

namespace {

enum { kWritten = 0, kUsage = 2, kCannot = 3 };

int act(int argc, char** argv) {
  CLI::App app{
      "Write a copy of a saved window that keeps what a tracer reads (klass words, array lengths, references of live "
      "objects) and nothing else: no strings, no numbers, no dead objects.\n"
      "Exit codes: 0 written, 2 wrong command line, 3 the image does not replay, or the copy or the output cannot be "
      "written.",
      "merapi-strip"};
  app.set_version_flag("--version", "merapi-strip " MERAPI_DEVICE_VERSION);
  std::string from, to;
  app.add_option("image", from, "saved window")->required()->check(merapi::cli::not_empty());
  app.add_option("copy", to, "where to write; an existing file is replaced")
      ->required()
      ->check(merapi::cli::not_empty());
  try {
    merapi::cli::parse(&app, argc, argv);
    merapi::cli::refuse_same_file("copy", from, to);
  } catch (const CLI::ParseError& e) {
    return merapi::cli::leave(app, e) == 0 ? kWritten : kUsage;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("merapi-strip"));
  spdlog::set_level(spdlog::level::warn);
  try {
    // Behind a copy on standard output it would be a part of it.
    std::ostream& told_in = merapi_output_is(to.c_str(), STDOUT_FILENO) ? std::cerr : std::cout;
    merapi::sim::StripResult result = merapi::sim::strip(merapi::graph::Image(from), to);
    told_in << result.objects << " live objects, " << result.kept_bytes << " of " << result.heap_bytes
            << " bytes of heap kept\n";
    return kWritten;
  } catch (const std::exception& e) {
    std::cerr << "merapi-strip: " << from << ": " << e.what() << "\n";
    return kCannot;
  }
}

}  // namespace

int main(int argc, char** argv) {
  merapi::cli::hold_standard_streams();
  merapi::cli::catch_truncation("merapi-strip", kCannot);
  merapi::cli::tell_short_memory();
  return merapi::cli::written("merapi-strip", act(argc, argv), kCannot);
}
