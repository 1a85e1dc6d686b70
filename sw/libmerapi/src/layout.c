/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the parts of a window are, and whether what a window says about it can be true.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "internal.h"

/* Heaps above this are a mistake on every machine that exists (47-bit user addresses). */
#define HEAP_BYTES_MAX (UINT64_C(1) << 47)

static const char* const area_names[MERAPI_AREA_COUNT] = {
    "submission ring", "completion ring", "shape table",    "shape extension", "limit table",
    "live table",      "mark bitmap 0",   "mark bitmap 1",  "spill area",      "heap",
    "forwarding area", "remembered area", "area 12 (none)", "area 13 (none)",  "area 14 (none)",
    "area 15 (none)",
};

/* In front of bitmaps and heap, in this order: what both sides touch most comes first. */
static const enum merapi_area metadata_order[] = {
    MERAPI_AREA_SUBMISSION, MERAPI_AREA_COMPLETION,      MERAPI_AREA_LIMITS, MERAPI_AREA_LIVE,
    MERAPI_AREA_SHAPES,     MERAPI_AREA_SHAPE_EXTENSION, MERAPI_AREA_SPILL,
};

static bool in_metadata(int area) {
  return area != MERAPI_AREA_BITMAP0 && area != MERAPI_AREA_BITMAP1 && area != MERAPI_AREA_HEAP;
}

/* Bytes of one mark bitmap. */
static uint64_t bitmap_bytes(uint64_t heap_bytes, unsigned alignment_log2) {
  return merapi_round_up((heap_bytes >> alignment_log2) / 8, MERAPI_AREA_ALIGNMENT);
}

/* A random graph wants 0.7 to 0.9 bytes a node for its greys (docs/experiments.md); what finds no room is
 * dropped, and its chunk scanned again. The metadata is held to 1 % of the heap plus 16 MiB, which heap/64 exceeds in
 * heaps above 0.9 GiB. A file has pages for what was spilled alone. */
static uint64_t default_spill_bytes(uint64_t heap_bytes) {
  const uint64_t generous = heap_bytes / 64, bounded = heap_bytes / 128 + (UINT64_C(2) << 20);
  const uint64_t bytes = generous < bounded ? generous : bounded;
  return bytes < 64 * 1024 ? 64 * 1024 : merapi_round_up(bytes, MERAPI_AREA_ALIGNMENT);
}

/* A region's slice of the bitmap is whole lines: else two regions share a line, and a line has one owner. */
static int check_units(unsigned region_log2, unsigned alignment_log2, struct merapi_error* error) {
  if (alignment_log2 < 3 || alignment_log2 > 8)
    return merapi_fail(error, -EINVAL, "expected an object alignment of 2^3 to 2^8 bytes, found 2^%u", alignment_log2);
  if (region_log2 < 16 || region_log2 > 36)
    return merapi_fail(error, -EINVAL, "expected a region size of 2^16 to 2^36 bytes, found 2^%u", region_log2);
  if (region_log2 < alignment_log2 + 9)
    return merapi_fail(error, -EINVAL,
                       "expected regions of at least 2^%u bytes with objects aligned to 2^%u (a region's marks fill "
                       "whole lines), found 2^%u; use larger regions",
                       alignment_log2 + 9, alignment_log2, region_log2);
  return 0;
}

/* Of a ring's entries or the shape table's slots. */
static bool is_table_count(uint64_t count) {
  return merapi_is_power_of_two(count) && count >= MERAPI_TABLE_ENTRIES_MIN && count <= MERAPI_TABLE_ENTRIES_MAX;
}

static int count_or_default(uint32_t* value, uint32_t fallback, const char* what, struct merapi_error* error) {
  if (*value == 0) *value = fallback;
  if (!is_table_count(*value))
    return merapi_fail(error, -EINVAL, "expected a power of two from %" PRIu32 " to %" PRIu32 " %s, found %" PRIu32,
                       (uint32_t)MERAPI_TABLE_ENTRIES_MIN, (uint32_t)MERAPI_TABLE_ENTRIES_MAX, what, *value);
  return 0;
}

int merapi_layout_compute(const struct merapi_geometry* geometry, struct merapi_layout* layout,
                          struct merapi_error* error) {
  struct merapi_geometry g = *geometry;
  int status = check_units(g.region_log2, g.alignment_log2, error);
  if (status < 0) return status;
  const uint64_t region = UINT64_C(1) << g.region_log2;
  if (g.heap_bytes == 0 || g.heap_bytes % region != 0 || g.heap_bytes > HEAP_BYTES_MAX)
    return merapi_fail(error, -EINVAL,
                       "expected a heap of a multiple of %" PRIu64 " bytes (one region), at most 2^47, found %" PRIu64,
                       region, g.heap_bytes);
  if ((status = count_or_default(&g.submission_entries, 1024, "submission entries", error)) < 0) return status;
  if ((status = count_or_default(&g.completion_entries, 4096, "completion entries", error)) < 0) return status;
  if ((status = count_or_default(&g.shape_slots, 131072, "shape slots", error)) < 0) return status;
  if (g.spill_bytes == 0) g.spill_bytes = default_spill_bytes(g.heap_bytes);
  if (g.spill_bytes % MERAPI_AREA_ALIGNMENT != 0 || g.spill_bytes > HEAP_BYTES_MAX)
    return merapi_fail(error, -EINVAL, "expected a spill area of a multiple of 4096 bytes, found %" PRIu64,
                       g.spill_bytes);

  const uint64_t regions = g.heap_bytes >> g.region_log2;
  if (regions > UINT32_MAX)
    return merapi_fail(error, -EINVAL, "expected fewer than 2^32 regions, found %" PRIu64 "; use larger regions",
                       regions);
  uint64_t size[MERAPI_AREA_COUNT] = {0};
  size[MERAPI_AREA_SUBMISSION] = (uint64_t)g.submission_entries * sizeof(struct merapi_submission);
  size[MERAPI_AREA_COMPLETION] = (uint64_t)g.completion_entries * sizeof(struct merapi_completion);
  size[MERAPI_AREA_LIMITS] = regions * sizeof(uint64_t);
  size[MERAPI_AREA_LIVE] = regions * sizeof(uint64_t);
  size[MERAPI_AREA_SHAPES] = (uint64_t)g.shape_slots * sizeof(struct merapi_shape);
  /* Few classes have more than four runs of reference fields: room for one line per four shapes. */
  size[MERAPI_AREA_SHAPE_EXTENSION] = (uint64_t)g.shape_slots * 16;
  size[MERAPI_AREA_SPILL] = g.spill_bytes;
  size[MERAPI_AREA_BITMAP0] = size[MERAPI_AREA_BITMAP1] = bitmap_bytes(g.heap_bytes, g.alignment_log2);
  size[MERAPI_AREA_HEAP] = g.heap_bytes;

  memset(layout, 0, sizeof *layout);
  uint64_t at = MERAPI_CONTROL_BYTES;
  for (size_t i = 0; i < sizeof metadata_order / sizeof metadata_order[0]; i++) {
    struct merapi_area_desc* area = &layout->area[metadata_order[i]];
    area->offset = at;
    area->size = merapi_round_up(size[metadata_order[i]], MERAPI_AREA_ALIGNMENT);
    at += area->size;
  }
  layout->metadata_bytes = at;
  static const enum merapi_area mapped[] = {MERAPI_AREA_BITMAP0, MERAPI_AREA_BITMAP1, MERAPI_AREA_HEAP};
  for (size_t i = 0; i < sizeof mapped / sizeof mapped[0]; i++) {
    at = merapi_round_up(at, MERAPI_MAPPED_ALIGNMENT);
    layout->area[mapped[i]].offset = at;
    layout->area[mapped[i]].size = size[mapped[i]];
    at += size[mapped[i]];
  }
  layout->window_bytes = merapi_round_up(at, MERAPI_MAPPED_ALIGNMENT);
  return 0;
}

static int check_area(const struct merapi_directory* directory, int index, uint64_t bytes, struct merapi_error* error) {
  const struct merapi_area_desc* area = &directory->area[index];
  if (area->offset == 0 && area->size == 0) {
    if (index <= MERAPI_AREA_HEAP)
      return merapi_fail(error, -EPROTO, "expected a %s in the window's directory, found none", area_names[index]);
    return 0;
  }
  const uint64_t alignment = in_metadata(index) ? MERAPI_AREA_ALIGNMENT : MERAPI_MAPPED_ALIGNMENT;
  if (area->offset < MERAPI_CONTROL_BYTES || area->offset % alignment != 0 || area->size == 0)
    return merapi_fail(error, -EPROTO,
                       "expected the %s at a multiple of %#" PRIx64 " behind the control page, found offset %#" PRIx64
                       " size %#" PRIx64,
                       area_names[index], alignment, area->offset, area->size);
  if (area->offset > bytes || area->size > bytes - area->offset)
    return merapi_fail(error, -ENOSPC,
                       "expected a window that holds the %s (offset %#" PRIx64 " size %#" PRIx64 "), found %#" PRIx64
                       " bytes; was the window truncated?",
                       area_names[index], area->offset, area->size, bytes);
  if (area->size % MERAPI_AREA_ALIGNMENT != 0)
    return merapi_fail(error, -EPROTO, "expected a %s of a multiple of %u bytes, found %#" PRIx64, area_names[index],
                       MERAPI_AREA_ALIGNMENT, area->size);
  for (int other = 0; other < index; other++) {
    const struct merapi_area_desc* o = &directory->area[other];
    if (o->size != 0 && area->offset < o->offset + o->size && o->offset < area->offset + area->size)
      return merapi_fail(error, -EPROTO, "expected separate areas, found that %s and %s overlap", area_names[other],
                         area_names[index]);
  }
  return 0;
}

static int check_table(const struct merapi_layout* layout, enum merapi_area area, uint64_t entry,
                       struct merapi_error* error) {
  const uint64_t size = layout->area[area].size;
  const uint64_t count = size / entry;
  if (size % entry != 0 || !is_table_count(count))
    return merapi_fail(error, -EPROTO,
                       "expected a %s of a power of two entries, from %u to %u, of %" PRIu64 " bytes, found %" PRIu64
                       " bytes",
                       area_names[area], MERAPI_TABLE_ENTRIES_MIN, MERAPI_TABLE_ENTRIES_MAX, entry, size);
  return 0;
}

int merapi_layout_check(const struct merapi_directory* directory, const struct merapi_config* config, uint64_t bytes,
                        struct merapi_layout* layout, struct merapi_error* error) {
  memset(layout, 0, sizeof *layout);
  uint64_t end = MERAPI_CONTROL_BYTES, metadata_end = MERAPI_CONTROL_BYTES, mapped_start = UINT64_MAX;
  for (int i = 0; i < (int)MERAPI_AREA_COUNT; i++) {
    const int status = check_area(directory, i, bytes, error);
    if (status < 0) return status;
    const struct merapi_area_desc* area = &directory->area[i];
    layout->area[i] = *area;
    if (area->size == 0) continue;
    if (area->offset + area->size > end) end = area->offset + area->size;
    if (!in_metadata(i) && area->offset < mapped_start) mapped_start = area->offset;
    if (in_metadata(i) && area->offset + area->size > metadata_end) metadata_end = area->offset + area->size;
  }
  layout->metadata_bytes = merapi_round_up(metadata_end, MERAPI_AREA_ALIGNMENT);
  layout->window_bytes = merapi_round_up(end, MERAPI_MAPPED_ALIGNMENT);
  if (layout->metadata_bytes > mapped_start)
    return merapi_fail(error, -EPROTO, "expected bitmaps and heap behind all other areas, found one at %#" PRIx64,
                       mapped_start);
  if (layout->window_bytes > bytes)
    return merapi_fail(error, -ENOSPC, "expected a window of at least %#" PRIx64 " bytes, found %#" PRIx64,
                       layout->window_bytes, bytes);
  int status;
  if ((status = check_table(layout, MERAPI_AREA_SUBMISSION, sizeof(struct merapi_submission), error)) < 0 ||
      (status = check_table(layout, MERAPI_AREA_COMPLETION, sizeof(struct merapi_completion), error)) < 0 ||
      (status = check_table(layout, MERAPI_AREA_SHAPES, sizeof(struct merapi_shape), error)) < 0)
    return status;
  status = merapi_config_check(config, layout, error);
  return status == -EINVAL ? -EPROTO : status;
}

int merapi_config_check(const struct merapi_config* c, const struct merapi_layout* layout, struct merapi_error* error) {
  const int status = check_units(c->region_log2, c->alignment_log2, error);
  if (status < 0) return status;
  if ((c->oop_bytes != 4 && c->oop_bytes != 8) || (c->klass_bytes != 4 && c->klass_bytes != 8))
    return merapi_fail(error, -EINVAL, "expected references and klass words of 4 or 8 bytes, found %u and %u",
                       c->oop_bytes, c->klass_bytes);
  if (c->narrow_oop_shift > 8)
    return merapi_fail(error, -EINVAL, "expected a narrow reference shift of 0 to 8, found %u", c->narrow_oop_shift);
  if (c->coherence != MERAPI_COHERENCE_COHERENT && c->coherence != MERAPI_COHERENCE_NON_COHERENT)
    return merapi_fail(error, -EINVAL, "expected a coherence mode of 1 (coherent) or 2 (non-coherent), found %u",
                       c->coherence);
  if (c->mirror_size_offset % 4 != 0)
    return merapi_fail(error, -EINVAL, "expected a mirror size offset that is a multiple of 4, found %" PRIu32,
                       c->mirror_size_offset);
  if (c->reserved0 != 0 || c->reserved1[0] != 0 || c->reserved1[1] != 0 || c->reserved1[2] != 0 || c->reserved2 != 0)
    return merapi_fail(error, -EINVAL, "expected zero in the configuration's reserved fields, found something else");
  const uint64_t heap = (uint64_t)c->region_count << c->region_log2;
  if (c->region_count == 0 || heap >> c->region_log2 != c->region_count || heap > layout->area[MERAPI_AREA_HEAP].size)
    return merapi_fail(error, -EINVAL,
                       "expected 1 to %" PRIu64 " regions of 2^%u bytes (the heap area has %" PRIu64
                       " bytes), found %" PRIu32,
                       layout->area[MERAPI_AREA_HEAP].size >> c->region_log2, c->region_log2,
                       layout->area[MERAPI_AREA_HEAP].size, c->region_count);
  if (c->heap_base % (UINT64_C(1) << c->alignment_log2) != 0 || c->heap_base > UINT64_MAX - (heap - 1))
    return merapi_fail(
        error, -EINVAL,
        "expected a heap base where an object may lie (2^%u bytes) with room for the heap, found %#" PRIx64,
        c->alignment_log2, c->heap_base);
  const uint64_t table = (uint64_t)c->region_count * sizeof(uint64_t);
  const uint64_t bitmap = (heap >> c->alignment_log2) / 8;
  if (layout->area[MERAPI_AREA_LIMITS].size < table || layout->area[MERAPI_AREA_LIVE].size < table)
    return merapi_fail(error, -EINVAL,
                       "expected limit and live tables of at least %" PRIu64 " bytes for %" PRIu32
                       " regions, found %" PRIu64 " and %" PRIu64,
                       table, c->region_count, layout->area[MERAPI_AREA_LIMITS].size,
                       layout->area[MERAPI_AREA_LIVE].size);
  if (layout->area[MERAPI_AREA_BITMAP0].size < bitmap || layout->area[MERAPI_AREA_BITMAP1].size < bitmap)
    return merapi_fail(error, -EINVAL, "expected bitmaps of at least %" PRIu64 " bytes, found %" PRIu64 " and %" PRIu64,
                       bitmap, layout->area[MERAPI_AREA_BITMAP0].size, layout->area[MERAPI_AREA_BITMAP1].size);
  return 0;
}

int merapi_control_check(const void* control, uint64_t bytes, struct merapi_layout* layout,
                         struct merapi_config* config, struct merapi_error* error) {
  struct merapi_identity identity;
  struct merapi_directory directory;
  memcpy(&identity, control, sizeof identity);
  memcpy(config, (const uint8_t*)control + MERAPI_CONFIG_OFFSET, sizeof *config);
  memcpy(&directory, (const uint8_t*)control + MERAPI_DIRECTORY_OFFSET, sizeof directory);
  if (identity.magic != MERAPI_MAGIC)
    return merapi_fail(error, -EPROTO,
                       "expected a formatted window (magic %#" PRIx64 "), found %#" PRIx64
                       "; 'merapi create-window' lays one out",
                       MERAPI_MAGIC, identity.magic);
  if (identity.version_major != MERAPI_VERSION_MAJOR || identity.version_minor > MERAPI_VERSION_MINOR)
    return merapi_fail(error, -EPROTO,
                       "expected contract version %d.0 to %d.%d, found %u.%u; use the library that made the window",
                       MERAPI_VERSION_MAJOR, MERAPI_VERSION_MAJOR, MERAPI_VERSION_MINOR, identity.version_major,
                       identity.version_minor);
  if (identity.control_bytes != MERAPI_CONTROL_BYTES)
    return merapi_fail(error, -EPROTO, "expected a control page of %u bytes, found %" PRIu32, MERAPI_CONTROL_BYTES,
                       identity.control_bytes);
  return merapi_layout_check(&directory, config, bytes, layout, error);
}
