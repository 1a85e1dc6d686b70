/* SPDX-License-Identifier: Apache-2.0
 *
 * Closing what another process handed over. To close a file for the last time can take as long as its owner likes: a
 * TCP socket waits for its peer (SO_LINGER), a file of FUSE for the program behind it, and a connection has the
 * messages that nobody received, with the descriptors in them. What may be such is closed by a thread for which nobody
 * waits, and which is there only while it has something to close; the rest at once. A process that ends waits for no
 * such thread, and the kernel does not linger then.
 *
 * A child that is forked in the moment in which the thread closes one may have it until it executes a program.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lease.h"

/* Messages without descriptors that are taken out of a connection to see whether one has some. Hosts send one. */
#define LOOKS_MAX 64

struct foreign {
  struct merapi_held held;
  int fd;
  struct foreign* next;
};

/* Between merapi_descriptors_begin and _end. */
static struct foreign *first, **last = &first;
static pid_t closing; /* the process whose thread is at work */

static void forsake(struct merapi_held* held) {
  struct foreign* const one = (struct foreign*)(void*)held;
  merapi_forsake_fd(&one->fd);
  first = NULL; /* all of them are forsaken */
  last = &first;
}

static void* close_all(void* unused) {
  for (;;) {
    merapi_descriptors_begin();
    struct foreign* const one = first;
    if (one == NULL) {
      closing = 0;
      merapi_descriptors_end();
      return unused;
    }
    if ((first = one->next) == NULL) last = &first;
    merapi_let_go(&one->held);
    merapi_descriptors_end();
    close(one->fd);
    free(one);
  }
}

/* Signals are for the program's threads. When there can be no thread, the next descriptor asks again. */
static void start_closing(void) {
  if (closing == getpid()) return;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  const size_t small = 64 << 10, least = (size_t)PTHREAD_STACK_MIN;
  pthread_attr_setstacksize(&attributes, small > least ? small : least);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, close_all, NULL) == 0) closing = getpid();
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

static void close_later(int fd) {
  struct foreign* const one = calloc(1, sizeof *one);
  if (one == NULL) return; /* better open than a process that stands still */
  one->fd = fd;
  merapi_hold(&one->held, forsake);
  *last = one;
  last = &one->next;
  start_closing();
}

bool merapi_is_memory_file(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

void merapi_close_received(int fd) {
  if (merapi_is_memory_file(fd)) {
    close(fd);
    return;
  }
  close_later(fd);
}

/* May a message that was not received have descriptors? The connection is of no use afterwards. */
static bool may_hold_descriptors(int connection) {
  const int on = 1;
  /* From here on nothing is added, and each message, also one of no bytes, tells its sender. */
  if (shutdown(connection, SHUT_RDWR) < 0 && errno != ENOTCONN) return true;
  if (setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0) return true;
  for (int looks = 0; looks < LOOKS_MAX; looks++) {
    char byte;
    struct iovec vector = {.iov_base = &byte, .iov_len = sizeof byte};
    union {
      struct cmsghdr header;
      char bytes[CMSG_SPACE(sizeof(struct ucred))]; /* none for descriptors: none is received */
    } control;
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    if (recvmsg(connection, &message, MSG_PEEK | MSG_DONTWAIT) < 0) {
      if (errno == ECONNRESET || errno == EINTR) continue; /* told once */
      return errno != EAGAIN;
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) return true;
    if (message.msg_controllen == 0) return false;
    (void)!recv(connection, &byte, sizeof byte, MSG_DONTWAIT);
  }
  return true;
}

void merapi_close_connection(int connection) {
  if (may_hold_descriptors(connection))
    close_later(connection);
  else
    close(connection);
}

void merapi_close_listening(int listening) {
  if (listening < 0) return;
  shutdown(listening, SHUT_RDWR); /* nobody connects any more; who has, can still be accepted */
  int connection;
  do {
    connection = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) merapi_close_connection(connection);
  } while (connection >= 0 || errno == EINTR || errno == ECONNABORTED);
  if (errno == EAGAIN || errno == EINVAL) /* there is no more */
    close(listening);
  else
    close_later(listening);
}
