// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

#include <errno.h>
#include <string.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/standard_streams.h"

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
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
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
void print(const json& value) {
  std::cout << value.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  flush_output();
}

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

}  // namespace merapi::cli
