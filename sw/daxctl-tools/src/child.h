// SPDX-License-Identifier: Apache-2.0
//
// A child process beside which this one stays, to clean up when the child has ended, however it ends.
#ifndef MERAPI_DAXCTL_TOOLS_CHILD_H_
#define MERAPI_DAXCTL_TOOLS_CHILD_H_

#include <signal.h>

#include <functional>

#include "cli.h"

namespace merapi::cli {

// A signal that would have ended this process came while it could still clean up. Whoever has done so calls die_of.
class Interrupted : public Failure {
 public:
  Interrupted(int signal_number, const std::string& what) : Failure(kSystem, what), signal_number(signal_number) {}
  const int signal_number;
};

// First in main, before there are children: who ignores SIGCHLD, as the caller of this program may, never hears how
// they ended.
void hear_of_children();

// A signal that waits and would end this process; 0: none does.
int pending_end();

// From then on signals wait, so that nothing that was started stays behind, and SIGPIPE is ignored; to the end of this
// process, which die_of may be.
class SignalGate {
 public:
  SignalGate();
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  // Throws Interrupted when a signal waits that would end this process.
  void require_quiet() const;
  // Forks; `child` runs in the new process with the signals as they were, and its result is that process' status. The
  // new process is ended when this one is killed. Signals are passed on to it. The status is that of waitpid.
  int run(const std::function<int()>& child) const;

 private:
  int wait_for(pid_t child) const;

  sigset_t before_;
  struct sigaction pipe_before_;
  int fd_;
};

// In a child, before it executes what the user named: SIGCHLD as this program found it.
void forget_children();

// End as a child ended: by the same signal, without a second core.
[[noreturn]] void die_of(int signal_number);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_CHILD_H_
