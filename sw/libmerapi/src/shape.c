/* SPDX-License-Identifier: Apache-2.0
 *
 * The shape table: open addressing by klass word, linear probing, at most MERAPI_SHAPE_PROBE_LIMIT slots looked at.
 *
 * A reader needs no lock: the key is written last when a shape appears and first (as a tombstone) when it goes or
 * changes. What is reused, slots and lines of the extension, is reused only after the contract's INVALIDATE_SHAPES or
 * BEGIN_CYCLE, because withdrawing is allowed only between cycles or while paused.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define BLOCKS_PER_LINE (MERAPI_LINE_BYTES / sizeof(struct merapi_ref_block))
#define NO_SLOT UINT32_MAX

static struct merapi_shape* table_of(const struct merapi_window* window) {
  return merapi_area_of(window, MERAPI_AREA_SHAPES);
}

static uint32_t home_slot(const struct merapi_window* window, uint64_t klass_word) {
  const uint32_t hash = (uint32_t)(klass_word ^ klass_word >> 32) * MERAPI_SHAPE_HASH_MULTIPLIER;
  return hash >> (32 - __builtin_ctz(window->shapes.slots));
}

/* ------------------------------------------------------ extension lines */

static bool line_taken(const struct merapi_shape_state* s, uint64_t line) {
  return (s->line_taken[line / 64] >> (line % 64) & 1) != 0;
}

static void mark_lines(struct merapi_shape_state* s, uint64_t first, uint64_t count, bool taken) {
  for (uint64_t line = first; line < first + count; line++) {
    const uint64_t bit = UINT64_C(1) << (line % 64);
    if (taken)
      s->line_taken[line / 64] |= bit;
    else
      s->line_taken[line / 64] &= ~bit;
  }
  if (taken)
    s->lines_used += count;
  else
    s->lines_used -= count;
}

static uint64_t lines_for(uint32_t blocks) { return ((uint64_t)blocks + BLOCKS_PER_LINE - 1) / BLOCKS_PER_LINE; }

/* First run of `count` free lines from `from` up to `to`; UINT64_MAX if there is none. */
static uint64_t find_lines(const struct merapi_shape_state* s, uint64_t from, uint64_t to, uint64_t count) {
  uint64_t run = 0;
  for (uint64_t line = from; line < to; line++) {
    run = line_taken(s, line) ? 0 : run + 1;
    if (run == count) return line + 1 - count;
  }
  return UINT64_MAX;
}

static uint64_t take_lines(struct merapi_shape_state* s, uint64_t count) {
  if (count > s->lines - s->lines_used) return UINT64_MAX;
  uint64_t first = find_lines(s, s->hint, s->lines, count);
  if (first == UINT64_MAX) first = find_lines(s, 0, s->lines, count);
  if (first == UINT64_MAX) return first;
  mark_lines(s, first, count, true);
  s->hint = first + count;
  return first;
}

/* Lines that a shape of the table holds; 0 when it holds none. False when it names lines that cannot be its own. */
static bool extension_of(const struct merapi_shape_state* s, const struct merapi_shape* shape, uint64_t* first,
                         uint64_t* count) {
  *first = *count = 0;
  if (shape->block_count <= MERAPI_SHAPE_INLINE_BLOCKS) return true;
  *count = lines_for(shape->block_count);
  *first = shape->extension / MERAPI_LINE_BYTES;
  return shape->extension % MERAPI_LINE_BYTES == 0 && *first < s->lines && *count <= s->lines - *first;
}

/* What a slot names is believed no further than the host's own record of what is taken: others may write the table. */
static void release_extension(struct merapi_window* window, const struct merapi_shape* shape) {
  uint64_t first, count;
  if (!extension_of(&window->shapes, shape, &first, &count)) return;
  for (uint64_t line = first; line < first + count; line++)
    if (line_taken(&window->shapes, line)) mark_lines(&window->shapes, line, 1, false);
}

/* --------------------------------------------------------------- lookup */

/* Slot of a key, or NO_SLOT; `vacant` gets the first slot that a new key may take, or NO_SLOT. */
static uint32_t find(struct merapi_window* window, uint64_t klass_word, uint32_t* vacant) {
  const struct merapi_shape* table = table_of(window);
  const uint32_t home = home_slot(window, klass_word);
  if (vacant != NULL) *vacant = NO_SLOT;
  for (uint32_t i = 0; i < MERAPI_SHAPE_PROBE_LIMIT; i++) {
    const uint32_t slot = (home + i) & (window->shapes.slots - 1);
    const uint64_t key = merapi_get64(window, &table[slot].klass_word);
    if (key == klass_word) return slot;
    if (key != MERAPI_SHAPE_KEY_EMPTY && key != MERAPI_SHAPE_KEY_TOMBSTONE) continue;
    if (vacant != NULL && *vacant == NO_SLOT) *vacant = slot;
    if (key == MERAPI_SHAPE_KEY_EMPTY) break;
  }
  return NO_SLOT;
}

/* ---------------------------------------------------------------- adopt */

/* What slot `i` of a table that is already there holds. */
static int adopt_slot(struct merapi_window* window, uint32_t i, struct merapi_error* error) {
  struct merapi_shape_state* s = &window->shapes;
  const struct merapi_shape* slot = &table_of(window)[i];
  const uint64_t key = merapi_get64(window, &slot->klass_word);
  if (key == MERAPI_SHAPE_KEY_EMPTY) return 0;
  if (key == MERAPI_SHAPE_KEY_TOMBSTONE) {
    s->tombstones++;
    return 0;
  }
  s->used++;
  /* Who only looks may look beside a host that is changing the table. */
  if (window->readonly) return 0;
  struct merapi_shape shape;
  merapi_get(window, &shape, slot, sizeof shape);
  if (find(window, key, NULL) != i)
    return merapi_fail(error, -EPROTO,
                       "expected each klass once and where a lookup finds it, found %#" PRIx64 " in slot %" PRIu32
                       " of the shape table",
                       key, i);
  uint64_t first, count;
  if (!extension_of(s, &shape, &first, &count) || (count != 0 && find_lines(s, first, first + count, count) != first))
    return merapi_fail(error, -EPROTO,
                       "expected each shape's blocks in lines of its own, found klass %#" PRIx64 " with %" PRIu32
                       " blocks at %#" PRIx64 " of the shape extension",
                       key, shape.block_count, shape.extension);
  if (count != 0) mark_lines(s, first, count, true);
  return 0;
}

int merapi_shape_adopt(struct merapi_window* window, struct merapi_error* error) {
  struct merapi_shape_state* s = &window->shapes;
  const struct merapi_area_desc* area = &window->layout.area[MERAPI_AREA_SHAPES];
  merapi_shape_release(window);
  s->slots = (uint32_t)(area->size / sizeof(struct merapi_shape));
  s->lines = window->layout.area[MERAPI_AREA_SHAPE_EXTENSION].size / MERAPI_LINE_BYTES;
  s->line_taken = calloc(s->lines / 64 + 1, sizeof *s->line_taken);
  if (s->line_taken == NULL) return merapi_fail(error, -ENOMEM, "out of memory");
  int status = 0;
  for (struct merapi_run run = merapi_next_entries(window, area, 0, sizeof(struct merapi_shape));
       run.start < run.end && status == 0;
       run = merapi_next_entries(window, area, run.end, sizeof(struct merapi_shape)))
    for (uint64_t i = run.start; i < run.end && status == 0; i++) status = adopt_slot(window, (uint32_t)i, error);
  return status;
}

void merapi_shape_release(struct merapi_window* window) {
  free(window->shapes.line_taken);
  memset(&window->shapes, 0, sizeof window->shapes);
}

static bool is_key(uint64_t klass_word) {
  return klass_word != MERAPI_SHAPE_KEY_EMPTY && klass_word != MERAPI_SHAPE_KEY_TOMBSTONE;
}

static bool is_array(uint8_t kind) {
  return kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || kind == MERAPI_SHAPE_KIND_PRIM_ARRAY;
}

static bool is_sound(const struct merapi_shape* shape, const struct merapi_ref_block* blocks) {
  if (!is_key(shape->klass_word) || shape->kind == MERAPI_SHAPE_KIND_NONE || shape->kind > MERAPI_SHAPE_KIND_HOST)
    return false;
  if (is_array(shape->kind)) return shape->header_bytes >= 16 && shape->element_log2 <= 3 && shape->block_count == 0;
  if (shape->kind != MERAPI_SHAPE_KIND_MIRROR && shape->size_words < 2) return false;
  if (shape->block_count != 0 && blocks == NULL) return false;
  uint64_t end = 0;
  for (uint32_t i = 0; i < shape->block_count; i++) {
    if (blocks[i].count == 0 || blocks[i].offset % 4 != 0 || blocks[i].offset < end) return false;
    end = blocks[i].offset + UINT64_C(4) * blocks[i].count;
  }
  return shape->kind == MERAPI_SHAPE_KIND_MIRROR || end <= UINT64_C(8) * shape->size_words;
}

/* --------------------------------------------------------------- update */

/* Write everything of a slot but its key, then the key. */
static void write_slot(struct merapi_window* window, struct merapi_shape* slot, const struct merapi_shape* shape) {
  const size_t body = offsetof(struct merapi_shape, kind);
  merapi_put(window, (uint8_t*)slot + body, (const uint8_t*)shape + body, sizeof *shape - body);
  merapi_publish64(window, &slot->klass_word, shape->klass_word);
}

static bool is_same(struct merapi_window* window, const struct merapi_shape* old, const struct merapi_shape* shape,
                    const struct merapi_ref_block* blocks) {
  struct merapi_shape a = *old, b = *shape;
  a.extension = b.extension = 0;
  if (shape->block_count > MERAPI_SHAPE_INLINE_BLOCKS) {
    uint64_t first, lines;
    if (old->block_count != shape->block_count || !extension_of(&window->shapes, old, &first, &lines)) return false;
    const uint8_t* extension = merapi_area_of(window, MERAPI_AREA_SHAPE_EXTENSION);
    for (uint32_t i = 0; i < shape->block_count; i++) {
      struct merapi_ref_block block;
      merapi_get(window, &block, extension + old->extension + i * sizeof block, sizeof block);
      if (memcmp(&block, &blocks[i], sizeof block) != 0) return false;
    }
  }
  return memcmp(&a, &b, sizeof a) == 0;
}

int merapi_shape_put(struct merapi_window* window, const struct merapi_shape* given,
                     const struct merapi_ref_block* blocks) {
  if (window->held.forked) return -ECHILD;
  if (window->readonly || !is_sound(given, blocks)) return -EINVAL;
  struct merapi_shape shape = *given, old;
  shape.reserved0 = 0;
  shape.extension = 0;
  memset(shape.block, 0, sizeof shape.block);
  const bool extended = shape.block_count > MERAPI_SHAPE_INLINE_BLOCKS;
  if (!extended && shape.block_count != 0) memcpy(shape.block, blocks, shape.block_count * sizeof *blocks);

  uint32_t vacant;
  uint32_t at = find(window, shape.klass_word, &vacant);
  struct merapi_shape* table = table_of(window);
  const bool replace = at != NO_SLOT;
  if (replace) {
    merapi_get(window, &old, &table[at], sizeof old);
    if (is_same(window, &old, &shape, blocks)) return 0;
  } else {
    if (vacant == NO_SLOT) return -ENOSPC;
    at = vacant;
  }
  if (extended) {
    const uint64_t line = take_lines(&window->shapes, lines_for(shape.block_count));
    if (line == UINT64_MAX) return -ENOSPC;
    shape.extension = line * MERAPI_LINE_BYTES;
    uint8_t* extension = merapi_area_of(window, MERAPI_AREA_SHAPE_EXTENSION);
    merapi_put(window, extension + shape.extension, blocks, shape.block_count * sizeof *blocks);
  }
  if (replace) {
    merapi_publish64(window, &table[at].klass_word, MERAPI_SHAPE_KEY_TOMBSTONE);
    release_extension(window, &old);
  } else {
    if (merapi_get64(window, &table[at].klass_word) == MERAPI_SHAPE_KEY_TOMBSTONE) window->shapes.tombstones--;
    window->shapes.used++;
  }
  write_slot(window, &table[at], &shape);
  return 0;
}

/* A tombstone in front of an empty slot holds no chain together: it and those before it become empty again. */
static void sweep_tombstones(struct merapi_window* window, uint32_t slot) {
  struct merapi_shape* table = table_of(window);
  const uint32_t mask = window->shapes.slots - 1;
  if (merapi_get64(window, &table[(slot + 1) & mask].klass_word) != MERAPI_SHAPE_KEY_EMPTY) return;
  while (merapi_get64(window, &table[slot].klass_word) == MERAPI_SHAPE_KEY_TOMBSTONE) {
    merapi_publish64(window, &table[slot].klass_word, MERAPI_SHAPE_KEY_EMPTY);
    window->shapes.tombstones--;
    slot = (slot - 1) & mask;
  }
}

int merapi_shape_remove(struct merapi_window* window, uint64_t klass_word) {
  if (window->held.forked) return -ECHILD;
  if (window->readonly || !is_key(klass_word)) return -EINVAL;
  const uint32_t at = find(window, klass_word, NULL);
  if (at == NO_SLOT) return -ENOENT;
  struct merapi_shape *table = table_of(window), old;
  merapi_get(window, &old, &table[at], sizeof old);
  merapi_publish64(window, &table[at].klass_word, MERAPI_SHAPE_KEY_TOMBSTONE);
  release_extension(window, &old);
  window->shapes.used--;
  window->shapes.tombstones++;
  sweep_tombstones(window, at);
  return 0;
}

int merapi_shape_get(struct merapi_window* window, uint64_t klass_word, struct merapi_shape* shape,
                     struct merapi_ref_block* blocks, uint32_t max_blocks) {
  if (!is_key(klass_word)) return -EINVAL;
  const uint32_t at = find(window, klass_word, NULL);
  if (at == NO_SLOT) return -ENOENT;
  merapi_get(window, shape, &table_of(window)[at], sizeof *shape);
  const uint32_t count = shape->block_count < max_blocks ? shape->block_count : max_blocks;
  if (blocks == NULL || count == 0) return 0;
  if (shape->block_count <= MERAPI_SHAPE_INLINE_BLOCKS) {
    memcpy(blocks, shape->block, count * sizeof *blocks);
    return 0;
  }
  uint64_t first, lines;
  if (!extension_of(&window->shapes, shape, &first, &lines)) return -EPROTO;
  const uint8_t* extension = merapi_area_of(window, MERAPI_AREA_SHAPE_EXTENSION);
  merapi_get(window, blocks, extension + shape->extension, count * sizeof *blocks);
  return 0;
}

void merapi_shape_clear(struct merapi_window* window) {
  struct merapi_shape_state* s = &window->shapes;
  if (window->readonly) return;
  struct merapi_shape* table = table_of(window);
  for (uint32_t i = 0; i < s->slots; i++)
    if (merapi_get64(window, &table[i].klass_word) != MERAPI_SHAPE_KEY_EMPTY)
      merapi_publish64(window, &table[i].klass_word, MERAPI_SHAPE_KEY_EMPTY);
  memset(s->line_taken, 0, (s->lines / 64 + 1) * sizeof *s->line_taken);
  s->used = s->tombstones = 0;
  s->lines_used = s->hint = 0;
}

void merapi_shape_usage(struct merapi_window* window, struct merapi_shape_usage* usage) {
  const struct merapi_shape_state* s = &window->shapes;
  usage->slots = s->slots;
  usage->used = s->used;
  usage->tombstones = s->tombstones;
  usage->extension_bytes = s->lines * MERAPI_LINE_BYTES;
  usage->extension_used = s->lines_used * MERAPI_LINE_BYTES;
}
