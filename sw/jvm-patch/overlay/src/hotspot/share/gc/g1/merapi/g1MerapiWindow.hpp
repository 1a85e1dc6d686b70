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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIWINDOW_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIWINDOW_HPP

#include "gc/g1/merapi/g1MerapiBitmaps.hpp"
#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "memory/allocation.hpp"
#include "memory/virtualspace.hpp"

class G1RegionToSpaceMapper;

// The JVM's side of a window: heap and mark bitmaps in it, its configuration, and
// the device that answers there.
//
// Heap and bitmaps are `special` spaces: their memory is mapped here, once,
// over an ordinary reservation. The ordinary commit would map anonymous memory
// over the window; committing and uncommitting is accounted here instead, and
// uncommitted heap is given back where the window's memory can be.
class G1MerapiWindow : public CHeapObj<mtGC> {
  merapi_window*  _window;
  char*           _heap_base;
  size_t          _heap_size;
  G1MerapiBitmaps _bitmaps;
  bool            _configured;
  bool            _unanswered;      // the last handshake took all its time

  static G1MerapiWindow* _instance;

  G1MerapiWindow(merapi_window* window, const ReservedSpace& heap);

  bool contains(const char* start) const;

public:
  // Opens the window that -XX:MerapiWindow names and places bitmaps and the
  // reserved heap in it. On any failure the reservation stays as it was, a warning
  // says why, and the JVM goes on without a window; only a heap that is mapped in
  // part ends it.
  static void initialize(const ReservedSpace& heap);

  // Maps the window from `offset` on over [base, base + size), which processes forked from
  // this one do not have; 0 or a negative errno.
  static int map(merapi_window* window, uint64_t offset, size_t size, char* base);

  // NULL when there is no window.
  static G1MerapiWindow* instance() { return _instance; }

  // `heap` itself without a window, else the same range as a special space of small pages.
  static ReservedSpace heap_space(const ReservedSpace& heap);
  // Storage of bitmap `which` of `size` bytes in the window; NULL without a window.
  static G1RegionToSpaceMapper* bitmap_storage(int which, size_t size, size_t translation_factor);

  // Memory of a special space (G1PageBasedVirtualSpace) has been committed or
  // uncommitted; that of others than heap and bitmaps is none of the window's.
  static void note_committed(char* start, size_t size);
  static void note_uncommitted(char* start, size_t size);

  merapi_window* handle() const { return _window; }
  char* heap_base() const { return _heap_base; }
  size_t heap_size() const { return _heap_size; }

  // Publishes the configuration, once.
  bool ensure_configured(merapi_error* error);
  // Makes sure that a device has answered the present generation; outside
  // pauses. On failure `error` says why.
  bool ensure_attached(merapi_error* error);

  // Size, name, device, and which bitmaps are elsewhere.
  void print_on(outputStream* st) const;

  bool is_private(int which) const { return _bitmaps.is_private(which); }
  // At a safepoint: ends the generation, then takes both bitmaps out of the
  // window. `next` is the bitmap under construction. Returns whether its contents
  // were dropped, so that it is all clear; a bitmap that was private keeps them.
  bool revoke(int next);
  // Private bitmap `which` is to return to the window: whether a device has answered and its
  // place there is clear. Takes its time, so outside the suspendible thread set.
  bool prepare_return(int which);
  // The same with a device that has answered already, which takes no time: in a pause, too.
  bool prepare_return_now(int which);
  // Maps the place that was prepared in place of the private bitmap, which is all clear and not
  // in use by marking. In the suspendible thread set.
  void return_bitmap(int which) { _bitmaps.return_bitmap(which); }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIWINDOW_HPP
