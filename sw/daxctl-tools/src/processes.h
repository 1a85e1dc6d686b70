// SPDX-License-Identifier: Apache-2.0
//
// Who uses which window, as /proc tells: windows are memory files, files with a window's locks, and devdax devices.
#ifndef MERAPI_DAXCTL_TOOLS_PROCESSES_H_
#define MERAPI_DAXCTL_TOOLS_PROCESSES_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/window.h"

namespace merapi::cli {

struct User {
  int pid = 0;
  std::string command;  // first word of its command line, without folders
  std::string role;     // "host", "device" or "user"
  std::string path;     // /proc/PID/fd/N, or map_files/RANGE of a process that has it mapped alone: opens the window
};

// What a file is, under whatever name.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  dev_t rdev = 0;  // of a character device, which has no inode here
  auto operator<=>(const FileId&) const = default;
};
FileId file_id(const struct stat& status);

struct UsedWindow {
  std::string kind;   // "memory" (a file without a name from its start), "removed" (one that lost it), "file" or "dax"
  std::string name;   // name for other verbs, which opens this very window
  std::string label;  // what its users call it: a path of theirs, or the memory file's name
  FileId id;
  uint64_t bytes = 0;
  std::vector<User> users;
};

// First word of a process' command line without folders; empty when it is gone or hidden. A window may
// name any number.
std::string command_of(uint64_t pid);

// Windows that processes have open now; only those of processes that the caller may look into.
std::vector<UsedWindow> used_windows();
// Those that this process has open, with it and their hosts as users: no other process is looked into, which may have
// files whose server or program is dead.
std::vector<UsedWindow> windows_of(int pid);

// Opens it to look only, as one of its users has it open and whatever is at the path that they opened. Throws
// graph::Error.
graph::Window inspect(const UsedWindow& window);

// Processes that have this file or device open or mapped, this one excepted.
std::vector<User> users_of(dev_t device, ino_t inode, dev_t rdev);
std::vector<User> users_of(const std::string& path);
// Has this process the file or device open or mapped? True as well of one that is not ours to look into.
bool may_use(uint64_t pid, const std::string& path);
// Is there a device's lock on this file, of whoever's process in whatever namespace?
bool is_served(const std::string& path);

// The name that libmerapi opens for what the user wrote: "pid:N" becomes the window of that process.
std::string window_name(const std::string& name);

// Device processes and the sockets at which they listen.
struct DeviceProcess {
  int pid = 0;
  std::string command;
  bool seen = true;  // false: another user's, of which nobody tells what follows
  std::vector<std::string> sockets;
  size_t windows = 0;  // served now
};
std::vector<DeviceProcess> device_processes(const std::vector<UsedWindow>& windows);

// By a signal or a debugger. False of a process that is not there.
bool is_stopped(int pid);

// Who listens at a unix socket.
struct Listener {
  bool there = false;
  int pid = 0;           // 0: not known, since so many wait that nobody else may connect
  bool stopped = false;  // by a signal or a debugger: it accepts nobody before it goes on
};
// Connects and says nothing, which devices take for a look.
Listener listener_at(const std::string& path);
bool socket_answers(const std::string& path);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_PROCESSES_H_
