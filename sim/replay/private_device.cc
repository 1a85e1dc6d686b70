// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/private_device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

#include "sim/replay/room.h"

namespace merapi::sim {
namespace {

constexpr const char* kName = "merapi-replay";

// Not executable, where the kernel knows that.
int make_memory_file() {
#ifdef MFD_NOEXEC_SEAL
  if (int fd = memfd_create(kName, MFD_CLOEXEC | MFD_NOEXEC_SEAL); fd >= 0 || errno != EINVAL) return fd;
#endif
  return memfd_create(kName, MFD_CLOEXEC);
}

}  // namespace

PrivateDevice::PrivateDevice(uint64_t bytes, const DeviceOptions& options) : options_(options) {
  memory_.fd = make_memory_file();
  if (memory_.fd < 0) throw std::runtime_error(std::string("cannot make a file in memory: ") + strerror(errno));
  if (ftruncate(memory_.fd, off_t(bytes)) != 0) {
    const int code = errno;
    throw std::runtime_error("cannot make a file in memory " + std::to_string(bytes) +
                             " bytes large: " + strerror(code));
  }
  path_ = "/proc/self/fd/" + std::to_string(memory_.fd);
  merapi_error error{};
  merapi_lease* lease = nullptr;
  if (merapi_serve(path_.c_str(), &lease, &error) < 0) throw std::runtime_error(error.message);
  context_ = std::make_unique<Context>(options_, lease, path_, [] {});  // nobody waits for its end
  context_->wait_for_engine();
}

PrivateDevice::Descriptor::~Descriptor() {
  if (fd >= 0) close(fd);
}

DeviceOptions private_model() {
  DeviceOptions options;
  options.engine = "model";
  options.common.pid = uint64_t(getpid());
  return options;
}

graph::Window window_for(const graph::Image& image, const std::string& name) {
  require_room_to_load(image);
  const merapi_geometry geometry = image.geometry();
  return graph::Window(name, &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE);
}

}  // namespace merapi::sim
