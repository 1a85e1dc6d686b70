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
#include "classfile/classLoaderData.inline.hpp"
#include "classfile/classLoaderDataGraph.hpp"
#include "code/nmethod.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/g1RootProcessor.hpp"
#include "gc/g1/heapRegion.inline.hpp"
#include "gc/g1/merapi/g1MerapiDecimal.hpp"
#include "gc/g1/merapi/g1MerapiVerify.hpp"
#include "gc/g1/merapi/g1MerapiVisited.hpp"
#include "gc/shared/gcId.hpp"
#include "gc/shared/strongRootsScope.hpp"
#include "logging/log.hpp"
#include "memory/iterator.inline.hpp"
#include "memory/resourceArea.hpp"
#include "oops/access.inline.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/os.hpp"
#include "runtime/safepoint.hpp"
#include "utilities/align.hpp"
#include "utilities/bitMap.inline.hpp"
#include "utilities/stack.inline.hpp"

#include <errno.h>

// How many findings are told in words.
static const size_t MaxReports = 10;

// What the two walks share: the bitmap and limits under test.
class G1MerapiMarks : public StackObj {
  G1CollectedHeap*  _g1h;
  const G1CMBitMap* _bitmap;
public:
  G1MerapiMarks(G1CollectedHeap* g1h, const G1CMBitMap* bitmap) : _g1h(g1h), _bitmap(bitmap) { }

  G1CollectedHeap* g1h() const { return _g1h; }
  const G1CMBitMap* bitmap() const { return _bitmap; }
  // Objects of a closed archive region live for ever and need no mark: the string
  // table gives them out without a barrier, and where the open part of the archive
  // could not be mapped no root keeps them marked.
  bool below_limit(oop obj) const {
    HeapRegion* region = _g1h->heap_region_containing(obj);
    return !region->obj_allocated_since_next_marking(obj) && !region->is_closed_archive();
  }
  bool is_live(oop obj) const { return !below_limit(obj) || _bitmap->is_marked(obj); }
};

// (a): depth-first over strong references, with a visited bitmap of its own.
class G1MerapiReachClosure : public ClaimMetadataVisitingOopIterateClosure {
  G1MerapiMarks*       _marks;
  G1MerapiVisited*     _visited;
  Stack<oop, mtGC>     _stack;
  size_t               _reached_below;
  size_t               _missed;

public:
  G1MerapiReachClosure(G1MerapiMarks* marks, G1MerapiVisited* visited) :
    ClaimMetadataVisitingOopIterateClosure(ClassLoaderData::_claim_other, NULL),
    _marks(marks),
    _visited(visited),
    _reached_below(0),
    _missed(0) { }

  virtual ReferenceIterationMode reference_iteration_mode() { return DO_FIELDS_EXCEPT_REFERENT; }
  void reach(oop obj) {
    if (_visited->at(obj)) {
      return;
    }
    _visited->set(obj);
    if (_marks->below_limit(obj)) {
      _reached_below++;
      if (!_marks->bitmap()->is_marked(obj)) {
        if (_missed++ < MaxReports) {
          ResourceMark rm;
          log_error(gc, merapi)("Reachable but not marked: " PTR_FORMAT " %s in region %u", p2i(obj),
                                obj->klass()->external_name(),
                                _marks->g1h()->heap_region_containing(obj)->hrm_index());
        }
      }
    }
    _stack.push(obj);
  }

  template <class T> void do_oop_work(T* p) {
    T heap_oop = RawAccess<MO_RELAXED>::oop_load(p);
    if (!CompressedOops::is_null(heap_oop)) {
      reach(CompressedOops::decode_not_null(heap_oop));
    }
  }
  virtual void do_oop(oop* p)       { do_oop_work(p); }
  virtual void do_oop(narrowOop* p) { do_oop_work(p); }

  void drain() {
    while (!_stack.is_empty()) {
      _stack.pop()->oop_iterate(this);
    }
  }

  bool visited(oop obj) const { return _visited->at(obj); }
  size_t reached_below() const { return _reached_below; }
  size_t missed() const { return _missed; }
};

// (b): the references of one marked object.
class G1MerapiCompleteClosure : public BasicOopIterateClosure {
  G1MerapiMarks* _marks;
  oop            _obj;
  size_t         _incomplete;

public:
  G1MerapiCompleteClosure(G1MerapiMarks* marks) : _marks(marks), _obj(NULL), _incomplete(0) { }

  virtual ReferenceIterationMode reference_iteration_mode() { return DO_FIELDS_EXCEPT_REFERENT; }

  void check(oop target, const char* what) {
    if (!_marks->is_live(target)) {
      if (_incomplete++ < MaxReports) {
        ResourceMark rm;
        log_error(gc, merapi)("%s of marked " PTR_FORMAT " %s is not marked: " PTR_FORMAT " %s", what, p2i(_obj),
                              _obj->klass()->external_name(), p2i(target), target->klass()->external_name());
      }
    }
  }

  template <class T> void do_oop_work(T* p) {
    T heap_oop = RawAccess<MO_RELAXED>::oop_load(p);
    if (!CompressedOops::is_null(heap_oop)) {
      check(CompressedOops::decode_not_null(heap_oop), "A reference");
    }
  }
  virtual void do_oop(oop* p)       { do_oop_work(p); }
  virtual void do_oop(narrowOop* p) { do_oop_work(p); }

  void check_object(oop obj) {
    _obj = obj;
    obj->oop_iterate(this);
    oop holder = obj->klass()->class_loader_data()->holder_no_keepalive();
    if (holder != NULL) {
      check(holder, "The klass holder");
    }
  }
  size_t incomplete() const { return _incomplete; }
};

class G1MerapiCompleteRegions : public HeapRegionClosure {
  G1MerapiMarks*           _marks;
  G1ConcurrentMark*        _cm;
  G1MerapiReachClosure*    _reach;
  G1MerapiCompleteClosure  _complete;
  size_t                   _marked;
  size_t                   _floating;
  size_t                   _live_mismatch;

public:
  G1MerapiCompleteRegions(G1MerapiMarks* marks, G1ConcurrentMark* cm, G1MerapiReachClosure* reach) :
    _marks(marks), _cm(cm), _reach(reach), _complete(marks), _marked(0), _floating(0), _live_mismatch(0) { }

  virtual bool do_heap_region(HeapRegion* region) {
    HeapWord* limit = region->next_top_at_mark_start();
    size_t words = 0;
    HeapWord* address = region->bottom();
    while (address < limit) {
      address = _marks->bitmap()->get_next_marked_addr(address, limit);
      if (address >= limit) {
        break;
      }
      oop obj = cast_to_oop(address);
      size_t size = obj->size();
      words += size;
      _marked++;
      if (!_reach->visited(obj)) {
        _floating++;
      }
      _complete.check_object(obj);
      address += size;
    }
    size_t live = _cm->live_words(region->hrm_index());
    if (words != live) {
      if (_live_mismatch++ < MaxReports) {
        log_error(gc, merapi)("Region %u (%s): marked objects are " SIZE_FORMAT " words, live words say " SIZE_FORMAT,
                              region->hrm_index(), region->get_type_str(), words, live);
      }
    }
    return false;
  }

  size_t marked() const { return _marked; }
  size_t floating() const { return _floating; }
  size_t incomplete() const { return _complete.incomplete(); }
  size_t live_mismatch() const { return _live_mismatch; }
};

bool G1MerapiVerify::verify(G1CollectedHeap* g1h, G1ConcurrentMark* cm,
                            size_t* missed, size_t* incomplete, size_t* live_mismatch) {
  assert_at_safepoint_on_vm_thread();
  jlong start = os::javaTimeNanos();
  *missed = *incomplete = *live_mismatch = 0;
  G1MerapiVisited visited(g1h->reserved());
  if (!visited.is_mapped()) {
    log_warning(gc, merapi)("Marking is not verified: cannot map " SIZE_FORMAT " bytes for a bitmap: %s",
                            visited.bytes(), os::strerror(errno));
    return true;
  }
  G1MerapiMarks marks(g1h, cm->next_mark_bitmap());
  G1MerapiReachClosure reach(&marks, &visited);
  {
    // The claims of the cycle itself are taken: this walk has a token of its own.
    ClassLoaderDataGraph::clear_claimed_marks(ClassLoaderData::_claim_other);
    StrongRootsScope scope(1);
    CLDToOopClosure cld_cl(&reach, ClassLoaderData::_claim_other);
    MarkingCodeBlobClosure code_cl(&reach, !CodeBlobToOopClosure::FixRelocations);
    G1RootProcessor roots(g1h, 1);
    roots.process_strong_roots(&reach, &cld_cl, &code_cl);
  }
  reach.drain();

  G1MerapiCompleteRegions regions(&marks, cm, &reach);
  g1h->heap_region_iterate(&regions);

  *missed = reach.missed();
  *incomplete = regions.incomplete();
  *live_mismatch = regions.live_mismatch();
  log_info(gc, merapi)("Verify {\"gc_id\":%u,\"marked\":" SIZE_FORMAT ",\"reached\":" SIZE_FORMAT
                       ",\"missed\":" SIZE_FORMAT ",\"incomplete\":" SIZE_FORMAT ",\"floating\":" SIZE_FORMAT
                       ",\"live_mismatch\":" SIZE_FORMAT ",\"ms\":%s}",
                       GCId::current_or_undefined(), regions.marked(), reach.reached_below(), *missed, *incomplete,
                       regions.floating(), *live_mismatch, G1MerapiDecimal::millis(os::javaTimeNanos() - start).text());
  return *missed == 0 && *incomplete == 0 && *live_mismatch == 0;
}
