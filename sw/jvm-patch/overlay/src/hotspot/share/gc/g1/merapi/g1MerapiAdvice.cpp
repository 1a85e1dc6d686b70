/*
 * Copyright (c) 2026, the Merapi authors. All rights reserved.
 * DO NOT ALTER OR REMOVE COPYRIGHT NOTICES OR THIS FILE HEADER.
 *
 * This code is free software; you can redistribute it and/or modify it
 * under the terms of the GNU General Public License version 2 only, as
 * published by the Free Software Foundation, with the Classpath exception
 * as provided in the LICENSE file that accompanies OpenJDK.
 *
 * This code is distributed in the hope that it will be useful, but WITHOUT
 * ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or
 * FITNESS FOR A PARTICULAR PURPOSE.  See the GNU General Public License
 * version 2 for more details.
 */

#include "precompiled.hpp"
#include "gc/g1/merapi/g1MerapiAdvice.hpp"
#include "logging/log.hpp"
#include "runtime/globals.hpp"
#include "utilities/globalDefinitions.hpp"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

// Of transparent huge pages: all choices, the one in force in brackets. False where the kernel does not say.
static bool read_setting(const char* file, char* text, int size) {
  FILE* stream = ::fopen(file, "r");
  if (stream == NULL) {
    return false;
  }
  bool got = ::fgets(text, size, stream) != NULL;
  ::fclose(stream);
  text[got ? strcspn(text, "\n") : 0] = '\0';
  return got;
}

// The pool of large pages is for memory of the JVM's own. Of memory that is shared the kernel makes large pages only
// where it is told to.
static void warn_of_small_pages(const char* transport) {
  static const char* const of_private = "/sys/kernel/mm/transparent_hugepage/enabled";
  static const char* const of_shared = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  if (UseLargePages && !UseTransparentHugePages) {
    log_warning(gc, merapi)("The heap has no large pages: expected -XX:+UseTransparentHugePages with a window, found "
                            "-XX:+UseLargePages");
  }
  // That of a file is the file system's affair.
  char setting[128];
  if (strcmp(transport, "device") != 0 || !read_setting(of_shared, setting, sizeof(setting))) {
    return;
  }
  bool off = strstr(setting, "[never]") != NULL || strstr(setting, "[deny]") != NULL;
  if (UseTransparentHugePages && off) {
    log_warning(gc, merapi)("The heap has no transparent huge pages: expected 'advise' or 'always' in %s, found %s",
                            of_shared, setting);
  }
  // A heap of the JVM's own has them unasked.
  char usual[128];
  bool lacks = off || strstr(setting, "[advise]") != NULL;
  if (!UseTransparentHugePages && lacks && read_setting(of_private, usual, sizeof(usual)) &&
      strstr(usual, "[always]") != NULL) {
    log_info(gc, merapi)("The heap has no transparent huge pages, which it has without a window ('always' in %s): for "
                         "them, 'advise' in %s and -XX:+UseTransparentHugePages", of_private, of_shared);
  }
}

// A file has pages for what is used alone. Nothing asks for all of them, since most heaps are never full.
static void warn_of_little_room(const char* window, const char* transport, uint64_t bytes) {
  static const char* const prefix = "file:";
  const char* path = strncmp(window, prefix, strlen(prefix)) == 0 ? window + strlen(prefix) : window;
  struct stat file;
  struct statvfs system;
  if (strcmp(transport, "file") != 0 || ::stat(path, &file) != 0 || ::statvfs(path, &system) != 0) {
    return;
  }
  uint64_t room = (uint64_t)system.f_bavail * system.f_frsize + (uint64_t)file.st_blocks * 512;
  if (room < bytes) {
    log_warning(gc, merapi)("Window %s may outgrow its file system: expected room for " UINT64_FORMAT " bytes, found "
                            UINT64_FORMAT "; where a page finds none, SIGBUS ends the program", window, bytes, room);
  }
}

void G1MerapiAdvice::tell(const char* window, const char* transport, uint64_t bytes) {
  warn_of_small_pages(transport);
  warn_of_little_room(window, transport, bytes);
}
