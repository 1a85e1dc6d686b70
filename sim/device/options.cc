// SPDX-License-Identifier: Apache-2.0
#include "sim/device/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <string_view>

#include "merapi/contract.h"
#include "sw/cli/command_line.h"

namespace merapi::sim {
namespace {

// The identity's field ends with a zero.
constexpr size_t kNameMost = sizeof(merapi_device_identity::name) - 1;

std::string name_that_fits(const std::string& name) {
  if (name.size() <= kNameMost) return "";
  return "expected at most " + std::to_string(kNameMost) + " characters, found " + std::to_string(name.size());
}

// Of a window's part: decimal digits, at most 18, and nothing else.
bool read_digits(std::string_view text, uint64_t* number) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) return false;
  std::from_chars(text.data(), text.data() + text.size(), *number);
  return true;
}

}  // namespace

WindowPart part_of(const std::string& window) {
  // A file of just this name is meant itself.
  if (access(window.c_str(), F_OK) == 0) return {window};
  const size_t at = window.rfind('@');
  if (at == window.npos || at == 0) return {window};
  WindowPart part{window.substr(0, at)};
  const std::string_view extent = std::string_view(window).substr(at + 1);
  const size_t plus = extent.find('+');
  const bool is_part = plus != extent.npos && read_digits(extent.substr(0, plus), &part.offset) &&
                       read_digits(extent.substr(plus + 1), &part.bytes);
  return is_part ? part : WindowPart{window};
}

bool parse_options(int argc, char** argv, DeviceOptions* o, int* exit_code) {
  CLI::App app{
      "Stands in for a tracer board: takes windows from hosts and traces the heaps in them.\n"
      "Exit codes: 0 ended by SIGTERM, SIGINT or SIGHUP, 2 wrong command line, 3 cannot listen or serve, "
      "4 every window served has ended by a fault.",
      "merapi-device"};
  app.set_version_flag("--version", "merapi-device " MERAPI_DEVICE_VERSION " (contract " +
                                        std::to_string(MERAPI_VERSION_MAJOR) + "." +
                                        std::to_string(MERAPI_VERSION_MINOR) + ")");
  bool model = false;
  auto* engine = app.add_option_group("engine", "What executes the commands");
  engine->add_flag("--model", model, "the functional model");
  bool rtl = false;
  auto* simulated = engine->add_flag("--rtl", rtl, "the tracer's RTL, simulated");
  engine->require_option(1);
  auto* from = app.add_option_group("windows", "Where windows come from");
  from->add_option("--socket", o->socket, "listen at this unix socket; each host gets a window of its own")
      ->check(cli::not_empty());
  auto* window = from->add_option("--window", o->windows,
                                  "serve this file or devdax device, or its part PATH@OFFSET+BYTES (repeatable)");
  window->check(cli::not_empty());
  from->require_option(1, 0);
  cli::take_size(app.add_option("--size", o->size,
                                "make window files at least this large, creating them when needed (4G, 512M, ...)"))
      ->check(CLI::Range(uint64_t{0}, uint64_t{INT64_MAX}))  // a file's size
      ->needs(window);
  add_rtl_options(&app, simulated, &o->rtl);
  auto* name =
      app.add_option("--name", o->common.name, "name told to hosts (at most 23 characters; with --rtl: the preset's)");
  name->capture_default_str()->check(cli::not_empty())->check(name_that_fits);
  auto* patience = app.add_option("--patience-us", o->common.patience_us, "how long hosts wait for an acknowledgement");
  patience->capture_default_str()->check(CLI::Range(1u, uint32_t{MERAPI_PATIENCE_MAX_US}));
  std::string coherence = "coherent";
  app.add_option("--coherence", coherence, "coherence mode told to hosts")
      ->capture_default_str()
      ->check(CLI::IsMember({"coherent", "non-coherent"}));
  app.add_flag("--strict", o->strict, "check the contract's invariants while running (slower)")->excludes(simulated);
  app.add_option("--stack-entries", o->stack_entries, "greys held on chip before they spill")
      ->capture_default_str()
      ->check(CLI::Range(2u, 1u << 28))
      ->excludes(simulated);
  app.add_flag("--no-spill", o->no_spill, "never use the spill area: greys that do not fit are dropped and found again")
      ->excludes(simulated);
  app.add_option("--spin-us", o->spin_us, "look for work this long before sleeping")
      ->capture_default_str()
      ->check(CLI::Range(0u, 600'000'000u));
  app.add_flag("--realtime", o->realtime,
               "trace before all ordinary threads, as hardware would: pauses wait for no processor (needs privilege)")
      ->excludes(simulated);
  app.add_option("--log-level", o->log_level, "what is logged on stderr")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  app.add_flag("--json", o->json, "print events on stdout as JSON, one object a line; SIGUSR1 asks for a status line");

  cli::take_numbers(&app);
  try {
    cli::parse(&app, argc, argv);
    for (const std::string& window : o->windows) refuse_waves_over(part_of(window).path, o->rtl, o->windows.size());
    refuse_waves_over(o->rtl.memory, o->rtl);
  } catch (const CLI::ParseError& e) {
    *exit_code = cli::leave(app, e) == 0 ? kExitClean : kExitUsage;
    return false;
  }
  o->engine = model ? "model" : "rtl";
  if (!model && patience->count() == 0) o->common.patience_us = kRtlPatienceUs;
  if (!model && name->count() == 0) o->common.name.clear();
  o->common.coherence = coherence == "coherent" ? MERAPI_COHERENCE_COHERENT : MERAPI_COHERENCE_NON_COHERENT;
  o->common.pid = uint64_t(getpid());
  return true;
}

}  // namespace merapi::sim
