/* SPDX-License-Identifier: Apache-2.0
 *
 * Pause, resume and abort: counters that the device acknowledges by copying them. They need no ring entry, so no full
 * ring can delay them.
 */
#include <errno.h>

#include "internal.h"

/* The acknowledgement is an event; slices only bound how late a dead device or a revocation is noticed. */
#define REQUEST_SLICE_NS UINT64_C(2000000)

static bool pause_acknowledged(struct merapi_window* window, uint64_t value) {
  return merapi_get32(window, &merapi_device_ack_of(window)->pause) == (uint32_t)value ||
         !atomic_load(&window->attached);
}

static bool abort_acknowledged(struct merapi_window* window, uint64_t value) {
  return merapi_get32(window, &merapi_device_ack_of(window)->abort) == (uint32_t)value ||
         !atomic_load(&window->attached);
}

uint64_t merapi_patience_us(const struct merapi_window* window) {
  return window->device.patience_us != 0 ? window->device.patience_us : MERAPI_PATIENCE_HARDWARE_US;
}

static int wait_for(struct merapi_window* window, bool (*acknowledged)(struct merapi_window*, uint64_t), uint32_t value,
                    uint64_t timeout_us) {
  if (timeout_us == 0) timeout_us = merapi_patience_us(window);
  const uint64_t deadline = merapi_deadline_ns(timeout_us);
  for (bool spin = true;; spin = false) {
    const uint64_t now = merapi_now_ns();
    const uint64_t until = deadline > now + REQUEST_SLICE_NS ? now + REQUEST_SLICE_NS : deadline;
    const bool done = merapi_wait_until(window, acknowledged, value, until, spin, REQUEST_SLICE_NS);
    if (!atomic_load(&window->attached)) return merapi_detached(window);
    if (done) return 0;
    if (merapi_gone(window)) return -ENODEV;
    if (until == deadline) return -ETIMEDOUT;
  }
}

int merapi_pause(struct merapi_window* window, uint64_t timeout_us) {
  if (!atomic_load(&window->attached)) return merapi_detached(window);
  if (window->pause == window->resume) {
    merapi_publish32(window, &merapi_host_request_of(window)->pause, ++window->pause);
    merapi_doorbell(window);
  }
  return wait_for(window, pause_acknowledged, window->pause, timeout_us);
}

int merapi_resume(struct merapi_window* window) {
  if (!atomic_load(&window->attached)) return merapi_detached(window);
  if (window->resume == window->pause) return 0;
  window->resume = window->pause;
  merapi_publish32(window, &merapi_host_request_of(window)->resume, window->resume);
  merapi_doorbell(window);
  return 0;
}

int merapi_abort(struct merapi_window* window, uint64_t timeout_us) {
  if (!atomic_load(&window->attached)) return merapi_detached(window);
  struct merapi_host_request* request = merapi_host_request_of(window);
  /* Abort before resume: a paused device must not trace on in between. */
  merapi_publish32(window, &request->abort, ++window->abort);
  window->resume = window->pause;
  merapi_publish32(window, &request->resume, window->resume);
  merapi_doorbell(window);
  return wait_for(window, abort_acknowledged, window->abort, timeout_us);
}
