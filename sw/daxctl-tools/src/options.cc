// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>

#include "cli.h"
#include "cli/command_line.h"
#include "graph/window.h"
#include "merapi/merapi.h"

namespace merapi::cli {

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::with_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::one_of(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}

Option& Option::not_empty() {
  option_->check(cli::not_empty());
  return *this;
}

Option& Option::output() {
  take_output(option_);
  return *this;
}

Option& Option::between(double low, double high) {
  // Of whole numbers in words of its own: CLI11 would print them with six places.
  const auto text = [](double bound) { return CLI::detail::to_string(bound); };
  option_->check(CLI::Validator(
      [low, high, text](std::string& value) {
        double number = 0;
        const bool inside = CLI::detail::lexical_cast(value, number) && number >= low && number <= high;
        return inside ? std::string()
                      : "expected a number from " + text(low) + " to " + text(high) + ", found " + value;
      },
      "[" + text(low) + " - " + text(high) + "]"));
  return *this;
}

Option& Option::size() {
  take_size(option_);
  return *this;
}

Option& Option::not_zero() {
  option_->check(CLI::Validator(
      [](std::string& value) { return value == "0" ? std::string("expected more than 0, found 0") : std::string(); },
      ""));
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option Verb::option(const std::string& name, std::string& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

// Ranges let pass what compares with nothing.
Option Verb::option(const std::string& name, double& value, const std::string& help) {
  CLI::Option* option = app_->add_option(name, value, help);
  option->check(CLI::Validator(
      [](std::string& text) {
        double number = 0;
        const bool nan = CLI::detail::lexical_cast(text, number) && std::isnan(number);
        return nan ? "expected a number, found " + text : std::string();
      },
      ""));
  return Option(refuse_negative(option));
}

Option Verb::option(const std::string& name, uint32_t& value, const std::string& help) {
  return Option(take_number(app_->add_option(name, value, help)));
}

Option Verb::option(const std::string& name, uint64_t& value, const std::string& help) {
  return Option(take_number(app_->add_option(name, value, help)));
}

Option Verb::option(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

Option Verb::option(const std::string& name, std::vector<uint64_t>& value, const std::string& help) {
  return Option(take_number(app_->add_option(name, value, help)));
}

void Verb::flag(const std::string& name, bool& value, const std::string& help) { app_->add_flag(name, value, help); }

void Verb::positionals_at_end() { app_->positionals_at_end(); }

struct Cli::Parser {
  CLI::App app{
      "Provision, watch and exercise windows of a Merapi expander.\n"
      "JSON on stdout with --json, messages on stderr. Exit codes: 0 done, 1 something is not in order, "
      "2 wrong command line, 3 not there or not a window, 4 in use, 5 no permission, 6 system error.",
      "merapi"};
  std::map<const CLI::App*, std::function<int()>> acts;
};

Cli::Cli() : parser_(std::make_unique<Parser>()) {
  parser_->app.set_version_flag(
      "--version", std::string("merapi " MERAPI_CLI_VERSION " (libmerapi ") + merapi_version() + ", contract " +
                       std::to_string(MERAPI_VERSION_MAJOR) + "." + std::to_string(MERAPI_VERSION_MINOR) + ")");
  parser_->app.require_subcommand(1);
}

Cli::~Cli() = default;

Verb Cli::verb(const std::string& name, const std::string& description, std::function<int()> act) {
  CLI::App* app = parser_->app.add_subcommand(name, description);
  parser_->acts[app] = std::move(act);
  return Verb(app);
}

int Cli::main(int argc, char** argv) {
  if (argc > 1) {
    const std::string verb = argv[1];
    const auto& acts = parser_->acts;
    // --help and --version stand in a verb's place.
    const bool option = verb[0] == '-' && parser_->app.get_option_no_throw(verb.substr(0, verb.find('='))) != nullptr;
    if (!option &&
        std::none_of(acts.begin(), acts.end(), [&](const auto& act) { return act.first->get_name() == verb; })) {
      say("expected a verb, found '" + verb + "'; 'merapi --help' lists them");
      return kUsage;
    }
  }
  try {
    parse(&parser_->app, argc, argv);
  } catch (const CLI::ParseError& e) {
    return leave(parser_->app, e) == 0 ? kOk : kUsage;
  }
  return guarded(parser_->acts.at(parser_->app.get_subcommands().front()));
}

int guarded(const std::function<int()>& act, std::string* problem) {
  const auto told = [problem](const std::exception& e, int code) {
    if (problem == nullptr)
      say(e.what());
    else
      *problem = e.what();
    return code;
  };
  try {
    return act();
  } catch (const Failure& e) {
    return told(e, e.exit_code);
  } catch (const graph::Broken& e) {
    return told(e, kFound);
  } catch (const graph::Error& e) {
    return told(e, exit_of(e.code));
  } catch (const std::exception& e) {
    return told(e, kSystem);
  }
}

}  // namespace merapi::cli
