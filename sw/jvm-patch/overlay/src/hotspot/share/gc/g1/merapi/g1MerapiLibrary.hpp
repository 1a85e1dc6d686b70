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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPILIBRARY_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPILIBRARY_HPP

#include "memory/allocation.hpp"
#include "merapi/merapi.h"

// The functions of libmerapi that the JVM uses, resolved at run time: nothing
// is linked into libjvm, and without -XX:MerapiWindow nothing is loaded.
// The library is an independent module in the JDK's lib folder.
#define G1_MERAPI_FUNCTIONS(f)  \
  f(abi)                        \
  f(version)                    \
  f(fault_name)                 \
  f(kind_name)                  \
  f(layout_compute)             \
  f(open)                       \
  f(close)                      \
  f(layout_of)                  \
  f(window_bytes)               \
  f(transport_name)             \
  f(map_fixed)                  \
  f(zero)                       \
  f(configure)                  \
  f(attach)                     \
  f(revoke)                     \
  f(attached)                   \
  f(generation)                 \
  f(device_info)                \
  f(patience_us)                \
  f(next_cycle)                 \
  f(submit)                     \
  f(submission_room)            \
  f(doorbell)                   \
  f(complete)                   \
  f(idle)                       \
  f(wait)                       \
  f(fault_get)                  \
  f(counter)                    \
  f(progress)                   \
  f(device_gone)                \
  f(pause)                      \
  f(resume)                     \
  f(abort)                      \
  f(shape_put)                  \
  f(shape_get)                  \
  f(shape_clear)                \
  f(limit_set)                  \
  f(live_get)                   \
  f(live_clear)                 \
  f(image_save)                 \
  f(image_annotate)

class G1MerapiLibrary : AllStatic {
public:
  // Loads lib/libmerapi.so of this JDK. On failure returns false and says why
  // in `message`.
  static bool load(char* message, size_t message_length);

#define G1_MERAPI_DECLARE(name) static decltype(&merapi_##name) name;
  G1_MERAPI_FUNCTIONS(G1_MERAPI_DECLARE)
#undef G1_MERAPI_DECLARE
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPILIBRARY_HPP
