// SPDX-License-Identifier: Apache-2.0
//
// Takes windows from the socket and from files, starts a context for each and cleans up behind those that ended.
#ifndef MERAPI_SIM_DEVICE_SERVER_H_
#define MERAPI_SIM_DEVICE_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "merapi/merapi.h"
#include "sim/device/context.h"
#include "sim/device/log_output.h"
#include "sim/device/options.h"
#include "sim/device/status.h"

namespace merapi::sim {

class Server {
 public:
  // What `log` could not send is sent while this runs.
  Server(const DeviceOptions& options, LogOutput* log);
  ~Server();
  // Until SIGTERM, SIGINT or SIGHUP. Returns the exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  bool open_windows();
  bool start(merapi_lease* lease, std::string name);
  void accept_some();
  // From any thread: run() looks at what has ended, and at what the log has kept.
  void wake() const;
  // Milliseconds for poll(2): until accept_again_ while exhausted, else without end.
  int patience() const;
  void reap();
  // False: end.
  bool handle_signal();

  const DeviceOptions& options_;
  LogOutput* const log_;
  StatusPrinter printer_;
  merapi_listener* listener_ = nullptr;
  int signal_fd_ = -1;
  int wake_fd_ = -1;
  uint64_t accepted_ = 0, begun_ = 0;
  // Out of descriptors or memory: told once while hosts wait, and the listener is left alone until then.
  bool exhausted_ = false;
  Clock::time_point accept_again_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_SERVER_H_
