// SPDX-License-Identifier: Apache-2.0
//
// merapi-rogue: serves windows as merapi-device does, and goes wrong in the way that --mode names.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "sim/test/rogue/rogue.h"

namespace {

using merapi::rogue::Plan;
using merapi::rogue::Rogue;

void serve(merapi_listener* listener, Plan* plan) {
  while (true) {
    pollfd wait{merapi_listener_fd(listener), POLLIN, 0};
    poll(&wait, 1, -1);
    merapi_lease* lease = nullptr;
    if (merapi_accept(listener, &lease, nullptr) != 0) continue;
    {
      Rogue rogue(lease, plan);
      while (rogue.step()) continue;
    }
    merapi_lease_end(lease);
  }
}

std::string modes() {
  std::string text;
  for (const auto& fault : merapi::rogue::faults()) {
    text += std::string(fault.name) + std::string(20 - std::min<size_t>(fault.name.size(), 19), ' ') +
            std::string(fault.doc) + "\n";
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A device that misbehaves, one JVM at a time"};
  std::string socket, mode;
  Plan plan;
  app.add_option("--socket", socket, "unix socket to listen at")->required();
  app.add_option("--mode", mode, "what goes wrong (--list)")->required();
  app.add_option("--times", plan.times, "how often; -1 for ever")->capture_default_str();
  app.add_option("--from-cycle", plan.cycle, "first cycle in which it may")->capture_default_str();
  app.add_option("--every", plan.every, "only in cycles whose number this divides")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--after-us", plan.after_us, "microseconds into the cycle")->capture_default_str();
  app.add_option("--answer-after-us", plan.answer_after_us, "how long each handshake waits for its answer")
      ->capture_default_str();
  app.add_option("--patience-us", plan.patience_us, "how long hosts wait for an acknowledgement")
      ->capture_default_str();
  app.add_option("--seed", plan.seed, "of random bytes")->capture_default_str();
  app.set_version_flag("--version", merapi_version());
  app.add_flag_callback(
      "--list",
      [] {
        std::fputs(modes().c_str(), stdout);
        throw CLI::Success();
      },
      "print the modes");
  CLI11_PARSE(app, argc, argv);

  plan.fault = merapi::rogue::find_fault(mode);
  if (plan.fault == nullptr) {
    std::fprintf(stderr, "merapi-rogue: expected a mode of\n%sfound '%s'\n", modes().c_str(), mode.c_str());
    return 2;
  }
  merapi_listener* listener = nullptr;
  merapi_error error;
  if (merapi_listen(socket.c_str(), &listener, &error) != 0) {
    std::fprintf(stderr, "merapi-rogue: %s\n", error.message);
    return 1;
  }
  std::printf("ready %s\n", socket.c_str());
  std::fflush(stdout);
  serve(listener, &plan);
}
