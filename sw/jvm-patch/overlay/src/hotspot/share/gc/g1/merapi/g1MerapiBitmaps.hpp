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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIBITMAPS_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIBITMAPS_HPP

#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "memory/allocation.hpp"

// The two mark bitmaps of a heap in a window: where they lie in the JVM, and which
// of these addresses show the window at this time. Numbered by storage: 0 is the
// initial prev, 1 the initial next bitmap.
//
// A bitmap is either in the window (a device may write it) or private (after
// a revocation: memory of the JVM alone with the same marks at the same
// addresses). Private bitmaps return one by one, each when it is the cleared
// next bitmap and a device has answered a new handshake.
class G1MerapiBitmaps {
  merapi_window* _window;
  char*          _heap_base;
  size_t         _heap_size;
  char*          _base[2];
  size_t         _size[2];          // mapped bytes, a multiple of MERAPI_MAPPED_ALIGNMENT
  bool           _private[2];
  bool           _place_freed[2];   // of a private bitmap: its place in the window

  const merapi_area_desc* area(int which) const;
  // Places bitmap `which`, all clear, in the window; 0 or a negative errno.
  int map(int which);
  // Take a bitmap out of the window: the next one all clear, the previous one with
  // its marks. `clear` is that next one, or NULL if something is in it.
  bool make_next_private(int which);
  bool make_previous_private(int which, char* clear);

public:
  G1MerapiBitmaps(merapi_window* window, char* heap_base, size_t heap_size);

  // Places both, all clear, in the window; 0 or a negative errno, and then none is mapped.
  int map();

  char* base(int which) const { return _base[which]; }
  size_t size(int which) const { return _size[which]; }
  // Bytes that the window has for one.
  size_t capacity(int which) const { return area(which)->size; }
  bool contains(const char* start) const;
  bool is_private(int which) const { return _private[which]; }

  // At a safepoint, and when no device may write the window: takes both out of it. `next`
  // is the bitmap under construction. Returns whether its contents were dropped, so
  // that it is all clear; a bitmap that was private keeps them.
  bool leave(int next);
  // Clears the place of private bitmap `which`, where it can by a hole; 0 or a negative errno.
  // No device may write it.
  int clear_place(int which);
  // No device answers: what private bitmaps have left in a window of files or shared
  // memory goes back to the system, once. A device that wakes meanwhile fills some
  // pages again, which are cleared before the bitmap returns.
  void free_places();
  // Maps the place that was cleared in place of the private bitmap, which is all clear and not
  // in use by marking. Where that fails it stays private, and a warning says why.
  void return_bitmap(int which);
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIBITMAPS_HPP
