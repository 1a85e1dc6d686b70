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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIIMAGE_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIIMAGE_HPP

#include "memory/allocation.hpp"

class G1ConcurrentMark;

// -XX:MerapiSaveImage: saves the window as a device would get it at hand-over,
// in a safepoint, with what the host would answer to deferred objects and seen
// shapes. The saved cycle then marks on the CPU, and how long "Concurrent Mark
// From Roots" took is stored with the image: the same heap, the same machine.
//
// Answers are made for every deferred kind of object below the limits, dead or
// alive: references of its fields without referents; for a mirror also the holder of
// the class it mirrors; for a class loader its class-loader data; for a klass word
// the holder of its class-loader data.
class G1MerapiImage : public StackObj {
  G1ConcurrentMark* _cm;
  bool              _saved;
  jlong             _start_nanos;

  static uint _cycles;
  static uint _gc_id;   // of the newest of them

public:
  // In G1ConcurrentMark::mark_from_roots, at its start and end.
  explicit G1MerapiImage(G1ConcurrentMark* cm);
  ~G1MerapiImage();

  bool saved() const { return _saved; }

  // At the VM's exit: was there a cycle to save at all?
  static void report_if_unsaved();
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIIMAGE_HPP
