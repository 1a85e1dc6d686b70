// SPDX-License-Identifier: Apache-2.0
//
// merapi-device: stands in for a tracer board. See merapi-device.1.
#include <spdlog/spdlog.h>

#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "sim/device/log_output.h"
#include "sim/device/options.h"
#include "sim/device/scheduling.h"
#include "sim/device/server.h"
#include "sw/cli/short_memory.h"
#include "sw/cli/standard_streams.h"
#include "sw/cli/truncation.h"

namespace {

// Windows are served by threads of their own; whether those may be put first is known before any host connects.
void require_realtime() {
  int error = 0;
  std::thread([&error] { error = merapi::sim::ask_for_realtime(); }).join();
  if (error == 0) return;
  throw std::runtime_error(std::string("--realtime: expected permission for SCHED_RR, found '") + strerror(error) +
                           "'; run as root, grant CAP_SYS_NICE or raise 'ulimit -r', or leave the option out");
}

int serve(const merapi::sim::DeviceOptions& options, merapi::sim::LogOutput* log) {
  try {
    if (options.realtime) require_realtime();
    if (options.engine == "rtl") {
      merapi::sim::RtlChoice choice = merapi::sim::choose_rtl(options.rtl);
      spdlog::info("simulating {} with memory {}", choice.preset, choice.memory_name);
    }
    return merapi::sim::Server(options, log).run();
  } catch (const std::exception& e) {
    spdlog::error("{}", e.what());
    return merapi::sim::kExitServe;
  }
}

}  // namespace

int main(int argc, char** argv) {
  merapi::cli::hold_standard_streams();
  merapi::cli::outlive_file_limit();
  merapi::cli::tell_short_memory();
  merapi::sim::DeviceOptions options;
  int code = 0;
  if (!merapi::sim::parse_options(argc, argv, &options, &code))
    return merapi::cli::written("merapi-device", code, merapi::sim::kExitServe);
  const auto log = std::make_shared<merapi::sim::LogOutput>();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("merapi-device", log));
  spdlog::set_level(spdlog::level::from_str(options.log_level));
  code = serve(options, log.get());
  log->finish(merapi::sim::kReaderPatience);
  return code;
}
