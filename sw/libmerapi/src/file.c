/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that hold windows: what may be laid out or served, and room for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "image.h"

int merapi_fd_above_stdio(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int code = errno;
  close(fd);
  errno = code;
  return above;
}

/* ------------------------------------------------------- what a file holds */

static bool zeros(const uint8_t* page, size_t from, size_t to) {
  while (from < to && page[from] == 0) from++;
  return from == to;
}

/* Nothing but what a device that waits for its first host leaves, or a host that was laying the window out. */
static bool is_blank(const uint8_t* page) {
  const size_t generation_end = MERAPI_HOST_INDEX_OFFSET + sizeof(uint64_t);
  struct merapi_host_index host;
  struct merapi_device_identity identity;
  struct merapi_device_index device;
  memcpy(&host, page + MERAPI_HOST_INDEX_OFFSET, sizeof host);
  memcpy(&identity, page + MERAPI_DEVICE_IDENTITY_OFFSET, sizeof identity);
  memcpy(&device, page + MERAPI_DEVICE_INDEX_OFFSET, sizeof device);
  if (!zeros(page, 0, MERAPI_HOST_INDEX_OFFSET) || !zeros(page, generation_end, MERAPI_DEVICE_IDENTITY_OFFSET) ||
      (host.generation != 0 && host.generation % 2 == 0))
    return false;
  if (identity.magic == MERAPI_DEVICE_MAGIC) return true;
  const size_t event = MERAPI_DEVICE_INDEX_OFFSET + offsetof(struct merapi_device_index, event);
  const size_t state = MERAPI_DEVICE_INDEX_OFFSET + offsetof(struct merapi_device_index, state);
  return device.sleeping <= 1 && zeros(page, MERAPI_DEVICE_IDENTITY_OFFSET, event) &&
         zeros(page, state, MERAPI_CONTROL_BYTES);
}

static bool is_window(const uint8_t* page) {
  struct merapi_identity identity;
  struct merapi_host_index host;
  memcpy(&identity, page + MERAPI_IDENTITY_OFFSET, sizeof identity);
  memcpy(&host, page + MERAPI_HOST_INDEX_OFFSET, sizeof host);
  return merapi_was_window(&identity, host.generation);
}

/* Anything but zeros from byte `at` on, as far as the first 64 MiB tell of what is no hole: images of disks begin with
 * zeros, too. -errno when the file cannot be read. */
static int has_data(int fd, off_t at) {
  enum { kStep = 1 << 16 };
  uint8_t buffer[kStep];
  for (size_t looked = 0; looked < (64u << 20);) {
    const off_t data = lseek(fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return 0;
    if (data >= 0) at = data; /* else of a file system that does not know its holes */
    const ssize_t got = pread(fd, buffer, sizeof buffer, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? -errno : 0;
    if (!zeros(buffer, 0, (size_t)got)) return 1;
    at += got;
    looked += (size_t)got;
  }
  return 0;
}

int merapi_file_check(int fd, const char* path, struct merapi_error* error) {
  struct stat status;
  if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) return 0; /* memory of a device may hold anything at first */
  _Alignas(uint64_t) uint8_t page[MERAPI_CONTROL_BYTES] = {0};
  size_t got = 0;
  while (got < sizeof page) {
    const ssize_t more = pread(fd, page + got, sizeof page - got, (off_t)got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return merapi_fail(error, -errno, "cannot read %s: %s", path, strerror(errno));
    if (more == 0) break;
    got += (size_t)more;
  }
  if (is_window(page)) return 0;
  if (is_blank(page)) {
    /* Where nobody has been yet, nothing else stands either. */
    const int found = zeros(page, 0, sizeof page) ? has_data(fd, sizeof page) : 0;
    if (found == 0) return 0;
    if (found < 0) return merapi_fail(error, found, "cannot read %s: %s", path, strerror(-found));
  }
  uint64_t magic;
  memcpy(&magic, page, sizeof magic);
  return merapi_fail(error, -EPROTO,
                     "expected a window, zeros or nothing at %s, found %s, which is left as it is; choose another "
                     "path, or remove the file",
                     path, magic == MERAPI_IMAGE_MAGIC ? "a saved window" : "other data");
}

/* -------------------------------------------------------------------- room */

int merapi_file_fits(int fd, const char* path, uint64_t bytes, struct merapi_error* error) {
  struct statfs room;
  if (fstatfs(fd, &room) < 0 || room.f_type != TMPFS_MAGIC || room.f_blocks == 0) return 0;
  const uint64_t total = (uint64_t)room.f_blocks * (uint64_t)room.f_bsize;
  if (bytes <= total) return 0;
  return merapi_fail(error, -ENOSPC,
                     "expected room for a window of %" PRIu64 " bytes at %s, found a tmpfs of %" PRIu64
                     "; use a smaller heap, or another path",
                     bytes, path, total);
}

int merapi_file_grow(int fd, const char* path, uint64_t bytes, struct merapi_error* error) {
  const int status = merapi_file_fits(fd, path, bytes, error);
  if (status < 0) return status;
  if (ftruncate(fd, (off_t)bytes) == 0) return 0;
  return merapi_fail(error, -errno, "%s: cannot make it %" PRIu64 " bytes large: %s", path, bytes, strerror(errno));
}

int merapi_file_create(const char* path, bool* created) {
  *created = false;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
  if (fd >= 0) {
    fd = merapi_fd_above_stdio(fd);
    *created = true;
  } else if (errno == EEXIST) {
    /* Without O_CREAT: with it, sticky folders do not give others' files out. */
    fd = open(path, O_RDWR | MERAPI_OPEN_ANYTHING);
    if (fd < 0 && errno == ENOENT) fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0600); /* a link to nothing */
    fd = merapi_fd_above_stdio(fd);
  }
  return fd < 0 ? -errno : fd;
}

int merapi_reserve(struct merapi_window* window, uint64_t offset, uint64_t bytes) {
  if (window->transport->devdax) return 0;
  int code;
  do {
    code = fallocate(window->fd, 0, (off_t)offset, (off_t)bytes) == 0 ? 0 : errno;
  } while (code == EINTR);
  /* A file system that cannot reserve: what does not fit shows when it is written. */
  return code == ENOSPC || code == EDQUOT ? -code : 0;
}

struct merapi_run merapi_next_run(const struct merapi_window* window, uint64_t offset, uint64_t end) {
  if (offset >= end) return (struct merapi_run){end, end};
  const off_t start = lseek(window->fd, (off_t)offset, SEEK_DATA);
  if (start < 0 && errno == ENXIO) return (struct merapi_run){end, end};
  /* No such operation, or devdax, where seeking moves nothing: look at every page. */
  if (start < (off_t)offset) return (struct merapi_run){offset, end};
  const off_t hole = lseek(window->fd, start, SEEK_HOLE);
  struct merapi_run run = {(uint64_t)start / MERAPI_IMAGE_PAGE * MERAPI_IMAGE_PAGE, end};
  if (hole > start && (uint64_t)hole < end) run.end = merapi_round_up((uint64_t)hole, MERAPI_IMAGE_PAGE);
  if (run.start > end) run.start = end;
  return run;
}

struct merapi_run merapi_next_entries(const struct merapi_window* window, const struct merapi_area_desc* area,
                                      uint64_t first, uint64_t entry_bytes) {
  const uint64_t from = area->offset + first * entry_bytes, to = area->offset + area->size;
  struct merapi_run run = merapi_next_run(window, from, to);
  /* Pages may hold more than what was asked for. */
  if (run.start < from) run.start = from;
  if (run.end > to) run.end = to;
  return (struct merapi_run){(run.start - area->offset) / entry_bytes,
                             (run.end - area->offset + entry_bytes - 1) / entry_bytes};
}
