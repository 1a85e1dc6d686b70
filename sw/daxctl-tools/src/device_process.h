// SPDX-License-Identifier: Apache-2.0
//
// The device process at the user's default socket, shared by everything that `merapi run` starts: the first one in
// starts it, the last one out ends it. A device that somebody else started is used and left alone.
#ifndef MERAPI_DAXCTL_TOOLS_DEVICE_PROCESS_H_
#define MERAPI_DAXCTL_TOOLS_DEVICE_PROCESS_H_

#include <string>

namespace merapi::cli {

// $MERAPI_SOCKET, $XDG_RUNTIME_DIR/merapi/device.sock or /tmp/merapi-UID/device.sock.
std::string default_socket();
// merapi-device: $MERAPI_DEVICE_PROGRAM, beside this program, or in PATH. Throws when there is none.
std::string device_program();
// A program of this name: beside this one or in PATH; empty when there is none.
std::string find_program(const std::string& name);

class SharedDevice {
 public:
  // Take part; starts a device of `engine` ("model" or "rtl") when none answers at `socket`.
  SharedDevice(const std::string& socket, const std::string& engine);
  // Leave; ends the device when a run started it, no other run takes part and no window of others is served.
  ~SharedDevice();
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

  bool started() const { return started_; }
  const std::string& socket() const { return socket_; }

 private:
  void start(const std::string& engine);

  std::string socket_;
  int users_ = -1;  // a shared lock while this run takes part
  bool started_ = false;
};

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_DEVICE_PROCESS_H_
