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

#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "memory/allocation.hpp"
#include "memory/virtualspace.hpp"

class G1CMBitMap;
class G1RegionToSpaceMapper;

// The JVM's side of a window: where heap and mark bitmaps lie in it, and which
// of the bitmaps' addresses show the window at this time.
//
// Heap and bitmaps are `special` spaces: their memory is mapped here, once,
// over an ordinary reservation. The ordinary commit would map anonymous memory
// over the window; committing and uncommitting is accounted here instead, and
// uncommitted heap is given back where the window's memory can be.
//
// A bitmap is either in the window (a device may write it) or private (after
// a revocation: memory of the JVM alone with the same marks at the same
// addresses). Private bitmaps return one by one, each when it is the cleared
// next bitmap and a device has answered a new handshake.
class G1MerapiWindow : public CHeapObj<mtGC> {
  merapi_window* _window;
  char*          _heap_base;
  size_t         _heap_size;
  char*          _bitmap_base[2];   // by storage: 0 the initial prev, 1 the initial next bitmap
  size_t         _bitmap_size[2];   // mapped bytes, a multiple of MERAPI_MAPPED_ALIGNMENT
  bool           _bitmap_private[2];
  bool           _place_freed[2];     // of a private bitmap: its place in the window
  bool           _configured;
  bool           _unanswered;       // the last handshake took all its time

  static G1MerapiWindow* _instance;

  G1MerapiWindow(merapi_window* window, const ReservedSpace& heap);

  uint64_t area_offset(merapi_area area) const;
  // Maps the window from `offset` on over [base, base + size); 0 or a negative errno.
  int map(uint64_t offset, size_t size, char* base);
  // Places bitmap `which`, all clear, in the window; 0 or a negative errno.
  int map_bitmap(int which);
  void unmap_bitmaps();
  bool contains(const char* start) const;
  // Take a bitmap out of the window: the next one all clear, the previous one with
  // its marks. `clear` is that next one, or NULL if something is in it.
  bool make_next_private(int which);
  bool make_previous_private(int which, char* clear);
  // Clears the place of bitmap `which`, where it can by a hole; 0 or a negative errno.
  int clear_place(int which);
  // No device answers: what private bitmaps have left in a window of files or shared
  // memory goes back to the system, once. A device that wakes meanwhile fills some
  // pages again, which are cleared before the bitmap returns.
  void free_places();

public:
  // Opens the window that -XX:MerapiWindow names and places bitmaps and the
  // reserved heap in it. On any failure the reservation stays as it was, a warning
  // says why, and the JVM goes on without a window; only a heap that is mapped in
  // part ends it.
  static void initialize(const ReservedSpace& heap);

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

  bool is_private(int which) const { return _bitmap_private[which]; }
  // At a safepoint: ends the generation, then takes both bitmaps out of the
  // window. `next` is the bitmap under construction. Returns whether its contents
  // were dropped, so that it is all clear; a bitmap that was private keeps them.
  bool revoke(int next);
  // Private bitmap `which` is to return to the window: whether a device has answered and its
  // place there is clear. Takes its time, so outside the suspendible thread set.
  bool prepare_return(int which);
  // Maps the place that was prepared in place of the private bitmap, which is all clear and not
  // in use by marking. In the suspendible thread set.
  void return_bitmap(int which);
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIWINDOW_HPP
