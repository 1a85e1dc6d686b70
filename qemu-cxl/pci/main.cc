// SPDX-License-Identifier: Apache-2.0
// merapi-pci-front: the tracer as a PCI function of a virtual machine, over vfio-user. It owns the socket for as long
// as the machine runs, since the client does not connect a second time; the engine behind it may come and go. See
// merapi-pci-front.1.
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <exception>

#include "engine.h"
#include "merapi/contract.h"
#include "sw/cli/command_line.h"
#include "sw/cli/standard_streams.h"
#include "sw/cli/truncation.h"
#include "tracer_function.h"
#include "vfio_user.h"
#include "window.h"

namespace {

constexpr int kExitUsage = 2, kExitServe = 3;

// 0, or the exit status when standard output did not take what was printed.
int written() { return merapi::cli::written("merapi-pci-front", 0, kExitServe); }

}  // namespace

int main(int argc, char** argv) {
  merapi::cli::hold_standard_streams();
  merapi::cli::catch_truncation("merapi-pci-front", kExitServe);
  CLI::App app{
      "Serves the tracer as a PCI function over vfio-user, and keeps the engine that traces running.\n"
      "Exit codes: 0 ended by SIGTERM or SIGINT, 2 wrong command line, 3 cannot serve.",
      "merapi-pci-front"};
  app.set_version_flag("--version", "merapi-pci-front " MERAPI_PCI_FRONT_VERSION " (contract " +
                                        std::to_string(MERAPI_VERSION_MAJOR) + "." +
                                        std::to_string(MERAPI_VERSION_MINOR) + ")");
  std::string socket, path;
  std::vector<std::string> command;
  app.add_option("--socket", socket, "listen at this unix socket")->required()->check(merapi::cli::not_empty());
  app.add_option("--window", path, "the file that is the expander's memory")
      ->required()
      ->check(merapi::cli::not_empty());
  app.add_option("engine", command, "the engine's command line, after --; {window}: the part of the file to trace")
      ->required();
  try {
    merapi::cli::parse(&app, argc, argv);
  } catch (const CLI::ParseError& e) {
    return merapi::cli::leave(app, e) == 0 ? written() : kExitUsage;
  }

  // Before any thread starts: all of them inherit the mask.
  sigset_t mask;
  sigemptyset(&mask);
  for (int s : {SIGTERM, SIGINT}) sigaddset(&mask, s);
  const int stop_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  // What a client sends for its interrupts may be a pipe that nobody reads.
  sigaddset(&mask, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  if (stop_fd < 0) {
    perror("merapi-pci-front: signalfd");
    return kExitServe;
  }
  int code = 0;
  try {
    merapi::pci::Window window(path);
    merapi::pci::Engine engine(command);
    merapi::pci::TracerFunction function(window, engine, path);
    merapi::pci::VfioUserServer server(socket, function);
    printf("ready %s\n", socket.c_str());
    code = written();  // said at once: nobody may read the status before the machine ends
    server.run(stop_fd);
  } catch (const std::exception& e) {
    fprintf(stderr, "merapi-pci-front: %s\n", e.what());
    code = kExitServe;
  }
  close(stop_fd);
  return code;
}
