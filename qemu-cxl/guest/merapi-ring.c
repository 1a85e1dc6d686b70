/* SPDX-License-Identifier: Apache-2.0
 *
 * Round trips through the rings of a window and the doorbell and interrupt of its tracer's PCI function: each submits a
 * FENCE, rings, and sleeps until an interrupt tells of news, until the completion is there.
 *
 *   merapi-ring TRACER MEMORY COUNT [WAY]      e.g. merapi-ring /dev/merapi0 /dev/dax0.0 100000
 *
 * WAY: how it sleeps, of the driver's ways to tell of an interrupt: wait (the ioctl), poll, read, eventfd. With it, it
 * sleeps in each round trip, even when the completion is there already; without, by the ioctl and where it must.
 *
 * Prints JSON: microseconds from before the doorbell to the completion, sleeps that ended without news (spurious),
 * sleeps that ended by time although there was news (lost), and interrupts as the driver counted them, of which each
 * sleep must have had one. Exit status: 0, 1 an error or an interrupt lost or without cause, 2 wrong use.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "merapi/merapi.h"
#include "merapi/tracer_device.h"

/* An emulated processor's second is not the machine's: a sleep that ends by this time has been forgotten. */
#define LONGEST_NS UINT64_C(5000000000)
#define LONGEST_MS 5000
#define ATTACH_US 10000000
#define MIB ((uint64_t)1 << 20)

struct trips {
  uint64_t count, sleeps, spurious, lost;
  double* us;
};

static void fail(const char* what, const char* detail) {
  fprintf(stderr, "merapi-ring: %s: %s\n", what, detail);
  exit(1);
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static uint32_t read_number(const char* path) {
  FILE* file = fopen(path, "re");
  uint32_t value = 0;
  if (file == NULL || fscanf(file, "%" SCNu32, &value) != 1) fail(path, "expected a number");
  fclose(file);
  return value;
}

static uint32_t interrupts_of(const char* tracer) {
  char path[128];
  snprintf(path, sizeof path, "/sys/class/misc/%s/device/interrupts", strrchr(tracer, '/') + 1);
  return read_number(path);
}

/* The ways to sleep: 0 after an interrupt that came since the function was armed, or -1 with errno. */
static int by_wait(int tracer, uint32_t seen) {
  struct merapi_tracer_wait how = {.seen = seen, .nanoseconds = LONGEST_NS};
  return ioctl(tracer, MERAPI_TRACER_WAIT, &how);
}

static int told_by_poll(int fd) {
  struct pollfd poller = {.fd = fd, .events = POLLIN};
  const int ready = poll(&poller, 1, LONGEST_MS);
  if (ready < 0) return -1;
  errno = ready == 0 ? ETIMEDOUT : EIO;
  return ready == 1 && poller.revents == POLLIN ? 0 : -1;
}

/* One interrupt for each time of arming: more than one to read is an interrupt without cause. */
static int take(int tracer) {
  uint32_t news;
  if (read(tracer, &news, sizeof news) != sizeof news) return -1;
  errno = EOVERFLOW;
  return news == 1 ? 0 : -1;
}

static int by_poll(int tracer, uint32_t seen) {
  if (ioctl(tracer, MERAPI_TRACER_ARM, &seen) < 0 || told_by_poll(tracer) < 0) return -1;
  return take(tracer);
}

static int by_read(int tracer, uint32_t seen) {
  if (ioctl(tracer, MERAPI_TRACER_ARM, &seen) < 0) return -1;
  alarm(LONGEST_MS / 1000);
  const int status = take(tracer);
  const int code = errno;
  alarm(0);
  errno = code == EINTR ? ETIMEDOUT : code;
  return status;
}

static int by_eventfd(int tracer, uint32_t seen) {
  static int fd = -1;
  if (fd < 0) {
    fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0 || ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd) < 0) return -1;
  }
  eventfd_t signals;
  if (ioctl(tracer, MERAPI_TRACER_ARM, &seen) < 0 || told_by_poll(fd) < 0 || eventfd_read(fd, &signals) < 0) return -1;
  errno = EOVERFLOW;
  return signals == 1 ? 0 : -1;
}

static const struct way {
  const char* name;
  int (*sleep)(int tracer, uint32_t seen);
} kWays[] = {{"wait", by_wait}, {"poll", by_poll}, {"read", by_read}, {"eventfd", by_eventfd}};

struct manner {
  const struct way* way;
  bool always; /* not only when there is no completion yet */
};

static const struct way* way_of(const char* name) {
  for (size_t i = 0; i < sizeof kWays / sizeof kWays[0]; i++)
    if (strcmp(kWays[i].name, name) == 0) return &kWays[i];
  return NULL;
}

static void woken(int number) { (void)number; }

/* Sleep until the event differs from `seen`. */
static void sleep_for(const struct way* way, int tracer, const _Atomic uint32_t* event, uint32_t seen,
                      struct trips* trips) {
  trips->sleeps++;
  while (true) {
    const int status = way->sleep(tracer, seen);
    const int code = errno;
    const bool there = atomic_load(event) != seen;
    if (status < 0 && code == ETIMEDOUT) {
      if (!there) fail("expected a completion within 5 s", "found none: the engine does not answer");
      trips->lost++;
      return;
    }
    if (status < 0 && code != EINTR) fail("sleep", strerror(code));
    if (there) return;
    if (status == 0) trips->spurious++;
  }
}

/* The event tells of other news too (the idle record): there may be more than one sleep in a round trip. */
static void trip(struct merapi_window* window, const struct manner* how, int tracer, const _Atomic uint32_t* event,
                 uint32_t cycle, uint64_t token, struct trips* trips) {
  const struct merapi_submission fence = {.opcode = MERAPI_OP_FENCE, .cycle = cycle, .payload = {token}};
  // Before the entry is there: a tracer that is still awake takes it without a doorbell, and its event must not be
  // missed.
  uint32_t seen = atomic_load(event);
  if (merapi_submit(window, &fence, 1) != 1) fail("submit", "the ring is full");
  const double begin = now_us();
  merapi_doorbell(window);
  if (ioctl(tracer, MERAPI_TRACER_DOORBELL) < 0) fail("doorbell", strerror(errno));
  struct merapi_completion done;
  int got;
  for (bool look = !how->always; !look || (got = merapi_complete(window, &done, 1)) == 0; look = true) {
    sleep_for(how->way, tracer, event, seen, trips);
    seen = atomic_load(event);
  }
  trips->us[trips->count++] = now_us() - begin;
  if (got < 0) fail("complete", strerror(-got));
  if (done.type != MERAPI_COMP_DONE || done.payload[2] != token) {
    fprintf(stderr, "merapi-ring: expected the completion of FENCE %" PRIu64 ", found one of type %u for %" PRIu64 "\n",
            token, done.type, done.payload[2]);
    exit(1);
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void report(struct trips* trips, uint32_t interrupts, double seconds) {
  double sum = 0;
  for (uint64_t i = 0; i < trips->count; i++) sum += trips->us[i];
  qsort(trips->us, trips->count, sizeof *trips->us, ascending);
  static const struct {
    const char* name;
    double share;
  } kPoints[] = {{"min", 0}, {"p10", .1}, {"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"max", 1}};
  printf("{\"round_trips\": %" PRIu64 ", \"sleeps\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"spurious\": %" PRIu64
         ", \"interrupts\": %" PRIu32 ", \"seconds\": %.3f, \"us\": {\"mean\": %.1f",
         trips->count, trips->sleeps, trips->lost, trips->spurious, interrupts, seconds, sum / (double)trips->count);
  for (size_t i = 0; i < sizeof kPoints / sizeof kPoints[0]; i++)
    printf(", \"%s\": %.1f", kPoints[i].name, trips->us[(uint64_t)(kPoints[i].share * (double)(trips->count - 1))]);
  printf("}}\n");
}

/* Some heap that makes sense is enough: fences touch none of it. */
static struct merapi_window* open_window(const char* memory) {
  const struct merapi_geometry geometry = {.heap_bytes = 32 * MIB, .region_log2 = 20, .alignment_log2 = 3};
  struct merapi_window* window;
  struct merapi_error error;
  char name[256];
  snprintf(name, sizeof name, "dax:%s", memory);
  if (merapi_open(name, &geometry, MERAPI_OPEN_FORMAT, &window, &error) < 0) fail(memory, error.message);
  struct merapi_config config;
  merapi_get_config(window, &config);
  config.heap_base = (uint64_t)1 << 32;
  config.mirror_size_offset = 64;
  if (merapi_configure(window, &config, &error) < 0 || merapi_attach(window, ATTACH_US, &error) < 0)
    fail(memory, error.message);
  return window;
}

int main(int argc, char** argv) {
  char* end = NULL;
  const uint64_t count = argc == 4 || argc == 5 ? strtoull(argv[3], &end, 0) : 0;
  const struct manner how = {.way = way_of(argc == 5 ? argv[4] : "wait"), .always = argc == 5};
  if (count == 0 || *end != '\0' || strchr(argv[1], '/') == NULL || how.way == NULL) {
    fprintf(stderr, "usage: merapi-ring TRACER MEMORY COUNT [wait|poll|read|eventfd]\n");
    return 2;
  }
  /* Without SA_RESTART: an alarm ends a read. */
  const struct sigaction action = {.sa_handler = woken};
  sigaction(SIGALRM, &action, NULL);
  struct trips trips = {.us = calloc(count, sizeof(double))};
  if (trips.us == NULL) fail("memory", strerror(errno));
  const int tracer = open(argv[1], O_RDWR | O_CLOEXEC);
  if (tracer < 0) fail(argv[1], strerror(errno));
  struct merapi_window* const window = open_window(argv[2]);
  const int fd = open(argv[2], O_RDWR | O_CLOEXEC);
  uint8_t* const control = mmap(NULL, MERAPI_MAPPED_ALIGNMENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || control == MAP_FAILED) fail(argv[2], strerror(errno));
  const _Atomic uint32_t* const event =
      (const _Atomic uint32_t*)(control + MERAPI_DEVICE_INDEX_OFFSET + offsetof(struct merapi_device_index, event));
  /* As a host that sleeps says of itself. */
  atomic_store((_Atomic uint32_t*)(control + MERAPI_HOST_INDEX_OFFSET + offsetof(struct merapi_host_index, waiting)),
               1);

  const uint32_t cycle = merapi_next_cycle(window);
  const struct merapi_submission begin_cycle = {.opcode = MERAPI_OP_BEGIN_CYCLE, .cycle = cycle};
  if (merapi_submit(window, &begin_cycle, 1) != 1) fail("submit", "the ring is full");
  trip(window, &how, tracer, event, cycle, UINT64_MAX, &trips);
  trips.count = trips.sleeps = trips.lost = trips.spurious = 0;
  const uint32_t before = interrupts_of(argv[1]);
  const double begin = now_us();
  for (uint64_t i = 0; i < count; i++) trip(window, &how, tracer, event, cycle, i, &trips);
  const double seconds = (now_us() - begin) / 1e6;
  const uint32_t interrupts = interrupts_of(argv[1]) - before;
  report(&trips, interrupts, seconds);
  merapi_close(window);
  return trips.lost != 0 || trips.spurious != 0 || interrupts != trips.sleeps;
}
