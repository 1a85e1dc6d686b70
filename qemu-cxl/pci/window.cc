// SPDX-License-Identifier: Apache-2.0
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <stdexcept>

#include "merapi/contract.h"

namespace merapi::pci {

Window::Window(const std::string& path) {
  int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  bool fine = fd >= 0 && fstat(fd, &status) == 0;
  if (fine && status.st_size < MERAPI_CONTROL_BYTES) {
    close(fd);
    throw std::runtime_error("expected a window of at least " + std::to_string(MERAPI_CONTROL_BYTES) + " bytes in " +
                             path + ", found " + std::to_string(status.st_size));
  }
  void* base = MAP_FAILED;
  if (fine) base = mmap(nullptr, size_t(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  std::string why = strerror(errno);
  if (fd >= 0) close(fd);
  if (base == MAP_FAILED) throw std::runtime_error("expected a window file at " + path + ", found: " + why);
  base_ = static_cast<uint8_t*>(base);
  memory_bytes_ = uint64_t(status.st_size);
}

Window::~Window() { munmap(base_, memory_bytes_); }

bool Window::move(uint64_t offset, uint64_t bytes) {
  if (offset % MERAPI_MAPPED_ALIGNMENT != 0 || offset > memory_bytes_ || bytes > memory_bytes_ - offset ||
      (bytes != 0 && bytes < MERAPI_CONTROL_BYTES))
    return false;
  offset_ = offset;
  bytes_ = bytes;
  return true;
}

uint32_t* Window::word(uint32_t at) const { return reinterpret_cast<uint32_t*>(base_ + offset_ + at); }

void Window::ring() const {
  uint32_t* doorbell = word(MERAPI_HOST_INDEX_OFFSET + offsetof(merapi_host_index, doorbell));
  syscall(SYS_futex, doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

uint32_t Window::event() const {
  return __atomic_load_n(word(MERAPI_DEVICE_INDEX_OFFSET + offsetof(merapi_device_index, event)), __ATOMIC_ACQUIRE);
}

uint32_t Window::wait_event(uint32_t seen, uint64_t microseconds) const {
  // The engine makes the wake-up call only when host_index.waiting is set; a host that armed without it is served at
  // the end of this wait.
  const timespec timeout = {time_t(microseconds / 1000000), long(microseconds % 1000000) * 1000};
  uint32_t* event_word = word(MERAPI_DEVICE_INDEX_OFFSET + offsetof(merapi_device_index, event));
  if (event() == seen) syscall(SYS_futex, event_word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  return event();
}

}  // namespace merapi::pci
