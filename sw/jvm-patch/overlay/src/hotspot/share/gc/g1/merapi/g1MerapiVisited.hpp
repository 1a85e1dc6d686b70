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


#ifndef SHARE_GC_G1_MERAPI_G1MERAPIVISITED_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIVISITED_HPP

#include "memory/allocation.hpp"
#include "memory/memRegion.hpp"
#include "oops/oop.hpp"
#include "runtime/os.hpp"
#include "utilities/align.hpp"
#include "utilities/bitMap.inline.hpp"

#include <sys/mman.h>

// A bit for each address of the reserved heap where an object may begin, in
// memory that nobody has reserved: only the pages of objects that are visited
// exist, so that a heap which is reserved and not committed costs nothing.
class G1MerapiVisited : public CHeapObj<mtGC> {
  HeapWord* _base;
  size_t    _bytes;
  void*     _memory;

  BitMapView bits() const {
    return BitMapView((BitMap::bm_word_t*)_memory, (BitMap::idx_t)_bytes * BitsPerByte);
  }
  BitMap::idx_t index(oop obj) const {
    return pointer_delta(cast_from_oop<HeapWord*>(obj), _base) >> LogMinObjAlignment;
  }

  NONCOPYABLE(G1MerapiVisited);

public:
  // errno says why it is not mapped.
  G1MerapiVisited(MemRegion heap) :
    _base(heap.start()),
    _bytes(align_up((heap.word_size() >> LogMinObjAlignment) / BitsPerByte, os::vm_page_size())),
    _memory(::mmap(NULL, _bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) { }
  ~G1MerapiVisited() {
    if (is_mapped()) {
      ::munmap(_memory, _bytes);
    }
  }

  bool is_mapped() const { return _memory != MAP_FAILED; }
  size_t bytes() const { return _bytes; }
  bool at(oop obj) const { return bits().at(index(obj)); }
  void set(oop obj) { bits().set_bit(index(obj)); }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIVISITED_HPP
