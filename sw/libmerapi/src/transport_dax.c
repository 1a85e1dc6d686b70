/* SPDX-License-Identifier: Apache-2.0
 *
 * dax:PATH, a devdax character device. Its size and mapping granularity are in sysfs (seek and stat do not tell).
 * The device on the other side is a board, or a process on the other side of a virtual machine: there is no lock to
 * ask about it, and a futex does not reach it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "internal.h"

static int read_number(const char* directory, const char* name, uint64_t* value) {
  char path[PATH_MAX];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path) return -ENAMETOOLONG;
  FILE* file = fopen(path, "re");
  if (file == NULL) return -errno;
  const int found = fscanf(file, "%" SCNi64, (int64_t*)value);
  fclose(file);
  return found == 1 ? 0 : -EIO;
}

int merapi_dax_probe(const char* sysfs, unsigned major, unsigned minor, uint64_t* bytes, uint64_t* alignment) {
  char directory[PATH_MAX], subsystem[PATH_MAX], resolved[PATH_MAX];
  if ((size_t)snprintf(directory, sizeof directory, "%s/dev/char/%u:%u", sysfs, major, minor) >= sizeof directory ||
      (size_t)snprintf(subsystem, sizeof subsystem, "%s/subsystem", directory) >= sizeof subsystem)
    return -ENAMETOOLONG;
  if (realpath(subsystem, resolved) == NULL) return -ENODEV;
  const char* name = strrchr(resolved, '/');
  if (name == NULL || strcmp(name, "/dax") != 0) return -ENODEV;
  int status = read_number(directory, "size", bytes);
  if (status < 0) return status;
  status = read_number(directory, "align", alignment);
  /* Kernels before 5.10 do not tell; 2 MiB is what they use unless a namespace was made otherwise. */
  if (status == -ENOENT) {
    *alignment = MERAPI_MAPPED_ALIGNMENT;
    status = 0;
  }
  if (status == 0 && !merapi_is_power_of_two(*alignment)) status = -EIO;
  return status;
}

static int dax_open(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  (void)needed;
  (void)flags;
  window->fd = merapi_fd_above_stdio(open(window->path, (window->readonly ? O_RDONLY : O_RDWR) | MERAPI_OPEN_ANYTHING));
  if (window->fd < 0) {
    const int code = errno;
    return merapi_fail(error, -code, "expected a devdax device at %s, found: %s", window->path, strerror(code));
  }
  return 0;
}

static int dax_size(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  (void)needed;
  (void)flags;
  struct stat status;
  if (fstat(window->fd, &status) < 0) return merapi_fail(error, -errno, "%s: %s", window->path, strerror(errno));
  if (!S_ISCHR(status.st_mode))
    return merapi_fail(error, -ENODEV, "expected a devdax character device at %s, found something else", window->path);
  const int code =
      merapi_dax_probe("/sys", major(status.st_rdev), minor(status.st_rdev), &window->bytes, &window->granularity);
  if (code < 0)
    return merapi_fail(error, code,
                       "expected a devdax device at %s, found none in sysfs (%s); see 'daxctl list' and "
                       "'daxctl reconfigure-device -m devdax'",
                       window->path, strerror(-code));
  if (window->granularity > MERAPI_MAPPED_ALIGNMENT)
    return merapi_fail(error, -EINVAL,
                       "expected a devdax device with an alignment of at most 2 MiB at %s, found %" PRIu64
                       "; create it again with 'daxctl create-device -a 2M'",
                       window->path, window->granularity);
  return 0;
}

const struct merapi_transport merapi_transport_dax = {
    .name = "dax",
    .open = dax_open,
    .size = dax_size,
    .devdax = true,
};
