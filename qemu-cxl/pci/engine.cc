// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

namespace merapi::pci {
namespace {

// An engine that cannot start is tried again this often: long enough not to fill a log, short for a person.
constexpr auto kRestartDelay = std::chrono::milliseconds(200);

}  // namespace

Engine::Engine(std::vector<std::string> command) : command_(std::move(command)), thread_([this] { supervise(); }) {}

Engine::~Engine() {
  {
    std::lock_guard<std::mutex> hold(lock_);
    ending_ = true;
    end();
  }
  changed_.notify_all();
  thread_.join();
}

// A process that has ended is reaped under the same lock, so that its number cannot belong to another one yet.
void Engine::end() {
  if (pid_ > 0) kill(pid_, SIGKILL);
}

void Engine::trace(const std::string& window) {
  {
    std::lock_guard<std::mutex> hold(lock_);
    window_ = window;
    end();
  }
  changed_.notify_all();
}

pid_t Engine::spawn() {
  std::vector<char*> arguments;
  for (const std::string& a : command_) arguments.push_back(const_cast<char*>((a == "{window}" ? window_ : a).c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_t pid = fork();
  if (pid != 0) return pid;
  // The engine goes when the front goes, however that ends. The supervising thread lives as long as the process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Standard output is the front's own (its ready line).
  dup2(STDERR_FILENO, STDOUT_FILENO);
  execvp(arguments[0], arguments.data());
  fprintf(stderr, "merapi-pci-front: cannot start %s: %s\n", arguments[0], strerror(errno));
  _exit(127);
}

void Engine::supervise() {
  for (;;) {
    {
      std::unique_lock<std::mutex> hold(lock_);
      changed_.wait(hold, [this] { return ending_ || !window_.empty(); });
      if (ending_) return;
      pid_ = spawn();
      started_++;
    }
    bool started = pid_ > 0;
    if (started) {
      siginfo_t info{};
      while (waitid(P_PID, id_t(pid_.load()), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
      }
    }
    std::unique_lock<std::mutex> hold(lock_);
    bool killed = false;
    if (started) {
      int status = 0;
      waitpid(pid_, &status, 0);
      killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    pid_ = 0;
    if (ending_) return;
    if (!killed) changed_.wait_for(hold, kRestartDelay, [this] { return ending_; });
  }
}

}  // namespace merapi::pci
