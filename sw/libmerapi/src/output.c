/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a file that appears under its name when it is complete. Pipes and character devices are written in place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* A reader of a pipe that is started together with its writer comes a little later. */
#define READER_PATIENCE_US UINT64_C(2000000)
#define READER_LOOK_NS 10000000

struct merapi_output {
  int fd;
  char* target;    /* what is written; of a file, the one that links lead to */
  char* temporary; /* beside it; NULL: written in place */
};

static void release(struct merapi_output* output) {
  if (output->fd >= 0) close(output->fd);
  free(output->target);
  free(output->temporary);
  free(output);
}

static int open_in_place(struct merapi_output* output, mode_t mode, struct merapi_error* error) {
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

/* A name of its own, which nobody else has and no link leads away from; for its owner alone, like a heap dump. */
static int open_beside(struct merapi_output* output, struct merapi_error* error) {
  const char* slash = strrchr(output->target, '/');
  const int folder = slash != NULL ? (int)(slash - output->target) + 1 : 0;
  if (asprintf(&output->temporary, "%.*smerapi-XXXXXX.tmp", folder, output->target) < 0) {
    output->temporary = NULL;
    return merapi_fail(error, -ENOMEM, "out of memory");
  }
  const int made = mkostemps(output->temporary, (int)strlen(".tmp"), O_CLOEXEC);
  output->fd = merapi_fd_above_stdio(made);
  if (output->fd >= 0) return 0;
  const int code = errno;
  if (made >= 0) unlink(output->temporary);
  return merapi_fail(error, -code, "cannot make a file beside %s: %s", output->target, strerror(code));
}

int merapi_output_open(const char* path, struct merapi_output** output, struct merapi_error* error) {
  *output = NULL;
  struct merapi_output* made = calloc(1, sizeof *made);
  if (made == NULL) return merapi_fail(error, -ENOMEM, "out of memory");
  made->fd = -1;
  struct stat status;
  const bool special = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
  struct stat itself;
  const bool there = lstat(path, &itself) == 0;
  made->target = special || !there ? strdup(path) : realpath(path, NULL);
  int code;
  if (made->target == NULL)
    code = merapi_fail(error, -errno, "expected a file or nothing at %s, found a link that leads nowhere (%s)", path,
                       strerror(errno));
  else
    code = special ? open_in_place(made, status.st_mode, error) : open_beside(made, error);
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

bool merapi_output_in_place(const struct merapi_output* output) { return output->temporary == NULL; }

int merapi_output_commit(struct merapi_output* output, struct merapi_error* error) {
  const bool in_place = merapi_output_in_place(output);
  int code = in_place || fsync(output->fd) == 0 ? 0 : errno;
  if (close(output->fd) < 0 && code == 0) code = errno;
  output->fd = -1;
  if (code == 0 && !in_place && rename(output->temporary, output->target) < 0) code = errno;
  if (code != 0) merapi_fail(error, -code, "cannot write %s: %s", output->target, strerror(code));
  if (code != 0 && !in_place) unlink(output->temporary);
  release(output);
  return -code;
}

void merapi_output_abandon(struct merapi_output* output) {
  if (output == NULL) return;
  if (output->temporary != NULL) unlink(output->temporary);
  release(output);
}
