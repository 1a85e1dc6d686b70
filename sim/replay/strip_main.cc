// SPDX-License-Identifier: Apache-2.0
//
// merapi-strip: a saved window without its program's data. See merapi-strip.1.
#include <unistd.h>

#include <iostream>

#include "sim/replay/program.h"
#include "sim/replay/strip.h"
#include "sw/cli/command_line.h"

int main(int argc, char** argv) {
  using namespace merapi::sim;
  std::string to;
  Program program{"merapi-strip",
                  "Write a copy of a saved window that keeps what a tracer reads (klass words, array lengths, "
                  "references of live objects) and nothing else: no strings, no numbers, no dead objects.\n"
                  "Exit codes: 0 written, 2 wrong command line, 3 the image does not replay, or the copy or the output "
                  "cannot be written."};
  program.options = [&](CLI::App* app) {
    merapi::cli::take_output(
        app->add_option("copy", to, "where to write; an existing file is replaced; - for standard output")->required());
  };
  program.check = [&](const std::string& from) { merapi::cli::refuse_same_file("copy", from, to); };
  program.work = [&](const std::string& from) {
    // Behind a copy on standard output it would be a part of it.
    std::ostream& told_in = merapi_output_is(to.c_str(), STDOUT_FILENO) ? std::cerr : std::cout;
    const StripResult result = strip(merapi::graph::Image(from), to);
    told_in << result.objects << " live objects, " << result.kept_bytes << " of " << result.heap_bytes
            << " bytes of heap kept\n";
    return kDone;
  };
  return run(program, argc, argv);
}
