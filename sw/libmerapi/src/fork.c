/* SPDX-License-Identifier: Apache-2.0
 *
 * What a child of fork(2) has of its parent's windows: nothing. Locks belong to open file descriptions and the lease
 * over a socket to its connection, so a descriptor that a child keeps would keep both when the parent has died, and a
 * child that closes what it has inherited must not revoke the parent's device.
 *
 * In the child descriptors are closed and memory of its own takes the place of the window, where calls read zeros and
 * write to nobody. They fail with -ECHILD where they can say so. A child that the kernel makes without these handlers
 * (vfork, posix_spawn, clone) has the descriptors until it executes another program, which closes them.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

/* Held over a fork, and wherever descriptors are made or closed: none is missing from the list. An address that is in
 * the list is the window's: it leaves the list before it is unmapped. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct merapi_held* first;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
  while (first != NULL) {
    struct merapi_held* const held = first;
    merapi_let_go(held);
    held->forked = true;
    held->forsake(held);
  }
  pthread_mutex_init(&lock, NULL);
}

static int registered;
static void register_handlers(void) { registered = pthread_atfork(before_fork, in_parent, in_child); }

int merapi_descriptors_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_handlers);
  pthread_mutex_lock(&lock);
  return -registered;
}

void merapi_descriptors_end(void) { pthread_mutex_unlock(&lock); }

void merapi_hold(struct merapi_held* held, void (*forsake)(struct merapi_held*)) {
  held->forsake = forsake;
  held->next = first;
  held->link = &first;
  if (first != NULL) first->link = &held->next;
  first = held;
}

void merapi_let_go(struct merapi_held* held) {
  if (held->link == NULL) return;
  *held->link = held->next;
  if (held->next != NULL) held->next->link = held->link;
  held->link = NULL;
}

int merapi_own(const struct merapi_window* window, struct merapi_error* error) {
  if (!window->held.forked) return 0;
  return merapi_fail(error, -ECHILD,
                     "expected the process that opened the window at %s, found a fork of it; open a window of its own",
                     window->path);
}

void merapi_forsake_fd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

void merapi_forsake_memory(void* address, size_t bytes) {
  if (address == NULL) return;
  /* Shared memory is no data of the process (RLIMIT_DATA). Where there is none, better a crash than the parent's. */
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED)
    munmap(address, bytes);
}

void merapi_leave_memory(void* address, size_t bytes) {
  if (address != NULL) madvise(address, bytes, MADV_DONTFORK);
}

void merapi_unmap(void* address, size_t bytes) {
  if (address == NULL) return;
  /* Who maps anything waits while somebody unmaps: for a part (16,384 pages) that is milliseconds. Memory in pages of
   * 1 GiB (a devdax device, hugetlbfs) has no such parts, and is unmapped in no time. */
  const size_t part = (size_t)64 << 20;
  uint8_t* at = address;
  for (; bytes > part && munmap(at, part) == 0; bytes -= part) at += part;
  munmap(at, bytes);
}
