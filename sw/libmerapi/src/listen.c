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
/* Descriptors of one message that are looked at: a hello has one. */
#define RECEIVED_MAX 6
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
  while (listener->count > 0) merapi_close_connection(listener->silent[--listener->count].connection);
  if (listener->timer >= 0) close(listener->timer);
  merapi_close_listening(listener->socket);
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
    merapi_close_connection(connection);
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

/* What a message brings. It stays in the connection: to close these descriptors is not yet to close the files. */
struct received {
  struct merapi_hello hello;
  ssize_t bytes;
  int flags;
  size_t count;
  int fd[RECEIVED_MAX];
};

static int peek(int connection, struct received* received) {
  struct iovec vector = {.iov_base = &received->hello, .iov_len = sizeof received->hello};
  union {
    struct cmsghdr header;
    char bytes[CMSG_LEN(RECEIVED_MAX * sizeof(int))];
  } control;
  struct msghdr message = {.msg_iov = &vector,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = CMSG_LEN(RECEIVED_MAX * sizeof(int))};
  received->count = 0;
  received->bytes = recvmsg(connection, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received->bytes < 0) return errno == EINTR ? -EAGAIN : -errno;
  received->flags = message.msg_flags;
  const struct cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    received->count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(received->fd, CMSG_DATA(rights), received->count * sizeof(int));
  }
  return 0;
}

static int check_hello(const struct received* received) {
  if (received->bytes == 0) return -ECONNRESET; /* the end, or a message of no bytes, which may bring descriptors */
  if (received->count == 0 && (received->flags & MSG_CTRUNC) != 0) return -EMFILE; /* the kernel had no number for it */
  if (received->bytes != (ssize_t)sizeof received->hello || received->hello.magic != MERAPI_HELLO_MAGIC ||
      received->count != 1 || (received->flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return -EPROTO;
  return received->hello.version_major == MERAPI_VERSION_MAJOR ? 0 : -EPROTONOSUPPORT;
}

/* The window's descriptor from a hello message, -EAGAIN when there is none yet, another errno when it is not one. */
static int receive(int connection) {
  struct received received;
  int status = peek(connection, &received);
  if (status < 0) return status;
  status = check_hello(&received);
  bool memory = (received.flags & MSG_CTRUNC) == 0;
  for (size_t i = 0; i < received.count; i++) memory &= merapi_is_memory_file(received.fd[i]);
  if (status == 0 && !memory) status = -EPERM;
  /* Others stay in the connection, and go with it. */
  if (memory && received.bytes >= 0) (void)!recv(connection, &received.hello, sizeof received.hello, MSG_DONTWAIT);
  if (status == 0) {
    const int above = merapi_fd_above_stdio(received.fd[0]);
    return above < 0 ? -errno : above;
  }
  for (size_t i = 0; i < received.count; i++) merapi_close_received(received.fd[i]);
  return status;
}

/* An open file description of our own, so that the device's lock is not the host's; refuses what the host could shrink
 * under us, and waits for no lease of the host's (F_SETLEASE): -EWOULDBLOCK. */
static int reopen(int fd) {
  const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & needed) != needed) return -EPERM;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int own = merapi_fd_above_stdio(open(path, O_RDWR | MERAPI_OPEN_ANYTHING));
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
    merapi_close_connection(connection);
    return -EAGAIN;
  }
  status = fd;
  if (fd >= 0) {
    status = reopen(fd);
    merapi_close_received(fd);
  }
  if (status < 0) {
    const bool leased = status == -EWOULDBLOCK;
    if (leased) status = -EPERM;
    merapi_fail(error, status, "expected a host's hello with a sealed memfd at %s, found: %s", listener->path.path,
                leased ? "one that the host holds a lease on (F_SETLEASE)" : strerror(-status));
    reply(connection, status);
    merapi_close_connection(connection);
    return refused(status);
  }
  status = merapi_lease_make(status, connection, "the window offered", (struct merapi_part){0}, lease, error);
  reply(connection, status);
  if (status < 0) merapi_close_connection(connection);
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
  if (remember(listener, connection) < 0) merapi_close_connection(connection);
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
