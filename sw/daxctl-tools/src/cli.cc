// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

#include <errno.h>
#include <string.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "merapi/merapi.h"

namespace merapi::cli {

int exit_of(int error_number) {
  switch (std::abs(error_number)) {
    case 0:
      return kOk;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case EPROTO:
    case EBADMSG:
    case ENOSPC:
    case ENOTSUP:
    case ENOTDIR:
      return kAbsent;
    case EBUSY:
    case EAGAIN:
    case ETIMEDOUT:
      return kBusy;
    case EACCES:
    case EPERM:
    case EROFS:
      return kDenied;
    case EINVAL:
      return kUsage;
    default:
      return kSystem;
  }
}

Failure system_failure(int error_number, const std::string& what) {
  return Failure(exit_of(error_number), what + ": " + strerror(std::abs(error_number)));
}

void say(const std::string& text) { std::cerr << "merapi: " << text << std::endl; }

// Text out of a window or of /proc may be anything; it is shown with what is not UTF-8 replaced.
void print(const json& value) { std::cout << value.dump(1, ' ', false, json::error_handler_t::replace) << std::endl; }

std::string human_bytes(uint64_t bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    unit++;
  }
  char text[32];
  snprintf(text, sizeof text, value == std::floor(value) ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string human_count(double count) {
  static const char* const kUnits[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    unit++;
  }
  char text[32];
  snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.2f%s", count, kUnits[unit]);
  return text;
}

bool read_text(const std::string& path, std::string* text) {
  std::ifstream in(path);
  if (!in) return false;
  std::ostringstream all;
  all << in.rdbuf();
  if (in.bad()) return false;
  *text = all.str();
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  return true;
}

Cli::Cli()
    : app_(
          "Provision, watch and exercise windows of a Merapi expander.\n"
          "JSON on stdout with --json, messages on stderr. Exit codes: 0 done, 1 something is not in order, "
          "2 wrong command line, 3 not there or not a window, 4 in use, 5 no permission, 6 system error.",
          "merapi") {
  app_.set_version_flag("--version", std::string("merapi " MERAPI_CLI_VERSION " (libmerapi ") + merapi_version() +
                                         ", contract " + std::to_string(MERAPI_VERSION_MAJOR) + "." +
                                         std::to_string(MERAPI_VERSION_MINOR) + ")");
  app_.require_subcommand(1);
}

CLI::App* Cli::verb(const std::string& name, const std::string& description, std::function<int()> act) {
  CLI::App* verb = app_.add_subcommand(name, description);
  acts_[verb] = std::move(act);
  return verb;
}

int Cli::main(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app_.exit(e) == 0 ? kOk : kUsage;
  }
  try {
    return acts_.at(app_.get_subcommands().front())();
  } catch (const Failure& e) {
    say(e.what());
    return e.exit_code;
  } catch (const std::exception& e) {
    say(e.what());
    return kSystem;
  }
}

}  // namespace merapi::cli
