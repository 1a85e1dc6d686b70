// SPDX-License-Identifier: Apache-2.0
#include "sim/device/line_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace merapi::sim {
namespace {

// Flags of the inherited description are other processes', too; what cannot be opened again is written in parts that
// fit when there is room at all.
int open_again(int stream) {
  struct stat status {};
  if (fstat(stream, &status) != 0 || !(S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) return -1;
  // A stream that was closed is held by one that cannot be written.
  if ((fcntl(stream, F_GETFL) & O_ACCMODE) == O_RDONLY) return -1;
  return open(("/proc/self/fd/" + std::to_string(stream)).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool has_room(int fd, int patience) {
  pollfd output = {fd, POLLOUT, 0};
  return poll(&output, 1, patience) > 0;
}

}  // namespace

LineOutput::LineOutput(int stream, Lost lost) : lost_line_(std::move(lost)), fd_(open_again(stream)), own_(fd_ >= 0) {
  if (!own_) fd_ = stream;
}

LineOutput::~LineOutput() {
  if (own_) close(fd_);
}

void LineOutput::put(const std::string& line) {
  if (lost_ != 0 && keep(lost_line_(lost_))) lost_ = 0;
  if (lost_ != 0 || !keep(line)) lost_++;
}

bool LineOutput::keep(const std::string& line) {
  if (kept_.size() - sent_ + line.size() > kBound) return false;
  kept_ += line;
  send();
  return true;
}

void LineOutput::forget() {
  kept_.clear();
  sent_ = 0;
}

// What a pipe takes as one; whole lines, since another stream may go to the same place.
size_t LineOutput::piece() const {
  const size_t left = kept_.size() - sent_;
  if (left <= PIPE_BUF) return left;
  const size_t end = kept_.rfind('\n', sent_ + PIPE_BUF - 1);
  return end == std::string::npos || end < sent_ ? size_t{PIPE_BUF} : end + 1 - sent_;
}

void LineOutput::send() {
  while (pending() && has_room(fd_, 0)) {
    const ssize_t written = write(fd_, kept_.data() + sent_, piece());
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

void LineOutput::finish(std::chrono::milliseconds patience) {
  for (size_t left = ~size_t{0}; pending() && kept_.size() - sent_ < left && has_room(fd_, int(patience.count()));) {
    left = kept_.size() - sent_;
    send();
  }
}

}  // namespace merapi::sim
