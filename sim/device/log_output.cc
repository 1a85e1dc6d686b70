// SPDX-License-Identifier: Apache-2.0
#include "sim/device/log_output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace merapi::sim {
namespace {

bool is_colour_terminal() {
  const char* const terminal = getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && terminal != nullptr && strcmp(terminal, "dumb") != 0;
}

// As spdlog's own terminal sinks have them.
const char* colour_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
      return "\033[37m";
    case spdlog::level::debug:
      return "\033[36m";
    case spdlog::level::info:
      return "\033[32m";
    case spdlog::level::warn:
      return "\033[33m\033[1m";
    case spdlog::level::err:
      return "\033[31m\033[1m";
    default:
      return "\033[1m\033[41m";
  }
}

std::string lost_lines(uint64_t count) {
  return std::to_string(count) + " lines of the log were lost: nobody took them\n";
}

}  // namespace

LogOutput::LogOutput() : colours_(is_colour_terminal()), output_(STDERR_FILENO, lost_lines) {}

void LogOutput::set_wake(std::function<void()> wake) {
  std::lock_guard<std::mutex> hold(mutex_);
  wake_ = std::move(wake);
}

int LogOutput::fd() {
  std::lock_guard<std::mutex> hold(mutex_);
  return output_.pending() ? output_.fd() : -1;
}

void LogOutput::send() {
  std::lock_guard<std::mutex> hold(mutex_);
  output_.send();
}

void LogOutput::finish(std::chrono::milliseconds patience) {
  std::lock_guard<std::mutex> hold(mutex_);
  output_.finish(patience);
}

void LogOutput::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t formatted;
  formatter_->format(message, formatted);
  std::string line(formatted.data(), formatted.size());
  if (colours_ && message.color_range_end > message.color_range_start) {
    line.insert(message.color_range_end, "\033[m");
    line.insert(message.color_range_start, colour_of(message.level));
  }
  output_.put(line);
  if (wake_ && output_.pending()) wake_();
}

}  // namespace merapi::sim
