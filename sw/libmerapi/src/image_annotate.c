/* SPDX-License-Identifier: Apache-2.0
 *
 * Rewriting the text of a finished image: how long stock marking took is known only after the window was saved.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"

static bool write_all(int fd, const void* data, size_t bytes, uint64_t at) {
  const uint8_t* from = data;
  while (bytes > 0) {
    const ssize_t done = pwrite(fd, from, bytes, (off_t)at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    from += done;
    at += (uint64_t)done;
    bytes -= (size_t)done;
  }
  return true;
}

/* The tables of an open image with the new text in them; sums are made over these bytes. */
static int write_text(const struct merapi_image* image, int fd, const char* json, struct merapi_error* error) {
  struct merapi_image_header header = image->header;
  const uint64_t tables = image->sections.payload - sizeof header;
  const uint64_t text = image->sections.text - sizeof header;
  uint8_t* copy = malloc(tables);
  if (copy == NULL) return merapi_fail(error, -ENOMEM, "%s: no memory for %" PRIu64 " bytes", image->path, tables);
  memcpy(copy, image->file + sizeof header, tables);
  /* The room behind a shorter text is blank, which is nothing in JSON. */
  memset(copy + text, ' ', header.text_bytes - 1);
  memcpy(copy + text, json, strlen(json));
  header.tables_checksum = merapi_checksum_of(copy, tables);
  header.header_checksum = merapi_checksum_of(&header, offsetof(struct merapi_image_header, header_checksum));
  const bool written = write_all(fd, copy + text, header.text_bytes, image->sections.text) &&
                       write_all(fd, &header, sizeof header, 0) && fsync(fd) == 0;
  free(copy);
  return written ? 0 : merapi_fail(error, -errno, "%s: cannot write the text: %s", image->path, strerror(errno));
}

int merapi_image_annotate(const char* path, const char* json, struct merapi_error* error) {
  struct merapi_image* image;
  const int result = merapi_image_open(path, &image, error);
  if (result != 0) return result;
  int done;
  if (strlen(json) >= image->header.text_bytes) {
    done =
        merapi_fail(error, -ENOSPC, "%s: expected a text of at most %" PRIu64 " bytes, found %zu; save with more room",
                    path, image->header.text_bytes - 1, strlen(json));
  } else {
    const int fd = merapi_fd_above_stdio(open(path, O_RDWR | O_CLOEXEC));
    if (fd < 0) {
      done = merapi_fail(error, -errno, "cannot open %s for writing: %s", path, strerror(errno));
    } else {
      done = write_text(image, fd, json, error);
      close(fd);
    }
  }
  merapi_image_close(image);
  return done;
}
