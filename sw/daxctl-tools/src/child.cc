// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"

namespace merapi::cli {
namespace {

const int kPassed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};
const int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

bool children_were_ignored = false;

// A terminal that hangs up tells the session's leader alone.
bool is_for_leader(const signalfd_siginfo& info) {
  return (info.ssi_signo == SIGHUP || info.ssi_signo == SIGCONT) && getsid(0) == getpid();
}

// A terminal's keys reach the child by themselves, since it is in our process group; other signals are passed on.
void pass_on(pid_t child, const signalfd_siginfo& info) {
  if (info.ssi_code != SI_KERNEL || is_for_leader(info)) kill(child, int(info.ssi_signo));
}

}  // namespace

void hear_of_children() {
  struct sigaction action {
  }, before{};
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &before);
  children_were_ignored = before.sa_handler == SIG_IGN;
}

void forget_children() {
  if (children_were_ignored) signal(SIGCHLD, SIG_IGN);
}

int pending_end() {
  sigset_t pending;
  sigpending(&pending);
  for (const int s : kEnding) {
    struct sigaction action {};
    if (sigismember(&pending, s) == 1 && sigaction(s, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) return s;
  }
  return 0;
}

SignalGate::SignalGate() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int s : kPassed) sigaddset(&mask, s);
  sigaddset(&mask, SIGCHLD);
  fd_ = signalfd(-1, &mask, SFD_CLOEXEC);
  if (fd_ < 0) throw system_failure(errno, "signalfd");
  sigprocmask(SIG_BLOCK, &mask, &before_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
}

SignalGate::~SignalGate() { close(fd_); }

void SignalGate::require_quiet() const {
  if (const int s = pending_end(); s != 0)
    throw Interrupted(s,
                      "expected to start a process, found signal " + std::to_string(s) + " before; none was started");
}

int SignalGate::wait_for(pid_t child) const {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) throw system_failure(errno, "cannot wait for process " + std::to_string(child));
    signalfd_siginfo info{};
    if (ended == child) {
      // What came with the end is not for what follows it: a signal from now on hurries the cleaning.
      const timespec none{};
      sigset_t passed;
      sigemptyset(&passed);
      for (const int s : kPassed) sigaddset(&passed, s);
      while (sigtimedwait(&passed, nullptr, &none) > 0) {
      }
      return status;
    }
    if (read(fd_, &info, sizeof info) == ssize_t(sizeof info) && info.ssi_signo != SIGCHLD) pass_on(child, info);
  }
}

int SignalGate::run(const std::function<int()>& child) const {
  require_quiet();
  const pid_t own = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw system_failure(errno, "cannot make a process");
  if (pid != 0) return wait_for(pid);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != own) _exit(kSystem);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  _exit(guarded(child));  // nothing leads back from here, to what the parent cleans up
}

void die_of(int signal_number) {
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

}  // namespace merapi::cli
