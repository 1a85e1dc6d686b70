/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a file that appears under its name when it is complete. Where the file system has files without a name, it
 * has none until then, and nothing is left of it when the process is killed. Pipes, character devices and what the
 * process has open already are written in place.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* A reader of a pipe that is started together with its writer comes a little later. */
#define READER_PATIENCE_US UINT64_C(2000000)
#define READER_LOOK_NS 10000000
/* A file is for its owner alone, like a heap dump. */
#define FILE_MODE 0600
#define LINK_BYTES 32

struct merapi_output {
  int fd;
  char* target; /* what is written; of a file, the one that links lead to */
  bool in_place;
  char* temporary; /* the name that it has until it is complete; NULL: none */
};

static void release(struct merapi_output* output) {
  if (output->fd >= 0) close(output->fd);
  free(output->target);
  free(output->temporary);
  free(output);
}

static int open_in_place(struct merapi_output* output, mode_t mode, struct merapi_error* error) {
  output->in_place = true;
  if (!S_ISCHR(mode) && !S_ISFIFO(mode))
    return merapi_fail(error, -EINVAL,
                       "expected a file, pipe, character device or nothing at %s, found %s; name a file",
                       output->target,
                       S_ISDIR(mode)    ? "a folder"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a block device");
  /* A pipe that nobody reads is not waited for without end. */
  const uint64_t deadline = merapi_deadline_ns(S_ISFIFO(mode) ? READER_PATIENCE_US : 0);
  const struct timespec nap = {.tv_nsec = READER_LOOK_NS};
  int opened;
  while ((opened = open(output->target, O_WRONLY | MERAPI_OPEN_ANYTHING)) < 0 && errno == ENXIO &&
         merapi_now_ns() < deadline)
    nanosleep(&nap, NULL);
  output->fd = merapi_fd_above_stdio(opened);
  const int flags = output->fd < 0 ? -1 : fcntl(output->fd, F_GETFL);
  if (flags != -1 && fcntl(output->fd, F_SETFL, flags & ~O_NONBLOCK) == 0) return 0;
  const int code = errno;
  if (code == ENXIO && S_ISFIFO(mode))
    return merapi_fail(error, -code, "expected a reader of the pipe %s, found that nobody reads it; start one first",
                       output->target);
  return merapi_fail(error, -code, "cannot write %s: %s", output->target, strerror(code));
}

static int folder_length(const struct merapi_output* output) {
  const char* slash = strrchr(output->target, '/');
  return slash != NULL ? (int)(slash - output->target) + 1 : 0;
}

/* Give `output` a name of its own, which nobody else has and no link leads away from: a new file's, or (`link`: what
 * leads to the open file) one of the file without a name. The descriptor of a new file, 0, or a negative errno. */
static int take_name(struct merapi_output* output, const char* link) {
  for (;;) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return -errno;
    if (asprintf(&output->temporary, "%.*smerapi-%016" PRIx64 ".tmp", folder_length(output), output->target, random) <
        0) {
      output->temporary = NULL;
      return -ENOMEM;
    }
    const int taken = link == NULL ? open(output->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE)
                                   : linkat(AT_FDCWD, link, AT_FDCWD, output->temporary, AT_SYMLINK_FOLLOW);
    if (taken >= 0) return taken;
    const int code = errno;
    free(output->temporary);
    output->temporary = NULL;
    if (code != EEXIST) return -code;
  }
}

/* The folder that the target's name stands in, as a path, or NULL. */
static char* folder_of(const struct merapi_output* output) {
  char* folder;
  return asprintf(&folder, "%.*s.", folder_length(output), output->target) < 0 ? NULL : folder;
}

/* A name is on the disk when its folder is. 0 or an errno; one that may not be read, or whose file system has no such
 * thing, is left to that. */
static int sync_folder(const struct merapi_output* output) {
  char* folder = folder_of(output);
  if (folder == NULL) return ENOMEM;
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(folder);
  const int code = fd < 0 || fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  if (fd >= 0) close(fd);
  return code;
}

/* What leads to the open file whatever its name, for linkat(2). */
static void link_to(int fd, char link[LINK_BYTES]) { snprintf(link, LINK_BYTES, "/proc/self/fd/%d", fd); }

/* A file without a name in the target's folder, or -1 where there are none, or where they could not get one later. */
static int open_nameless(const struct merapi_output* output) {
  char* folder = folder_of(output);
  if (folder == NULL) return -1;
  const int fd = merapi_fd_above_stdio(open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, FILE_MODE));
  free(folder);
  if (fd < 0) return -1;
  char link[LINK_BYTES];
  struct stat itself, seen;
  link_to(fd, link);
  if (fstat(fd, &itself) == 0 && stat(link, &seen) == 0 && itself.st_dev == seen.st_dev && itself.st_ino == seen.st_ino)
    return fd;
  close(fd);
  return -1;
}

static int open_beside(struct merapi_output* output, struct merapi_error* error) {
  output->fd = open_nameless(output);
  if (output->fd >= 0) return 0;
  const int made = take_name(output, NULL);
  output->fd = merapi_fd_above_stdio(made);
  if (output->fd >= 0) return 0;
  const int code = made < 0 ? -made : errno;
  if (output->temporary != NULL) unlink(output->temporary);
  return merapi_fail(error, -code, "cannot make a file beside %s: %s", output->target, strerror(code));
}

/* The number of the descriptor of this process' own that `path` stands for, or -1. */
static int own_descriptor(const char* path) {
  static const char* const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (strcmp(path, standard[fd]) == 0) return fd;
  static const char* const folders[] = {"/dev/fd/", "/proc/self/fd/"};
  for (int i = 0; i < 2; i++) {
    const size_t length = strlen(folders[i]), digits = strspn(path + strnlen(path, length), "0123456789");
    if (strncmp(path, folders[i], length) == 0 && digits > 0 && digits < 10 && path[length + digits] == '\0')
      return atoi(path + length);
  }
  return -1;
}

/* A file that somebody has opened for us, perhaps to append, perhaps without a name: what stands in it stays, and what
 * is written comes where its descriptor is. 1: it is none, and is opened like any other of its kind. */
static int open_given(struct merapi_output* output, int given, struct merapi_error* error) {
  const int flags = fcntl(given, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
    return merapi_fail(error, -EBADF, "expected %s to be open for writing, found that it is not", output->target);
  struct stat status;
  if (fstat(given, &status) < 0 || !S_ISREG(status.st_mode)) return 1;
  output->in_place = true;
  output->fd = fcntl(given, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return output->fd >= 0 ? 0 : merapi_fail(error, -errno, "cannot write %s: %s", output->target, strerror(errno));
}

/* What stands at `path` decides how it is written. */
static int open_path(struct merapi_output* output, const char* path, struct merapi_error* error) {
  const int given = own_descriptor(path);
  if (given >= 0) {
    if ((output->target = strdup(path)) == NULL) return merapi_fail(error, -ENOMEM, "out of memory");
    const int status = open_given(output, given, error);
    if (status <= 0) return status;
    free(output->target);
  }
  struct stat status, itself;
  const bool special = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
  const bool there = lstat(path, &itself) == 0;
  output->target = special || !there ? strdup(path) : realpath(path, NULL);
  if (output->target == NULL)
    return merapi_fail(error, -errno, "expected a file or nothing at %s, found a link that leads nowhere (%s)", path,
                       strerror(errno));
  return special ? open_in_place(output, status.st_mode, error) : open_beside(output, error);
}

int merapi_output_open(const char* path, struct merapi_output** output, struct merapi_error* error) {
  *output = NULL;
  struct merapi_output* made = calloc(1, sizeof *made);
  if (made == NULL) return merapi_fail(error, -ENOMEM, "out of memory");
  made->fd = -1;
  const int code = open_path(made, path, error);
  if (code < 0) {
    release(made);
    return code;
  }
  *output = made;
  return 0;
}

int merapi_output_fd(const struct merapi_output* output) { return output->fd; }

bool merapi_output_is(const char* path, int fd) {
  struct stat ours, theirs;
  return stat(path, &ours) == 0 && fstat(fd, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

bool merapi_output_in_place(const struct merapi_output* output) { return output->in_place; }

int merapi_output_commit(struct merapi_output* output, struct merapi_error* error) {
  int code = output->in_place || fsync(output->fd) == 0 ? 0 : errno;
  if (code == 0 && !output->in_place && output->temporary == NULL) {
    char link[LINK_BYTES];
    link_to(output->fd, link);
    code = -take_name(output, link);
  }
  if (close(output->fd) < 0 && code == 0) code = errno;
  output->fd = -1;
  if (code == 0 && !output->in_place && rename(output->temporary, output->target) < 0) code = errno;
  if (code != 0 && output->temporary != NULL) unlink(output->temporary);
  if (code == 0 && !output->in_place) code = sync_folder(output);
  if (code != 0) merapi_fail(error, -code, "cannot write %s: %s", output->target, strerror(code));
  release(output);
  return -code;
}

void merapi_output_abandon(struct merapi_output* output) {
  if (output == NULL) return;
  if (output->temporary != NULL) unlink(output->temporary);
  release(output);
}
