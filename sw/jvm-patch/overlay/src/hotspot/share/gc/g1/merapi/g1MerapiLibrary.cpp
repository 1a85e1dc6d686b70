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
#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "jvm_io.h"
#include "runtime/arguments.hpp"
#include "runtime/os.hpp"

#define G1_MERAPI_DEFINE(name) decltype(&merapi_##name) G1MerapiLibrary::name = NULL;
G1_MERAPI_FUNCTIONS(G1_MERAPI_DEFINE)
#undef G1_MERAPI_DEFINE

bool G1MerapiLibrary::load(char* message, size_t message_length) {
  char path[JVM_MAXPATHLEN];
  if (!os::dll_locate_lib(path, sizeof(path), Arguments::get_dll_dir(), "merapi")) {
    jio_snprintf(message, message_length, "expected libmerapi.so in %s, found none; use a JDK built with it",
                 Arguments::get_dll_dir());
    return false;
  }
  char reason[512];
  void* library = os::dll_load(path, reason, sizeof(reason));
  if (library == NULL) {
    jio_snprintf(message, message_length, "cannot load %s: %s", path, reason);
    return false;
  }
#define G1_MERAPI_RESOLVE(name)                                                              \
  name = CAST_TO_FN_PTR(decltype(&merapi_##name), os::dll_lookup(library, "merapi_" #name)); \
  if (name == NULL) {                                                                        \
    jio_snprintf(message, message_length, "%s has no function merapi_" #name, path);         \
    return false;                                                                            \
  }
  G1_MERAPI_FUNCTIONS(G1_MERAPI_RESOLVE)
#undef G1_MERAPI_RESOLVE
  if (abi() != MERAPI_ABI) {
    jio_snprintf(message, message_length, "expected ABI %d of %s, found %d; rebuild the JDK or the library",
                 MERAPI_ABI, path, abi());
    return false;
  }
  return true;
}
