// SPDX-License-Identifier: Apache-2.0
//
// What CLI11 takes and no program means, and what is said of it; for every program with a command line.
#ifndef MERAPI_CLI_COMMAND_LINE_H_
#define MERAPI_CLI_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <system_error>

namespace merapi::cli {

inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& value) {
        return value.empty() ? std::string("expected a path or a name, found nothing") : std::string();
      },
      "");
}

// Of what is written: "-" is standard output, and a file of that name ./-.
inline CLI::Option* take_output(CLI::Option* option) {
  return option->check(not_empty())
      ->transform(CLI::Validator(
          [](std::string& value) {
            if (value == "-") value = "/dev/stdout";
            return std::string();
          },
          ""));
}

// What was said about the file `name`, with its name, which many a message has in it.
inline std::string with_name(const std::string& name, const std::string& said) {
  const bool named = said.rfind(name + ":", 0) == 0 || (said + ",").find(" " + name + ",") != said.npos ||
                     said.find(" " + name + ":") != said.npos;
  return named ? said : name + ": " + said;
}

// -1 is no large number. A transformation: these come before all checks, the last one first.
inline CLI::Option* refuse_negative(CLI::Option* option) {
  return option->transform(CLI::Validator(
      [](std::string& value) {
        return value.rfind('-', 0) == 0 ? "expected a number of at least 0, found " + value : std::string();
      },
      ""));
}

// Decimal, or 0x and digits of base 16. What is wrong with the text; empty: it is a number, which is in `number`.
inline std::string read_number(const std::string& text, uint64_t* number) {
  const bool hex = text.rfind("0x", 0) == 0 || text.rfind("0X", 0) == 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + (hex ? 2 : 0), end, *number, hex ? 16 : 10);
  if (text.rfind('-', 0) == 0) return "expected a number of at least 0, found " + text;
  if (error == std::errc::invalid_argument || rest != end)
    return "expected a number, decimal or with 0x, found " + text;
  if (error == std::errc()) return "";
  return "expected a number of at most " + std::to_string(UINT64_MAX) + ", found " + text;
}

// CLI11 takes what is too large as the largest number, and leading zeros for a base of 8.
inline CLI::Option* take_number(CLI::Option* option) {
  return option->transform(CLI::Validator(
      [](std::string& value) {
        uint64_t number = 0;
        const std::string wrong = read_number(value, &number);
        if (wrong.empty()) value = std::to_string(number);
        return wrong;
      },
      ""));
}

// For all options of `app` so far that are whole numbers.
inline void take_numbers(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();
    if (type.rfind("UINT", 0) == 0 || type.rfind("INT", 0) == 0) take_number(option);
  }
}

// Bytes: a number, or a decimal one and a unit, which is a power of 1024 (512M, 4GiB).
inline CLI::Option* take_size(CLI::Option* option) {
  option->type_name("SIZE");
  return option->transform(CLI::Validator(
      [units = CLI::AsSizeValue(false)](std::string& value) {
        const std::string text = value;
        const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
        const bool has_unit = digits > 0 && text.find_first_not_of("bBkKmMgGtTpPeEiI ", digits) == std::string::npos;
        uint64_t number = 0;
        std::string wrong = read_number(has_unit ? text.substr(0, digits) : text, &number);
        if (!wrong.empty()) return wrong;
        value = std::to_string(number) + (has_unit ? text.substr(digits) : "");
        try {
          return units(value);
        } catch (const CLI::ValidationError&) {
          return "expected less than 16 EiB and a unit such as M or GiB, found " + text;
        }
      },
      ""));
}

// Throws CLI::ValidationError where the file to write, the value of `option`, is the one to read, by whatever name.
inline void refuse_same_file(const char* option, const std::string& read, const std::string& written) {
  namespace fs = std::filesystem;
  std::error_code absent;
  if (fs::equivalent(read, written, absent) ||
      fs::absolute(read).lexically_normal() == fs::absolute(written).lexically_normal())
    throw CLI::ValidationError(
        option, "expected another file than the one that is read, found " + written + "; choose another");
}

// "--window= java", as a variable without a value makes it, is no window named java, and "--model=false" no other
// engine. Throws CLI::ValidationError.
inline void check_values(const CLI::App& app, int argc, const char* const* argv) {
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
    const bool takes_value = option->get_items_expected_max() > 0;
    if (!takes_value && equals != std::string::npos)
      throw CLI::ValidationError(word.substr(0, equals), "expected no value, found '" + word.substr(equals + 1) +
                                                             "'; give the option alone, or leave it out");
    if (takes_value && equals == std::string::npos) i++;
  }
}

// As App::parse. Throws CLI::ParseError.
inline void parse(CLI::App* app, int argc, const char* const* argv) {
  check_values(*app, argc, argv);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ConversionError& e) {
    // "Could not convert: OPTION = TEXT", where take_number has found a number.
    const std::string said = e.what(), before = "Could not convert: ", between = " = ";
    const size_t equals = said.find(between);
    if (said.rfind(before, 0) != 0 || equals == said.npos) throw;
    const std::string text = said.substr(equals + between.size());
    const bool whole = text.find_first_not_of("0123456789") == text.npos;
    throw CLI::ValidationError(said.substr(before.size(), equals - before.size()),
                               (whole ? "expected a smaller number, found " : "expected a number, found ") + text);
  }
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
