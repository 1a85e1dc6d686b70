/* SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a window: byte 0 of its file is the host's, byte 1 the device's. Locks of open file descriptions, because
 * they end when the process does, however it went, and stay when it is merely stopped: a stopped device keeps its
 * window, so no second one can serve it and meet the first one's late writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "internal.h"

static struct flock one_byte(int byte) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  return lock;
}

int merapi_lock(int fd, int byte) {
  struct flock lock = one_byte(byte);
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

int merapi_lock_held(int fd, int byte) {
  struct flock lock = one_byte(byte);
  if (fcntl(fd, F_OFD_GETLK, &lock) < 0) return -errno;
  return lock.l_type != F_UNLCK;
}
