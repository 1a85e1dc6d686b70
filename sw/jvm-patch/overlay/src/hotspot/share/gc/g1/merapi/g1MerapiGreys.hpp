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
class ReferenceDiscoverer;

// References that the host has found while the device owns the bitmap. They
// wait here, in host memory of no fixed bound, until the submission ring has
// room: the ring never blocks the host. The filter keeps out what the device
// would drop anyway; the device decides.
class G1MerapiGreys : public CHeapObj<mtGC> {
  G1CollectedHeap*                _g1h;
  merapi_window*                  _window;
  const G1CMBitMap*               _bitmap;
  uint32_t                        _cycle;
  GrowableArrayCHeap<uint64_t, mtGC> _pending;
  size_t                          _submitted;

public:
  G1MerapiGreys(G1CollectedHeap* g1h, merapi_window* window);

  void reset(const G1CMBitMap* bitmap, uint32_t cycle);
  // Remembers `obj` if it lies below its region's limit and is not marked. `obj` need
  // not be an object (SATB buffers hold stale entries above the limits).
  inline void add(oop obj);
  // Moves what fits into the submission ring; the rest stays.
  void submit();
  bool is_empty() const { return _pending.is_empty(); }
  // Those that wait, in the order in which they were added.
  int pending() const { return _pending.length(); }
  oop pending_at(int i) const { return cast_to_oop((uintptr_t)_pending.at(i)); }
  void clear() { _pending.clear(); }
  size_t submitted() const { return _submitted; }
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
