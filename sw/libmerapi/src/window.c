/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, laying out, mapping and closing a window.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static int classify(const char* name, uint32_t flags, const struct merapi_transport** transport, const char** path,
                    struct merapi_error* error) {
  static const struct merapi_transport* const all[] = {&merapi_transport_file, &merapi_transport_dax,
                                                       &merapi_transport_pci, &merapi_transport_device};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    const size_t length = strlen(all[i]->name);
    if (strncmp(name, all[i]->name, length) == 0 && name[length] == ':') {
      *transport = all[i];
      *path = name + length + 1;
      if (**path == '\0')
        return merapi_fail(error, -EINVAL, "expected a path after '%s:', found nothing", all[i]->name);
      return 0;
    }
  }
  *path = name;
  struct stat status;
  if (*name == '\0') return merapi_fail(error, -EINVAL, "expected the name of a window, found an empty text");
  if (stat(name, &status) < 0) {
    *transport = &merapi_transport_file;
    if (errno == ENOENT && (flags & MERAPI_OPEN_CREATE) != 0) return 0;
    return merapi_fail(error, -errno, "expected a window file, devdax device or device socket at %s, found: %s", name,
                       strerror(errno));
  }
  if (S_ISREG(status.st_mode)) {
    *transport = &merapi_transport_file;
  } else if (S_ISCHR(status.st_mode)) {
    *transport = &merapi_transport_dax;
  } else if (S_ISSOCK(status.st_mode)) {
    *transport = &merapi_transport_device;
  } else {
    return merapi_fail(error, -ENODEV, "expected a window file, devdax device or device socket at %s, found neither",
                       name);
  }
  return 0;
}

void* merapi_window_map_listed(struct merapi_window* window, uint64_t offset, uint64_t length, size_t* mapped) {
  const uint64_t rounded = merapi_round_up(length, window->granularity);
  if (offset % window->granularity != 0 || offset > window->bytes || length > window->bytes - offset) {
    errno = EINVAL;
    return NULL;
  }
  void* address =
      mmap(NULL, rounded, window->readonly ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, window->fd, (off_t)offset);
  if (address == MAP_FAILED) return NULL;
  *mapped = rounded;
  return address;
}

void* merapi_window_map(struct merapi_window* window, uint64_t offset, uint64_t length, size_t* mapped) {
  merapi_descriptors_begin();
  void* const address = merapi_window_map_listed(window, offset, length, mapped);
  if (address != NULL) merapi_leave_memory(address, *mapped);
  merapi_descriptors_end();
  return address;
}

static void leave(struct merapi_mapping* mapping, void* address, size_t bytes) {
  merapi_leave_memory(address, bytes);
  *mapping = (struct merapi_mapping){.address = address, .bytes = bytes};
}

struct merapi_mappings merapi_leave_mappings(struct merapi_window* window) {
  struct merapi_mappings left;
  leave(&left.metadata, window->metadata, window->metadata_mapped);
  window->metadata = NULL;
  for (int i = 0; i < (int)MERAPI_AREA_COUNT; i++) {
    leave(&left.area[i], window->area_address[i], window->area_mapped[i]);
    window->area_address[i] = NULL;
  }
  return left;
}

void merapi_unmap_left(const struct merapi_mappings* left) {
  merapi_unmap(left->metadata.address, left->metadata.bytes);
  for (int i = 0; i < (int)MERAPI_AREA_COUNT; i++) merapi_unmap(left->area[i].address, left->area[i].bytes);
}

static int map_metadata(struct merapi_window* window, struct merapi_error* error) {
  merapi_descriptors_begin();
  window->metadata = merapi_window_map_listed(window, 0, window->layout.metadata_bytes, &window->metadata_mapped);
  merapi_descriptors_end();
  if (window->metadata == NULL)
    return merapi_fail(error, -ENOMEM, "%s: cannot map %" PRIu64 " bytes of metadata: %s", window->path,
                       window->layout.metadata_bytes, strerror(errno));
  return 0;
}

/* What a formatted window says of itself, checked; the copy is what counts from then on. */
static int read_layout(struct merapi_window* window, struct merapi_error* error) {
  if (window->bytes < MERAPI_CONTROL_BYTES)
    return merapi_fail(error, -EPROTO, "expected a window of at least %u bytes at %s, found %" PRIu64,
                       MERAPI_CONTROL_BYTES, window->path, window->bytes);
  size_t mapped;
  void* control = merapi_window_map(window, 0, MERAPI_CONTROL_BYTES, &mapped);
  if (control == NULL) return merapi_fail(error, -errno, "%s: cannot map: %s", window->path, strerror(errno));
  uint8_t copy[MERAPI_CONTROL_BYTES];
  memcpy(copy, control, sizeof copy);
  munmap(control, mapped);
  return merapi_control_check(copy, window->bytes, &window->layout, &window->config, error);
}

/* Host and device lines of the control page that format clears; the generation word in between is kept odd. */
static void clear_control(struct merapi_window* window) {
  static const uint8_t zero[MERAPI_CONTROL_BYTES];
  const size_t after = MERAPI_HOST_INDEX_OFFSET + sizeof(uint64_t);
  merapi_put(window, window->metadata + sizeof(uint64_t), zero, MERAPI_HOST_INDEX_OFFSET - sizeof(uint64_t));
  merapi_put(window, window->metadata + after, zero, MERAPI_CONTROL_BYTES - after);
}

/* Metadata from its start: most of it is written while the window is opened. */
static int reserve_metadata(struct merapi_window* window, uint64_t bytes, struct merapi_error* error) {
  const int status = merapi_reserve(window, 0, bytes);
  if (status == 0) return 0;
  return merapi_fail(error, status, "expected room for %" PRIu64 " bytes of tables in the file system of %s, found: %s",
                     bytes, window->path, strerror(-status));
}

/* Give whole pages of a file back: they read as zeros then. False on a device, and where a file system has no holes. */
static bool make_hole(struct merapi_window* window, uint64_t offset, uint64_t length) {
  return !window->transport->devdax &&
         fallocate(window->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length) == 0;
}

/* What the program of the window's former life has left in its heap: memory that nobody uses, for whoever reads the
 * file. Where there are no holes it stays. */
static void forget_heap(struct merapi_window* window) {
  const uint64_t start = window->layout.area[MERAPI_AREA_HEAP].offset;
  (void)make_hole(window, start, window->bytes - start);
}

/* The generation that was there before, 0 when no window was. */
static uint64_t former_generation(struct merapi_window* window) {
  struct merapi_identity identity;
  merapi_get(window, &identity, merapi_identity_of(window), sizeof identity);
  const uint64_t generation = merapi_get64(window, &merapi_host_index_of(window)->generation);
  return merapi_was_window(&identity, generation) ? generation : 0;
}

static int format(struct merapi_window* window, const struct merapi_geometry* geometry, struct merapi_error* error) {
  struct merapi_identity* identity = merapi_identity_of(window);
  /* Generations go on where the window's former life stopped, so that an old answer never fits a new question. */
  const uint64_t generation = former_generation(window) | 1;
  merapi_publish64(window, &merapi_host_index_of(window)->generation, generation);
  merapi_publish64(window, &identity->magic, 0);
  clear_control(window);

  const struct merapi_area_desc* area = window->layout.area;
  int status = merapi_zero(window, MERAPI_CONTROL_BYTES, window->layout.metadata_bytes - MERAPI_CONTROL_BYTES);
  for (int i = MERAPI_AREA_BITMAP0; i <= MERAPI_AREA_BITMAP1 && status == 0; i++)
    status = merapi_zero(window, area[i].offset, area[i].size);
  if (status < 0) return merapi_fail(error, status, "%s: cannot clear the window: %s", window->path, strerror(-status));
  forget_heap(window);
  /* All but the spill area, which is the last and may never be used. */
  if ((status = reserve_metadata(window, area[MERAPI_AREA_SPILL].offset, error)) < 0) return status;

  const struct merapi_config config = {
      .oop_bytes = 8,
      .klass_bytes = 8,
      .alignment_log2 = geometry->alignment_log2,
      .region_log2 = geometry->region_log2,
      .coherence = MERAPI_COHERENCE_COHERENT,
      .region_count = (uint32_t)(geometry->heap_bytes >> geometry->region_log2),
  };
  struct merapi_directory directory;
  memcpy(directory.area, window->layout.area, sizeof directory.area);
  const struct merapi_identity rest = {.version_major = MERAPI_VERSION_MAJOR,
                                       .version_minor = MERAPI_VERSION_MINOR,
                                       .control_bytes = MERAPI_CONTROL_BYTES,
                                       .window_bytes = window->bytes,
                                       .host_pid = (uint64_t)getpid()};
  merapi_limits_to_starts(window, &config, 0);
  merapi_put(window, merapi_config_of(window), &config, sizeof config);
  merapi_put(window, merapi_directory_of(window), &directory, sizeof directory);
  merapi_put(window, &identity->version_major, &rest.version_major, sizeof rest - sizeof rest.magic);
  merapi_publish64(window, &identity->magic, MERAPI_MAGIC);
  window->config = config;
  return 0;
}

/* A cycle id beyond every one that the window shows. Ids grow, and the newest one submitted is in the submission ring:
 * attach does not clear that ring, only format does, and format starts a new window. */
static uint32_t last_cycle(struct merapi_window* window) {
  uint32_t last = merapi_get32(window, &merapi_idle_record_of(window)->cycle);
  const struct merapi_area_desc* area = &window->layout.area[MERAPI_AREA_SUBMISSION];
  const struct merapi_submission* ring = merapi_area_of(window, MERAPI_AREA_SUBMISSION);
  for (struct merapi_run run = merapi_next_entries(window, area, 0, sizeof *ring); run.start < run.end;
       run = merapi_next_entries(window, area, run.end, sizeof *ring)) {
    for (uint64_t i = run.start; i < run.end; i++) {
      const uint32_t cycle = merapi_get32(window, &ring[i].cycle);
      if (cycle > last) last = cycle;
    }
  }
  return last;
}

int merapi_window_adopt(struct merapi_window* window, struct merapi_error* error) {
  const struct merapi_area_desc* area = window->layout.area;
  window->submission_entries = (uint32_t)(area[MERAPI_AREA_SUBMISSION].size / sizeof(struct merapi_submission));
  window->completion_entries = (uint32_t)(area[MERAPI_AREA_COMPLETION].size / sizeof(struct merapi_completion));
  /* A host that died left its generation: this one starts from a revoked one. */
  uint64_t generation = merapi_get64(window, &merapi_host_index_of(window)->generation);
  if (!window->readonly) {
    generation |= 1;
    merapi_publish64(window, &merapi_host_index_of(window)->generation, generation);
  }
  atomic_store(&window->generation, generation);
  atomic_store(&window->doorbell, merapi_get32(window, &merapi_host_index_of(window)->doorbell));
  window->cycle = last_cycle(window);
  const int status = merapi_shape_adopt(window, error);
  return status == 0 ? merapi_enter_mode(window, window->config.coherence, error) : status;
}

/* Talk to the device of the window's former life in the mode that the window says, and leave nothing in the caches of
 * what replaces it. Memory that holds no window may say anything: then lines are flushed for nothing. */
static void adopt_mode(struct merapi_window* window, bool lay_out) {
  if (lay_out)
    merapi_get(window, &window->mode, &merapi_config_of(window)->coherence, sizeof window->mode);
  else
    window->mode = window->config.coherence;
  merapi_set_ops(window, NULL);
}

/* In a child of the process that has the window. */
static void forsake(struct merapi_held* held) {
  struct merapi_window* const window = (struct merapi_window*)(void*)held;
  merapi_forsake_fd(&window->fd);
  merapi_forsake_fd(&window->connection);
  merapi_forsake_memory(window->metadata, window->metadata_mapped);
  for (int i = 0; i < (int)MERAPI_AREA_COUNT; i++)
    merapi_forsake_memory(window->area_address[i], window->area_mapped[i]);
  atomic_store(&window->attached, false);
  atomic_fetch_or(&window->generation, 1);
  window->created = false;                      /* the file is the parent's to remove */
  pthread_mutex_init(&window->wait_lock, NULL); /* a thread that is not here may have held it */
  window->waiters = 0;
}

static int open_with(struct merapi_window* window, const struct merapi_geometry* geometry, uint32_t flags,
                     struct merapi_error* error) {
  const bool lay_out = (flags & MERAPI_OPEN_FORMAT) != 0;
  int status = 0;
  if (lay_out && geometry == NULL)
    return merapi_fail(error, -EINVAL, "expected a geometry to lay the window out, found none");
  if (lay_out && window->readonly)
    return merapi_fail(error, -EINVAL, "MERAPI_OPEN_FORMAT and MERAPI_OPEN_READONLY exclude each other");
  if (lay_out && (status = merapi_layout_compute(geometry, &window->layout, error)) < 0) return status;
  const uint64_t needed = lay_out ? window->layout.window_bytes : 0;

  if ((status = merapi_descriptors_begin()) == 0) {
    merapi_hold(&window->held, forsake);
    status = window->transport->open(window, needed, flags, error);
  } else {
    merapi_fail(error, status, "cannot be told of forks: %s", strerror(-status));
  }
  merapi_descriptors_end();
  if (status < 0) return status;
  if (!window->readonly && (status = merapi_lock(window->fd, MERAPI_LOCK_HOST, 1)) < 0) {
    window->created = false; /* somebody else has it now */
    return merapi_fail(error, status, "expected to be the only host of %s, found: %s%s", window->path,
                       strerror(-status), status == -EBUSY ? "; another process has the window open" : "");
  }
  if ((status = window->transport->size(window, needed, flags, error)) < 0) return status;
  if (window->bytes < needed)
    return merapi_fail(error, -ENOSPC,
                       "expected a window of at least %" PRIu64 " bytes at %s, found %" PRIu64
                       "; use a larger one or a smaller heap",
                       needed, window->path, window->bytes);
  if (!lay_out && (status = read_layout(window, error)) < 0) return status;
  if (lay_out && (status = reserve_metadata(window, MERAPI_CONTROL_BYTES, error)) < 0) return status;
  if ((status = map_metadata(window, error)) < 0) return status;
  adopt_mode(window, lay_out);
  if ((status = merapi_quiesce(window, error)) < 0) return status;
  if (lay_out && (status = format(window, geometry, error)) < 0) return status;
  return merapi_window_adopt(window, error);
}

int merapi_open(const char* name, const struct merapi_geometry* geometry, uint32_t flags, struct merapi_window** window,
                struct merapi_error* error) {
  *window = NULL;
  const struct merapi_transport* transport = NULL;
  const char* path = NULL;
  int status = classify(name, flags, &transport, &path, error);
  if (status < 0) return status;
  if ((flags & ~(uint32_t)(MERAPI_OPEN_FORMAT | MERAPI_OPEN_READONLY | MERAPI_OPEN_CREATE)) != 0)
    return merapi_fail(error, -EINVAL, "expected flags of enum merapi_open_flags, found %#x", flags);
  /* There is no window behind a device's socket that could be read: every open makes one. */
  if (transport == &merapi_transport_device && geometry != NULL && (flags & MERAPI_OPEN_READONLY) == 0)
    flags |= MERAPI_OPEN_FORMAT;

  struct merapi_window* w = calloc(1, sizeof *w);
  if (w == NULL || (w->path = strdup(path)) == NULL) {
    free(w);
    return merapi_fail(error, -ENOMEM, "out of memory");
  }
  w->transport = transport;
  w->fd = w->connection = -1;
  w->readonly = (flags & MERAPI_OPEN_READONLY) != 0;
  w->ops = *merapi_mapping_ops(MERAPI_COHERENCE_COHERENT);
  pthread_mutex_init(&w->wait_lock, NULL);
  status = open_with(w, geometry, flags, error);
  if (status < 0) {
    if (w->created) unlink(w->path);
    merapi_close(w);
    return status;
  }
  *window = w;
  return 0;
}

void merapi_close(struct merapi_window* window) {
  if (window == NULL) return;
  if (atomic_load(&window->attached)) merapi_revoke(window);
  merapi_shape_release(window);
  merapi_descriptors_begin();
  const struct merapi_mappings left = merapi_leave_mappings(window);
  if (window->connection >= 0) close(window->connection);
  if (window->fd >= 0) close(window->fd);
  merapi_let_go(&window->held);
  merapi_descriptors_end();
  merapi_unmap_left(&left);
  pthread_mutex_destroy(&window->wait_lock);
  free(window->path);
  free(window);
}

const struct merapi_layout* merapi_layout_of(const struct merapi_window* window) { return &window->layout; }

const char* merapi_transport_name(const struct merapi_window* window) { return window->transport->name; }

uint64_t merapi_window_bytes(const struct merapi_window* window) { return window->bytes; }

int merapi_map_fixed(struct merapi_window* window, uint64_t offset, uint64_t length, void* address) {
  if (length == 0 || offset % window->granularity != 0 || length % window->granularity != 0 ||
      (uintptr_t)address % window->granularity != 0 || offset > window->bytes || length > window->bytes - offset)
    return -EINVAL;
  if (window->held.forked) return -ECHILD;
  const int protection = window->readonly ? PROT_READ : PROT_READ | PROT_WRITE;
  int status = 0;
  merapi_descriptors_begin();
  if (mmap(address, length, protection, MAP_SHARED | MAP_FIXED, window->fd, (off_t)offset) == MAP_FAILED)
    status = -errno;
  else
    merapi_leave_memory(address, length); /* nobody knows it when a child would have to be rid of it */
  merapi_descriptors_end();
  return status;
}

void* merapi_map_area(struct merapi_window* window, enum merapi_area area) {
  if ((unsigned)area >= MERAPI_AREA_COUNT || window->layout.area[area].size == 0) return NULL;
  const struct merapi_area_desc* at = &window->layout.area[area];
  if (at->offset + at->size <= window->layout.metadata_bytes) return window->metadata + at->offset;
  if (window->area_address[area] == NULL) {
    merapi_descriptors_begin();
    window->area_address[area] = merapi_window_map_listed(window, at->offset, at->size, &window->area_mapped[area]);
    merapi_descriptors_end();
  }
  return window->area_address[area];
}

/* Zero through a mapping, a piece at a time. */
static int zero_mapped(struct merapi_window* window, uint64_t offset, uint64_t length) {
  const uint64_t piece = UINT64_C(64) << 20;
  while (length > 0) {
    const uint64_t start = offset / window->granularity * window->granularity;
    uint64_t bytes = length < piece ? length : piece;
    size_t mapped;
    uint8_t* address = merapi_window_map(window, start, offset - start + bytes, &mapped);
    if (address == NULL) return -errno;
    memset(address + (offset - start), 0, bytes);
    window->ops.write_back(window->ops.context, address + (offset - start), bytes);
    munmap(address, mapped);
    offset += bytes;
    length -= bytes;
  }
  return 0;
}

int merapi_zero(struct merapi_window* window, uint64_t offset, uint64_t length) {
  if (window->held.forked) return -ECHILD;
  if (offset > window->bytes || length > window->bytes - offset || window->readonly) return -EINVAL;
  if (length == 0) return 0;
  const uint64_t page = window->granularity;
  const uint64_t first = merapi_round_up(offset, page), last = (offset + length) / page * page;
  if (last > first && make_hole(window, first, last - first)) {
    int status = zero_mapped(window, offset, first - offset);
    if (status == 0) status = zero_mapped(window, last, offset + length - last);
    return status;
  }
  return zero_mapped(window, offset, length);
}
