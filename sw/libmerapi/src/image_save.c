/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving a window. Two passes: one finds the pages that hold something, one writes them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image.h"

struct writer {
  int fd; /* -1: only sums */
  struct merapi_checksum sum;
};

static int write_all(int fd, const void* data, uint64_t bytes) {
  const uint8_t* from = data;
  while (bytes > 0) {
    const ssize_t written = write(fd, from, bytes < MERAPI_IMAGE_COPIED ? bytes : MERAPI_IMAGE_COPIED);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return -errno;
    from += written;
    bytes -= (uint64_t)written;
  }
  return 0;
}

/* ------------------------------------------------------------ extents */

struct extents {
  struct merapi_image_extent* list;
  uint64_t count, room, pages;
};

static int append_page(struct extents* extents, uint64_t offset) {
  struct merapi_image_extent* last = extents->count > 0 ? &extents->list[extents->count - 1] : NULL;
  extents->pages++;
  if (last != NULL && last->offset + last->pages * MERAPI_IMAGE_PAGE == offset) {
    last->pages++;
    return 0;
  }
  if (extents->count == extents->room) {
    const uint64_t room = extents->room == 0 ? 1024 : extents->room * 2;
    struct merapi_image_extent* list = realloc(extents->list, room * sizeof *list);
    if (list == NULL) return -ENOMEM;
    extents->list = list;
    extents->room = room;
  }
  extents->list[extents->count++] = (struct merapi_image_extent){offset, 1};
  return 0;
}

static bool is_zero(const uint8_t* page) { return page[0] == 0 && memcmp(page, page + 1, MERAPI_IMAGE_PAGE - 1) == 0; }

/* Between the areas and behind them the memory holds whatever its former use has left. */
static bool in_an_area(const struct merapi_layout* layout, uint64_t page) {
  for (int i = 0; i < (int)MERAPI_AREA_COUNT; i++) {
    const struct merapi_area_desc* area = &layout->area[i];
    if (area->size > 0 && page + MERAPI_IMAGE_PAGE > area->offset && page < area->offset + area->size) return true;
  }
  return false;
}

static int find_pages(struct merapi_window* window, struct extents* extents) {
  const uint64_t end = window->layout.window_bytes;
  int status = append_page(extents, 0); /* the control page always */
  for (struct merapi_run run = merapi_next_run(window, 0, end); run.start < end && status == 0;
       run = merapi_next_run(window, run.end, end)) {
    for (uint64_t at = run.start, next; at < run.end && status == 0; at = next) {
      const uint64_t piece = at / MERAPI_IMAGE_MAPPED * MERAPI_IMAGE_MAPPED;
      next = run.end - piece < MERAPI_IMAGE_MAPPED ? run.end : piece + MERAPI_IMAGE_MAPPED;
      const uint64_t from = at / window->granularity * window->granularity;
      size_t mapped;
      const uint8_t* base = merapi_window_map(window, from, next - from, &mapped);
      if (base == NULL) return -errno;
      merapi_invalidate(window, base + (at - from), next - at);
      for (uint64_t page = at; page < next && status == 0; page += MERAPI_IMAGE_PAGE)
        if (in_an_area(&window->layout, page) && !is_zero(base + (page - from))) status = append_page(extents, page);
      munmap((void*)(uintptr_t)base, mapped);
    }
  }
  return status;
}

static int write_pages(struct merapi_window* window, const struct extents* extents, struct writer* writer) {
  uint8_t* copy = malloc(MERAPI_IMAGE_COPIED);
  if (copy == NULL) return -ENOMEM;
  int status = 0;
  for (uint64_t i = 0; i < extents->count && status == 0; i++) {
    uint64_t at = extents->list[i].offset, left = extents->list[i].pages * MERAPI_IMAGE_PAGE;
    while (left > 0 && status == 0) {
      const uint64_t start = at / MERAPI_IMAGE_MAPPED * MERAPI_IMAGE_MAPPED;
      const uint64_t bytes = left < start + MERAPI_IMAGE_MAPPED - at ? left : start + MERAPI_IMAGE_MAPPED - at;
      const uint64_t from = at / window->granularity * window->granularity;
      size_t mapped;
      uint8_t* base = merapi_window_map(window, from, at - from + bytes, &mapped);
      if (base == NULL) {
        status = -errno;
        break;
      }
      /* By a copy, so that what is written is what is summed even if a page changes meanwhile. */
      for (uint64_t done = 0; done < bytes && status == 0;) {
        const uint64_t part = bytes - done < MERAPI_IMAGE_COPIED ? bytes - done : MERAPI_IMAGE_COPIED;
        memcpy(copy, base + (at - from) + done, part);
        merapi_checksum_add(&writer->sum, copy, part);
        if (writer->fd >= 0) status = write_all(writer->fd, copy, part);
        done += part;
      }
      munmap(base, mapped);
      at += bytes;
      left -= bytes;
    }
  }
  free(copy);
  return status;
}

/* ------------------------------------------------------------- answers */

struct order {
  uint64_t key;
  uint64_t index;
  uint8_t is_klass;
};

static int by_key(const void* left, const void* right) {
  const struct order *a = left, *b = right;
  if (a->is_klass != b->is_klass) return a->is_klass < b->is_klass ? -1 : 1;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  return 0;
}

/* The sections between header and payload, in memory. */
struct tables {
  uint8_t* bytes;
  struct merapi_image_sections sections;
};

static int fill_answers(const struct merapi_answers* answers, const struct merapi_image_sections* s, uint8_t* at) {
  struct order* order = malloc((answers->count + 1) * sizeof *order);
  if (order == NULL) return -ENOMEM;
  for (uint64_t i = 0; i < answers->count; i++)
    order[i] = (struct order){answers->key[i], i, answers->is_klass[i] != 0};
  qsort(order, answers->count, sizeof *order, by_key);
  uint64_t *keys = (uint64_t*)(void*)(at + s->keys), *firsts = (uint64_t*)(void*)(at + s->firsts);
  uint64_t* references = (uint64_t*)(void*)(at + s->references);
  uint64_t used = 0;
  int status = 0;
  for (uint64_t i = 0; i < answers->count; i++) {
    const uint64_t from = answers->first[order[i].index], to = answers->first[order[i].index + 1];
    if (i > 0 && by_key(&order[i - 1], &order[i]) == 0) status = -EEXIST;
    keys[i] = order[i].key;
    firsts[i] = used;
    (at + s->is_klass)[i] = order[i].is_klass;
    for (uint64_t r = from; r < to; r++) references[used++] = answers->reference[r];
  }
  firsts[answers->count] = used;
  free(order);
  return status;
}

static int make_tables(const struct merapi_image_header* header, const struct extents* extents,
                       const struct merapi_answers* answers, const char* text, struct tables* tables) {
  if (!merapi_image_place(header, &tables->sections)) return -EINVAL;
  const struct merapi_image_sections* s = &tables->sections;
  tables->bytes = calloc(1, s->payload);
  if (tables->bytes == NULL) return -ENOMEM;
  memcpy(tables->bytes + s->extents, extents->list, extents->count * sizeof *extents->list);
  memcpy(tables->bytes + s->text, text, header->text_bytes);
  return answers != NULL ? fill_answers(answers, s, tables->bytes) : 0;
}

static int check_answers(const struct merapi_answers* answers, struct merapi_error* error) {
  if (answers->first[0] != 0) return merapi_fail(error, -EINVAL, "expected answers whose first index is 0");
  for (uint64_t i = 0; i < answers->count; i++)
    if (answers->first[i + 1] < answers->first[i])
      return merapi_fail(error, -EINVAL, "expected ascending indexes of answers, found answer %" PRIu64 " out of order",
                         i);
  return 0;
}

/* ---------------------------------------------------------------- file */

/* The pages, from where `fd` stands on (-1: nowhere), and their sum. */
static int sum_pages(struct merapi_window* window, const struct extents* extents, int fd, uint64_t* sum) {
  struct writer writer = {.fd = fd};
  merapi_checksum_start(&writer.sum);
  const int status = write_pages(window, extents, &writer);
  *sum = merapi_checksum_end(&writer.sum);
  return status;
}

/* The header tells the pages' sum and stands before them. Where one cannot go back, as in a pipe, they are read twice.
 */
static int write_image(struct merapi_window* window, const char* path, int fd, bool in_order, uint32_t bitmap,
                       const struct merapi_answers* answers, const char* text, struct merapi_error* error) {
  struct extents extents = {0};
  struct tables tables = {0};
  int status = find_pages(window, &extents);
  struct merapi_image_header header = {
      .magic = MERAPI_IMAGE_MAGIC,
      .version = MERAPI_IMAGE_VERSION,
      .header_bytes = sizeof header,
      .window_bytes = window->layout.window_bytes,
      .extent_count = extents.count,
      .page_count = extents.pages,
      .answer_count = answers != NULL ? answers->count : 0,
      .reference_count = answers != NULL ? answers->first[answers->count] : 0,
      .text_bytes = strlen(text) + 1,
      .bitmap = bitmap,
  };
  if (status == 0) status = make_tables(&header, &extents, answers, text, &tables);
  if (status == -EEXIST) {
    merapi_fail(error, -EINVAL, "expected one answer for each object and klass, found two for one key");
    status = -EINVAL;
  } else if (status < 0) {
    merapi_fail(error, status, "cannot collect the window's pages: %s", strerror(-status));
  } else {
    const uint64_t payload = tables.sections.payload;
    if (!in_order && lseek(fd, (off_t)payload, SEEK_SET) < 0) status = -errno;
    if (status == 0) status = sum_pages(window, &extents, in_order ? -1 : fd, &header.payload_checksum);
    header.tables_checksum = merapi_checksum_of(tables.bytes + sizeof header, payload - sizeof header);
    header.header_checksum = merapi_checksum_of(&header, offsetof(struct merapi_image_header, header_checksum));
    memcpy(tables.bytes, &header, sizeof header);
    if (status == 0 && !in_order && lseek(fd, 0, SEEK_SET) < 0) status = -errno;
    if (status == 0) status = write_all(fd, tables.bytes, payload);
    uint64_t sum = header.payload_checksum;
    if (status == 0 && in_order) status = sum_pages(window, &extents, fd, &sum);
    if (status < 0)
      merapi_fail(error, status, "cannot write the image %s: %s", path, strerror(-status));
    else if (sum != header.payload_checksum)
      status = merapi_fail(error, -EBUSY, "expected a window that nobody writes while it is saved, found a change");
  }
  free(extents.list);
  free(tables.bytes);
  return status;
}

/* The image would take the window's place. */
static bool is_file_of(const struct merapi_window* window, const char* path) {
  struct stat ours, theirs;
  return fstat(window->fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
         ours.st_ino == theirs.st_ino;
}

int merapi_image_save(struct merapi_window* window, const char* path, uint32_t bitmap,
                      const struct merapi_answers* answers, const char* json, struct merapi_error* error) {
  if (bitmap > 1) return merapi_fail(error, -EINVAL, "expected bitmap 0 or 1, found %" PRIu32, bitmap);
  int status = merapi_own(window, error);
  if (status == 0 && answers != NULL) status = check_answers(answers, error);
  if (status < 0) return status;
  if (is_file_of(window, path))
    return merapi_fail(error, -EINVAL,
                       "expected another file than the window's for its image, found %s; choose another", path);
  struct merapi_output* output;
  if ((status = merapi_output_open(path, &output, error)) < 0) return status;
  status = write_image(window, path, merapi_output_fd(output), merapi_output_in_place(output), bitmap, answers,
                       json != NULL ? json : "{}", error);
  if (status == 0) return merapi_output_commit(output, error);
  merapi_output_abandon(output);
  return status;
}
