// SPDX-License-Identifier: Apache-2.0
//
// The device process at the user's default socket, shared by everything that `merapi run` starts: the first one in
// starts it, the last one out ends it. A device that somebody else started is used and left alone.
#ifndef MERAPI_DAXCTL_TOOLS_DEVICE_PROCESS_H_
#define MERAPI_DAXCTL_TOOLS_DEVICE_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

namespace merapi::cli {

class RunFolder;

// Where no socket is named: $XDG_RUNTIME_DIR/merapi/device.sock where that folder is ours, or
// /tmp/merapi-UID/device.sock.
std::string unnamed_socket();
// $MERAPI_SOCKET, absolute as absolute_socket has it, or unnamed_socket().
std::string default_socket();
// The same socket from every folder; as given when its absolute path is too long for a socket's name.
std::string absolute_socket(const std::string& socket);
// Why no device can listen at this path; empty when one may. What is found through a link answers first (listener_at).
std::string why_no_socket(const std::string& path);
// Why a run cannot have the folders that it needs for this socket; empty when it can. Nothing is made.
std::string why_no_run(const std::string& socket);
// merapi-device: $MERAPI_DEVICE_PROGRAM, beside this program, or in PATH. Throws when there is none.
std::string device_program();
// A program of this name: beside this one or in PATH; empty when there is none.
std::string find_program(const std::string& name);
// In PATH alone.
std::string find_in_path(const std::string& name);

// A device process that a run started. With its start time (field 22 of /proc/PID/stat) a later process of the same pid
// is not taken for it.
struct StartedDevice {
  int pid = 0;
  std::string time;
  bool operator==(const StartedDevice& other) const { return pid == other.pid && time == other.time; }
};

class SharedDevice {
 public:
  // Take part; starts a device of `engine` ("model" or "rtl") when none answers at `socket`.
  SharedDevice(const std::string& socket, const std::string& engine);
  // Leave; ends the devices that runs started when no other run takes part and no window of others is served. There is
  // more than one when the socket vanished (a cleaner of /tmp) and a later run found no device there.
  ~SharedDevice();
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

  bool started() const { return started_; }
  const std::string& socket() const { return socket_; }

 private:
  void start(const RunFolder& runs, const std::string& engine);
  bool is_last(const RunFolder* runs) const;
  void end_devices();

  std::string socket_;
  int users_ = -1;  // a shared lock while this run takes part
  bool started_ = false;
  std::vector<StartedDevice> devices_;  // recorded when this run began, for when the record vanishes
};

// Runs `child` in a process of its own (SignalGate::run) while this one takes part in the device at `socket`: the
// device is ended however the child ends, and whatever signal ends both. Throws Interrupted when one came before the
// child.
int run_beside_device(const std::string& socket, const std::string& engine, const std::function<int()>& child);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_DEVICE_PROCESS_H_
