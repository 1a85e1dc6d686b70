// SPDX-License-Identifier: Apache-2.0
//
// merapi run: a Java program with its heap in a window. Passes signals and the exit status through.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "cli.h"
#include "device_process.h"
#include "options.h"
#include "processes.h"

namespace merapi::cli {
namespace {

// As env(1) and timeout(1) have it: the program's own status lies below.
enum RunExit { kOwnFailure = 125, kCannotExecute = 126, kNotFound = 127 };

struct Options {
  std::string device = "model";
  std::string socket;
  std::string window;
  std::string jdk;
  bool verify = false;
  bool dry_run = false;
  std::vector<std::string> command;
};

bool starts_with(const std::string& text, const std::string& head) { return text.rfind(head, 0) == 0; }

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_java(const std::string& program) { return base_name(program) == "java"; }

// The JDK to use for a bare `java`: --jdk, $MERAPI_JDK, or the one built in the same tree as this program.
std::string java_of(const Options& o) {
  std::string folder = o.jdk;
  if (folder.empty())
    if (const char* given = getenv("MERAPI_JDK"); given != nullptr) folder = given;
  if (!folder.empty()) {
    const std::string java = folder + "/bin/java";
    if (access(java.c_str(), X_OK) != 0)
      throw Failure(kOwnFailure, "expected a JDK with bin/java at " + folder + ", found none");
    return java;
  }
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string built = (own / "../../jdk/image/bin/java").lexically_normal().string();
  return !error && access(built.c_str(), X_OK) == 0 ? built : "java";
}

// Does this text, or a file of arguments that it names, choose a collector? One too many found does no harm: the JVM
// then chooses by itself. Two that are named end a JVM ("Multiple garbage collectors selected").
bool names_collector(const std::string& text, int files_deep = 2) {
  static const std::regex collector("[+]Use(Serial|Parallel|Z|Shenandoah|Epsilon|G1)GC");
  if (std::regex_search(text, collector)) return true;
  std::istringstream words(text);
  for (std::string word; files_deep > 0 && words >> word;)
    for (const char* before_path : {"@", "-XX:VMOptionsFile=", "-XX:Flags="}) {
      if (!starts_with(word, before_path)) continue;
      const std::string path = word.substr(strlen(before_path));
      std::error_code error;
      std::string inside;
      // Reading a pipe would take from the program what it is to read.
      if (std::filesystem::is_regular_file(path, error) && read_text(path, &inside) &&
          names_collector(inside, files_deep - 1))
        return true;
    }
  return false;
}

bool collector_is_named(const Options& o) {
  bool named = false;
  for (const char* variable : {"JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"})
    if (const char* options = getenv(variable); options != nullptr) named |= names_collector(options);
  for (const std::string& argument : o.command) named |= names_collector(argument);
  return named;
}

// A JVM chooses G1 by itself on what is_server_class_machine (runtime/os.cpp) takes for a server.
bool jvm_chooses_g1() {
  constexpr uint64_t kServerMemory = uint64_t{1792} << 20;
  cpu_set_t usable;
  const int processors =
      sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : int(sysconf(_SC_NPROCESSORS_ONLN));
  return processors >= 2 && uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE)) >= kServerMemory;
}

std::vector<std::string> jvm_flags(const Options& o, const std::string& window) {
  std::vector<std::string> flags;
  // What a script gives its JVM is not known here, so that a collector is named only where there is need.
  if (!collector_is_named(o) && (is_java(o.command.front()) || !jvm_chooses_g1())) flags.push_back("-XX:+UseG1GC");
  flags.push_back("-XX:MerapiWindow=" + window);
  if (o.verify) flags.push_back("-XX:+MerapiVerify");
  return flags;
}

// Terminal signals reach the program by themselves, since it is in our process group; others are passed on.
void pass_on(pid_t child, const signalfd_siginfo& info) {
  if (info.ssi_code != SI_KERNEL) kill(child, int(info.ssi_signo));
}

const int kPassed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};

class SignalGate {
 public:
  SignalGate() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int s : kPassed) sigaddset(&mask, s);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, &before_);
    fd_ = signalfd(-1, &mask, SFD_CLOEXEC);
    if (fd_ < 0) throw system_failure(errno, "signalfd");
  }
  ~SignalGate() { close(fd_); }
  void open_in_child() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int fd() const { return fd_; }

 private:
  sigset_t before_;
  int fd_;
};

int wait_for(pid_t child, const SignalGate& gate) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    signalfd_siginfo info{};
    if (read(gate.fd(), &info, sizeof info) == ssize_t(sizeof info) && info.ssi_signo != SIGCHLD) pass_on(child, info);
  }
}

int spawn(const std::vector<std::string>& command, const SignalGate& gate) {
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  const pid_t own = getpid();
  const pid_t child = fork();
  if (child < 0) throw system_failure(errno, "cannot start " + command.front());
  if (child == 0) {
    // A killed `merapi run` does not leave its program behind.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != own) _exit(kOwnFailure);
    gate.open_in_child();
    execvp(arguments[0], arguments.data());
    const int code = errno;
    const std::string text = "merapi: cannot run " + command.front() + ": " + strerror(code) + "\n";
    (void)!write(STDERR_FILENO, text.data(), text.size());
    _exit(code == ENOENT ? kNotFound : kCannotExecute);
  }
  return wait_for(child, gate);
}

// End as the program ended: by the same signal, without a second core.
[[noreturn]] void die_of(int signal_number) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(signal_number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal_number);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal_number);
  _exit(128 + signal_number);
}

// One option as JDK_JAVA_OPTIONS takes it: quotes group, and nothing escapes them (JLI_AddArgsFromEnvVar).
std::string quoted(const std::string& option) {
  if (option.find_first_of(" \t\n\v\f\r\"'") == std::string::npos) return option;
  std::string text = "\"";
  for (const char c : option) text += c == '"' ? std::string("\"'\"'\"") : std::string(1, c);
  return text + "\"";
}

// The same window from every folder: a program may change its own.
std::string absolute_window(const std::string& window) {
  for (const std::string kind : {"file:", "dax:", "device:"})
    if (starts_with(window, kind) && window.size() > kind.size())
      return kind + std::filesystem::absolute(window.substr(kind.size())).string();
  return window;
}

std::vector<std::string> complete_command(const Options& o, const std::string& window) {
  std::vector<std::string> command = o.command;
  bool given = false;
  for (const std::string& argument : command) given |= starts_with(argument, "-XX:MerapiWindow=");
  if (given) throw Failure(kOwnFailure, "expected a command without -XX:MerapiWindow, found one; use --window instead");
  const std::vector<std::string> flags = jvm_flags(o, window);
  if (is_java(command.front())) {
    if (command.front() == "java") command.front() = java_of(o);
    command.insert(command.begin() + 1, flags.begin(), flags.end());
    return command;
  }
  // Not java itself: a script, a build tool. The java launcher that it starts reads JDK_JAVA_OPTIONS.
  std::string options;
  if (const char* before = getenv("JDK_JAVA_OPTIONS"); before != nullptr) options = before;
  for (const std::string& flag : flags) options += (options.empty() ? "" : " ") + quoted(flag);
  setenv("JDK_JAVA_OPTIONS", options.c_str(), 1);
  const std::string java = java_of(o);
  if (java != "java") {
    const std::string folder = std::filesystem::path(java).parent_path().string();
    const char* path = getenv("PATH");
    setenv("PATH", (folder + ":" + (path == nullptr ? "/usr/bin:/bin" : path)).c_str(), 1);
    setenv("JAVA_HOME", std::filesystem::path(folder).parent_path().c_str(), 1);
  }
  return command;
}

int run_inside(const Options& o) {
  const bool own_window = o.window.empty();
  const std::string socket = o.socket.empty() ? default_socket() : absolute_socket(o.socket);
  const std::string window = own_window ? "device:" + socket : absolute_window(o.window);
  const std::vector<std::string> command = complete_command(o, window);
  if (o.dry_run) {
    print(json{{"window", window}, {"command", command}, {"device_runs", !own_window || socket_answers(socket)}});
    return kOk;
  }
  SignalGate gate;  // before the device starts: a Ctrl-C meanwhile waits until it can be cleaned up
  int status = 0;
  {
    std::unique_ptr<SharedDevice> device;
    if (own_window) device = std::make_unique<SharedDevice>(socket, o.device);
    status = spawn(command, gate);
  }
  if (WIFSIGNALED(status)) die_of(WTERMSIG(status));
  return WEXITSTATUS(status);
}

int run(const Options& o) {
  try {
    return run_inside(o);
  } catch (const std::exception& e) {
    say(e.what());
    return kOwnFailure;
  }
}

}  // namespace

void add_run(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb =
      cli.verb("run", "Run a Java program with its heap in a window, with a device beside it", [o] { return run(*o); });
  verb.option("--device", o->device, "what traces when no device runs yet").with_default().one_of({"model", "rtl"});
  verb.option("--socket", o->socket, "socket of the device process (default: the user's own)").not_empty();
  verb.option("--window", o->window, "use this window (dax:PATH, file:PATH) and start no device").not_empty();
  verb.option("--jdk", o->jdk, "JDK to use for 'java' (default: $MERAPI_JDK, the tree's own, PATH)").not_empty();
  verb.flag("--verify", o->verify, "let the JVM check every marking cycle (-XX:+MerapiVerify)");
  verb.flag("--dry-run", o->dry_run, "print what would be run as JSON");
  verb.option("command", o->command, "after '--': java and its arguments").required();
  verb.positionals_at_end();
}

}  // namespace merapi::cli
