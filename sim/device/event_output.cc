// SPDX-License-Identifier: Apache-2.0
#include "sim/device/event_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace merapi::sim {
namespace {

// Flags of the inherited description are other processes', too; what cannot be opened again is written in parts that
// fit when there is room at all.
int open_again() {
  struct stat status {};
  if (fstat(STDOUT_FILENO, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) return -1;
  // A stream that was closed is held by one that cannot be written.
  if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY) return -1;
  return open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool has_room(int fd, int patience) {
  pollfd output = {fd, POLLOUT, 0};
  return poll(&output, 1, patience) > 0;
}

}  // namespace

EventOutput::EventOutput() : fd_(open_again()), own_(fd_ >= 0) {
  if (!own_) fd_ = STDOUT_FILENO;
}

EventOutput::~EventOutput() {
  if (own_) close(fd_);
}

bool EventOutput::put(const std::string& line) {
  if (kept_.size() - sent_ + line.size() > kBound) return false;
  kept_ += line;
  send();
  return true;
}

void EventOutput::forget() {
  kept_.clear();
  sent_ = 0;
}

void EventOutput::send() {
  while (pending() && has_room(fd_, 0)) {
    const ssize_t written = write(fd_, kept_.data() + sent_, std::min(kept_.size() - sent_, size_t{PIPE_BUF}));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0 && errno == EPIPE) return forget();  // nobody will read it
    full_ = written <= 0;
    if (full_) break;
    sent_ += size_t(written);
  }
  if (!pending()) {
    forget();
  } else if (sent_ > kBound / 2) {
    kept_.erase(0, sent_);
    sent_ = 0;
  }
}

void EventOutput::finish(std::chrono::milliseconds patience) {
  for (size_t left = ~size_t{0}; pending() && kept_.size() - sent_ < left && has_room(fd_, int(patience.count()));) {
    left = kept_.size() - sent_;
    send();
  }
}

}  // namespace merapi::sim
