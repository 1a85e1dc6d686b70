/* SPDX-License-Identifier: Apache-2.0
 *
 * The socket at which a device process takes windows. One epoll descriptor covers the listening socket and the
 * connections that have not said hello yet, so that a host that connects and stays silent delays nobody. It does not
 * stay for long, and makes way when there are many of its kind, or no descriptors for others.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lease.h"
#include "socket_path.h"

/* Hosts that come while the device has no processor: a full backlog is what a device looks like that is stopped. */
#define BACKLOG SOMAXCONN
/* Descriptors that must be free before a host is accepted and before its message, which carries one, is taken: the
 * window's as received and as reopened, and some that other threads may need meanwhile. A host that was accepted has
 * those of its message. */
#define TO_GREET 4
#define TO_ACCEPT (TO_GREET + 1)
/* Connections that have not said hello: so many, for so long. Hosts say it with the next system call. */
#define SILENT_MAX 64
#define HELLO_SECONDS 5
#define HELLO_NS (HELLO_SECONDS * UINT64_C(1000000000))
/* Connections dealt with in one call: there may be new ones without end, and who calls has other things to do. */
#define LOOKS_MAX 256

struct silent {
  int connection;
  uint64_t deadline_ns;
};

struct merapi_listener {
  struct merapi_held held;
  int socket;
  int epoll;
  int timer; /* readable from the first deadline on */
  struct merapi_socket_path path;
  struct silent silent[SILENT_MAX]; /* in the order of their coming */
  size_t count;
};

static int watch(struct merapi_listener* listener, int fd) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd}};
  return epoll_ctl(listener->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void set_timer(struct merapi_listener* listener) {
  const uint64_t ns = listener->count > 0 ? listener->silent[0].deadline_ns : 0; /* 0: never */
  const struct itimerspec time = {
      .it_value = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}};
  timerfd_settime(listener->timer, TFD_TIMER_ABSTIME, &time, NULL);
}

static int remember(struct merapi_listener* listener, int connection) {
  const int status = watch(listener, connection);
  if (status < 0) return status;
  listener->silent[listener->count++] = (struct silent){connection, merapi_now_ns() + HELLO_NS};
  set_timer(listener);
  return 0;
}

/* It is dealt with: no longer among the silent ones, nor waited for. */
static void forget(struct merapi_listener* listener, int connection) {
  epoll_ctl(listener->epoll, EPOLL_CTL_DEL, connection, NULL);
  size_t at = 0;
  while (at < listener->count && listener->silent[at].connection != connection) at++;
  if (at == listener->count) return;
  listener->count--;
  memmove(&listener->silent[at], &listener->silent[at + 1], (listener->count - at) * sizeof listener->silent[0]);
  set_timer(listener);
}

/* In a child of the device's process. The socket's name is the parent's to remove. */
static void forsake(struct merapi_held* held) {
  struct merapi_listener* const listener = (struct merapi_listener*)(void*)held;
  while (listener->count > 0) merapi_forsake_fd(&listener->silent[--listener->count].connection);
  merapi_forsake_fd(&listener->timer);
  merapi_forsake_fd(&listener->socket);
  merapi_forsake_fd(&listener->epoll);
  listener->path.inode = 0;
}

int merapi_listen(const char* path, struct merapi_listener** listener, struct merapi_error* error) {
  *listener = NULL;
  struct merapi_listener* made = calloc(1, sizeof *made);
  if (made == NULL) return merapi_fail(error, -ENOMEM, "out of memory");
  merapi_descriptors_begin();
  merapi_hold(&made->held, forsake);
  made->socket = merapi_fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  made->epoll = merapi_fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
  made->timer = merapi_fd_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  merapi_descriptors_end();
  int status;
  if (made->socket < 0 || made->epoll < 0 || made->timer < 0)
    status = merapi_fail(error, -errno, "cannot make a socket: %s", strerror(errno));
  else if ((status = merapi_socket_path_bind(&made->path, made->socket, path, BACKLOG, error)) == 0 &&
           ((status = watch(made, made->socket)) < 0 || (status = watch(made, made->timer)) < 0))
    merapi_fail(error, status, "cannot wait for connections: %s", strerror(-status));
  if (status < 0) {
    merapi_listener_close(made);
    return status;
  }
  *listener = made;
  return 0;
}

int merapi_listener_fd(const struct merapi_listener* listener) { return listener->epoll; }

void merapi_listener_close(struct merapi_listener* listener) {
  if (listener == NULL) return;
  merapi_socket_path_remove(&listener->path);
  merapi_descriptors_begin();
  while (listener->count > 0) close(listener->silent[--listener->count].connection);
  if (listener->timer >= 0) close(listener->timer);
  if (listener->socket >= 0) close(listener->socket);
  if (listener->epoll >= 0) close(listener->epoll);
  merapi_let_go(&listener->held);
  merapi_descriptors_end();
  free(listener);
}

/* Are so many descriptors free? A negative errno when not. */
static int room(int count) {
  int fds[TO_ACCEPT], made = 0, status = 0;
  while (made < count && (fds[made] = eventfd(0, EFD_CLOEXEC)) >= 0) made++;
  if (made < count) status = -errno;
  while (made > 0) close(fds[--made]);
  return status;
}

/* Is there a message? What ends a connection needs no descriptor, and a message of no bytes ends it. */
static bool has_message(int connection) {
  char first;
  return recv(connection, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Close the one that has been silent for the longest time, or since before `deadline_ns`. False: there is none. One
 * that has said something is no longer silent, though nobody has listened yet. */
static bool drop_silent(struct merapi_listener* listener, uint64_t deadline_ns) {
  for (size_t i = 0; i < listener->count && listener->silent[i].deadline_ns <= deadline_ns; i++) {
    const int connection = listener->silent[i].connection;
    if (has_message(connection)) continue;
    forget(listener, connection);
    close(connection);
    return true;
  }
  return false;
}

/* As room(), if need be in the place of silent connections. */
static int make_room(struct merapi_listener* listener, int count) {
  int status;
  while ((status = room(count)) < 0 && drop_silent(listener, UINT64_MAX)) continue;
  return status;
}

/* The host was refused, and is not there for a later call. */
static int refused(int status) {
  return status == -EMFILE || status == -ENFILE || status == -ENOMEM || status == -ENOBUFS ? -ECONNREFUSED : status;
}

/* The window's descriptor from a hello message, -EAGAIN when there is none yet, another errno when it is not one. */
static int receive(int connection) {
  struct merapi_hello hello;
  struct iovec vector = {.iov_base = &hello, .iov_len = sizeof hello};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr message = {
      .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  const ssize_t got = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EINTR ? -EAGAIN : -errno;
  /* However many there are, they are ours now: what alignment makes room for is delivered as well. */
  int fds[CMSG_SPACE(sizeof(int)) / sizeof(int)];
  size_t count = 0;
  const struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
  }
  const int fd = count == 1 ? fds[0] : -1;
  int status = 0;
  if (got == 0)
    status = -ECONNRESET; /* the end, or a message of no bytes, which may bring descriptors all the same */
  else if (count == 0 && (message.msg_flags & MSG_CTRUNC) != 0)
    status = -EMFILE; /* the kernel had no number for it */
  else if (got != (ssize_t)sizeof hello || hello.magic != MERAPI_HELLO_MAGIC || fd < 0 ||
           (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    status = -EPROTO;
  else if (hello.version_major != MERAPI_VERSION_MAJOR)
    status = -EPROTONOSUPPORT;
  if (status == 0) {
    const int above = merapi_fd_above_stdio(fd);
    return above < 0 ? -errno : above;
  }
  for (size_t i = 0; i < count; i++) close(fds[i]);
  return status;
}

/* An open file description of our own, so that the device's lock is not the host's; refuses what the host could shrink
 * under us. */
static int reopen(int fd) {
  const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & needed) != needed) return -EPERM;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int own = merapi_fd_above_stdio(open(path, O_RDWR | O_CLOEXEC));
  return own < 0 ? -errno : own;
}

static void reply(int connection, int status) {
  const struct merapi_hello_reply message = {.magic = MERAPI_HELLO_MAGIC, .status = status, .pid = (uint32_t)getpid()};
  /* Only for the host's message: one that does not read it loses nothing. */
  (void)!send(connection, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* One connection that has something to say. Forgets it unless it is not ready, or has to wait. */
static int greet(struct merapi_listener* listener, int connection, struct merapi_lease** lease,
                 struct merapi_error* error) {
  int status = has_message(connection) ? make_room(listener, TO_GREET) : 0;
  if (status < 0) return merapi_fail(error, status, "cannot take another window: %s", strerror(-status));
  const int fd = receive(connection);
  if (fd == -EAGAIN) return -EAGAIN;
  forget(listener, connection);
  if (fd == -ECONNRESET) { /* somebody looked whether we live */
    close(connection);
    return -EAGAIN;
  }
  status = fd;
  if (fd >= 0) {
    status = reopen(fd);
    close(fd);
  }
  if (status < 0) {
    merapi_fail(error, status, "expected a host's hello with a sealed memfd at %s, found: %s", listener->path.path,
                strerror(-status));
    reply(connection, status);
    close(connection);
    return refused(status);
  }
  const int own = status;
  const int told = fcntl(connection, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  status = merapi_lease_make(own, connection, "the window offered", (struct merapi_part){0}, lease, error);
  if (told >= 0) {
    reply(told, status);
    close(told);
  }
  return refused(status);
}

/* One that came from the backlog. -EAGAIN when there is none. */
static int take_connection(struct merapi_listener* listener, struct merapi_error* error) {
  if (listener->count == SILENT_MAX && !drop_silent(listener, UINT64_MAX)) return 0; /* first those that speak */
  const int status = make_room(listener, TO_ACCEPT);
  if (status < 0) return merapi_fail(error, status, "cannot accept: %s", strerror(-status));
  const int connection = merapi_fd_above_stdio(accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection < 0) {
    if (errno == EINTR || errno == ECONNABORTED) return 0;
    return errno == EAGAIN ? -EAGAIN : merapi_fail(error, -errno, "cannot accept: %s", strerror(errno));
  }
  if (remember(listener, connection) < 0) close(connection);
  return 0;
}

static int take(struct merapi_listener* listener, struct merapi_lease** lease, struct merapi_error* error) {
  for (int looks = 0; looks < LOOKS_MAX; looks++) {
    struct epoll_event event;
    const int count = epoll_wait(listener->epoll, &event, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return merapi_fail(error, -errno, "cannot wait for connections: %s", strerror(errno));
    if (count == 0) return -EAGAIN;
    int status = 0;
    if (event.data.fd == listener->socket) {
      status = take_connection(listener, error);
      if (status < 0) return status;
    } else if (event.data.fd != listener->timer) {
      status = greet(listener, event.data.fd, lease, error);
      if (status != -EAGAIN) return status;
    } else if (drop_silent(listener, merapi_now_ns())) {
      return merapi_fail(error, -ETIMEDOUT, "expected a host's hello within %d s at %s, found nothing", HELLO_SECONDS,
                         listener->path.path);
    }
  }
  return -EAGAIN; /* the descriptor stays readable as long as there is more */
}

int merapi_accept(struct merapi_listener* listener, struct merapi_lease** lease, struct merapi_error* error) {
  *lease = NULL;
  if (listener->held.forked)
    return merapi_fail(error, -ECHILD,
                       "expected the process that listens at its socket, found a fork of it; listen at another socket");
  merapi_descriptors_begin();
  const int status = take(listener, lease, error);
  merapi_descriptors_end();
  return status;
}
