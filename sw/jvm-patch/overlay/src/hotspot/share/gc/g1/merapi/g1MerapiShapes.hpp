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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPISHAPES_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPISHAPES_HPP

#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "memory/allocation.hpp"
#include "oops/oopsHierarchy.hpp"

class ClassLoaderData;
class Klass;

// Publishes what the tracer must know of each klass.
//
// Every object below its region's limit was allocated before the start pause,
// so its klass was loaded before: publishing all loaded klasses at hand-over is
// complete for the cycle, and classes defined later need no attention. The
// table is read by a device during a cycle only, and classes are unloaded
// outside of cycles only (remark and full collections, after hand-back or
// abort): when any class was unloaded since the last hand-over the whole table is
// withdrawn and published anew, so no shape of a dead klass is ever read even
// where metaspace was reused. A klass without a shape (table full) is deferred
// object by object: slower, never wrong.
//
// The walk makes way for safepoints. Its place in the lists of loaders and of
// their classes stays right, since both grow at their heads, unless class
// metadata was freed in the safepoint; then it begins anew. Single classes (left
// by a redefinition or a failed definition) are freed in safepoints, too, but
// never were loaded, so that they have no shape.
class G1MerapiShapes : public CHeapObj<mtGC> {
  merapi_window*  _window;
  size_t          _instance_classes;  // ClassLoaderDataGraph's counts at the last publication
  size_t          _array_classes;
  bool            _complete;          // nothing was left out at the last publication
  volatile bool   _unloaded;
  volatile uint   _freed;             // how often class metadata was freed
  bool            _may_yield;         // this walk makes way for safepoints
  uint            _made_way;          // for so many
  uint            _published;
  uint            _rejected;
  bool            _told_no_room;      // that some found no room

  static const size_t LogKnown = 10;
  Klass*          _known[(size_t)1 << LogKnown];  // some of those that is_class has found to be classes

  static const uint MaxInterruptedWalks = 4;

  // These return false if class metadata was freed meanwhile.
  bool make_way();
  bool publish_loader(ClassLoaderData* cld);
  bool publish_all();
  bool find_class(Klass* klass) const;
  void forget_known() { memset(_known, 0, sizeof(_known)); }

public:
  explicit G1MerapiShapes(merapi_window* window);

  // Brings the table up to date while no device cycle runs. Either in the
  // suspendible thread set, which it may leave for safepoints, or at a safepoint.
  void publish(bool may_yield);
  // At a safepoint: loaders are about to be freed with their classes (ClassLoaderDataGraph::purge).
  void note_unloading() { _unloaded = true; _freed++; forget_known(); }
  // At a safepoint: a class is about to be freed by itself (ClassLoaderData::remove_class).
  void note_removal() { _freed++; forget_known(); }

  void publish_klass(Klass* klass);
  uint published() const { return _published; }

  // The klass word as it stands in objects, zero-extended.
  static uint64_t klass_word(Klass* klass);
  // The klass of a published klass word; NULL for any other word.
  Klass* klass_of(uint64_t word) const;
  // Is a class there, whether or not it has a shape? `klass` may be any address. In the
  // suspendible thread set: loaders and classes are freed in safepoints.
  bool is_class(Klass* klass);
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPISHAPES_HPP
