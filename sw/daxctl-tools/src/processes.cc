// SPDX-License-Identifier: Apache-2.0
#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "cli.h"
#include "merapi/contract.h"
#include "window.h"

namespace merapi::cli {
namespace {

const char kMemoryFile[] = "/memfd:";
const char kMemoryWindow[] = "/memfd:merapi-window";
const char kDeleted[] = " (deleted)";
const char kSocket[] = "socket:[";

bool is_number(const char* text) {
  return *text != '\0' && std::all_of(text, text + strlen(text), [](unsigned char c) { return isdigit(c) != 0; });
}

struct Descriptor {
  int pid;
  std::string path;    // /proc/PID/fd/N
  std::string target;  // what the link says
  struct stat status;  // of what may be a window
  bool own_device =
      false;  // the kernel calls its file system by another number elsewhere: that in `status` is a subvolume's
};

// Attributes as they are known, without asking a server or a program for them (NFS, FUSE), which may be dead.
bool look(const std::string& path, struct stat* status) {
  struct statx found {};
  if (statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &found) < 0) return false;
  *status = {};
  status->st_dev = makedev(found.stx_dev_major, found.stx_dev_minor);
  status->st_ino = found.stx_ino;
  status->st_rdev = makedev(found.stx_rdev_major, found.stx_rdev_minor);
  status->st_mode = found.stx_mode;
  status->st_nlink = found.stx_nlink;
  status->st_size = off_t(found.stx_size);
  return true;
}

// Mounts of a process' namespace that are not like others.
struct Mounts {
  std::set<int> asking;      // the way to a file asks its server, whatever the attributes are asked for
  std::set<int> subdivided;  // files have the device numbers of subvolumes, which locks do not (btrfs)
};
Mounts mounts_of(int pid) {
  Mounts found;
  std::string text;
  read_text("/proc/" + std::to_string(pid) + "/mountinfo", &text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(" - ");
    if (at == std::string::npos) continue;
    const std::string type = line.substr(at + 3, line.find(' ', at + 3) - at - 3);
    if (type == "nfs" || type == "nfs4" || type == "9p" || type == "afs") found.asking.insert(atoi(line.c_str()));
    if (type == "btrfs") found.subdivided.insert(atoi(line.c_str()));
  }
  return found;
}

// What the kernel says of a descriptor without going to the file. Inodes are told from Linux 5.14 on.
struct DescriptorInfo {
  int mount = -1;
  ino_t inode = 0;  // 0: not told
};
DescriptorInfo descriptor_info(const std::string& process, const std::string& number) {
  DescriptorInfo info;
  std::string text;
  read_text(process + "/fdinfo/" + number, &text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    sscanf(line.c_str(), "mnt_id: %d", &info.mount);
    if (unsigned long long inode; sscanf(line.c_str(), "ino: %llu", &inode) == 1) info.inode = ino_t(inode);
  }
  return info;
}

bool begins_with(const std::string& text, const std::string& head) { return text.rfind(head, 0) == 0; }

// Pipes, sockets, eventfds and their like.
bool has_no_path(const std::string& target) {
  return !begins_with(target, "/") && target.find(":[") != std::string::npos;
}

void each_process(const std::function<void(int)>& visit) {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) throw system_failure(errno, "/proc");
  while (const dirent* entry = readdir(proc))
    if (is_number(entry->d_name) && atoi(entry->d_name) != getpid()) visit(atoi(entry->d_name));
  closedir(proc);
}

// False when the process is not ours to look into. Where the way to a file asks its server, only those with one of
// these inodes are looked at. What has no path has no status.
bool each_descriptor(int pid, const std::set<ino_t>& inodes, const std::function<void(const Descriptor&)>& visit) {
  const std::string process = "/proc/" + std::to_string(pid), folder = process + "/fd";
  DIR* fds = opendir(folder.c_str());
  if (fds == nullptr) return errno != EACCES && errno != EPERM;  // or gone
  const Mounts mounts = mounts_of(pid);
  while (const dirent* entry = readdir(fds)) {
    if (!is_number(entry->d_name)) continue;
    Descriptor d{pid, folder + "/" + entry->d_name, "", {}};
    char target[PATH_MAX];
    const ssize_t length = readlink(d.path.c_str(), target, sizeof target - 1);
    if (length < 0) continue;
    d.target.assign(target, size_t(length));
    if (!has_no_path(d.target)) {
      DescriptorInfo info;
      if (!mounts.asking.empty() || !mounts.subdivided.empty()) info = descriptor_info(process, entry->d_name);
      if (mounts.asking.count(info.mount) != 0 && info.inode != 0 && inodes.count(info.inode) == 0) continue;
      if (!look(d.path, &d.status)) continue;
      d.own_device = mounts.subdivided.count(info.mount) != 0;
    }
    visit(d);
  }
  closedir(fds);
  return true;
}

// Files on which somebody holds a window's lock, of an open file description: byte 0 (host), or those from 1 on or from
// the second byte of a part of the file on (device).
std::set<std::pair<dev_t, ino_t>> locked_files() {
  std::set<std::pair<dev_t, ino_t>> found;
  std::string text;
  read_text("/proc/locks", &text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    unsigned major_number, minor_number;
    unsigned long long inode;
    char end[24];
    unsigned long long start;
    const size_t at = line.find("OFDLCK");
    if (at == std::string::npos) continue;
    if (sscanf(line.c_str() + at, "OFDLCK %*s WRITE %*d %x:%x:%llu %llu %23s", &major_number, &minor_number, &inode,
               &start, end) == 5 &&
        (start == 0 ? std::string(end) == "0" : start % MERAPI_MAPPED_ALIGNMENT == 1))
      found.insert({makedev(major_number, minor_number), ino_t(inode)});
  }
  return found;
}

bool is_dax(const struct stat& status) {
  if (!S_ISCHR(status.st_mode)) return false;
  char target[PATH_MAX];
  const std::string link = "/sys/dev/char/" + std::to_string(major(status.st_rdev)) + ":" +
                           std::to_string(minor(status.st_rdev)) + "/subsystem";
  const ssize_t length = readlink(link.c_str(), target, sizeof target - 1);
  if (length < 0) return false;
  const std::string text(target, size_t(length));
  return text.size() >= 4 && text.compare(text.size() - 4, 4, "/dax") == 0;
}

// The first line and the device's identity of a window, without a mapping (devdax has no read: left out there).
bool read_identity(const std::string& path, uint64_t* host, uint64_t* device) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  merapi_identity identity{};
  merapi_device_identity answered{};
  const bool fine = pread(fd, &identity, sizeof identity, MERAPI_IDENTITY_OFFSET) == ssize_t(sizeof identity) &&
                    pread(fd, &answered, sizeof answered, MERAPI_DEVICE_IDENTITY_OFFSET) == ssize_t(sizeof answered) &&
                    identity.magic == MERAPI_MAGIC;
  close(fd);
  *host = identity.host_pid;
  *device = answered.magic == MERAPI_DEVICE_MAGIC ? answered.pid : 0;
  return fine;
}

// Is this what is at the path here? The path is one of another process, of another mount namespace perhaps.
bool is_at(const std::string& path, const FileId& id) {
  struct stat status {};
  return look(path, &status) && file_id(status) == id;
}

std::string without_deleted(const std::string& target) {
  const size_t length = strlen(kDeleted);
  const bool marked = target.size() > length && target.compare(target.size() - length, length, kDeleted) == 0;
  return marked ? target.substr(0, target.size() - length) : target;
}

// What the link and the file itself say.
void describe(const Descriptor& d, UsedWindow* window) {
  const bool dax = S_ISCHR(d.status.st_mode);
  const bool memory = !dax && d.status.st_nlink == 0 && begins_with(d.target, kMemoryFile);
  const std::string transport = dax ? "dax:" : "file:";
  // A name that means the window here is better than one that ends with the process.
  const bool named = is_at(d.target, window->id);
  if (!window->name.empty() && !named) return;
  window->kind = dax ? "dax" : memory ? "memory" : d.status.st_nlink == 0 ? "removed" : "file";
  window->name = transport + (named ? d.target : d.path);
  window->label = named ? d.target : without_deleted(memory ? d.target.substr(strlen(kMemoryFile)) : d.target);
}

// A mapping of this file or node, by which a process has it though its descriptor is closed: /proc/PID/map_files/RANGE;
// empty when there is none.
std::string mapping_of(int pid, dev_t device, ino_t inode) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/";
  std::string text;
  read_text(folder + "maps", &text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    unsigned major_number, minor_number;
    unsigned long long number;
    if (sscanf(line.c_str(), "%*s %*s %*s %x:%x %llu", &major_number, &minor_number, &number) == 3 &&
        makedev(major_number, minor_number) == device && number == inode)
      return folder + "map_files/" + line.substr(0, line.find(' '));
  }
  return "";
}

bool is_device_command(const std::string& command) { return begins_with(command, "merapi-device"); }

}  // namespace

bool is_stopped(int pid) {
  std::string text;  // the state is behind the command's last parenthesis
  read_text("/proc/" + std::to_string(pid) + "/stat", &text);
  const size_t at = text.rfind(") ");
  return at != std::string::npos && at + 2 < text.size() && (text[at + 2] == 'T' || text[at + 2] == 't');
}

std::string command_of(uint64_t pid) {
  std::string text;
  if (pid == 0 || !read_text("/proc/" + std::to_string(pid) + "/cmdline", &text)) return "";
  text = text.substr(0, text.find('\0'));
  return text.substr(text.rfind('/') + 1);
}

FileId file_id(const struct stat& status) {
  if (S_ISCHR(status.st_mode)) return {0, 0, status.st_rdev};
  return {status.st_dev, status.st_ino, 0};
}

namespace {

// Looks for windows process by process.
class WindowSearch {
 public:
  WindowSearch() {
    for (const auto& [device, inode] : locked_) inodes_.insert(inode);
  }
  // Returns the hosts that the windows of the process name.
  std::set<uint64_t> look_into(int pid) {
    std::set<uint64_t> hosts;
    std::set<FileId> seen;  // a process is one user, however often it has the window open
    each_descriptor(pid, inodes_, [&](const Descriptor& d) {
      const bool memory = begins_with(d.target, kMemoryWindow) && S_ISREG(d.status.st_mode) && d.status.st_nlink == 0;
      const bool dax = is_dax(d.status);
      const bool locked =
          d.own_device ? inodes_.count(d.status.st_ino) != 0 : locked_.count({d.status.st_dev, d.status.st_ino}) != 0;
      const bool file = !memory && S_ISREG(d.status.st_mode) && locked;
      if (!memory && !dax && !file) return;
      const FileId id = file_id(d.status);
      if (!seen.insert(id).second) return;
      uint64_t host = 0, device = 0;
      const bool is_window = dax || read_identity(d.path, &host, &device);
      if (file && !is_window) return;  // somebody else's locks
      hosts.insert(host);
      UsedWindow& window = found_[id];
      window.id = id;
      window.bytes = uint64_t(d.status.st_size);
      describe(d, &window);
      const std::string command = command_of(uint64_t(pid));
      const bool is_device = is_device_command(command) || uint64_t(pid) == device;
      window.users.push_back({pid, command, is_device ? "device" : uint64_t(pid) == host ? "host" : "user", d.path});
    });
    return hosts;
  }
  std::vector<UsedWindow> found() && {
    std::vector<UsedWindow> windows;
    for (auto& [id, window] : found_) windows.push_back(std::move(window));
    return windows;
  }

 private:
  const std::set<std::pair<dev_t, ino_t>> locked_ = locked_files();
  std::set<ino_t> inodes_;
  std::map<FileId, UsedWindow> found_;
};

}  // namespace

std::vector<UsedWindow> used_windows() {
  WindowSearch search;
  each_process([&](int pid) { search.look_into(pid); });
  return std::move(search).found();
}

std::vector<UsedWindow> windows_of(int pid) {
  WindowSearch search;
  for (const uint64_t host : search.look_into(pid))
    if (host != 0 && host <= INT_MAX && int(host) != pid && int(host) != getpid()) search.look_into(int(host));
  std::vector<UsedWindow> windows = std::move(search).found();
  std::erase_if(windows, [pid](const UsedWindow& window) {
    return std::none_of(window.users.begin(), window.users.end(), [pid](const User& user) { return user.pid == pid; });
  });
  return windows;
}

graph::Window inspect(const UsedWindow& window) {
  const std::string transport = window.kind == "dax" ? "dax:" : "file:";
  std::string problem = "expected a process that has " + window.name + " open, found none";
  int code = -ENOENT;
  for (const User& user : window.users) {
    try {
      graph::Window opened = look_into(transport + user.path);
      // Looked at afterwards: a process that has ended meanwhile may have had its number taken by another.
      if (is_at(user.path, window.id)) return opened;
    } catch (const graph::Error& e) {
      problem = e.what();
      code = e.code;
    }
  }
  throw graph::Error(code, problem);
}

namespace {

// The path by which a process has this file or device; empty when it has not. `seen`: false when it is not ours to look
// into.
std::string path_in(int pid, dev_t device, ino_t inode, dev_t rdev, bool* seen) {
  std::string path;
  *seen = each_descriptor(pid, {inode}, [&](const Descriptor& d) {
    const bool same = S_ISCHR(d.status.st_mode) ? rdev != 0 && d.status.st_rdev == rdev
                                                : d.status.st_dev == device && d.status.st_ino == inode;
    if (same && path.empty()) path = d.path;
  });
  return path.empty() ? mapping_of(pid, device, inode) : path;
}

}  // namespace

std::vector<User> users_of(dev_t device, ino_t inode, dev_t rdev) {
  std::vector<User> users;
  each_process([&](int pid) {
    bool seen;
    const std::string path = path_in(pid, device, inode, rdev, &seen);
    if (path.empty()) return;
    const std::string command = command_of(uint64_t(pid));
    users.push_back({pid, command, is_device_command(command) ? "device" : "user", path});
  });
  return users;
}

std::vector<User> users_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) < 0) return {};
  return users_of(status.st_dev, status.st_ino, S_ISCHR(status.st_mode) ? status.st_rdev : 0);
}

bool may_use(uint64_t pid, const std::string& path) {
  struct stat status {};
  if (pid == 0 || pid > INT_MAX || stat(path.c_str(), &status) < 0) return false;
  bool seen;
  const dev_t rdev = S_ISCHR(status.st_mode) ? status.st_rdev : 0;
  return !path_in(int(pid), status.st_dev, status.st_ino, rdev, &seen).empty() || !seen;
}

bool is_served(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  // Byte 0 is a host's, all others are devices' (locked_files).
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 1;
  const bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(fd);
  return held;
}

std::string window_name(const std::string& name) {
  if (name.rfind("pid:", 0) != 0) return name;
  if (!is_number(name.c_str() + 4)) throw Failure(kUsage, "expected a process id after 'pid:', found '" + name + "'");
  // A number too large for a process is none's, not that of another.
  const long long pid = strtoll(name.c_str() + 4, nullptr, 10);
  std::string found;
  for (const UsedWindow& window : used_windows()) {
    for (const User& user : window.users) {
      if (user.pid != pid) continue;
      if (!found.empty())
        throw Failure(kUsage, "expected one window in process " + name.substr(4) +
                                  ", found several; use a name that 'merapi list' shows");
      found = (window.kind == "dax" ? "dax:" : "file:") + user.path;
    }
  }
  if (found.empty())
    throw Failure(kAbsent, "expected a process with a window at pid " + name.substr(4) +
                               ", found none; 'merapi list' shows those you may see");
  return found;
}

namespace {

// The paths at which the sockets of a process' network listen, by their inodes. A socket may have any name, also one
// with line ends, of which the kernel makes lines of its own: an inode that several lines have, and a name that lines
// follow which are none of the kernel's, is left out.
std::map<std::string, std::string> listening_sockets(int pid) {
  struct Line {
    int count = 0;
    bool listens = false;
    std::string path;
  };
  std::map<std::string, Line> all;
  std::string text, last;
  read_text("/proc/" + std::to_string(pid) + "/net/unix", &text);
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // headings
  while (std::getline(lines, line)) {
    // Num RefCount Protocol Flags Type St Inode Path; flag 0x10000 is SO_ACCEPTCON.
    unsigned long long number, inode;
    unsigned references, protocol, flags, type, state;
    int end = 0;
    if (sscanf(line.c_str(), "%llx: %x %x %x %x %x %llu%n", &number, &references, &protocol, &flags, &type, &state,
               &inode, &end) != 7 ||
        (line[size_t(end)] != '\0' && line[size_t(end)] != ' ')) {
      all[last].count++;
      continue;
    }
    last = std::to_string(inode);
    Line& found = all[last];
    found.count++;
    found.listens = flags == 0x10000 && line[size_t(end)] == ' ';
    if (found.listens) found.path = line.substr(size_t(end) + 1);
  }
  std::map<std::string, std::string> listening;
  for (const auto& [inode, found] : all)
    if (found.count == 1 && found.listens) listening[inode] = found.path;
  return listening;
}

}  // namespace

std::vector<DeviceProcess> device_processes(const std::vector<UsedWindow>& windows) {
  std::vector<DeviceProcess> found;
  each_process([&](int pid) {
    DeviceProcess process{pid, command_of(uint64_t(pid)), true, {}, 0};
    if (!is_device_command(process.command)) return;
    const std::map<std::string, std::string> listening = listening_sockets(pid);
    process.seen = each_descriptor(pid, {}, [&](const Descriptor& d) {
      if (!begins_with(d.target, kSocket)) return;
      const auto socket = listening.find(d.target.substr(strlen(kSocket), d.target.size() - strlen(kSocket) - 1));
      if (socket != listening.end()) process.sockets.push_back(socket->second);
    });
    for (const UsedWindow& window : windows)
      for (const User& user : window.users) process.windows += user.pid == pid;
    found.push_back(process);
  });
  return found;
}

Listener listener_at(const std::string& path) {
  Listener found;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return found;
  memcpy(address.sun_path, path.c_str(), path.size());
  const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return found;
  if (connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    found.there = true;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) found.pid = peer.pid;
  } else {
    found.there = errno == EAGAIN;
  }
  close(probe);
  found.stopped = found.pid != 0 && is_stopped(found.pid);
  return found;
}

bool socket_answers(const std::string& path) { return listener_at(path).there; }

}  // namespace merapi::cli
