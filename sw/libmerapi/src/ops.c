/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on lines that host and device share, for a window that is mapped.
 *
 * Coherent: plain copies; `publish` is a release store and word-sized `get` an acquire load, which orders payload
 * before index in both directions.
 *
 * Not coherent: nothing that the host keeps in its caches is seen by the device, and nothing that the device wrote is
 * seen by a host that has the line cached. Lines are flushed on both sides of an access. A partial `put` first drops
 * the line, so that the write-back of the whole line carries no stale neighbours.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

static bool is_word(const void* address, size_t bytes) {
  return (bytes == 4 || bytes == 8) && (uintptr_t)address % bytes == 0;
}

static void store_word(void* destination, uint64_t value, size_t bytes) {
  if (bytes == 4)
    __atomic_store_n((uint32_t*)destination, (uint32_t)value, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint64_t*)destination, value, __ATOMIC_RELEASE);
}

static void load(void* destination, const void* source, size_t bytes) {
  if (!is_word(source, bytes)) {
    memcpy(destination, source, bytes);
  } else if (bytes == 4) {
    const uint32_t value = __atomic_load_n((const uint32_t*)source, __ATOMIC_ACQUIRE);
    memcpy(destination, &value, sizeof value);
  } else {
    const uint64_t value = __atomic_load_n((const uint64_t*)source, __ATOMIC_ACQUIRE);
    memcpy(destination, &value, sizeof value);
  }
}

static void coherent_put(void* context, void* destination, const void* source, size_t bytes) {
  (void)context;
  memcpy(destination, source, bytes);
}
static void coherent_publish(void* context, void* destination, uint64_t value, size_t bytes) {
  (void)context;
  store_word(destination, value, bytes);
}
static void coherent_get(void* context, void* destination, const void* source, size_t bytes) {
  (void)context;
  load(destination, source, bytes);
}
static void coherent_range(void* context, const void* address, size_t bytes) {
  (void)context;
  (void)address;
  (void)bytes;
}

static const struct merapi_ops coherent_ops = {NULL,         coherent_put,   coherent_publish,
                                               coherent_get, coherent_range, coherent_range};

#if defined(__x86_64__)
/* CLFLUSH writes back and drops a line, is ordered with stores to it and exists on every x86-64 processor. */
static void flush(const void* address, size_t bytes) {
  const uintptr_t end = (uintptr_t)address + bytes;
  for (uintptr_t at = (uintptr_t)address & ~(uintptr_t)(MERAPI_LINE_BYTES - 1); at < end; at += MERAPI_LINE_BYTES)
    __builtin_ia32_clflush((const void*)at);
  __builtin_ia32_mfence();
}
#define MERAPI_HAVE_FLUSH 1
#elif defined(__aarch64__)
static void flush(const void* address, size_t bytes) {
  const uintptr_t end = (uintptr_t)address + bytes;
  for (uintptr_t at = (uintptr_t)address & ~(uintptr_t)(MERAPI_LINE_BYTES - 1); at < end; at += MERAPI_LINE_BYTES)
    __asm__ volatile("dc civac, %0" : : "r"(at) : "memory");
  __asm__ volatile("dsb sy" : : : "memory");
}
#define MERAPI_HAVE_FLUSH 1
#endif

#ifdef MERAPI_HAVE_FLUSH
static void flush_put(void* context, void* destination, const void* source, size_t bytes) {
  (void)context;
  flush(destination, bytes);
  memcpy(destination, source, bytes);
  flush(destination, bytes);
}
static void flush_publish(void* context, void* destination, uint64_t value, size_t bytes) {
  (void)context;
  store_word(destination, value, bytes);
  flush(destination, bytes);
}
static void flush_get(void* context, void* destination, const void* source, size_t bytes) {
  (void)context;
  flush(source, bytes);
  load(destination, source, bytes);
}
static void flush_range(void* context, const void* address, size_t bytes) {
  (void)context;
  if (bytes != 0) flush(address, bytes);
}
static const struct merapi_ops flush_ops = {NULL, flush_put, flush_publish, flush_get, flush_range, flush_range};
#endif

const struct merapi_ops* (*merapi_ops_model)(uint8_t coherence);

const struct merapi_ops* merapi_mapping_ops(uint8_t coherence) {
  if (merapi_ops_model != NULL) return merapi_ops_model(coherence);
  if (coherence != MERAPI_COHERENCE_NON_COHERENT) return &coherent_ops;
#ifdef MERAPI_HAVE_FLUSH
  return &flush_ops;
#else
  return NULL;
#endif
}

static void choose_ops(struct merapi_window* window) {
  const struct merapi_ops* ops = merapi_mapping_ops(window->mode);
  if (!window->ops_replaced && ops != NULL) window->ops = *ops;
}

/* Write back and drop, by any mapping: caches know memory, not mappings. */
static int hand_over(struct merapi_window* window, uint64_t offset, uint64_t bytes) {
  const uint64_t piece = UINT64_C(64) << 20, end = offset + bytes;
  for (struct merapi_run run = merapi_next_run(window, offset, end); run.start < end;
       run = merapi_next_run(window, run.end, end)) {
    for (uint64_t at = run.start, next; at < run.end; at = next) {
      next = run.end - at < piece ? run.end : at + piece;
      const uint64_t from = at / window->granularity * window->granularity;
      size_t mapped;
      uint8_t* base = merapi_window_map(window, from, next - from, &mapped);
      if (base == NULL) return -errno;
      merapi_write_back(window, base + (at - from), next - at);
      merapi_invalidate(window, base + (at - from), next - at);
      munmap(base, mapped);
    }
  }
  return 0;
}

int merapi_enter_mode(struct merapi_window* window, uint8_t coherence, struct merapi_error* error) {
  const uint8_t before = window->mode;
  window->mode = coherence;
  choose_ops(window);
  if (coherence != MERAPI_COHERENCE_NON_COHERENT || before == coherence || window->readonly) return 0;
  const struct merapi_area_desc* area = window->layout.area;
  int status = hand_over(window, 0, window->layout.metadata_bytes);
  for (int i = MERAPI_AREA_BITMAP0; i <= MERAPI_AREA_BITMAP1 && status == 0; i++)
    status = hand_over(window, area[i].offset, area[i].size);
  if (status == 0) return 0;
  window->mode = before;
  choose_ops(window);
  return merapi_fail(error, status, "%s: cannot map what is to be written back: %s", window->path, strerror(-status));
}

void merapi_set_ops(struct merapi_window* window, const struct merapi_ops* ops) {
  window->ops_replaced = ops != NULL;
  if (ops != NULL)
    window->ops = *ops;
  else
    choose_ops(window);
}

void merapi_write_back(struct merapi_window* window, const void* address, size_t bytes) {
  window->ops.write_back(window->ops.context, address, bytes);
}

void merapi_invalidate(struct merapi_window* window, const void* address, size_t bytes) {
  window->ops.invalidate(window->ops.context, address, bytes);
}
