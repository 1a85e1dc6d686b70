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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIGREYS_INLINE_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIGREYS_INLINE_HPP

#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.hpp"
#include "gc/g1/heapRegion.hpp"
#include "gc/g1/merapi/g1MerapiGreys.hpp"
#include "gc/g1/merapi/g1MerapiVisited.hpp"
#include "oops/oop.inline.hpp"

inline void G1MerapiGreyList::append(uint64_t address) {
  if ((_length >> LogChunk) == (size_t)_chunks.length()) {
    _chunks.append(NEW_C_HEAP_ARRAY(uint64_t, (size_t)1 << LogChunk, mtGC));
  }
  _chunks.at((int)(_length >> LogChunk))[_length & right_n_bits(LogChunk)] = address;
  _length++;
}

inline void G1MerapiGreys::add(oop obj) {
  assert(_g1h->is_in_reserved(obj), "references lead into the heap");
  HeapRegion* region = _g1h->heap_region_containing(obj);
  if (region == NULL || region->obj_allocated_since_next_marking(obj)) {
    return;
  }
  if (_bitmap->is_marked(obj)) {
    return;
  }
  if (_queued == NULL) {
    _queued = new G1MerapiVisited(_g1h->reserved());
  }
  // Without memory for it what was added before is added again.
  if (_queued->is_mapped()) {
    if (_queued->at(obj)) {
      return;
    }
    _queued->set(obj);
  }
  _pending.append((uint64_t)cast_from_oop<uintptr_t>(obj));
  _added++;
}

#endif // SHARE_GC_G1_MERAPI_G1MERAPIGREYS_INLINE_HPP
