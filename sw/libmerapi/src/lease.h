/* SPDX-License-Identifier: Apache-2.0
 *
 * A window as a device process holds it.
 */
#ifndef MERAPI_LEASE_H
#define MERAPI_LEASE_H

#include "internal.h"

struct merapi_lease {
  struct merapi_held held;
  int fd;         /* own open file description: carries the device lock */
  int connection; /* the host's socket, -1 for files and devdax */
  void* base;
  uint64_t bytes;
};

/* Which part of a file is the window. */
struct merapi_part {
  uint64_t offset;
  uint64_t bytes; /* 0: up to the end */
  uint64_t file;  /* bytes that a regular file is made at least */
};

/* Lock that part of `fd`, have the file hold it, map it and make a lease that owns `fd` and `connection` (-1: none).
 * On error `fd` is closed, and `connection` still the caller's. `path` is for messages. -EBUSY: another device serves
 * the window. */
int merapi_lease_make(int fd, int connection, const char* path, struct merapi_part part, struct merapi_lease** lease,
                      struct merapi_error* error);

/* foreign.c: between merapi_descriptors_begin and _end, close what another process handed over, without waiting for it.
 */
/* A file in memory is closed at once. */
bool merapi_is_memory_file(int fd);
void merapi_close_received(int fd);
/* A host's, with what it said that nobody received. */
void merapi_close_connection(int connection);
/* -1 is allowed. With the connections that nobody accepted. */
void merapi_close_listening(int listening);

#endif /* MERAPI_LEASE_H */
