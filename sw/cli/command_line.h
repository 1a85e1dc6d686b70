// SPDX-License-Identifier: Apache-2.0
//
// What CLI11 takes and no program means; for every program with a command line.
#ifndef MERAPI_CLI_COMMAND_LINE_H_
#define MERAPI_CLI_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <string>

namespace merapi::cli {

inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& value) {
        return value.empty() ? std::string("expected a path or a name, found nothing") : std::string();
      },
      "");
}

// -1 is no large number. A transformation: these come before all checks, the last one first.
inline CLI::Option* refuse_negative(CLI::Option* option) {
  return option->transform(CLI::Validator(
      [](std::string& value) {
        return value.rfind('-', 0) == 0 ? "expected a number of at least 0, found " + value : std::string();
      },
      ""));
}

// For all options of `app` so far.
inline void refuse_negative(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();
    if (type.rfind("UINT", 0) == 0 || type.rfind("INT", 0) == 0) refuse_negative(option);
  }
}

// "--window= java", as a variable without a value makes it, is no window named java. Throws CLI::ValidationError.
inline void refuse_missing_values(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* verb = &app;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    if (word == "--") return;
    if (word.rfind("--", 0) != 0) {
      const auto inner = verb->get_subcommands([&](const CLI::App* app) { return app->get_name() == word; });
      if (!inner.empty()) {
        verb = inner.front();
      } else if (verb->get_positionals_at_end()) {
        return;
      }
      continue;
    }
    const size_t equals = word.find('=');
    const CLI::Option* option = verb->get_option_no_throw(word.substr(0, equals));
    if (option == nullptr) continue;
    if (equals == word.size() - 1) throw CLI::ValidationError(word, "expected a value after it, found nothing");
    const bool takes_next = equals == std::string::npos && option->get_items_expected_max() > 0;
    if (takes_next) i++;
  }
}

// As App::parse. Throws CLI::ParseError.
inline void parse(CLI::App* app, int argc, const char* const* argv) {
  refuse_missing_values(*app, argc, argv);
  app->parse(argc, argv);
}

// As App::exit, but nothing is flushed: written() tells when there is no room for it.
inline int leave(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out;
  const int code = app.exit(error, out, std::cerr);
  std::cout << out.str();
  return code;
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_COMMAND_LINE_H_
