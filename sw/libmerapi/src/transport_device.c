/* SPDX-License-Identifier: Apache-2.0
 *
 * device:PATH, a window made on demand: a sealed memfd, offered to the device process that listens at PATH. The
 * connection's life is the lease's: when either side closes it, the other knows. The same memfd is offered again after
 * the device process was started anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

bool merapi_hung_up(int fd) {
  struct pollfd poller = {.fd = fd, .events = POLLRDHUP};
  return poll(&poller, 1, 0) > 0 && (poller.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

static int device_open(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  (void)flags;
  if (window->readonly)
    return merapi_fail(error, -EINVAL, "device:%s makes a new window: there is nothing to inspect in it", window->path);
  if (needed == 0)
    return merapi_fail(error, -EINVAL, "device:%s makes a new window: give a geometry to lay it out", window->path);
  struct sockaddr_un address;
  if (strlen(window->path) >= sizeof address.sun_path)
    return merapi_fail(error, -EINVAL, "expected a socket path of at most %zu characters, found %zu; use a shorter one",
                       sizeof address.sun_path - 1, strlen(window->path));
  window->fd = merapi_fd_above_stdio(memfd_create("merapi-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (window->fd < 0) return merapi_fail(error, -errno, "cannot make a memfd: %s", strerror(errno));
  if (ftruncate(window->fd, (off_t)needed) < 0)
    return merapi_fail(error, -errno, "cannot make a memfd of %" PRIu64 " bytes: %s", needed, strerror(errno));
  /* The device checks the seals: a host that cannot shrink the file cannot make the device touch what is not there. */
  if (fcntl(window->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
    return merapi_fail(error, -errno, "cannot seal a memfd: %s", strerror(errno));
  return 0;
}

static int device_size(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  (void)flags;
  (void)error;
  window->bytes = needed;
  window->granularity = (uint64_t)sysconf(_SC_PAGESIZE);
  return 0;
}

static bool device_gone(struct merapi_window* window) {
  return window->connection < 0 || merapi_hung_up(window->connection);
}

static void disconnect(struct merapi_window* window) {
  if (window->connection >= 0) close(window->connection);
  window->connection = -1;
}

static int offer(int connection, int fd) {
  const struct merapi_hello hello = {
      .magic = MERAPI_HELLO_MAGIC, .version_major = MERAPI_VERSION_MAJOR, .version_minor = MERAPI_VERSION_MINOR};
  struct iovec vector = {.iov_base = (void*)(uintptr_t)&hello, .iov_len = sizeof hello};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  memset(&control, 0, sizeof control);
  struct msghdr message = {
      .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  ssize_t sent;
  do {
    sent = sendmsg(connection, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)sizeof hello ? 0 : -errno;
}

/* Who listens is given the window, and with it all that the program holds. In a folder in which others may write that
 * can be anybody: there it must be the host's own user, or root. */
static int check_owner(int connection, const char* path, struct merapi_error* error) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
    return merapi_fail(error, -errno, "cannot tell whose device listens at %s: %s", path, strerror(errno));
  if (peer.uid == geteuid() || peer.uid == 0) return 0;
  char copy[sizeof(((struct sockaddr_un*)0)->sun_path)];
  snprintf(copy, sizeof copy, "%s", path);
  struct stat folder;
  if (stat(dirname(copy), &folder) < 0)
    return merapi_fail(error, -errno, "cannot tell who may listen at %s: %s", path, strerror(errno));
  if ((folder.st_mode & (S_IWGRP | S_IWOTH)) == 0) return 0;
  return merapi_fail(error, -EPERM,
                     "expected a device of user %u or root at %s, in whose folder others may write, found one of user "
                     "%u; use a folder that its owner alone may write to (chmod go-w)",
                     geteuid(), path, peer.uid);
}

static int device_connect(struct merapi_window* window, struct merapi_error* error) {
  /* A connection that an earlier handshake timed out on may still be answered: a stopped process wakes. */
  if (!device_gone(window)) return 0;
  disconnect(window);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, window->path, sizeof address.sun_path - 1);
  const int connection = merapi_fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connection < 0) return merapi_fail(error, -errno, "cannot make a socket: %s", strerror(errno));
  int code = 0;
  if (connect(connection, (struct sockaddr*)&address, sizeof address) < 0) code = errno;
  if (code == 0) {
    const int status = check_owner(connection, window->path, error);
    if (status < 0) {
      close(connection);
      return status;
    }
    code = -offer(connection, window->fd);
  }
  if (code == 0) {
    window->connection = connection;
    return 0;
  }
  close(connection);
  /* A full backlog: something listens and does not accept. */
  if (code == EAGAIN)
    return merapi_fail(error, -ETIMEDOUT, "expected the device at %s to accept a window, found that it does not answer",
                       window->path);
  if (code == EACCES || code == EPERM)
    return merapi_fail(error, -ENODEV,
                       "expected a device at %s, found: %s; it is another user's: start a merapi-device of your own at "
                       "another socket",
                       window->path, strerror(code));
  return merapi_fail(error, -ENODEV, "expected a device at %s, found: %s; start merapi-device with --socket %s",
                     window->path, strerror(code), window->path);
}

static const char* device_farewell(struct merapi_window* window) {
  struct merapi_hello_reply reply;
  if (window->connection < 0) return "there is no connection";
  if (recv(window->connection, &reply, sizeof reply, MSG_DONTWAIT) == (ssize_t)sizeof reply &&
      reply.magic == MERAPI_HELLO_MAGIC && reply.status < 0) {
    snprintf(window->reason, sizeof window->reason, "it refused the window: %s%s", strerror(-reply.status),
             reply.status == -EBUSY ? " (another device process holds it)" : "");
    return window->reason;
  }
  return "it closed the connection";
}

const struct merapi_transport merapi_transport_device = {
    .name = "device",
    .open = device_open,
    .size = device_size,
    .connect = device_connect,
    .gone = device_gone,
    .farewell = device_farewell,
    .futex = true,
};
