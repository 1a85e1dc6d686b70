/* SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a window: byte 0 of its file is the host's, the others, as far as it serves them, the device's: byte 1 tells
 * of a device, and no two devices serve parts of a file that overlap. Locks of open file descriptions, because
 * they end when the process does, however it went, and stay when it is merely stopped: a stopped device keeps its
 * window, so no second one can serve it and meet the first one's late writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "internal.h"

static struct flock range(uint64_t first, uint64_t bytes) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)bytes};
  return lock;
}

int merapi_lock(int fd, uint64_t first, uint64_t bytes) {
  struct flock lock = range(first, bytes);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

int merapi_lock_held(int fd, uint64_t byte) {
  struct flock lock = range(byte, 1);
  if (fcntl(fd, F_OFD_GETLK, &lock) < 0) return -errno;
  return lock.l_type != F_UNLCK;
}
