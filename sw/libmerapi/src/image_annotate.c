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

/* The header with `sum` for its tables, on the disk: 128 bytes in one sector, all or none. */
static bool write_header(int fd, struct merapi_image_header* header, uint64_t sum) {
  header->tables_checksum = sum;
  header->header_checksum = merapi_checksum_of(header, offsetof(struct merapi_image_header, header_checksum));
  return write_all(fd, header, sizeof *header, 0) && fsync(fd) == 0;
}

/* An image is as large as its heap, so that it is not copied for a text of a few bytes. Whenever this is interrupted,
 * the header's sum is that of the old tables, of those with the new text, or of those without a text
 * (MERAPI_IMAGE_NO_TEXT), which a reader tries when it finds another. */
static int write_text(const struct merapi_image* image, int fd, const char* json, struct merapi_error* error) {
  struct merapi_image_header header = image->header;
  const uint64_t without = merapi_image_sum_with(image->own, &header, &image->sections, MERAPI_IMAGE_NO_TEXT);
  const uint64_t with = merapi_image_sum_with(image->own, &header, &image->sections, json);
  char* text = malloc(header.text_bytes);
  if (text == NULL)
    return merapi_fail(error, -ENOMEM, "%s: no memory for %" PRIu64 " bytes", image->path, header.text_bytes);
  memset(text, ' ', header.text_bytes - 1);
  memcpy(text, json, strlen(json));
  text[header.text_bytes - 1] = '\0';
  const bool written = (header.tables_checksum == without || write_header(fd, &header, without)) &&
                       write_all(fd, text, header.text_bytes, image->sections.text) && fsync(fd) == 0 &&
                       write_header(fd, &header, with);
  const int code = errno;
  free(text);
  return written ? 0 : merapi_fail(error, -code, "%s: cannot write the text: %s", image->path, strerror(code));
}

/* A file that has taken the name since the image was opened: what was looked at does not hold for it. */
static bool is_its_file(const struct merapi_image* image, int fd) {
  struct stat now;
  return fstat(fd, &now) == 0 && now.st_dev == image->device && now.st_ino == image->inode &&
         (uint64_t)now.st_size == image->file_bytes;
}

int merapi_image_annotate(const char* path, const char* json, struct merapi_error* error) {
  struct merapi_image* image;
  const int result = merapi_image_open(path, &image, error);
  if (result != 0) return result;
  int done;
  if (strlen(json) >= image->header.text_bytes || image->header.text_bytes < sizeof MERAPI_IMAGE_NO_TEXT) {
    done =
        merapi_fail(error, -ENOSPC, "%s: expected a text of at most %" PRIu64 " bytes, found %zu; save with more room",
                    path, image->header.text_bytes - 1, strlen(json));
  } else {
    const int fd = merapi_fd_above_stdio(open(path, O_RDWR | O_CLOEXEC));
    if (fd < 0) {
      done = merapi_fail(error, -errno, "cannot open %s for writing: %s", path, strerror(errno));
    } else {
      done = is_its_file(image, fd)
                 ? write_text(image, fd, json, error)
                 : merapi_fail(error, -EBUSY, "expected %s to stay the same file, found another one; try again", path);
      close(fd);
    }
  }
  merapi_image_close(image);
  return done;
}
