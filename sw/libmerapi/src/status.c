/* SPDX-License-Identifier: Apache-2.0
 *
 * What the device says of itself while it works: idle, faults, state, counters.
 */
#include <string.h>

#include "internal.h"

/* `cycle` and `idle` share a word. */
static uint64_t idle_head(uint32_t cycle) {
  const struct merapi_idle_record record = {.cycle = cycle, .idle = 1};
  uint64_t head;
  memcpy(&head, &record, sizeof head);
  return head;
}

int merapi_idle(struct merapi_window* window, uint32_t cycle) {
  if (!atomic_load(&window->attached)) return 0;
  const struct merapi_idle_record* record = merapi_idle_record_of(window);
  const struct merapi_device_index* index = merapi_device_index_of(window);
  const uint64_t head = idle_head(cycle);
  if (merapi_get64(window, (const uint64_t*)(const void*)record) != head) return 0;
  const uint64_t consumed = merapi_get64(window, &record->consumed);
  const uint64_t produced = merapi_get64(window, &record->produced);
  /* The device clears `idle` before it changes the rest. A record that was replaced meanwhile shows either here or in
   * the indexes, which the device publishes before a new record. */
  if (merapi_get64(window, (const uint64_t*)(const void*)record) != head) return 0;
  return consumed == window->submission_produced && produced == window->completion_consumed &&
         merapi_get64(window, &index->submission_consumed) == consumed &&
         merapi_get64(window, &index->completion_produced) == produced;
}

uint32_t merapi_fault_get(struct merapi_window* window, struct merapi_fault_record* record) {
  const struct merapi_fault_record* fault = merapi_fault_record_of(window);
  /* Until a device has answered, the record is another generation's. After a revocation it still tells why. */
  const uint64_t answered = merapi_get64(window, &merapi_device_index_of(window)->generation);
  const uint64_t generation = atomic_load(&window->generation);
  uint32_t code = merapi_get32(window, &fault->code);
  if (!window->readonly && answered != (generation & ~UINT64_C(1)) && answered + 1 != generation)
    code = MERAPI_FAULT_NONE;
  if (record != NULL) {
    memset(record, 0, sizeof *record);
    if (code != MERAPI_FAULT_NONE) merapi_get(window, record, fault, sizeof *record);
    record->code = code;
  }
  return code;
}

uint32_t merapi_device_state(struct merapi_window* window) {
  if (!window->readonly && !atomic_load(&window->attached)) return MERAPI_DEVICE_STATE_DETACHED;
  return merapi_get32(window, &merapi_device_index_of(window)->state);
}

uint64_t merapi_counter(struct merapi_window* window, enum merapi_counter counter) {
  if ((unsigned)counter >= MERAPI_COUNTER_COUNT) return 0;
  return merapi_get64(window, &merapi_counters_of(window)->value[counter]);
}

uint64_t merapi_progress(struct merapi_window* window) {
  static const enum merapi_counter grow[] = {
      MERAPI_COUNTER_OBJECTS_MARKED, MERAPI_COUNTER_OBJECTS_SCANNED, MERAPI_COUNTER_REFERENCES_READ,
      MERAPI_COUNTER_DEFERRED,       MERAPI_COUNTER_BITMAP_READS,    MERAPI_COUNTER_SPILL_READS,
      MERAPI_COUNTER_RESCANS,        MERAPI_COUNTER_ROUNDS,
  };
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof grow / sizeof grow[0]; i++) sum += merapi_counter(window, grow[i]);
  return sum;
}
