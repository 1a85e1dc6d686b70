/* SPDX-License-Identifier: Apache-2.0 */
#include "socket_path.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Two processes that both find a stale socket must not both replace it: they take turns by a lock on its folder. */
static int lock_folder(const char* path) {
  char copy[sizeof(((struct merapi_socket_path*)0)->path)];
  snprintf(copy, sizeof copy, "%s", path);
  const int folder = merapi_fd_above_stdio(open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder < 0) return -errno;
  for (int tries = 0; tries < 200; tries++) {
    if (flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
    const struct timespec nap = {.tv_nsec = 10000000};
    nanosleep(&nap, NULL);
  }
  close(folder);
  return -EBUSY;
}

/* Does any process have a socket there, of whatever type? A datagram socket asks without connecting: refused means that
 * nobody has; another type's socket is "wrong", which is not nobody. A stopped process counts as well. */
static bool is_live(const struct sockaddr_un* address) {
  const int probe = merapi_fd_above_stdio(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe < 0) return true;
  const bool live = connect(probe, (const struct sockaddr*)address, sizeof *address) == 0 ||
                    (errno != ECONNREFUSED && errno != ENOENT);
  close(probe);
  return live;
}

static int bind_path(struct merapi_socket_path* bound, int socket, int backlog, struct merapi_error* error) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, bound->path, sizeof address.sun_path);
  struct stat status;
  if (lstat(bound->path, &status) == 0) {
    if (!S_ISSOCK(status.st_mode))
      return merapi_fail(error, -EADDRINUSE, "expected a socket or nothing at %s, found another kind of file",
                         bound->path);
    if (is_live(&address))
      return merapi_fail(error, -EADDRINUSE,
                         "expected a free socket path at %s, found that another program listens there", bound->path);
    if (unlink(bound->path) < 0 && errno != ENOENT)
      return merapi_fail(error, -errno, "cannot replace the stale socket %s: %s", bound->path, strerror(errno));
  }
  if (bind(socket, (struct sockaddr*)&address, sizeof address) < 0 || listen(socket, backlog) < 0 ||
      lstat(bound->path, &status) < 0)
    return merapi_fail(error, -errno, "cannot listen at %s: %s", bound->path, strerror(errno));
  bound->device = status.st_dev;
  bound->inode = status.st_ino;
  return 0;
}

int merapi_socket_path_bind(struct merapi_socket_path* bound, int socket, const char* path, int backlog,
                            struct merapi_error* error) {
  memset(bound, 0, sizeof *bound);
  if (strlen(path) >= sizeof bound->path)
    return merapi_fail(error, -EINVAL, "expected a socket path of at most %zu characters, found %zu; use a shorter one",
                       sizeof bound->path - 1, strlen(path));
  memcpy(bound->path, path, strlen(path) + 1);
  const int folder = lock_folder(path);
  if (folder < 0) return merapi_fail(error, folder, "cannot use the folder of %s: %s", path, strerror(-folder));
  const int status = bind_path(bound, socket, backlog, error);
  close(folder);
  return status;
}

void merapi_socket_path_remove(const struct merapi_socket_path* bound) {
  struct stat status;
  if (bound->inode != 0 && lstat(bound->path, &status) == 0 && status.st_dev == bound->device &&
      status.st_ino == bound->inode)
    unlink(bound->path);
}
