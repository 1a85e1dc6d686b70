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

#include "precompiled.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/heapRegion.inline.hpp"
#include "gc/g1/merapi/g1MerapiGreys.inline.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/access.inline.hpp"
#include "oops/compressedOops.inline.hpp"
#include "oops/oop.inline.hpp"

G1MerapiGreys::G1MerapiGreys(G1CollectedHeap* g1h, merapi_window* window) :
  _g1h(g1h),
  _window(window),
  _bitmap(NULL),
  _cycle(0),
  _pending(),
  _queued(NULL),
  _added(0),
  _submitted(0),
  _most(0) { }

void G1MerapiGreyList::release() {
  for (int i = 0; i < _chunks.length(); i++) {
    FREE_C_HEAP_ARRAY(uint64_t, _chunks.at(i));
  }
  _chunks.clear();
  _length = 0;
}

void G1MerapiGreys::reset(const G1CMBitMap* bitmap, uint32_t cycle) {
  _bitmap = bitmap;
  _cycle = cycle;
  _pending.trunc_to(0);
  assert(_queued == NULL, "released");
  _added = 0;
  _submitted = 0;
}

void G1MerapiGreys::release() {
  _pending.release();
  delete _queued;
  _queued = NULL;
  _most = 0;
}

int G1MerapiGreys::submit() {
  const int Batch = 64;
  const size_t Look = 8192;  // at so many before a safepoint has its turn
  merapi_submission entries[Batch];
  size_t rest[Batch];  // what is left of the pending ones behind each entry
  _most = MAX2(_most, _pending.length());
  while (!_pending.is_empty() && !SuspendibleThreadSet::should_yield()) {
    int count = 0;
    size_t left = _pending.length();
    const size_t last = left > Look ? left - Look : 0;
    while (count < Batch && left > last) {
      merapi_submission* entry = &entries[count];
      memset(entry, 0, sizeof(*entry));
      entry->opcode = MERAPI_OP_GREY;
      entry->cycle = _cycle;
      while (entry->count < MERAPI_ENTRY_WORDS && left > last) {
        // What waited for room may have been marked meanwhile: a slow device would
        // be kept busy with values that were found before it came to their objects.
        uint64_t address = _pending.at(--left);
        if (!_bitmap->is_marked(cast_to_oop((uintptr_t)address))) {
          entry->payload[entry->count++] = address;
        }
      }
      if (entry->count > 0) {
        rest[count++] = left;
      }
    }
    if (count == 0) {
      _pending.trunc_to(left);
      continue;
    }
    int accepted = G1MerapiLibrary::submit(_window, entries, count);
    if (accepted <= 0) {
      return accepted;  // full, or an error
    }
    for (int i = 0; i < accepted; i++) {
      _submitted += entries[i].count;
    }
    _pending.trunc_to(rest[accepted - 1]);
    if (accepted < count) {
      return 0;
    }
  }
  return 0;
}

template <class T>
void G1MerapiOopClosure::do_oop_work(T* p) {
  T heap_oop = RawAccess<MO_RELAXED>::oop_load(p);
  if (!CompressedOops::is_null(heap_oop)) {
    _greys->add(CompressedOops::decode_not_null(heap_oop));
  }
}

template void G1MerapiOopClosure::do_oop_work(oop* p);
template void G1MerapiOopClosure::do_oop_work(narrowOop* p);
