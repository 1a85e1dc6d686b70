/* SPDX-License-Identifier: Apache-2.0
 *
 * file:PATH, a window in a file (best on tmpfs) that a device process on the same machine maps too.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static int file_open(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  (void)needed;
  const bool create = (flags & MERAPI_OPEN_CREATE) != 0 && (flags & MERAPI_OPEN_FORMAT) != 0;
  if (create) {
    window->fd = merapi_file_create(window->path, &window->created);
    if (window->fd < 0) {
      const int code = -window->fd;
      window->fd = -1;
      return merapi_fail(error, -code, "cannot make a window file at %s: %s%s", window->path, strerror(code),
                         code == ENOENT ? "; make its folder first" : "");
    }
    return 0;
  }
  window->fd = merapi_fd_above_stdio(open(window->path, (window->readonly ? O_RDONLY : O_RDWR) | MERAPI_OPEN_ANYTHING));
  if (window->fd < 0) {
    const int code = errno;
    return merapi_fail(error, -code, "expected a window file at %s, found: %s%s", window->path, strerror(code),
                       code == ENOENT ? "; 'merapi create-window' makes one" : "");
  }
  return 0;
}

static int file_size(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  struct stat status;
  if (fstat(window->fd, &status) < 0) return merapi_fail(error, -errno, "%s: %s", window->path, strerror(errno));
  if (!S_ISREG(status.st_mode))
    return merapi_fail(error, -ENODEV, "expected a regular file at %s, found something else", window->path);
  int code = needed > 0 ? merapi_file_check(window->fd, window->path, error) : 0;
  if (code == 0 && needed > 0) code = merapi_file_fits(window->fd, window->path, needed, error);
  if (code < 0) return code;
  if ((uint64_t)status.st_size < needed && (flags & MERAPI_OPEN_CREATE) != 0) {
    if ((code = merapi_file_grow(window->fd, window->path, needed, error)) < 0) return code;
    status.st_size = (off_t)needed;
  }
  window->bytes = (uint64_t)status.st_size;
  window->granularity = (uint64_t)sysconf(_SC_PAGESIZE);
  return 0;
}

static bool file_gone(struct merapi_window* window) { return merapi_lock_held(window->fd, MERAPI_LOCK_DEVICE) == 0; }

static int file_connect(struct merapi_window* window, struct merapi_error* error) {
  if (!file_gone(window)) return 0;
  return merapi_fail(error, -ENODEV,
                     "expected a device that serves %s, found none; start merapi-device with --window %s", window->path,
                     window->path);
}

const struct merapi_transport merapi_transport_file = {
    .name = "file",
    .open = file_open,
    .size = file_size,
    .connect = file_connect,
    .gone = file_gone,
    .futex = true,
};
