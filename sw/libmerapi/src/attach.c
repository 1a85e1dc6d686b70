/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration, the handshake that starts a generation, and the revocation that ends one.
 *
 * The generation is the only word that says whether a device may touch the window. `attached` is derived from it: it is
 * set when a device answered the present generation and cleared by the store that makes the generation odd.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "internal.h"

/* A handshake zeroes device_index.event, so waiting for its answer cannot rely on that count alone. */
#define HANDSHAKE_SLICE_NS UINT64_C(1000000)
/* Bounds to the patience that a device of the window's former life stated. No pause of a program waits here: a device
 * that lives is waited for, also when its process is long without a processor. */
#define QUIESCE_MIN_US UINT64_C(1000000)
#define QUIESCE_MAX_US UINT64_C(5000000)

int merapi_configure(struct merapi_window* window, const struct merapi_config* config, struct merapi_error* error) {
  if (window->readonly) return merapi_fail(error, -EINVAL, "the window was opened to inspect it only");
  int status = merapi_own(window, error);
  if (status < 0) return status;
  status = merapi_config_check(config, &window->layout, error);
  if (status < 0) return status;
  if (!window->ops_replaced && merapi_mapping_ops(config->coherence) == NULL)
    return merapi_fail(error, -EINVAL,
                       "expected cache operations for a non-coherent device, found none for this processor; give them "
                       "with merapi_set_ops");
  if ((status = merapi_enter_mode(window, config->coherence, error)) < 0) return status;
  const struct merapi_config* before = &window->config;
  const bool same = config->region_log2 == before->region_log2 && config->alignment_log2 == before->alignment_log2;
  merapi_limits_to_starts(window, config, same ? before->region_count : 0);
  window->config = *config;
  merapi_put(window, merapi_config_of(window), config, sizeof *config);
  merapi_write_back(window, merapi_config_of(window), sizeof *config);
  return 0;
}

void merapi_get_config(const struct merapi_window* window, struct merapi_config* config) { *config = window->config; }

/* Host lines and rings as a handshake starts from them. The generation is odd: no device looks. */
static void reset(struct merapi_window* window) {
  struct merapi_host_index* index = merapi_host_index_of(window);
  static const struct merapi_host_request no_request;
  merapi_publish64(window, &index->submission_produced, 0);
  merapi_publish64(window, &index->completion_consumed, 0);
  merapi_put(window, merapi_host_request_of(window), &no_request, sizeof no_request);

  /* Entries of an older generation must not pass for new ones. */
  static const struct merapi_completion none;
  struct merapi_completion* ring = merapi_area_of(window, MERAPI_AREA_COMPLETION);
  for (uint32_t i = 0; i < window->completion_entries; i++) merapi_put(window, &ring[i], &none, sizeof none);
  merapi_write_back(window, ring, sizeof none * window->completion_entries);

  window->submission_produced = window->submission_consumed_seen = 0;
  window->completion_consumed = window->completion_produced_seen = 0;
  window->pause = window->resume = window->abort = 0;
}

static bool answered_or_gone(struct merapi_window* window, uint64_t generation) {
  return merapi_get64(window, &merapi_device_index_of(window)->generation) == generation || merapi_gone(window);
}

/* A device that served this window before may still have writes in flight: it was told to stop by an odd generation and
 * says nothing to that. One that answers a handshake has ended them. */
int merapi_quiesce(struct merapi_window* window, struct merapi_error* error) {
  struct merapi_host_index* index = merapi_host_index_of(window);
  if (window->readonly || merapi_get64(window, &merapi_identity_of(window)->magic) != MERAPI_MAGIC ||
      merapi_get64(window, &merapi_device_index_of(window)->generation) == 0 || merapi_gone(window))
    return 0;
  uint64_t patience_us = merapi_get32(window, &merapi_device_identity_of(window)->patience_us);
  if (patience_us < QUIESCE_MIN_US) patience_us = QUIESCE_MIN_US;
  if (patience_us > QUIESCE_MAX_US) patience_us = QUIESCE_MAX_US;
  const uint64_t generation = (merapi_get64(window, &index->generation) | 1) + 1;
  merapi_publish64(window, &index->generation, generation - 1);
  atomic_store(&window->doorbell, merapi_get32(window, &index->doorbell));
  merapi_publish64(window, &index->submission_produced, 0);
  merapi_publish64(window, &index->completion_consumed, 0);
  merapi_publish64(window, &index->generation, generation);
  merapi_doorbell(window);
  merapi_wait_until(window, answered_or_gone, generation, merapi_now_ns() + patience_us * 1000, true,
                    HANDSHAKE_SLICE_NS);
  const bool answered = merapi_get64(window, &merapi_device_index_of(window)->generation) == generation;
  merapi_publish64(window, &index->generation, generation + 1);
  atomic_store(&window->generation, generation + 1);
  merapi_doorbell(window);
  /* Nothing tells whether there still is a device behind devdax; one that is there has had its time. */
  if (answered || window->transport->devdax || merapi_gone(window)) return 0;
  return merapi_fail(error, -EBUSY,
                     "expected the device that served %s to end its work within %" PRIu64
                     " us, found no answer; it may be stopped: wake or end it",
                     window->path, patience_us);
}

static int check_identity(struct merapi_window* window, struct merapi_error* error) {
  struct merapi_device_identity* device = &window->device;
  merapi_get(window, device, merapi_device_identity_of(window), sizeof *device);
  if (device->magic != MERAPI_DEVICE_MAGIC)
    return merapi_fail(error, -EPROTO, "expected a device (magic %#x), found %#x", MERAPI_DEVICE_MAGIC, device->magic);
  struct merapi_identity own;
  merapi_get(window, &own, merapi_identity_of(window), sizeof own);
  const uint16_t minor = own.version_minor;
  if (device->version_major != MERAPI_VERSION_MAJOR || device->version_minor < minor)
    return merapi_fail(error, -EPROTO,
                       "expected a device of contract version %d.%u or a later minor, found %u.%u; use a device of the "
                       "same release",
                       MERAPI_VERSION_MAJOR, minor, device->version_major, device->version_minor);
  /* Nothing was commanded yet: a fault is the device's refusal of the window. */
  struct merapi_fault_record fault = {.code = merapi_get32(window, &merapi_fault_record_of(window)->code)};
  if (fault.code != MERAPI_FAULT_NONE) {
    merapi_get(window, &fault, merapi_fault_record_of(window), sizeof fault);
    return merapi_fail(error, -EPROTO,
                       "expected a device that takes the window, found a refusal: %s (address %#" PRIx64
                       ", detail %#" PRIx64 ")",
                       merapi_fault_name(fault.code), fault.address, fault.detail);
  }
  /* A host waits as long for each acknowledgement; a JVM stands still meanwhile. */
  if (device->patience_us > MERAPI_PATIENCE_MAX_US)
    return merapi_fail(error, -EPROTO,
                       "expected a device that states a patience of at most %u us, found %" PRIu32
                       "; have it state less (merapi-device: --patience-us)",
                       MERAPI_PATIENCE_MAX_US, device->patience_us);
  if (device->coherence != window->config.coherence)
    return merapi_fail(error, -ENOTSUP,
                       "expected a device of coherence mode %u (1 coherent, 2 non-coherent), found %u; this host "
                       "cannot work with it",
                       window->config.coherence, device->coherence);
  if (device->window_bytes < window->layout.window_bytes)
    return merapi_fail(error, -ENOSPC,
                       "expected a device that sees %" PRIu64 " bytes of window, found %" PRIu64
                       "; restart the device after the window has its size",
                       window->layout.window_bytes, device->window_bytes);
  const struct merapi_device_index* index = merapi_device_index_of(window);
  const uint64_t consumed = merapi_get64(window, &index->submission_consumed);
  const uint64_t produced = merapi_get64(window, &index->completion_produced);
  if (consumed != 0 || produced != 0)
    return merapi_fail(error, -EPROTO,
                       "expected a device that starts with empty rings, found indexes %" PRIu64 " and %" PRIu64,
                       consumed, produced);
  return 0;
}

static int handshake(struct merapi_window* window, uint64_t timeout_us, struct merapi_error* error) {
  const uint64_t deadline = merapi_deadline_ns(timeout_us);
  merapi_descriptors_begin();
  const int status = window->transport->connect != NULL ? window->transport->connect(window, error) : 0;
  merapi_descriptors_end();
  if (status < 0) return status;
  reset(window);
  const uint64_t generation = atomic_load(&window->generation) + 1;
  atomic_store(&window->generation, generation);
  merapi_publish64(window, &merapi_host_index_of(window)->generation, generation);
  merapi_doorbell(window);
  merapi_wait_until(window, answered_or_gone, generation, deadline, true, HANDSHAKE_SLICE_NS);
  if (merapi_get64(window, &merapi_device_index_of(window)->generation) != generation) {
    if (merapi_gone(window))
      return merapi_fail(error, -ENODEV, "expected the device at %s to answer, found that %s", window->path,
                         window->transport->farewell != NULL ? window->transport->farewell(window) : "it is gone");
    return merapi_fail(error, -ETIMEDOUT,
                       "expected the device at %s to answer within %" PRIu64 " us, found nothing; is it stopped%s?",
                       window->path, timeout_us, window->transport->silence != NULL ? window->transport->silence : "");
  }
  return check_identity(window, error);
}

int merapi_attach(struct merapi_window* window, uint64_t timeout_us, struct merapi_error* error) {
  if (window->readonly) return merapi_fail(error, -EINVAL, "the window was opened to inspect it only");
  int status = merapi_own(window, error);
  if (status < 0) return status;
  merapi_revoke(window);
  status = handshake(window, timeout_us, error);
  if (status < 0) {
    merapi_revoke(window);
    return status;
  }
  atomic_store(&window->event_seen, merapi_get32(window, &merapi_device_index_of(window)->event));
  atomic_store(&window->attached, true);
  return 0;
}

void merapi_revoke(struct merapi_window* window) {
  const uint64_t generation = atomic_load(&window->generation);
  if (generation % 2 != 0 || window->readonly) return;
  /* First of all: from here on a device that obeys the contract stops touching the window. */
  atomic_store(&window->generation, generation + 1);
  merapi_publish64(window, &merapi_host_index_of(window)->generation, generation + 1);
  atomic_store(&window->attached, false);
  /* A sleeping device learns of it, and so do threads of this host that wait for the device. */
  merapi_doorbell(window);
  merapi_futex_wake(&merapi_device_index_of(window)->event);
}

bool merapi_attached(const struct merapi_window* window) { return atomic_load(&window->attached); }

uint64_t merapi_generation(const struct merapi_window* window) { return atomic_load(&window->generation); }

void merapi_device_info(const struct merapi_window* window, struct merapi_device_identity* identity) {
  *identity = window->device;
}

bool merapi_device_gone(struct merapi_window* window) { return merapi_gone(window); }
