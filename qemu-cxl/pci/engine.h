// SPDX-License-Identifier: Apache-2.0
// The process behind the PCI function that does the tracing. It may end at any time; the function stays.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace merapi::pci {

class Engine {
 public:
  // Starts `command` and keeps it running until destruction: started again when it ends and when reset() is called.
  // "{window}" in it stands for what use() named last.
  Engine(std::vector<std::string> command, std::string window);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Ends the running process; a new one starts at once. Does not wait for either.
  void reset();

  // For engines started from now on.
  void use(const std::string& window);

  bool running() const { return pid_.load() > 0; }
  // How many processes have been started.
  uint32_t started() const { return started_.load(); }

 private:
  void supervise();
  pid_t spawn();

  const std::vector<std::string> command_;
  std::string window_;
  std::atomic<pid_t> pid_{0};
  std::atomic<uint32_t> started_{0};
  std::mutex lock_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace merapi::pci
