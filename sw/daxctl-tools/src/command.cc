// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

namespace merapi::cli {

std::string command_text(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return text;
}

CommandResult run_command(const std::vector<std::string>& command) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0) throw system_failure(errno, "pipe");
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw system_failure(errno, "cannot start " + command.front());
  if (pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    const std::string text = command.front() + ": " + strerror(errno);
    (void)!write(STDERR_FILENO, text.data(), text.size());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  CommandResult result;
  pollfd streams[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* texts[2] = {&result.out, &result.err};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (poll(streams, 2, -1) < 0 && errno != EINTR) throw system_failure(errno, "poll");
    for (int i = 0; i < 2; i++) {
      if (streams[i].fd < 0 || streams[i].revents == 0) continue;
      char block[4096];
      const ssize_t got = read(streams[i].fd, block, sizeof block);
      if (got < 0 && errno == EINTR) continue;
      if (got > 0) {
        texts[i]->append(block, size_t(got));
      } else {
        close(streams[i].fd);
        streams[i].fd = -1;
      }
    }
  }
  int status = 0;
  pid_t ended;
  while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (ended < 0) throw system_failure(errno, "cannot learn how " + command.front() + " ended");
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  while (!result.err.empty() && result.err.back() == '\n') result.err.pop_back();
  return result;
}

}  // namespace merapi::cli
