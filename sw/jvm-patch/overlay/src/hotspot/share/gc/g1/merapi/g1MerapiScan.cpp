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
#include "gc/g1/merapi/g1MerapiGreys.inline.hpp"
#include "gc/g1/merapi/g1MerapiScan.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "memory/iterator.inline.hpp"
#include "oops/instanceKlass.hpp"
#include "oops/oop.inline.hpp"

static bool is_reference(oop obj) {
  Klass* klass = obj->klass();
  return klass->is_instance_klass() && InstanceKlass::cast(klass)->is_reference_instance_klass();
}

G1MerapiScan::G1MerapiScan(MemRegion heap, G1MerapiGreys* greys) :
  _heap(heap),
  _greys(greys),
  _discoverer(NULL),
  _scanned_ahead(NULL),
  _ahead(0) { }

void G1MerapiScan::reset(ReferenceDiscoverer* discoverer) {
  _discoverer = discoverer;
  _ahead = 0;
}

void G1MerapiScan::release() {
  delete _scanned_ahead;
  _scanned_ahead = NULL;
}

void G1MerapiScan::scan(oop obj) {
  if (_scanned_ahead != NULL && _scanned_ahead->is_mapped() && _scanned_ahead->at(obj)) {
    return;
  }
  G1MerapiOopClosure cl(_greys, _discoverer);
  size_t first = _greys->pending();
  obj->oop_iterate(&cl);
  if (is_reference(obj)) {
    follow_ahead(first, &cl);
  }
}

// The greys from `first` on came out of fields just now: they are objects, below
// their regions' limits. What is found on the way is looked at in turn.
void G1MerapiScan::follow_ahead(size_t first, OopIterateClosure* cl) {
  int followed = 0;
  for (size_t i = first; i < _greys->pending(); i++) {
    oop obj = _greys->pending_at(i);
    if (!is_reference(obj)) {
      continue;
    }
    if (followed == AheadAtOnce || SuspendibleThreadSet::should_yield()) {
      return;
    }
    if (_scanned_ahead == NULL) {
      _scanned_ahead = new G1MerapiVisited(_heap);
    }
    if (!_scanned_ahead->is_mapped()) {
      return;
    }
    if (!_scanned_ahead->at(obj)) {
      _scanned_ahead->set(obj);
      obj->oop_iterate(cl);
      _ahead++;
      followed++;
    }
  }
}
