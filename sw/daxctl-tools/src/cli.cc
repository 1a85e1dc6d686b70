// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

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
    case ETIMEDOUT:
      return kFound;
    case EBUSY:
    case EAGAIN:
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

int exit_of_output(int error_number) {
  const int code = std::abs(error_number);
  return code == ENOSPC || code == EBADF ? kSystem : exit_of(error_number);
}

Failure system_failure(int error_number, const std::string& what) {
  return Failure(exit_of_output(error_number), what + ": " + strerror(std::abs(error_number)));
}

namespace {

// Those of ASCII, and the second set (U+0080 to U+009f), which UTF-8 has as 0xc2 and a byte.
std::string without_controls(const std::string& text, const char* kept) {
  std::string escaped;
  bool second = false;  // behind 0xc2
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f || (second && byte < 0xa0);
    if (control && (c == '\0' || strchr(kept, c) == nullptr)) {
      char escape[8];
      snprintf(escape, sizeof escape, "\\x%02x", byte);
      if (byte >= 0x80) escaped.pop_back();
      escaped += escape;
    } else {
      escaped += c;
    }
    second = byte == 0xc2;
  }
  return escaped;
}

}  // namespace

std::string shown_text(const std::string& text) { return without_controls(text, ""); }

void say(const std::string& text) { std::cerr << "merapi: " << without_controls(text, "\n\t") << std::endl; }

// Text out of a window or of /proc may be anything; it is shown with what is not UTF-8 replaced.
void print(const json& value) {
  std::cout << value.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  flush_output();
}

json shown(json value) {
  if (value.is_structured()) {
    for (json& part : value) part = shown(std::move(part));
    return value;
  }
  if (!value.is_string()) return value;
  return shown_text(value.get_ref<const std::string&>());
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

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error)
    throw system_failure(error.value(), "cannot tell where " + path +
                                            " is: the current folder may have been removed, "
                                            "change to one that is there or name the whole path");
  return absolute.string();
}

bool read_text(const std::string& path, std::string* text) {
  constexpr size_t kMost = size_t{16} << 20;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::string all;
  int code = 0;
  for (ssize_t got = 1; got != 0 && code == 0;) {
    char block[65536];
    got = read(fd, block, sizeof block);
    if (got > 0) all.append(block, size_t(got));
    if (got < 0 && errno != EINTR) code = errno;
    if (all.size() > kMost) code = EFBIG;
  }
  close(fd);
  if (code != 0) {
    errno = code;
    return false;
  }
  *text = std::move(all);
  while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
  return true;
}

}  // namespace merapi::cli
