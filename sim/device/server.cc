// SPDX-License-Identifier: Apache-2.0
#include "sim/device/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace merapi::sim {
namespace {

// Connections that cannot be accepted stay in the listener, which would call for it without end.
constexpr std::chrono::milliseconds kAcceptPause{100};

// Hosts taken or refused before signals and windows that have ended get their turn: there may be new ones without end.
constexpr int kHostsAtOnce = 64;

// merapi_accept: hosts wait, none was refused.
bool is_exhaustion(int status) {
  return status == -EMFILE || status == -ENFILE || status == -ENOMEM || status == -ENOBUFS;
}

}  // namespace

Server::Server(const DeviceOptions& options, LogOutput* log) : options_(options), log_(log), printer_(options.json) {
  // Before any thread starts: all of them inherit the mask, so that signals arrive at signal_fd_ alone.
  sigset_t mask;
  sigemptyset(&mask);
  for (int s : {SIGTERM, SIGUSR1}) sigaddset(&mask, s);
  for (int s : {SIGHUP, SIGINT}) {  // nohup has the one ignored, a shell's & without job control the other
    struct sigaction before = {};
    sigaction(s, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaddset(&mask, s);
  }
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (signal_fd_ < 0 || wake_fd_ < 0) throw std::runtime_error(std::string("signalfd or eventfd: ") + strerror(errno));
  log_->set_wake([this] { wake(); });
}

Server::~Server() {
  printer_.output()->finish(kReaderPatience);
  for (auto& c : contexts_) c->stop();
  contexts_.clear();
  merapi_listener_close(listener_);
  log_->set_wake(nullptr);
  if (signal_fd_ >= 0) close(signal_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

bool Server::start(merapi_lease* lease, std::string name) {
  DeviceOptions own = options_;
  own.rtl.waves.file = wave_file(options_.rtl.waves.file, ++begun_);
  if (!own.rtl.waves.file.empty()) spdlog::info("{}: waveform in {}", name, own.rtl.waves.file);
  try {
    // Before the context is made, which ends the lease itself.
    contexts_.reserve(contexts_.size() + 1);
    contexts_.push_back(std::make_unique<Context>(own, lease, std::move(name), [this] { wake(); }));
  } catch (const std::exception& e) {
    spdlog::error("cannot serve another window: {}", e.what());
    merapi_lease_end(lease);
    return false;
  }
  printer_.began(*contexts_.back());
  return true;
}

bool Server::open_windows() {
  merapi_error error{};
  for (const std::string& path : options_.windows) {
    const WindowPart part = part_of(path);
    merapi_lease* lease = nullptr;
    const char* const file = part.path.c_str();
    const int status = options_.size != 0
                           ? merapi_serve_made(file, options_.size, part.offset, part.bytes, &lease, &error)
                           : merapi_serve_part(file, part.offset, part.bytes, &lease, &error);
    if (status < 0) {
      spdlog::error("cannot serve {}: {}", path, error.message);
      return false;
    }
    if (!start(lease, path)) return false;
    printer_.ready(path);
  }
  if (options_.socket.empty()) return true;
  if (merapi_listen(options_.socket.c_str(), &listener_, &error) < 0) {
    spdlog::error("cannot listen at {}: {}", options_.socket, error.message);
    return false;
  }
  printer_.ready(options_.socket);
  return true;
}

void Server::accept_some() {
  for (int i = 0; i < kHostsAtOnce; i++) {
    merapi_error error{};
    merapi_lease* lease = nullptr;
    int status = merapi_accept(listener_, &lease, &error);
    if (is_exhaustion(status)) {
      if (!exhausted_) spdlog::warn("hosts have to wait: {}", error.message);
      exhausted_ = true;
      accept_again_ = Clock::now() + kAcceptPause;
      return;
    }
    if (status == -EAGAIN) {
      exhausted_ = false;
      return;
    }
    if (status < 0) {
      spdlog::warn("a window was refused: {}", error.message);
      continue;
    }
    start(lease, options_.socket + "#" + std::to_string(++accepted_));
  }
}

void Server::wake() const {
  const uint64_t one = 1;
  // Full: it is awake.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

int Server::patience() const {
  if (!exhausted_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(accept_again_ - Clock::now()).count();
  return left > 0 ? int(left) : 0;
}

void Server::reap() {
  uint64_t count;
  while (read(wake_fd_, &count, sizeof count) == sizeof count) {
  }
  std::erase_if(contexts_, [this](const auto& c) {
    if (!c->ended()) return false;
    printer_.ended(*c);
    return true;
  });
}

bool Server::handle_signal() {
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGUSR1) {
      spdlog::info("ending: signal {}", info.ssi_signo);
      return false;
    }
    printer_.status(contexts_);
  }
  return true;
}

int Server::run() {
  if (!open_windows()) return kExitServe;
  for (;;) {
    const int timeout = patience();
    const bool listens = listener_ != nullptr && timeout <= 0;
    LineOutput* const output = printer_.output();
    pollfd fds[5] = {{signal_fd_, POLLIN, 0},
                     {wake_fd_, POLLIN, 0},
                     {listens ? merapi_listener_fd(listener_) : -1, POLLIN, 0},
                     {output->pending() ? output->fd() : -1, POLLOUT, 0},
                     {log_->fd(), POLLOUT, 0}};
    if (poll(fds, 5, listens ? -1 : timeout) < 0 && errno != EINTR) {
      spdlog::error("poll: {}", strerror(errno));
      return kExitServe;
    }
    if (fds[3].revents != 0) output->send();
    if (fds[4].revents != 0) log_->send();
    if (fds[0].revents != 0 && !handle_signal()) {
      printer_.status(contexts_);
      return kExitClean;
    }
    if (fds[1].revents != 0) reap();
    if (fds[2].revents != 0) accept_some();
    if (listener_ == nullptr && contexts_.empty()) {
      spdlog::error("no window is left to serve");
      return kExitNothing;
    }
  }
}

}  // namespace merapi::sim
