/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits (host-written) and live words (device-written; the host's while the device is paused). They are separate
 * tables because a line has one writer. A region that the configuration does not have is ignored and reads as 0.
 */
#include "internal.h"

static uint64_t* slot(struct merapi_window* window, enum merapi_area area, uint32_t region) {
  if (region >= window->config.region_count) return NULL;
  return (uint64_t*)merapi_area_of(window, area) + region;
}

void merapi_limits_to_starts(struct merapi_window* window, const struct merapi_config* config, uint32_t first) {
  uint64_t* const limits = merapi_area_of(window, MERAPI_AREA_LIMITS);
  uint64_t line[MERAPI_LINE_BYTES / sizeof(uint64_t)];
  const uint32_t most = sizeof line / sizeof line[0];
  for (uint32_t region = first; region < config->region_count;) {
    uint32_t count = 0;
    for (; count < most && count < config->region_count - region; count++)
      line[count] = (uint64_t)(region + count) << config->region_log2;
    merapi_put(window, limits + region, line, count * sizeof line[0]);
    region += count;
  }
}

void merapi_limit_set(struct merapi_window* window, uint32_t region, uint64_t limit) {
  uint64_t* at = slot(window, MERAPI_AREA_LIMITS, region);
  if (at != NULL) merapi_publish64(window, at, limit);
}

uint64_t merapi_limit_get(struct merapi_window* window, uint32_t region) {
  const uint64_t* at = slot(window, MERAPI_AREA_LIMITS, region);
  return at != NULL ? merapi_get64(window, at) : 0;
}

uint64_t merapi_live_get(struct merapi_window* window, uint32_t region) {
  const uint64_t* at = slot(window, MERAPI_AREA_LIVE, region);
  return at != NULL ? merapi_get64(window, at) : 0;
}

void merapi_live_clear(struct merapi_window* window, uint32_t region) {
  uint64_t* at = slot(window, MERAPI_AREA_LIVE, region);
  if (at == NULL) return;
  /* The device wrote this line: drop what the host has of it, or writing the word back takes stale neighbours along. */
  merapi_invalidate(window, at, sizeof *at);
  merapi_publish64(window, at, 0);
}
