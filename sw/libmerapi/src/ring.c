/* SPDX-License-Identifier: Apache-2.0
 *
 * The two rings as the host uses them. Indexes count from the handshake and never wrap; an entry is written before the
 * index that covers it, and checked after it was copied out and before its slot is given back.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

uint32_t merapi_next_cycle(struct merapi_window* window) {
  if (++window->cycle == 0) ++window->cycle; /* 0 is no cycle */
  return window->cycle;
}

/* What cannot be there: of a broken device, or of another one that has begun anew in its place. */
static int impossible(struct merapi_window* window) { return merapi_gone(window) ? -ENODEV : -EBADMSG; }

/* Free slots by what the device said last; asks again only when `wanted` do not fit. Negative: an impossible index. */
static int64_t submission_room(struct merapi_window* window, uint64_t wanted) {
  const uint64_t entries = window->submission_entries;
  uint64_t used = window->submission_produced - window->submission_consumed_seen;
  if (entries - used < wanted) {
    const uint64_t consumed = merapi_get64(window, &merapi_device_index_of(window)->submission_consumed);
    if (consumed < window->submission_consumed_seen || consumed > window->submission_produced)
      return impossible(window);
    window->submission_consumed_seen = consumed;
    used = window->submission_produced - consumed;
  }
  return (int64_t)(entries - used);
}

int merapi_submission_room(struct merapi_window* window) {
  if (!atomic_load(&window->attached)) return merapi_detached(window);
  /* More than there are: it looks what the device says by now. */
  return (int)submission_room(window, UINT64_C(1) + window->submission_entries);
}

int merapi_submit(struct merapi_window* window, const struct merapi_submission* entries, int count) {
  if (!atomic_load(&window->attached)) return merapi_detached(window);
  if (count <= 0) return 0;
  const int64_t room = submission_room(window, (uint64_t)count);
  if (room < 0) return (int)room;
  if (count > room) count = (int)room;
  struct merapi_submission* ring = merapi_area_of(window, MERAPI_AREA_SUBMISSION);
  for (int i = 0; i < count; i++) {
    const uint64_t index = window->submission_produced + (uint64_t)i;
    struct merapi_submission* slot = &ring[index & (window->submission_entries - 1)];
    struct merapi_submission entry = entries[i];
    entry.sequence = (uint32_t)(index + 1);
    uint64_t tail;
    memcpy(&tail, &entry.sequence, sizeof tail);
    merapi_put(window, slot, &entry, offsetof(struct merapi_submission, sequence));
    merapi_publish64(window, (uint64_t*)(void*)&slot->sequence, tail);
  }
  if (count > 0) {
    window->submission_produced += (uint64_t)count;
    merapi_publish64(window, &merapi_host_index_of(window)->submission_produced, window->submission_produced);
  }
  return count;
}

int merapi_complete(struct merapi_window* window, struct merapi_completion* entries, int count) {
  if (!atomic_load(&window->attached)) return merapi_detached(window);
  struct merapi_device_index* index = merapi_device_index_of(window);
  const uint64_t size = window->completion_entries;
  const uint64_t first = window->completion_consumed;
  /* Before the look at the ring: merapi_wait then knows of everything that comes after it. */
  atomic_store(&window->event_seen, merapi_get32(window, &index->event));
  const uint64_t produced = merapi_get64(window, &index->completion_produced);
  if (produced < window->completion_produced_seen || produced - first > size) return impossible(window);
  window->completion_produced_seen = produced;
  if (count <= 0 || produced == first) return 0;
  if ((uint64_t)count > produced - first) count = (int)(produced - first);
  const struct merapi_completion* ring = merapi_area_of(window, MERAPI_AREA_COMPLETION);
  for (int i = 0; i < count; i++) {
    merapi_get(window, &entries[i], &ring[(first + (uint64_t)i) & (size - 1)], sizeof entries[i]);
    if (entries[i].sequence != (uint32_t)(first + (uint64_t)i + 1)) return impossible(window);
  }
  window->completion_consumed = first + (uint64_t)count;
  merapi_publish64(window, &merapi_host_index_of(window)->completion_consumed, window->completion_consumed);
  /* A device that found the ring full sleeps until it is told of room. It publishes its index, fences (notify) and
   * looks at ours before it sleeps; we publish ours, fence and look at its index: one of the two sees the other. */
  atomic_thread_fence(memory_order_seq_cst);
  if (merapi_get64(window, &index->completion_produced) - first >= size / 4) merapi_doorbell(window);
  return count;
}
