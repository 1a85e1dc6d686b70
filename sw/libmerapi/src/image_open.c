/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening an image. Everything the file says is checked against its size before it is used; nothing is allocated by a
 * size that the file states.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"

static int check_header(struct merapi_image* image, struct merapi_error* error) {
  const struct merapi_image_header* h = &image->header;
  if (h->magic != MERAPI_IMAGE_MAGIC || h->header_bytes != sizeof *h)
    return merapi_fail(error, -EPROTO, "expected a saved window at %s, found another kind of file", image->path);
  if (h->version != MERAPI_IMAGE_VERSION)
    return merapi_fail(error, -EPROTO, "expected image version %u at %s, found %" PRIu32, MERAPI_IMAGE_VERSION,
                       image->path, h->version);
  const uint64_t sum = merapi_checksum_of(h, offsetof(struct merapi_image_header, header_checksum));
  if (MERAPI_CHECKSUMS_COUNT && sum != h->header_checksum)
    return merapi_fail(error, -EBADMSG, "%s: the header is damaged (checksum)", image->path);
  if (!merapi_image_place(h, &image->sections) || image->sections.end != image->file_bytes)
    return merapi_fail(error, -EBADMSG, "%s: expected %" PRIu64 " bytes by its header, found %" PRIu64, image->path,
                       image->sections.end, image->file_bytes);
  return 0;
}

static int check_tables(struct merapi_image* image, struct merapi_error* error) {
  const struct merapi_image_header* h = &image->header;
  const uint64_t tables = image->sections.payload - sizeof *h;
  image->text = (const char*)image->own + image->sections.text;
  if (MERAPI_CHECKSUMS_COUNT && merapi_checksum_of(image->own + sizeof *h, tables) != h->tables_checksum) {
    if (h->text_bytes < sizeof MERAPI_IMAGE_NO_TEXT ||
        merapi_image_sum_with(image->own, h, &image->sections, MERAPI_IMAGE_NO_TEXT) != h->tables_checksum)
      return merapi_fail(error, -EBADMSG, "%s: the tables are damaged (checksum)", image->path);
    image->text = MERAPI_IMAGE_NO_TEXT;
  }
  if (h->bitmap > 1 || h->text_bytes == 0 || image->own[image->sections.text + h->text_bytes - 1] != 0)
    return merapi_fail(error, -EBADMSG, "%s: expected a bitmap of 0 or 1 and a terminated text, found neither",
                       image->path);
  return 0;
}

static const struct merapi_image_extent* extents_of(const struct merapi_image* image) {
  return (const struct merapi_image_extent*)(const void*)(image->own + image->sections.extents);
}

static int check_extents(const struct merapi_image* image, struct merapi_error* error) {
  const struct merapi_image_extent* extent = extents_of(image);
  const uint64_t window_pages = image->header.window_bytes / MERAPI_IMAGE_PAGE;
  uint64_t pages = 0, end = 0;
  if (image->header.window_bytes % MERAPI_MAPPED_ALIGNMENT != 0)
    return merapi_fail(error, -EBADMSG, "%s: expected a window of whole 2 MiB, found %" PRIu64 " bytes", image->path,
                       image->header.window_bytes);
  for (uint64_t i = 0; i < image->header.extent_count; i++) {
    const uint64_t first = extent[i].offset / MERAPI_IMAGE_PAGE;
    if (extent[i].offset % MERAPI_IMAGE_PAGE != 0 || extent[i].pages == 0 || (i > 0 && first < end) ||
        (i == 0 && first != 0) || first >= window_pages || extent[i].pages > window_pages - first)
      return merapi_fail(error, -EBADMSG,
                         "%s: expected ascending extents in %" PRIu64 " pages, found %" PRIu64 " pages at %#" PRIx64,
                         image->path, window_pages, extent[i].pages, extent[i].offset);
    end = first + extent[i].pages;
    pages += extent[i].pages;
  }
  if (pages != image->header.page_count || pages == 0)
    return merapi_fail(error, -EBADMSG, "%s: expected %" PRIu64 " pages (at least the control page), found %" PRIu64,
                       image->path, image->header.page_count, pages);
  return 0;
}

static int check_answers(struct merapi_image* image, struct merapi_error* error) {
  const struct merapi_image_sections* s = &image->sections;
  struct merapi_answers* a = &image->answers;
  a->count = image->header.answer_count;
  a->key = (const uint64_t*)(const void*)(image->own + s->keys);
  a->first = (const uint64_t*)(const void*)(image->own + s->firsts);
  a->reference = (const uint64_t*)(const void*)(image->own + s->references);
  a->is_klass = image->own + s->is_klass;
  bool good = a->first[0] == 0 && a->first[a->count] == image->header.reference_count;
  for (uint64_t i = 0; i < a->count && good; i++) {
    good = a->is_klass[i] <= 1 && a->first[i] <= a->first[i + 1];
    if (i > 0 && good)
      good = a->is_klass[i - 1] < a->is_klass[i] || (a->is_klass[i - 1] == a->is_klass[i] && a->key[i - 1] < a->key[i]);
  }
  if (!good) return merapi_fail(error, -EBADMSG, "%s: expected sorted answers, found others", image->path);
  return 0;
}

static int check(struct merapi_image* image, struct merapi_error* error) {
  int status = check_tables(image, error);
  if (status == 0) status = check_extents(image, error);
  if (status == 0) status = check_answers(image, error);
  if (status == 0)
    status = merapi_control_check(image->own + image->sections.payload, image->header.window_bytes, &image->layout,
                                  &image->config, error);
  if (status == 0 && image->layout.window_bytes != image->header.window_bytes)
    status = merapi_fail(error, -EBADMSG, "%s: expected a layout of %" PRIu64 " bytes, found %" PRIu64, image->path,
                         image->header.window_bytes, image->layout.window_bytes);
  return status;
}

/* Of a file that becomes smaller meanwhile as well. */
static int read_all(int fd, uint8_t* to, uint64_t bytes, const char* path, struct merapi_error* error) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(fd, to + done, bytes - done, (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return merapi_fail(error, -errno, "%s: cannot read: %s", path, strerror(errno));
    if (got == 0)
      return merapi_fail(error, -EBADMSG, "%s: expected %" PRIu64 " bytes, found %" PRIu64, path, bytes, done);
    done += (uint64_t)got;
  }
  return 0;
}

/* The file's size has been found to be what the header says, so no more is allocated than it has. */
static int read_own(struct merapi_image* image, int fd, struct merapi_error* error) {
  if (image->sections.end - image->sections.payload < MERAPI_CONTROL_BYTES)
    return merapi_fail(error, -EBADMSG, "%s: expected a control page, found no page", image->path);
  const uint64_t bytes = image->sections.payload + MERAPI_CONTROL_BYTES;
  if ((image->own = malloc(bytes)) == NULL)
    return merapi_fail(error, -ENOMEM, "%s: no memory for %" PRIu64 " bytes of tables", image->path, bytes);
  return read_all(fd, image->own, bytes, image->path, error);
}

static int map_file(struct merapi_image* image, struct merapi_error* error) {
  /* Waits for no pipe's writer. */
  const int fd = merapi_fd_above_stdio(open(image->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0) {
    const int code = errno;
    if (fd >= 0) close(fd);
    return merapi_fail(error, -code, "expected a saved window at %s, found: %s", image->path, strerror(code));
  }
  if (!S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof image->header) {
    close(fd);
    return merapi_fail(error, -EPROTO, "expected a saved window at %s, found another kind of file", image->path);
  }
  image->file_bytes = (uint64_t)status.st_size;
  image->device = status.st_dev;
  image->inode = status.st_ino;
  int result = read_all(fd, (uint8_t*)&image->header, sizeof image->header, image->path, error);
  if (result == 0) result = check_header(image, error);
  if (result == 0) result = read_own(image, fd, error);
  if (result == 0) {
    void* file = mmap(NULL, image->file_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
      result = merapi_fail(error, -errno, "%s: cannot map: %s", image->path, strerror(errno));
    else
      image->file = file;
  }
  close(fd);
  return result;
}

int merapi_image_open(const char* path, struct merapi_image** image, struct merapi_error* error) {
  *image = NULL;
  struct merapi_image* made = calloc(1, sizeof *made);
  if (made == NULL || (made->path = strdup(path)) == NULL) {
    free(made);
    return merapi_fail(error, -ENOMEM, "out of memory");
  }
  int status = map_file(made, error);
  if (status == 0) status = check(made, error);
  if (status < 0) {
    merapi_image_close(made);
    return status;
  }
  *image = made;
  return 0;
}

void merapi_image_close(struct merapi_image* image) {
  if (image == NULL) return;
  if (image->file != NULL) munmap((void*)(uintptr_t)image->file, image->file_bytes);
  free(image->own);
  free(image->path);
  free(image);
}

uint64_t merapi_image_window_bytes(const struct merapi_image* image) { return image->header.window_bytes; }

uint32_t merapi_image_bitmap(const struct merapi_image* image) { return image->header.bitmap; }

const char* merapi_image_json(const struct merapi_image* image) { return image->text; }

const struct merapi_answers* merapi_image_answers(const struct merapi_image* image) { return &image->answers; }

void merapi_image_geometry(const struct merapi_image* image, struct merapi_geometry* geometry) {
  const struct merapi_area_desc* area = image->layout.area;
  memset(geometry, 0, sizeof *geometry);
  geometry->region_log2 = image->config.region_log2;
  geometry->alignment_log2 = image->config.alignment_log2;
  geometry->heap_bytes = merapi_round_up(area[MERAPI_AREA_HEAP].size, UINT64_C(1) << geometry->region_log2);
  geometry->submission_entries = (uint32_t)(area[MERAPI_AREA_SUBMISSION].size / sizeof(struct merapi_submission));
  geometry->completion_entries = (uint32_t)(area[MERAPI_AREA_COMPLETION].size / sizeof(struct merapi_completion));
  geometry->shape_slots = (uint32_t)(area[MERAPI_AREA_SHAPES].size / sizeof(struct merapi_shape));
  geometry->spill_bytes = merapi_round_up(area[MERAPI_AREA_SPILL].size, MERAPI_AREA_ALIGNMENT);
  /* An image may be laid out less tightly than this library would: what is missing goes to the spill area. */
  struct merapi_layout layout;
  if (merapi_layout_compute(geometry, &layout, NULL) == 0 && layout.window_bytes < image->header.window_bytes)
    geometry->spill_bytes += image->header.window_bytes - layout.window_bytes;
}
