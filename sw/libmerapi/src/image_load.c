/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing an image into a window. The window is no window (no magic) while it is being written, and its generation
 * stays odd: a device that looks meanwhile sees nothing to serve.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"

/* Through a copy, so that what is written is what is summed. */
static int write_range(struct merapi_window* window, uint64_t offset, const uint8_t* from, uint64_t bytes,
                       uint8_t* copy, struct merapi_checksum* sum) {
  while (bytes > 0) {
    const uint64_t part = bytes < MERAPI_IMAGE_MAPPED ? bytes : MERAPI_IMAGE_MAPPED;
    const uint64_t start = offset / window->granularity * window->granularity;
    size_t mapped;
    uint8_t* base = merapi_window_map(window, start, offset - start + part, &mapped);
    if (base == NULL) return -errno;
    uint8_t* const to = base + (offset - start);
    merapi_invalidate(window, to, part);
    for (uint64_t done = 0, some; done < part; done += some) {
      some = part - done < MERAPI_IMAGE_COPIED ? part - done : MERAPI_IMAGE_COPIED;
      memcpy(copy, from + done, some);
      merapi_checksum_add(sum, copy, some);
      memcpy(to + done, copy, some);
    }
    merapi_write_back(window, to, part);
    munmap(base, mapped);
    offset += part;
    from += part;
    bytes -= part;
  }
  return 0;
}

/* -EBADMSG: somebody has written the file since its payload was found good. */
static int write_extents(const struct merapi_image* image, struct merapi_window* window) {
  const struct merapi_image_extent* extent =
      (const struct merapi_image_extent*)(const void*)(image->own + image->sections.extents);
  uint8_t* const copy = malloc(MERAPI_IMAGE_COPIED);
  if (copy == NULL) return -ENOMEM;
  struct merapi_checksum sum;
  merapi_checksum_start(&sum);
  /* The control page, first of the first extent, is written by its parts. */
  merapi_checksum_add(&sum, image->own + image->sections.payload, MERAPI_CONTROL_BYTES);
  const uint8_t* from = image->file + image->sections.payload;
  int status = 0;
  for (uint64_t i = 0; i < image->header.extent_count && status == 0; i++) {
    const uint64_t skip = i == 0 ? MERAPI_CONTROL_BYTES : 0;
    const uint64_t bytes = extent[i].pages * MERAPI_IMAGE_PAGE;
    status = merapi_reserve(window, extent[i].offset, bytes);
    if (status == 0) status = write_range(window, extent[i].offset + skip, from + skip, bytes - skip, copy, &sum);
    from += bytes;
  }
  free(copy);
  if (status == 0 && MERAPI_CHECKSUMS_COUNT && merapi_checksum_end(&sum) != image->header.payload_checksum)
    status = -EBADMSG;
  return status;
}

/* Identity, configuration and directory; the magic last. The other lines belong to this window's own life. */
static void write_control(const struct merapi_image* image, struct merapi_window* window) {
  const uint8_t* control = image->own + image->sections.payload;
  struct merapi_identity identity;
  memcpy(&identity, control, sizeof identity);
  identity.window_bytes = window->bytes;
  identity.host_pid = (uint64_t)getpid();
  struct merapi_identity* to = merapi_identity_of(window);
  merapi_put(window, merapi_config_of(window), control + MERAPI_CONFIG_OFFSET, sizeof(struct merapi_config));
  merapi_put(window, merapi_directory_of(window), control + MERAPI_DIRECTORY_OFFSET, sizeof(struct merapi_directory));
  merapi_put(window, &to->version_major, &identity.version_major, sizeof identity - sizeof identity.magic);
  merapi_publish64(window, &to->magic, MERAPI_MAGIC);
}

/* The image's metadata in place of the window's own; areas are mapped again when they are asked for. */
static int renew_mappings(struct merapi_window* window, const struct merapi_layout* layout,
                          struct merapi_error* error) {
  size_t mapped;
  merapi_descriptors_begin();
  void* const metadata = merapi_window_map_listed(window, 0, layout->metadata_bytes, &mapped);
  if (metadata == NULL) {
    const int code = errno;
    merapi_descriptors_end();
    return merapi_fail(error, -ENOMEM, "cannot map %" PRIu64 " bytes of metadata: %s", layout->metadata_bytes,
                       strerror(code));
  }
  const struct merapi_mappings left = merapi_leave_mappings(window);
  window->metadata = metadata;
  window->metadata_mapped = mapped;
  window->layout = *layout;
  merapi_descriptors_end();
  merapi_unmap_left(&left);
  return 0;
}

/* Room for what a host and a device write later. An area may be far larger than what is used of it, and a small file
 * claim anything: no more of the tables is taken than the regions have, of the extension than four lines for each
 * shape, and nothing of areas that nobody writes. */
static int reserve_tables(struct merapi_window* window, const struct merapi_config* config) {
  const struct merapi_area_desc* area = window->layout.area;
  const uint64_t table = (uint64_t)config->region_count * sizeof(uint64_t);
  const struct {
    enum merapi_area area;
    uint64_t most;
  } used[] = {
      {MERAPI_AREA_SUBMISSION, UINT64_MAX}, {MERAPI_AREA_COMPLETION, UINT64_MAX},
      {MERAPI_AREA_SHAPES, UINT64_MAX},     {MERAPI_AREA_SHAPE_EXTENSION, 4 * area[MERAPI_AREA_SHAPES].size},
      {MERAPI_AREA_LIMITS, table},          {MERAPI_AREA_LIVE, table},
  };
  int status = merapi_reserve(window, 0, MERAPI_CONTROL_BYTES);
  for (size_t i = 0; i < sizeof used / sizeof *used && status == 0; i++) {
    const struct merapi_area_desc* one = &area[used[i].area];
    if (one->size != 0)
      status = merapi_reserve(window, one->offset, one->size < used[i].most ? one->size : used[i].most);
  }
  return status;
}

int merapi_image_check(struct merapi_image* image, struct merapi_error* error) {
  const uint64_t payload = image->sections.end - image->sections.payload;
  if (MERAPI_CHECKSUMS_COUNT && !image->payload_good &&
      merapi_checksum_of(image->file + image->sections.payload, payload) != image->header.payload_checksum)
    return merapi_fail(error, -EBADMSG, "%s: the payload is damaged (checksum)", image->path);
  image->payload_good = true;
  return 0;
}

int merapi_image_load(struct merapi_image* image, struct merapi_window* window, struct merapi_error* error) {
  const struct merapi_image_header* header = &image->header;
  if (window->readonly) return merapi_fail(error, -EINVAL, "the window was opened to inspect it only");
  int status = merapi_own(window, error);
  if (status < 0) return status;
  if (atomic_load(&window->attached))
    return merapi_fail(error, -EBUSY, "expected a window without a device, found one; revoke it first");
  if (window->bytes < header->window_bytes)
    return merapi_fail(error, -ENOSPC,
                       "expected a window of at least %" PRIu64 " bytes for %s, found %" PRIu64
                       "; open one with merapi_image_geometry",
                       header->window_bytes, image->path, window->bytes);
  if ((status = merapi_image_check(image, error)) < 0) return status;

  status = merapi_quiesce(window, error);
  /* Handed over as it is written when the window that was there or the one to come is not coherent. */
  if (status == 0 && image->config.coherence == MERAPI_COHERENCE_NON_COHERENT)
    status = merapi_enter_mode(window, image->config.coherence, error);
  if (status < 0) return status;

  const uint32_t cycle = window->cycle;
  merapi_publish64(window, &merapi_identity_of(window)->magic, 0);
  if ((status = renew_mappings(window, &image->layout, error)) < 0) return status;
  status = merapi_zero(window, MERAPI_CONTROL_BYTES, header->window_bytes - MERAPI_CONTROL_BYTES);
  if (status == 0) status = reserve_tables(window, &image->config);
  if (status == 0) status = write_extents(image, window);
  if (status == -EBADMSG)
    return merapi_fail(error, status, "expected an image that nobody writes while it is loaded, found a change of %s",
                       image->path);
  if (status < 0) return merapi_fail(error, status, "cannot write the window %s: %s", window->path, strerror(-status));
  write_control(image, window);
  window->config = image->config;
  status = merapi_window_adopt(window, error);
  if (window->cycle < cycle) window->cycle = cycle;
  return status;
}
