/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleeping and waking. Both directions are event counts: the sleeper sets its flag, fences, looks again and sleeps on a
 * word that the other side increments; the other side increments, fences and makes a system call only when the flag is
 * set. No wake-up is lost, and none costs a system call while the other side is awake.
 *
 * The host sleeps on device_index.event with host_index.waiting, the device on host_index.doorbell with
 * device_index.sleeping. A transport with an interrupt of its own sleeps and wakes by that instead of futexes.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* merapi_revoke by another thread is not an event of the device: a long wait looks up this often. */
#define WAIT_SLICE_MAX_NS UINT64_C(100000000)

uint64_t merapi_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t merapi_deadline_ns(uint64_t timeout_us) {
  const uint64_t limit_us = UINT64_C(1000000000) * 1000000;
  return merapi_now_ns() + (timeout_us < limit_us ? timeout_us : limit_us) * 1000;
}

void merapi_pause_instruction(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void merapi_futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns) {
  const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                                   .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
  if (syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0) == 0 || errno == EAGAIN || errno == EINTR ||
      errno == ETIMEDOUT)
    return;
  /* A mapping that cannot carry a futex must not become a busy loop. */
  const struct timespec nap = {
      .tv_nsec = (long)(timeout_ns < MERAPI_POLL_SLICE_MIN_NS ? timeout_ns : MERAPI_POLL_SLICE_MIN_NS)};
  nanosleep(&nap, NULL);
}

void merapi_futex_wake(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

static void start_waiting(struct merapi_window* window) {
  pthread_mutex_lock(&window->wait_lock);
  if (window->waiters++ == 0) merapi_publish32(window, &merapi_host_index_of(window)->waiting, 1);
  pthread_mutex_unlock(&window->wait_lock);
}

static void stop_waiting(struct merapi_window* window) {
  pthread_mutex_lock(&window->wait_lock);
  if (--window->waiters == 0) merapi_publish32(window, &merapi_host_index_of(window)->waiting, 0);
  pthread_mutex_unlock(&window->wait_lock);
}

bool merapi_wait_until(struct merapi_window* window, bool (*ready)(struct merapi_window*, uint64_t), uint64_t argument,
                       uint64_t deadline_ns, bool spin, uint64_t slice_ns) {
  if (ready(window, argument)) return true;
  if (spin) {
    const uint64_t until = merapi_now_ns() + MERAPI_SPIN_NS;
    do {
      for (int i = 0; i < 16; i++) merapi_pause_instruction();
      if (ready(window, argument)) return true;
    } while (merapi_now_ns() < until);
  }
  uint32_t* const event = &merapi_device_index_of(window)->event;
  uint64_t poll_ns = MERAPI_POLL_SLICE_MIN_NS;
  bool result;
  start_waiting(window);
  for (;;) {
    /* `waiting` is visible before `event` is read: the device either sees the flag or has incremented before. */
    atomic_thread_fence(memory_order_seq_cst);
    const uint32_t seen = merapi_get32(window, event);
    result = ready(window, argument);
    const uint64_t now = merapi_now_ns();
    if (result || now >= deadline_ns) break;
    uint64_t slice = deadline_ns - now;
    if (slice > slice_ns) slice = slice_ns;
    if (window->transport->wait != NULL) {
      window->transport->wait(window, seen, slice);
      continue;
    }
    if (!window->transport->futex && slice > poll_ns) slice = poll_ns;
    if (poll_ns < MERAPI_POLL_SLICE_MAX_NS) poll_ns *= 2;
    merapi_futex_wait(event, seen, slice);
  }
  stop_waiting(window);
  return result;
}

void merapi_doorbell(struct merapi_window* window) {
  const uint32_t value = atomic_fetch_add(&window->doorbell, 1) + 1;
  merapi_publish32(window, &merapi_host_index_of(window)->doorbell, value);
  atomic_thread_fence(memory_order_seq_cst);
  if ((!window->transport->futex && window->transport->ring == NULL) ||
      merapi_get32(window, &merapi_device_index_of(window)->sleeping) == 0)
    return;
  if (window->transport->ring != NULL) {
    window->transport->ring(window);
  } else {
    merapi_futex_wake(&merapi_host_index_of(window)->doorbell);
  }
}

static bool has_news(struct merapi_window* window, uint64_t unused) {
  (void)unused;
  if (!atomic_load(&window->attached)) return true;
  const struct merapi_device_index* index = merapi_device_index_of(window);
  return merapi_get32(window, &index->event) != atomic_load(&window->event_seen) ||
         merapi_get64(window, &index->completion_produced) != window->completion_consumed;
}

int merapi_wait(struct merapi_window* window, uint64_t timeout_us) {
  if (!merapi_wait_until(window, has_news, 0, merapi_deadline_ns(timeout_us), false, WAIT_SLICE_MAX_NS)) return 0;
  /* Read before the caller looks: what comes later is news again. */
  atomic_store(&window->event_seen, merapi_get32(window, &merapi_device_index_of(window)->event));
  return 1;
}
