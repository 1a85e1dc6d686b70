// SPDX-License-Identifier: Apache-2.0
//
// The log, on standard error. Whoever logs waits for no reader: a context that did would serve no host, and one that
// held its window would keep the memory of hosts that have ended.
#ifndef MERAPI_SIM_DEVICE_LOG_OUTPUT_H_
#define MERAPI_SIM_DEVICE_LOG_OUTPUT_H_

#include <spdlog/sinks/base_sink.h>

#include <chrono>
#include <functional>
#include <mutex>

#include "sim/device/line_output.h"

namespace merapi::sim {

class LogOutput : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LogOutput();

  // Lines stay behind when their reader takes none. Then `wake` is called, by whoever logs, and from fd() on it is as
  // with LineOutput: while that is a descriptor, it is to be polled for room, and send() called. An empty one: nobody.
  void set_wake(std::function<void()> wake);
  // -1: there is nothing to send, or nowhere to.
  int fd();
  void send();
  void finish(std::chrono::milliseconds patience);

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

  const bool colours_;
  LineOutput output_;
  std::function<void()> wake_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_LOG_OUTPUT_H_
