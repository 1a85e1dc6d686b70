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


#ifndef SHARE_GC_G1_MERAPI_G1MERAPISCAN_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPISCAN_HPP

#include "gc/g1/merapi/g1MerapiGreys.hpp"
#include "gc/g1/merapi/g1MerapiVisited.hpp"
#include "memory/allocation.hpp"
#include "memory/memRegion.hpp"

// Scans the objects that the device defers.
//
// java.lang.ref.Reference objects often form lists (those of Finalizer and
// Cleaner): each link would wait until the device has marked and deferred the
// next. So References are followed ahead: what a scanned one leads to is scanned
// at once, and not again when the device defers it. Any time after the start of
// the cycle is right to read an object's fields: what was in them then and is
// not any more is in a SATB buffer. Its mark, live words and place among the
// greys stay the device's affair.
class G1MerapiScan : public CHeapObj<mtGC> {
  // Followed from one object: then the device gets its greys.
  static const int AheadAtOnce = 1024;

  MemRegion            _heap;           // reserved
  G1MerapiGreys*       _greys;
  ReferenceDiscoverer* _discoverer;
  G1MerapiVisited*     _scanned_ahead;  // NULL: none in this cycle
  size_t               _ahead;

  void follow_ahead(size_t first, OopIterateClosure* cl);

public:
  G1MerapiScan(MemRegion heap, G1MerapiGreys* greys);

  // A cycle starts, or has ended in any way.
  void reset(ReferenceDiscoverer* discoverer);
  // Gives back the memory of a cycle that has ended. It takes its time: outside
  // the suspendible thread set, when no worker serves.
  void release();
  // By the serving worker, in the suspendible thread set. `obj` is an object.
  void scan(oop obj);
  // Objects of this cycle that were scanned before the device deferred them.
  size_t ahead() const { return _ahead; }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPISCAN_HPP
