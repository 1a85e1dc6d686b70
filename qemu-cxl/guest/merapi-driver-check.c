/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds the tracer's driver to merapi/tracer_device.h: ownership, what each call answers, each way to be told of an
 * interrupt. Needs a tracer that nobody has open and whose engine no host has attached to.
 *
 *   merapi-driver-check TRACER MEMORY BYTES      e.g. merapi-driver-check /dev/merapi0 /dev/dax0.0 1073741824
 *
 * Prints a line for each check, "ok WHAT" or "not ok WHAT: expected .., found ..". Exit status: 0, 1 a check failed or
 * could not be made, 2 wrong use.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "merapi/contract.h"
#include "merapi/tracer_device.h"

#define SOON_MS 5000
#define SOON_NS UINT64_C(5000000000)
#define SHORT_NS UINT64_C(20000000)

static int failed;

static void check(const char* what, int64_t expected, int64_t found) {
  if (expected == found) {
    printf("ok %s\n", what);
  } else {
    printf("not ok %s: expected %" PRId64 ", found %" PRId64 "\n", what, expected, found);
    failed = 1;
  }
}

/* 0 or more: what a call returned; less: the errno it failed with, negative. */
static int64_t outcome(int64_t status) { return status < 0 ? -errno : status; }

static void give_up(const char* what) {
  fprintf(stderr, "merapi-driver-check: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int open_tracer(const char* path) { return open(path, O_RDWR | O_CLOEXEC); }

static uint32_t engines_of(int tracer) {
  struct merapi_tracer_info info;
  if (ioctl(tracer, MERAPI_TRACER_INFO, &info) < 0) give_up("MERAPI_TRACER_INFO");
  return info.engines;
}

/* A new engine is there some time after what ordered it. */
static uint32_t engines_after(int tracer, uint32_t before) {
  for (int i = 0; i < SOON_MS / 10 && engines_of(tracer) == before; i++) usleep(10000);
  return engines_of(tracer);
}

/* Engines when no more of them are on their way: for half a second there was no new one. */
static uint32_t engines_at_rest(int tracer) {
  uint32_t engines = engines_of(tracer);
  for (int i = 0, same = 0; i < SOON_MS / 10 && same < 50; i++) {
    usleep(10000);
    const uint32_t now = engines_of(tracer);
    same = now == engines ? same + 1 : 0;
    engines = now;
  }
  return engines;
}

/* The value of an event that the function has not seen differs: it interrupts at once. */
static int arm(int tracer, uint32_t seen) { return ioctl(tracer, MERAPI_TRACER_ARM, &seen); }

static int polled(int fd, int milliseconds) {
  struct pollfd poller = {.fd = fd, .events = POLLIN};
  return poll(&poller, 1, milliseconds) == 1 ? poller.revents : 0;
}

static int64_t read_news(int tracer) {
  uint32_t news;
  const ssize_t got = read(tracer, &news, sizeof news);
  return got == (ssize_t)sizeof news ? (int64_t)news : outcome(got);
}

static void woken(int number) { (void)number; }

/* Not for ever: -EINTR when there is nothing to be told. */
static int64_t read_news_soon(int tracer) {
  alarm(SOON_MS / 1000);
  const int64_t news = read_news(tracer);
  alarm(0);
  return news;
}

static int64_t wait_for(int tracer, uint32_t seen, uint32_t reserved, uint64_t nanoseconds) {
  struct merapi_tracer_wait how = {.seen = seen, .reserved = reserved, .nanoseconds = nanoseconds};
  return outcome(ioctl(tracer, MERAPI_TRACER_WAIT, &how));
}

static void check_info(int tracer, uint64_t bytes) {
  struct merapi_tracer_info info;
  memset(&info, 0xff, sizeof info);
  check("info", 0, outcome(ioctl(tracer, MERAPI_TRACER_INFO, &info)));
  check("info: contract's major version", MERAPI_VERSION_MAJOR, info.version >> 16);
  check("info: first byte of the window", 0, (int64_t)info.window_offset);
  check("info: bytes of the window", (int64_t)bytes, (int64_t)info.window_bytes);
  check("info into nowhere", -EFAULT, outcome(ioctl(tracer, MERAPI_TRACER_INFO, NULL)));
}

static void check_ownership(int tracer, const char* path) {
  check("a second open", -EBUSY, outcome(open_tracer(path)));
  const int again = dup(tracer);
  close(again);
  check("an open after one of two descriptors was closed", -EBUSY, outcome(open_tracer(path)));
  check("the descriptor that is left", 0, outcome(ioctl(tracer, MERAPI_TRACER_DOORBELL)));
}

static void check_refusals(int tracer, uint32_t event) {
  char byte;
  check("a read of less than a count", -EINVAL, outcome(read(tracer, &byte, sizeof byte)));
  check("a write", -EINVAL, outcome(write(tracer, &event, sizeof event)));
  check("a seek", -ESPIPE, outcome(lseek(tracer, 0, SEEK_SET)));
  check("a map", -ENODEV, mmap(NULL, 4096, PROT_READ, MAP_SHARED, tracer, 0) == MAP_FAILED ? -errno : 0);
  check("an unknown call", -ENOTTY, outcome(ioctl(tracer, _IO(MERAPI_TRACER_TYPE, 99))));
  check("arming from nowhere", -EFAULT, outcome(ioctl(tracer, MERAPI_TRACER_ARM, NULL)));
  check("waiting from nowhere", -EFAULT, outcome(ioctl(tracer, MERAPI_TRACER_WAIT, NULL)));
  check("waiting with what is reserved", -EINVAL, wait_for(tracer, event, 1, SHORT_NS));
  int fd = 1000;
  check("an eventfd that is none: no file", -EBADF, outcome(ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd)));
  fd = tracer;
  check("an eventfd that is none: another file", -EINVAL, outcome(ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd)));
}

static void check_wait(int tracer, uint32_t event) {
  check("waiting without news", -ETIMEDOUT, wait_for(tracer, event, 0, SHORT_NS));
  check("waiting for news that are there", 0, wait_for(tracer, event + 1, 0, SOON_NS));
  read_news(tracer);
}

static void check_read_and_poll(int tracer, uint32_t event) {
  const int flags = fcntl(tracer, F_GETFL);
  check("poll without news", 0, polled(tracer, 20));
  fcntl(tracer, F_SETFL, flags | O_NONBLOCK);
  check("read without news, not waiting", -EAGAIN, read_news(tracer));
  check("arming with the event that is there", 0, outcome(arm(tracer, event)));
  check("poll when armed without news", 0, polled(tracer, 20));
  check("arming with another event", 0, outcome(arm(tracer, event + 1)));
  check("poll with news", POLLIN, polled(tracer, SOON_MS));
  check("poll again, not read yet", POLLIN, polled(tracer, SOON_MS));
  check("read of one interrupt", 1, read_news(tracer));
  check("read after that", -EAGAIN, read_news(tracer));
  check("poll after that", 0, polled(tracer, 20));
  for (int i = 0; i < 2; i++)
    if (wait_for(tracer, event + 1, 0, SOON_NS) != 0) give_up("MERAPI_TRACER_WAIT");
  check("read of two interrupts", 2, read_news(tracer));
  fcntl(tracer, F_SETFL, flags);
}

static void check_blocking_read(int tracer, uint32_t event) {
  alarm(1);
  check("a read that a signal ends", -EINTR, read_news(tracer));
  /* Armed by another process while this one is inside read. */
  const pid_t child = fork();
  if (child == 0) {
    usleep(200000);
    _exit(arm(tracer, event + 1) < 0);
  }
  check("a read that an interrupt ends", 1, read_news_soon(tracer));
  int status;
  waitpid(child, &status, 0);
  check("arming by another process that has the descriptor", 0, status);
}

static void check_eventfd(int tracer, uint32_t event) {
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), none = -1;
  eventfd_t count = 0;
  check("an eventfd", 0, outcome(ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd)));
  arm(tracer, event + 1);
  check("eventfd with news", POLLIN, polled(fd, SOON_MS));
  check("eventfd read", 0, outcome(eventfd_read(fd, &count)));
  check("eventfd: one signal for an interrupt", 1, (int64_t)count);
  check("eventfd and read tell of the same interrupt", 1, read_news(tracer));
  check("no eventfd any more", 0, outcome(ioctl(tracer, MERAPI_TRACER_EVENTFD, &none)));
  arm(tracer, event + 1);
  check("read of an interrupt after that", 1, read_news(tracer));
  check("no signal after that", 0, polled(fd, 20));
  close(fd);
}

/* In another process that has the device open, some time later. */
static pid_t reset_soon(int tracer) {
  const pid_t child = fork();
  if (child != 0) return child;
  usleep(200000);
  _exit(ioctl(tracer, MERAPI_TRACER_RESET) < 0);
}

static int ended(pid_t child) {
  int status;
  return waitpid(child, &status, 0) == child ? status : -1;
}

static void check_reset(int tracer, uint32_t event) {
  const uint32_t engines = engines_of(tracer);
  check("reset", 0, outcome(ioctl(tracer, MERAPI_TRACER_RESET)));
  check("a new engine after reset", engines + 1, engines_after(tracer, engines));
  check("poll after reset", POLLIN, polled(tracer, SOON_MS));
  check("read after reset", -EIO, read_news_soon(tracer));
  check("armed no more after reset", 0, polled(tracer, 20));
  check("arming after reset", 0, wait_for(tracer, event + 1, 0, SOON_NS));
  read_news_soon(tracer);
}

/* Nothing is armed after a reset: who waits for an interrupt would do so to the end of his time. */
static void check_waiting_in_reset(int tracer, uint32_t event) {
  pid_t child = reset_soon(tracer);
  check("a wait that a reset ends", -EIO, wait_for(tracer, event, 0, SOON_NS));
  check("reset while another process waits", 0, ended(child));
  check("a read that is told of it afterwards", -EIO, read_news_soon(tracer));

  const pid_t reader = fork();
  if (reader == 0) _exit(read_news_soon(tracer) != -EIO);
  child = reset_soon(tracer);
  check("a read that a reset ends", -EIO, read_news_soon(tracer));
  check("a second one, of the same reset", 0, ended(reader));
  ended(child);

  child = reset_soon(tracer);
  check("a poll that a reset ends", POLLIN, polled(tracer, SOON_MS));
  ended(child);
  read_news_soon(tracer);

  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), none = -1;
  ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd);
  child = reset_soon(tracer);
  check("an eventfd that a reset signals", POLLIN, polled(fd, SOON_MS));
  ended(child);
  ioctl(tracer, MERAPI_TRACER_EVENTFD, &none);
  close(fd);
  read_news_soon(tracer);
}

static int write_text(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const int status = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
  close(fd);
  return status;
}

/* The reset of the PCI function, as the administrator orders it, by a process of its own. */
static pid_t reset_function(const char* path) {
  const pid_t child = fork();
  if (child != 0) return child;
  char reset[128];
  snprintf(reset, sizeof reset, "/sys/class/misc/%s/device/reset", strrchr(path, '/') + 1);
  usleep(200000);
  _exit(write_text(reset, "1") != 0);
}

/* While it is reset, registers read as whatever the bus makes of nothing, for a tenth of a second at least. */
static void check_function_reset(int tracer, const char* path, uint32_t event) {
  const uint32_t engines = engines_of(tracer);
  const pid_t child = reset_function(path);
  int refused = 0, status;
  int64_t odd = -EIO;
  while (waitpid(child, &status, WNOHANG) == 0) {
    struct merapi_tracer_info info;
    const int64_t got = outcome(ioctl(tracer, MERAPI_TRACER_INFO, &info));
    refused += got == -EIO;
    /* There is a new engine before, by and after the reset, and that of an earlier one may be counted late. */
    if (got != -EIO && (got != 0 || info.engines < engines || info.engines > engines + 8))
      odd = got == 0 ? (int64_t)info.engines : got;
    usleep(1000);
  }
  check("reset of the function", 0, status);
  check("registers are out of reach while it is reset", 1, refused > 0);
  check("what else they told, besides engines", -EIO, odd);
  check("poll after it", POLLIN, polled(tracer, SOON_MS));
  check("read after it", -EIO, read_news_soon(tracer));
  check("arming after it", 0, wait_for(tracer, event + 1, 0, SOON_NS));
  read_news_soon(tracer);
}

/* The driver leaves the function while the device is open and waited for in each way; what is open outlives that. */
static void check_unbinding(const char* path, uint32_t event) {
  char link[128], folder[PATH_MAX];
  snprintf(link, sizeof link, "/sys/class/misc/%s/device", strrchr(path, '/') + 1);
  if (realpath(link, folder) == NULL) give_up(link);
  const char* const address = strrchr(folder, '/') + 1;
  const int tracer = open_tracer(path);
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (tracer < 0 || ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd) < 0) give_up(path);
  pid_t waiting[4];
  for (int i = 0; i < 4; i++) {
    waiting[i] = fork();
    if (waiting[i] != 0) continue;
    const int gone = POLLERR | POLLHUP;
    if (i == 0) _exit(wait_for(tracer, event, 0, SOON_NS) != -EIO);
    if (i == 1) _exit(read_news_soon(tracer) != -EIO);
    if (i == 2) _exit((polled(tracer, SOON_MS) & gone) != gone);
    _exit(polled(fd, SOON_MS) != POLLIN);
  }
  usleep(200000);
  check("unbinding", 0, write_text("/sys/bus/pci/drivers/merapi_tracer/unbind", address));
  static const char* const kWays[] = {"wait", "read", "poll", "eventfd"};
  for (int i = 0; i < 4; i++) {
    char what[64];
    snprintf(what, sizeof what, "waiting by %s, ended by unbinding", kWays[i]);
    check(what, 0, ended(waiting[i]));
  }
  struct merapi_tracer_info info;
  check("info after that", -EIO, outcome(ioctl(tracer, MERAPI_TRACER_INFO, &info)));
  check("doorbell after that", -EIO, outcome(ioctl(tracer, MERAPI_TRACER_DOORBELL)));
  check("arming after that", -EIO, outcome(arm(tracer, event)));
  check("waiting after that", -EIO, wait_for(tracer, event, 0, SOON_NS));
  check("reset after that", -EIO, outcome(ioctl(tracer, MERAPI_TRACER_RESET)));
  check("read after that", -EIO, read_news_soon(tracer));
  check("poll after that", POLLERR | POLLHUP, polled(tracer, SOON_MS));
  check("an eventfd after that", -EIO, outcome(ioctl(tracer, MERAPI_TRACER_EVENTFD, &fd)));
  check("an open after that", -ENOENT, outcome(open_tracer(path)));
  close(tracer);
  close(fd);
  check("binding again", 0, write_text("/sys/bus/pci/drivers/merapi_tracer/bind", address));
}

/* A process that dies with the device open has closed it. `before`: engines when it was closed the time before. */
static void check_death(const char* path, uint32_t before) {
  int pipes[2];
  if (pipe(pipes) < 0) give_up("pipe");
  const pid_t child = fork();
  if (child == 0) {
    const int tracer = open_tracer(path);
    const uint32_t engines = tracer < 0 ? 0 : engines_after(tracer, before);
    if (write(pipes[1], &engines, sizeof engines) < 0) _exit(1);
    pause();
    _exit(0);
  }
  uint32_t engines = 0;
  if (read(pipes[0], &engines, sizeof engines) != sizeof engines) give_up("pipe");
  check("an open while another process has it", -EBUSY, outcome(open_tracer(path)));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  const int tracer = open_tracer(path);
  check("an open after that process was killed", 1, tracer >= 0);
  if (tracer < 0) return;
  check("its last close reset the tracer", engines + 1, engines_after(tracer, engines));
  close(tracer);
}

int main(int argc, char** argv) {
  char* end = NULL;
  const uint64_t bytes = argc == 4 ? strtoull(argv[3], &end, 0) : 0;
  if (bytes == 0 || *end != '\0') {
    fprintf(stderr, "usage: merapi-driver-check TRACER MEMORY BYTES\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  /* Without SA_RESTART: an alarm ends a read. */
  const struct sigaction action = {.sa_handler = woken};
  sigaction(SIGALRM, &action, NULL);
  const int tracer = open_tracer(argv[1]), memory = open(argv[2], O_RDWR | O_CLOEXEC);
  if (tracer < 0) give_up(argv[1]);
  const uint8_t* const control = mmap(NULL, MERAPI_MAPPED_ALIGNMENT, PROT_READ, MAP_SHARED, memory, 0);
  if (memory < 0 || control == MAP_FAILED) give_up(argv[2]);
  const uint32_t event = atomic_load(
      (const _Atomic uint32_t*)(control + MERAPI_DEVICE_INDEX_OFFSET + offsetof(struct merapi_device_index, event)));
  check_info(tracer, bytes);
  check_ownership(tracer, argv[1]);
  check_refusals(tracer, event);
  check_wait(tracer, event);
  check_read_and_poll(tracer, event);
  check_blocking_read(tracer, event);
  check_eventfd(tracer, event);
  check_reset(tracer, event);
  check_waiting_in_reset(tracer, event);
  check_function_reset(tracer, argv[1], event);
  const uint32_t engines = engines_at_rest(tracer);
  close(tracer);
  check_death(argv[1], engines);
  check_unbinding(argv[1], event);
  return failed;
}
