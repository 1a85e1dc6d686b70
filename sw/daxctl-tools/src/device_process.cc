// SPDX-License-Identifier: Apache-2.0
#include "device_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>

#include "child.h"
#include "cli.h"
#include "processes.h"
#include "run_folder.h"

namespace merapi::cli {
namespace {

constexpr int kReadyMilliseconds = 10000;
constexpr int kEndMilliseconds = 5000;
constexpr useconds_t kTurnMicroseconds = 10000;
// A device gives a window back shortly after its host has ended.
constexpr int kGiveBackMilliseconds = 2000;
// In the folder of the runs: held while one has its turn; held, shared, by each run; the devices that runs started and
// that live, a line each, "PID TIME"; what the latest device said.
constexpr char kTurnFile[] = "turn", kUsersFile[] = "users", kDevicesFile[] = "devices", kLogFile[] = "log";

// Of the folder of a socket that everybody knows beforehand, unlike one that the user names.
constexpr char kWhyOwn[] =
    "whoever listens in it would be given your heap; make it so (chmod go-w), or name a socket elsewhere with "
    "--socket or MERAPI_SOCKET";

// Held while a device is looked for, started or ended: runs do so one at a time. Throws Interrupted when a signal that
// would end this process comes before its turn.
class Turn {
 public:
  explicit Turn(const RunFolder& folder) {
    const std::string path = folder.path_of(kTurnFile);
    fd_ = folder.open_file(kTurnFile, O_RDWR | O_CREAT);
    if (fd_ < 0) throw system_failure(errno, "cannot make " + path);
    while (flock(fd_, LOCK_EX | LOCK_NB) < 0) {
      const int code = errno, signal_number = pending_end();
      if (code == EINTR || (code == EWOULDBLOCK && signal_number == 0)) {
        usleep(kTurnMicroseconds);
        continue;
      }
      close(fd_);
      if (code != EWOULDBLOCK) throw system_failure(code, "cannot lock " + path);
      throw Interrupted(signal_number, "expected a turn at " + path + ", found that another process holds it");
    }
  }
  ~Turn() { close(fd_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int fd_;
};

// Of a process that lives; empty otherwise.
std::string start_time(int pid) {
  std::string text;
  if (!read_text("/proc/" + std::to_string(pid) + "/stat", &text)) return "";
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; i++)
    if (i == 3 && field == "Z") return "";
  return field;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Two names of one socket, the first as the command line of process `pid` has it.
bool same_socket(int pid, const std::string& named, const std::string& socket) {
  if (named == socket) return true;
  const std::filesystem::path folder = "/proc/" + std::to_string(pid) + "/cwd";
  std::error_code error;
  const auto theirs = std::filesystem::weakly_canonical(folder / named, error);
  return !error && theirs == std::filesystem::weakly_canonical(socket, error) && !error;
}

// Is the process a merapi-device (or the program given in its place) for this socket? Nothing else is ever signalled.
bool serves(int pid, const std::string& socket) {
  std::string text;
  if (!read_text("/proc/" + std::to_string(pid) + "/cmdline", &text)) return false;
  std::istringstream words(text);
  const char* given = getenv("MERAPI_DEVICE_PROGRAM");
  bool device = false;
  for (std::string word, before; std::getline(words, word, '\0'); before = word) {
    if (before == "--socket") return device && same_socket(pid, word, socket);
    const std::string name = file_name(word);
    device |= name.rfind("merapi-device", 0) == 0 || (given != nullptr && *given != '\0' && name == file_name(given));
  }
  return false;
}

void keep_living(const std::string& socket, std::vector<StartedDevice>* devices) {
  const auto gone = [&](const StartedDevice& d) { return start_time(d.pid) != d.time || !serves(d.pid, socket); };
  devices->erase(std::remove_if(devices->begin(), devices->end(), gone), devices->end());
}

// The devices that runs started for this socket and that live.
std::vector<StartedDevice> recorded_devices(const RunFolder& folder, const std::string& socket) {
  std::vector<StartedDevice> devices;
  std::istringstream lines(folder.read_file(kDevicesFile));
  for (std::string line; std::getline(lines, line);) {
    StartedDevice d;
    if (std::istringstream(line) >> d.pid >> d.time && d.pid > 1) devices.push_back(d);
  }
  keep_living(socket, &devices);
  return devices;
}

void record_devices(const RunFolder& folder, const std::vector<StartedDevice>& devices) {
  if (devices.empty()) {
    folder.remove_file(kDevicesFile);
    return;
  }
  std::string text;
  for (const StartedDevice& d : devices) text += std::to_string(d.pid) + " " + d.time + "\n";
  folder.write_file(kDevicesFile, text);
}

// Windows that the device serves besides those of runs that have ended. A window whose host is gone is given back after
// a moment; one whose host the caller may not look at is told from it only when that moment has passed.
size_t windows_of_others(int device) {
  for (int waited = 0;; waited += 10) {
    size_t served = 0, in_use = 0;
    for (const UsedWindow& window : windows_of(device)) {
      served++;
      in_use += std::any_of(window.users.begin(), window.users.end(),
                            [](const User& user) { return user.role == "host"; });  // not one who looks on
    }
    if (served == in_use || waited >= kGiveBackMilliseconds) return served;
    usleep(10000);
  }
}

void end_device(int pid) {
  kill(pid, SIGTERM);
  for (int waited = 0; waited < kEndMilliseconds && !start_time(pid).empty(); waited += 10) {
    usleep(10000);
  }
  waitpid(pid, nullptr, WNOHANG);  // a child of ours is buried here
  if (!start_time(pid).empty()) {
    say("the device process " + std::to_string(pid) + " did not end after SIGTERM; killed it");
    kill(pid, SIGKILL);
  }
}

// What the child said until the first line end or its end.
std::string first_line(int fd, int milliseconds) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (text.find('\n') == std::string::npos) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd ready{fd, POLLIN, 0};
    if (left <= 0 || poll(&ready, 1, int(left)) == 0) break;
    char block[256];
    const ssize_t got = read(fd, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(block, size_t(got));
  }
  return text;
}

// In a child, before it executes a program that outlives the caller: nobody's lock or pipe stays with it.
void keep_standard_streams_only() {
  constexpr unsigned kFirst = STDERR_FILENO + 1;
#ifdef CLOSE_RANGE_CLOEXEC
  if (close_range(kFirst, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
#endif
  // A kernel before 5.11.
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error))
    if (const int fd = atoi(entry.path().filename().c_str()); fd >= int(kFirst)) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

}  // namespace

std::string absolute_socket(const std::string& socket) {
  const std::string path = absolute_path(socket);
  return path.size() < sizeof(sockaddr_un::sun_path) ? path : socket;
}

std::string unnamed_socket() {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  // A session's folder goes with it, and su keeps the name of another user's, where root may write.
  if (runtime != nullptr && *runtime == '/' && stat(runtime, &status) == 0 && S_ISDIR(status.st_mode) &&
      status.st_uid == geteuid() && access(runtime, W_OK | X_OK) == 0)
    return std::string(runtime) + "/merapi/device.sock";
  return "/tmp/merapi-" + std::to_string(geteuid()) + "/device.sock";
}

std::string default_socket() {
  const char* given = getenv("MERAPI_SOCKET");
  return given != nullptr && *given != '\0' ? absolute_socket(given) : unnamed_socket();
}

std::string why_no_socket(const std::string& path) {
  constexpr size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMost)
    return "expected a socket path of at most " + std::to_string(kMost) + " characters, found " +
           std::to_string(path.size());
  struct stat status {};
  if (lstat(path.c_str(), &status) < 0 || S_ISSOCK(status.st_mode)) return {};
  return "expected a socket or nothing at " + path + ", found another kind of file";
}

std::string why_no_run(const std::string& socket) {
  const std::string folder = std::filesystem::path(socket).parent_path().string();
  const std::string why = socket == unnamed_socket() ? why_no_own_folder(folder, kWhyOwn)
                          : folder.empty()           ? ""
                                                     : why_no_folder(folder);
  if (!why.empty()) return why;
  // In a folder that is still to be made there is none of runs.
  return folder.empty() || access(folder.c_str(), F_OK) == 0 ? RunFolder::why_none(socket) : "";
}

std::string find_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = (own.parent_path() / name).string();
  return !error && access(beside.c_str(), X_OK) == 0 ? beside : find_in_path(name);
}

std::string find_in_path(const std::string& name) {
  std::error_code error;
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate, error)) return candidate;
  }
  return "";
}

std::string device_program() {
  if (const char* given = getenv("MERAPI_DEVICE_PROGRAM"); given != nullptr && *given != '\0') {
    std::error_code error;
    if (access(given, X_OK) != 0 || !std::filesystem::is_regular_file(given, error))
      throw Failure(kAbsent, "expected merapi-device's path in MERAPI_DEVICE_PROGRAM, found " + std::string(given) +
                                 ", which is no program that can be run");
    return given;
  }
  const std::string found = find_program("merapi-device");
  if (found.empty())
    throw Failure(kAbsent,
                  "expected merapi-device beside merapi or in PATH, found none; install it or set "
                  "MERAPI_DEVICE_PROGRAM to its path");
  return found;
}

SharedDevice::SharedDevice(const std::string& socket, const std::string& engine) : socket_(socket) {
  // Before anything is made beside it.
  if (const std::string why = why_no_socket(socket); !why.empty() && !socket_answers(socket))
    throw Failure(kAbsent, why + "; name another with --socket or MERAPI_SOCKET");
  const std::string folder = std::filesystem::path(socket).parent_path().string();
  if (socket == unnamed_socket()) {
    close(open_own_folder(folder, kWhyOwn));
  } else if (!folder.empty()) {
    make_folder(folder);
  }
  const RunFolder runs(socket);
  const Turn turn(runs);
  users_ = runs.open_file(kUsersFile, O_RDWR | O_CREAT);
  if (users_ < 0 || flock(users_, LOCK_SH) < 0) {
    const int code = errno;
    if (users_ >= 0) close(users_);
    throw system_failure(code, "cannot lock " + runs.path_of(kUsersFile));
  }
  try {
    devices_ = recorded_devices(runs, socket);
    if (!socket_answers(socket)) {
      if (access(socket.c_str(), W_OK) < 0 && errno == EACCES)
        throw Failure(kDenied, "expected a device that may be used at " + socket +
                                   ", found another user's socket: Permission denied; name another with --socket");
      start(runs, engine);
    }
  } catch (...) {
    close(users_);
    throw;
  }
}

void SharedDevice::start(const RunFolder& runs, const std::string& engine) {
  const std::string program = absolute_path(device_program()), option = "--" + engine;
  // What the user named may go by the folder: a script in the device's place, a socket whose absolute path is too long.
  const char* const given = getenv("MERAPI_DEVICE_PROGRAM");
  const bool elsewhere = (given == nullptr || *given == '\0') && socket_.front() == '/';
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) < 0) throw system_failure(errno, "pipe");
  const int log_fd = runs.open_file(kLogFile, O_WRONLY | O_CREAT | O_TRUNC);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t pid = fork();
  if (pid == 0) {
    // A process group of its own: Ctrl-C ends the program first, and other runs may go on with this device. No session:
    // where the scheduler shares processors among sessions (autogroup), one that mostly sleeps waits long for its turn.
    setpgid(0, 0);
    dup2(nothing, STDIN_FILENO);
    dup2(pipe_fds[1], STDOUT_FILENO);
    dup2(log_fd >= 0 ? log_fd : nothing, STDERR_FILENO);
    keep_standard_streams_only();
    if (elsewhere && chdir("/") < 0) _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_IGN);
    execl(program.c_str(), program.c_str(), option.c_str(), "--socket", socket_.c_str(), nullptr);
    _exit(errno == ENOENT ? 127 : 126);
  }
  const int fork_error = errno;
  close(pipe_fds[1]);
  if (log_fd >= 0) close(log_fd);
  if (nothing >= 0) close(nothing);
  const std::vector<StartedDevice> before = devices_;
  std::string said;
  try {
    if (pid < 0) throw system_failure(fork_error, "cannot start " + program);
    // Before it is ready: a run that is killed meanwhile leaves a device that the next one ends.
    devices_.push_back({pid, start_time(pid)});
    record_devices(runs, devices_);
    said = first_line(pipe_fds[0], kReadyMilliseconds);
  } catch (...) {
    close(pipe_fds[0]);
    if (pid > 0) end_device(pid);
    throw;
  }
  close(pipe_fds[0]);
  if (said.rfind("ready ", 0) != 0) {
    kill(pid, SIGKILL);
    int status = 0;
    const bool ended = waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    record_devices(runs, before);
    const std::string detail = runs.read_file(kLogFile);
    throw Failure(kAbsent,
                  "expected " + program + " " + option + " to be ready at " + socket_ + ", found that it " +
                      (ended ? "ended with status " + std::to_string(WEXITSTATUS(status)) : "said nothing in time") +
                      (detail.empty() ? "" : ":\n" + detail));
  }
  started_ = true;
}

// Alone when nobody else holds the shared lock. A run that was killed held it no longer than it lived. When the file
// was removed meanwhile, later runs hold that of another file of the same name: in `runs`, null when there can be none.
bool SharedDevice::is_last(const RunFolder* runs) const {
  if (flock(users_, LOCK_EX | LOCK_NB) != 0) return false;
  const int named = runs == nullptr ? -1 : runs->open_file(kUsersFile, O_RDWR);
  if (named < 0) return true;
  struct stat ours {
  }, theirs{};
  const bool same = fstat(users_, &ours) == 0 && fstat(named, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
                    ours.st_ino == theirs.st_ino;
  const bool last = same || flock(named, LOCK_EX | LOCK_NB) == 0;
  close(named);
  return last;
}

void SharedDevice::end_devices() {
  // Without the folder there is no later run to take turns with, and nothing to record in.
  const std::string folder = std::filesystem::path(socket_).parent_path().string();
  std::optional<RunFolder> runs;
  std::optional<Turn> turn;
  std::vector<StartedDevice> devices, left;
  if (folder.empty() || std::filesystem::is_directory(folder)) {
    turn.emplace(runs.emplace(socket_));
    devices = recorded_devices(*runs, socket_);
  }
  const size_t recorded = devices.size();
  keep_living(socket_, &devices_);
  for (const StartedDevice& d : devices_)
    if (std::find(devices.begin(), devices.end(), d) == devices.end()) devices.push_back(d);
  if (!is_last(runs ? &*runs : nullptr)) {
    if (runs && devices.size() != recorded) record_devices(*runs, devices);
    return;
  }
  for (const StartedDevice& d : devices) {
    const size_t served = windows_of_others(d.pid);
    if (served == 0) {
      end_device(d.pid);
      continue;
    }
    const std::string pid = std::to_string(d.pid), windows = std::to_string(served) + " ";
    say(is_stopped(d.pid) ? "left the device process " + pid + ", which is stopped and holds " + windows +
                                "window(s); kill -CONT " + pid + " wakes it, kill -KILL " + pid + " ends it"
                          : "left the device process " + pid + " running: it serves " + windows + "other window(s)");
    left.push_back(d);
  }
  if (!runs || devices.empty()) return;
  record_devices(*runs, left);
  if (left.empty()) runs->remove_file(kLogFile);
}

SharedDevice::~SharedDevice() {
  try {
    end_devices();
  } catch (const std::exception& e) {
    say(e.what());
  }
  close(users_);
}

int run_beside_device(const std::string& socket, const std::string& engine, const std::function<int()>& child) {
  const SignalGate gate;  // before the device starts: a Ctrl-C meanwhile waits until it can be cleaned up
  const SharedDevice device(socket, engine);
  return gate.run(child);
}

}  // namespace merapi::cli
