/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes a devdax device from a shell: it can be mapped only, so no ordinary program can.
 *
 *   merapi-dax peek DEVICE OFFSET          print the 64-bit word at OFFSET
 *   merapi-dax poke DEVICE OFFSET WORD     write it and print what was there
 *   merapi-dax read DEVICE BYTES           MB/s of reading BYTES from its start, and of as much ordinary memory
 *
 * Offsets and words may be hexadecimal (0x...). Exit status: 0, 1 an error (on standard error), 2 wrong use.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A mapping of a devdax device begins and ends at multiples of the device's alignment. */
#define ALIGNMENT ((uint64_t)2 << 20)

static void fail(const char* what, const char* name) {
  fprintf(stderr, "merapi-dax: cannot %s %s: %s\n", what, name, strerror(errno));
  exit(1);
}

static uint64_t number(const char* text) {
  char* end;
  errno = 0;
  const uint64_t value = strtoull(text, &end, 0);
  if (errno != 0 || *text == '\0' || *end != '\0') {
    fprintf(stderr, "merapi-dax: expected a number, found '%s'\n", text);
    exit(2);
  }
  return value;
}

static void* map(const char* device, uint64_t offset, uint64_t bytes) {
  const int fd = open(device, O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("open", device);
  void* base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
  if (base == MAP_FAILED) fail("map", device);
  close(fd);
  return base;
}

static volatile uint64_t* word_at(const char* device, uint64_t offset) {
  if (offset % sizeof(uint64_t) != 0) {
    fprintf(stderr, "merapi-dax: expected an offset that is a multiple of 8, found %" PRIu64 "\n", offset);
    exit(2);
  }
  const uint64_t begin = offset & ~(ALIGNMENT - 1);
  return (volatile uint64_t*)((uint8_t*)map(device, begin, ALIGNMENT) + (offset - begin));
}

/* MB/s of one pass; the sum keeps the compiler from dropping the reads. */
static double read_speed(const volatile uint64_t* memory, uint64_t bytes, uint64_t* sum) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (uint64_t i = 0; i < bytes / sizeof *memory; i++) *sum += memory[i];
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
  return seconds > 0 ? (double)bytes / seconds / 1e6 : 0;
}

/* The best pass of each, in turns: what else the machine does meets both. */
static void compare(const uint64_t* expander, const uint64_t* ordinary, uint64_t bytes) {
  double best[2] = {0, 0};
  uint64_t sum = 0;
  for (int pass = 0; pass < 10; pass++) {
    const double speed = read_speed(pass % 2 == 0 ? expander : ordinary, bytes, &sum);
    if (speed > best[pass % 2]) best[pass % 2] = speed;
  }
  fprintf(stderr, "sum %" PRIu64 "\n", sum);
  printf("%.0f %.0f\n", best[0], best[1]);
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "peek") == 0) {
    printf("%#" PRIx64 "\n", *word_at(argv[2], number(argv[3])));
    return 0;
  }
  if (argc == 5 && strcmp(argv[1], "poke") == 0) {
    volatile uint64_t* const word = word_at(argv[2], number(argv[3]));
    const uint64_t value = number(argv[4]), before = *word;
    *word = value;
    printf("%#" PRIx64 "\n", before);
    return 0;
  }
  if (argc == 4 && strcmp(argv[1], "read") == 0) {
    const uint64_t bytes = (number(argv[3]) + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    uint64_t* const ordinary = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ordinary == MAP_FAILED) fail("get", "ordinary memory");
    memset(ordinary, 1, bytes);
    compare(map(argv[2], 0, bytes), ordinary, bytes);
    return 0;
  }
  fprintf(stderr, "usage: merapi-dax peek DEVICE OFFSET | poke DEVICE OFFSET WORD | read DEVICE BYTES\n");
  return 2;
}
