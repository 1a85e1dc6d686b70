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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIGREYS_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIGREYS_HPP

#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "memory/allocation.hpp"
#include "memory/iterator.hpp"
#include "oops/oop.hpp"
#include "utilities/growableArray.hpp"

class ClassLoaderData;
class G1CMBitMap;
class G1CollectedHeap;
class G1MerapiVisited;
class ReferenceDiscoverer;

// Addresses in the order in which they were added. What is in it stays where it
// is when it grows: copies of millions would keep safepoints waiting.
class G1MerapiGreyList {
  static const int LogChunk = 16;

  GrowableArrayCHeap<uint64_t*, mtGC> _chunks;
  size_t                              _length;

  NONCOPYABLE(G1MerapiGreyList);

public:
  G1MerapiGreyList() : _chunks(4), _length(0) { }
  ~G1MerapiGreyList() { release(); }

  size_t length() const { return _length; }
  bool is_empty() const { return _length == 0; }
  uint64_t at(size_t i) const { return _chunks.at((int)(i >> LogChunk))[i & right_n_bits(LogChunk)]; }
  inline void append(uint64_t address);
  void at_put(size_t i, uint64_t address) { _chunks.at((int)(i >> LogChunk))[i & right_n_bits(LogChunk)] = address; }
  // Keeps the memory.
  void trunc_to(size_t length) { _length = length; }
  void release();
};

// References that the host has found while the device owns the bitmap. They
// wait here, in host memory, until the submission ring has room: the ring never
// blocks the host. The filter keeps out what the device would drop anyway (the
// device decides), and what was added before in this cycle: a mutator may
// overwrite references to the same objects for as long as the device takes to
// mark them.
class G1MerapiGreys : public CHeapObj<mtGC> {
  G1CollectedHeap*                _g1h;
  merapi_window*                  _window;
  const G1CMBitMap*               _bitmap;
  uint32_t                        _cycle;
  G1MerapiGreyList                _pending;
  G1MerapiVisited*                _queued;     // NULL: none in this cycle
  size_t                          _added;
  size_t                          _submitted;
  size_t                          _most;       // that have waited at a time

public:
  G1MerapiGreys(G1CollectedHeap* g1h, merapi_window* window);

  void reset(const G1CMBitMap* bitmap, uint32_t cycle);
  // Gives back the memory of a cycle that has ended. It takes its time: outside
  // the suspendible thread set, when no worker serves.
  void release();
  // Remembers `obj` if it lies below its region's limit, is not marked and was not
  // added before. Once is enough for a cycle: the device marks it, unless its region
  // is freed, whose limit stays at its start then. `obj` need not be an object (SATB
  // buffers hold stale entries above the limits).
  inline void add(oop obj);
  // Moves what fits into the submission ring; the rest stays. Negative when the ring cannot be right (merapi_submit).
  int submit();
  bool is_empty() const { return _pending.is_empty(); }
  // Those that wait, in the order in which they were added.
  size_t pending() const { return _pending.length(); }
  oop pending_at(size_t i) const { return cast_to_oop((uintptr_t)_pending.at(i)); }
  size_t added() const { return _added; }
  size_t submitted() const { return _submitted; }
  size_t most() const { return _most; }
};

// Applied to deferred objects and class-loader data: HotSpot's own iteration
// (reference discovery, statics, loader data by claim), with every reference
// going to the device.
class G1MerapiOopClosure : public MetadataVisitingOopIterateClosure {
  G1MerapiGreys* _greys;
public:
  G1MerapiOopClosure(G1MerapiGreys* greys, ReferenceDiscoverer* discoverer) :
    MetadataVisitingOopIterateClosure(discoverer), _greys(greys) { }
  template <class T> void do_oop_work(T* p);
  virtual void do_oop(oop* p)       { do_oop_work(p); }
  virtual void do_oop(narrowOop* p) { do_oop_work(p); }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIGREYS_HPP
