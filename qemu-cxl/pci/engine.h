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
  // Keeps `command` running until destruction, once trace() has named what: started again when it ends.
  explicit Engine(std::vector<std::string> command);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Ends the running process; one in which "{window}" stands for this starts at once, or none when it is empty. Does
  // not wait for either.
  void trace(const std::string& window);

  bool running() const { return pid_.load() > 0; }
  // How many processes have been started.
  uint32_t started() const { return started_.load(); }

 private:
  void supervise();
  pid_t spawn();
  void end();  // under the lock

  const std::vector<std::string> command_;
  std::string window_;  // empty: nothing is to run
  std::atomic<pid_t> pid_{0};
  std::atomic<uint32_t> started_{0};
  std::mutex lock_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace merapi::pci
