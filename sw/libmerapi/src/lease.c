/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's side of a window: where windows come from and how a device process sleeps. The size of a window is what
 * the file or driver tells; nothing that a host wrote into the window is read here except the doorbell words.
 */
#include "lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "internal.h"

/* `at_least`: what a regular file will be made. */
static int size_of(int fd, const char* path, uint64_t at_least, uint64_t* bytes, struct merapi_error* error) {
  struct stat status;
  if (fstat(fd, &status) < 0) return merapi_fail(error, -errno, "%s: %s", path, strerror(errno));
  if (S_ISREG(status.st_mode)) {
    *bytes = (uint64_t)status.st_size < at_least ? at_least : (uint64_t)status.st_size;
  } else if (S_ISCHR(status.st_mode)) {
    uint64_t alignment;
    const int code = merapi_dax_probe("/sys", major(status.st_rdev), minor(status.st_rdev), bytes, &alignment);
    if (code < 0)
      return merapi_fail(error, code, "expected a devdax device at %s, found none in sysfs (%s)", path,
                         strerror(-code));
  } else {
    return merapi_fail(error, -ENODEV, "expected a window file or devdax device at %s, found neither", path);
  }
  return 0;
}

/* Make `part` whole and see that it lies in a file of `bytes`. */
static int check_part(const char* path, uint64_t bytes, struct merapi_part* part, struct merapi_error* error) {
  if (part->offset % MERAPI_MAPPED_ALIGNMENT != 0 || part->offset > bytes || part->bytes > bytes - part->offset)
    return merapi_fail(error, -EINVAL,
                       "expected a part of the %" PRIu64 " bytes of %s from a multiple of 2 MiB on, found %" PRIu64
                       " bytes from %" PRIu64 " on",
                       bytes, path, part->bytes, part->offset);
  if (part->bytes == 0) part->bytes = bytes - part->offset;
  if (part->bytes < MERAPI_CONTROL_BYTES)
    return merapi_fail(error, -ENOSPC, "expected a window of at least %u bytes at %s, found %" PRIu64,
                       MERAPI_CONTROL_BYTES, path, part->bytes);
  return 0;
}

/* Only under the lock: a window that another device serves keeps its size. */
static int make_larger(int fd, const char* path, uint64_t bytes, struct merapi_error* error) {
  struct stat status;
  if (fstat(fd, &status) < 0) return merapi_fail(error, -errno, "%s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size >= bytes) return 0;
  const int code = merapi_file_check(fd, path, error);
  return code < 0 ? code : merapi_file_grow(fd, path, bytes, error);
}

/* In a child of the device's process: what the lease is of is not touched by it. */
static void forsake(struct merapi_held* held) {
  struct merapi_lease* const lease = (struct merapi_lease*)(void*)held;
  merapi_forsake_fd(&lease->fd);
  merapi_forsake_fd(&lease->connection);
  merapi_forsake_memory(lease->base, lease->bytes);
}

/* Own `fd` (and `connection`, may be -1): lock, map, and make a lease; on error closes `fd` alone. */
int merapi_lease_make(int fd, int connection, const char* path, struct merapi_part part, struct merapi_lease** lease,
                      struct merapi_error* error) {
  const bool whole = part.offset == 0 && part.bytes == 0;
  uint64_t bytes = 0;
  int status = size_of(fd, path, part.file, &bytes, error);
  if (status == 0) status = check_part(path, bytes, &part, error);
  if (status == 0 && (status = merapi_lock(fd, part.offset + MERAPI_LOCK_DEVICE, part.bytes - MERAPI_LOCK_DEVICE)) < 0)
    merapi_fail(error, status, "expected to be the only device of %s, found: %s%s", path, strerror(-status),
                status == -EBUSY ? "; another process serves it, perhaps a stopped one" : "");
  /* What a host offers over a socket is its own affair. A part that is named is an expander's memory, which may hold
   * what it was used for before. */
  if (status == 0 && connection < 0 && whole) status = merapi_file_check(fd, path, error);
  if (status == 0) status = make_larger(fd, path, part.file, error);
  void* base = MAP_FAILED;
  struct merapi_lease* made = NULL;
  if (status == 0) {
    base = mmap(NULL, part.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)part.offset);
    if (base == MAP_FAILED)
      status = merapi_fail(error, -errno, "%s: cannot map %" PRIu64 " bytes: %s", path, part.bytes, strerror(errno));
  }
  if (status == 0 && (made = calloc(1, sizeof *made)) == NULL) {
    munmap(base, part.bytes);
    status = merapi_fail(error, -ENOMEM, "out of memory");
  }
  if (status < 0) {
    close(fd);
    return status;
  }
  made->fd = fd;
  made->connection = connection;
  made->base = base;
  made->bytes = part.bytes;
  merapi_hold(&made->held, forsake);
  *lease = made;
  return 0;
}

int merapi_serve_part(const char* path, uint64_t offset, uint64_t bytes, struct merapi_lease** lease,
                      struct merapi_error* error) {
  *lease = NULL;
  const struct merapi_part part = {.offset = offset, .bytes = bytes};
  merapi_descriptors_begin();
  const int fd = merapi_fd_above_stdio(open(path, O_RDWR | MERAPI_OPEN_ANYTHING));
  const int code = errno;
  const int status = fd < 0 ? merapi_fail(error, -code, "expected a window file or devdax device at %s, found: %s",
                                          path, strerror(code))
                            : merapi_lease_make(fd, -1, path, part, lease, error);
  merapi_descriptors_end();
  return status;
}

int merapi_serve_made(const char* path, uint64_t size, uint64_t offset, uint64_t bytes, struct merapi_lease** lease,
                      struct merapi_error* error) {
  *lease = NULL;
  bool created;
  merapi_descriptors_begin();
  const int fd = merapi_file_create(path, &created);
  const struct merapi_part part = {.offset = offset, .bytes = bytes, .file = size};
  const int status = fd < 0 ? merapi_fail(error, fd, "cannot make %s: %s", path, strerror(-fd))
                            : merapi_lease_make(fd, -1, path, part, lease, error);
  merapi_descriptors_end();
  if (status < 0 && created && status != -EBUSY) unlink(path); /* busy: somebody else has it now */
  return status;
}

int merapi_serve(const char* path, struct merapi_lease** lease, struct merapi_error* error) {
  return merapi_serve_part(path, 0, 0, lease, error);
}

void merapi_lease_end(struct merapi_lease* lease) {
  if (lease == NULL) return;
  void* const base = lease->base;
  merapi_descriptors_begin();
  merapi_leave_memory(base, lease->bytes);
  lease->base = NULL;
  if (lease->fd >= 0) close(lease->fd);
  lease->fd = -1;
  merapi_descriptors_end();
  /* The mapping was the last that held the file: the lock ends here, and so does the memory of a host that is gone. */
  merapi_unmap(base, lease->bytes);
  /* Now another device may have the window, and the host hears of it. */
  merapi_descriptors_begin();
  if (lease->connection >= 0) merapi_close_connection(lease->connection);
  merapi_let_go(&lease->held);
  merapi_descriptors_end();
  free(lease);
}

void* merapi_lease_base(const struct merapi_lease* lease) { return lease->base; }

uint64_t merapi_lease_bytes(const struct merapi_lease* lease) { return lease->bytes; }

int merapi_lease_fd(const struct merapi_lease* lease) { return lease->connection; }

bool merapi_lease_gone(const struct merapi_lease* lease) {
  return lease->connection >= 0 && merapi_hung_up(lease->connection);
}

static struct merapi_host_index* host_index(const struct merapi_lease* lease) {
  return (struct merapi_host_index*)(void*)((uint8_t*)lease->base + MERAPI_HOST_INDEX_OFFSET);
}
static struct merapi_device_index* device_index(const struct merapi_lease* lease) {
  return (struct merapi_device_index*)(void*)((uint8_t*)lease->base + MERAPI_DEVICE_INDEX_OFFSET);
}

void merapi_lease_sleep(struct merapi_lease* lease, uint32_t seen, uint64_t timeout_us) {
  uint32_t* const doorbell = &host_index(lease)->doorbell;
  uint32_t* const sleeping = &device_index(lease)->sleeping;
  const uint64_t deadline = merapi_deadline_ns(timeout_us);
  /* A host that offered the window over the socket shares a kernel with us; one that maps a file may be on the other
   * side of a virtual machine, where its FUTEX_WAKE is not heard. */
  uint64_t poll_ns = lease->connection >= 0 ? UINT64_MAX : MERAPI_POLL_SLICE_MIN_NS;
  __atomic_store_n(sleeping, 1, __ATOMIC_RELEASE);
  for (;;) {
    atomic_thread_fence(memory_order_seq_cst);
    if (__atomic_load_n(doorbell, __ATOMIC_ACQUIRE) != seen) break;
    const uint64_t now = merapi_now_ns();
    if (now >= deadline) break;
    uint64_t slice = deadline - now;
    if (slice > poll_ns) slice = poll_ns;
    if (poll_ns < MERAPI_POLL_SLICE_MAX_NS) poll_ns *= 2;
    merapi_futex_wait(doorbell, seen, slice);
  }
  __atomic_store_n(sleeping, 0, __ATOMIC_RELEASE);
}

void merapi_lease_notify(struct merapi_lease* lease) {
  uint32_t* const event = &device_index(lease)->event;
  __atomic_fetch_add(event, 1, __ATOMIC_SEQ_CST);
  atomic_thread_fence(memory_order_seq_cst);
  if (__atomic_load_n(&host_index(lease)->waiting, __ATOMIC_ACQUIRE) != 0) merapi_futex_wake(event);
}
