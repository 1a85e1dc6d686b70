// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/private_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <stdexcept>

namespace merapi::sim {

PrivateDevice::PrivateDevice(uint64_t bytes, const DeviceOptions& options) : options_(options) {
  const char* temporary = getenv("TMPDIR");
  std::string folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : temporary != nullptr ? temporary : "/tmp";
  path_ = folder + "/merapi-replay-XXXXXX";
  int fd = mkstemp(path_.data());
  if (fd < 0) throw std::runtime_error("cannot make a file in " + folder + ": " + strerror(errno));
  bool sized = ftruncate(fd, off_t(bytes)) == 0;
  int code = errno;
  close(fd);
  merapi_error error{};
  merapi_lease* lease = nullptr;
  if (!sized) {
    unlink(path_.c_str());
    throw std::runtime_error("cannot make " + path_ + " " + std::to_string(bytes) + " bytes large: " + strerror(code));
  }
  if (merapi_serve(path_.c_str(), &lease, &error) < 0) {
    unlink(path_.c_str());
    throw std::runtime_error(error.message);
  }
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  context_ = std::make_unique<Context>(options_, lease, path_, wake_fd_);
}

PrivateDevice::~PrivateDevice() {
  context_.reset();
  if (wake_fd_ >= 0) close(wake_fd_);
  unlink(path_.c_str());
}

DeviceOptions private_model() {
  DeviceOptions options;
  options.engine = "model";
  options.common.pid = uint64_t(getpid());
  return options;
}

graph::Window window_for(const graph::Image& image, const std::string& name) {
  const merapi_geometry geometry = image.geometry();
  return graph::Window(name, &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE);
}

}  // namespace merapi::sim
