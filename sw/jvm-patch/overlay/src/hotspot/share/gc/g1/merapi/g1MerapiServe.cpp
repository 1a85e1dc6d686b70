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
#include "gc/g1/g1BarrierSet.hpp"
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkThread.inline.hpp"
#include "gc/g1/g1SATBMarkQueueSet.hpp"
#include "gc/g1/heapRegion.inline.hpp"
#include "gc/g1/merapi/g1MerapiGreys.inline.hpp"
#include "gc/g1/merapi/g1MerapiMark.hpp"
#include "gc/shared/referenceProcessor.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "oops/access.inline.hpp"
#include "oops/arrayOop.hpp"
#include "oops/klass.inline.hpp"
#include "oops/oop.inline.hpp"
#include "runtime/os.hpp"

#include <errno.h>

// Between hand-over and hand-back: what one worker of the concurrent gang does
// while the device traces. It gives the device its regions and greys, takes its
// completions, and watches that it lives. In the suspendible thread set while it
// touches oops, outside while it waits.

// SATB buffers give no notice, so the serving worker looks for them this often.
static const uint64_t WaitMicros = 2000;
// Without news for this long the device must show that it lives, by
// acknowledging a pause. A pause empties its caches: a device that says it is
// slow (a simulation) is asked that much less often.
static const jlong SilenceNanos = 50 * NANOSECS_PER_MILLISEC;
static const jlong SilencePerPatience = 10;
// One that has news is asked as well, after so many times as long: it may say much
// and do nothing. Once it was found to have done nothing it is asked as often as a silent one.
static const jlong SilencesWithNews = 20;
// A device that acknowledges so many pauses in a row and does nothing between
// them is stuck: some two seconds, or four times its patience when that is
// longer. Counted in checks, not in time, so that a process that was stopped
// itself does not blame the device.
static const uint StaleChecks = 40;

bool G1MerapiMark::has_objects_below_limit(uint index) const {
  HeapRegion* region = _g1h->region_at_or_null(index);
  return region != NULL && region->next_top_at_mark_start() > region->bottom();
}

// One command for each run of regions with something below the limit; what
// does not fit into the ring follows when the device has taken entries. Regions that a
// pause has freed meanwhile have no greys and are left out. How many were submitted; -1 after a failure.
int G1MerapiMark::submit_regions() {
  uint regions = _g1h->max_reserved_regions();
  int total = 0;
  while (_next_region < regions) {
    uint first = _next_region;
    while (first < regions && !has_objects_below_limit(first)) {
      first++;
    }
    uint end = first;
    while (end < regions && has_objects_below_limit(end)) {
      end++;
    }
    if (end > first) {
      merapi_submission entry;
      memset(&entry, 0, sizeof(entry));
      entry.opcode = MERAPI_OP_TRACE_REGION;
      entry.arg = first;
      entry.payload[0] = end - first;
      entry.payload[1] = MERAPI_SCOPE_HEAP | (MERAPI_ORDER_ANY << 8);
      entry.cycle = _cycle;
      int submitted = G1MerapiLibrary::submit(_handle, &entry, 1);
      if (submitted < 0) {
        fail_by_ring(submitted, "submitting TRACE_REGION");
        return -1;
      }
      if (submitted == 0) {
        break;
      }
      total++;
    }
    _next_region = end;
  }
  return total;
}

// The region of an object that the device has deferred; NULL if a pause has reclaimed it since.
HeapRegion* G1MerapiMark::region_below_limit(oop obj) const {
  HeapRegion* region = _g1h->heap_region_containing(obj);
  return region == NULL || region->obj_allocated_since_next_marking(obj) ? NULL : region;
}

// The bitmap is the device's while it traces: the mark of an object that it
// defers may still be on its chip. When it holds no line (paused or idle) every
// mark must be there.
bool G1MerapiMark::check_unseen() {
  for (size_t i = 0; i < _unseen.length(); i++) {
    uint64_t address = _unseen.at(i) & ~Unsized;
    oop obj = cast_to_oop((uintptr_t)address);
    if (region_below_limit(obj) != NULL && !_cm->_next_mark_bitmap->is_marked(obj)) {
      fail("bad completion", "DEFER of " UINT64_FORMAT_X " which is not marked", address);
      return false;
    }
  }
  return true;
}

// Those whose marks are seen by now, which are all that check_unseen has found right.
bool G1MerapiMark::scan_unseen() {
  size_t kept = 0;
  size_t i = 0;
  bool right = true;
  for (; i < _unseen.length() && right && !SuspendibleThreadSet::should_yield(); i++) {
    uint64_t entry = _unseen.at(i);
    oop obj = cast_to_oop((uintptr_t)(entry & ~Unsized));
    HeapRegion* region = region_below_limit(obj);
    if (region == NULL) {
      continue;
    }
    if (_cm->_next_mark_bitmap->is_marked(obj)) {
      right = scan_deferred(obj, region, (entry & Unsized) != 0);
    } else {
      _unseen.at_put(kept++, entry);
    }
  }
  for (; i < _unseen.length(); i++) {
    _unseen.at_put(kept++, _unseen.at(i));
  }
  _unseen.trunc_to(kept);
  return right;
}

// In the suspendible thread set, so no collection pauses the device at the same
// time. While it is held its bitmap lines are written and its counters fresh.
// A JVM that ends waits for no device, however patient that one has asked it to be.
bool G1MerapiMark::hold_device() {
  const jlong patience = (jlong)G1MerapiLibrary::patience_us(_handle) * 1000;
  const jlong start = os::javaTimeNanos();
  jlong left = patience;
  while (true) {
    // A pause that is not acknowledged yet is waited for again.
    int result = G1MerapiLibrary::pause(_handle, (uint64_t)clamp(left / 1000, (jlong)1, (jlong)HoldMicros));
    if (result == 0) {
      return true;
    }
    left = patience - (os::javaTimeNanos() - start);
    if (result != -ETIMEDOUT || left <= 0) {
      fail("device silent", "no acknowledgement: %s", os::strerror(-result));
      return false;
    }
    if (is_exiting()) {
      fail("exit", "the JVM is about to exit");
      return false;
    }
  }
}

void G1MerapiMark::release_device() {
  G1MerapiLibrary::resume(_handle);
  G1MerapiLibrary::doorbell(_handle);
}

bool G1MerapiMark::handle_deferred(uint64_t address, bool unsized) {
  uint64_t base = (uint64_t)_window->heap_base();
  if (address < base || address >= base + _window->heap_size() ||
      !is_aligned(address, MinObjAlignmentInBytes)) {
    fail("bad completion", "DEFER of " UINT64_FORMAT_X " which is no object address in the heap", address);
    return false;
  }
  oop obj = cast_to_oop((uintptr_t)address);
  HeapRegion* region = region_below_limit(obj);
  if (region == NULL) {
    return true;
  }
  if (!_cm->_next_mark_bitmap->is_marked(obj)) {
    // Of what may be no object nothing is believed before its mark is seen, not even its klass word: what stands
    // there may be the data of an array.
    _unseen.append(address | (unsized ? Unsized : 0));
    _waited++;
    return true;
  }
  return scan_deferred(obj, region, unsized);
}

// Does an object of so many words that begins there end where an object of its region may?
bool G1MerapiMark::ends_in_place(oop obj, HeapRegion* region, size_t words) const {
  HeapWord* start = cast_from_oop<HeapWord*>(obj);
  if (!region->is_humongous()) {
    return words <= pointer_delta(region->next_top_at_mark_start(), start);
  }
  // One object, from its first region's start on.
  if (!region->is_starts_humongous() || start != region->bottom()) {
    return false;
  }
  uint index = region->hrm_index();
  size_t behind = (words - 1) / HeapRegion::GrainWords;
  if (behind == 0) {
    return true;
  }
  if (behind >= _g1h->max_reserved_regions() - index) {
    return false;
  }
  HeapRegion* last = _g1h->region_at_or_null(index + (uint)behind);
  return last != NULL && last->is_continues_humongous() && last->humongous_start_region() == region;
}

bool G1MerapiMark::scan_deferred(oop obj, HeapRegion* region, bool unsized) {
  const uint64_t address = (uint64_t)cast_from_oop<uintptr_t>(obj);
  Klass* klass = obj->klass_or_null();
  if (klass == NULL || (_shapes.klass_of(G1MerapiShapes::klass_word(klass)) != klass && !_shapes.is_class(klass))) {
    fail("bad completion", "DEFER of " UINT64_FORMAT_X " which holds no klass", address);
    return false;
  }
  // What is marked need be no object, either: a broken device has set the mark.
  const int length = klass->is_array_klass() ? arrayOop(obj)->length() : 0;
  const int words = obj->size_given_klass(klass);
  if (length < 0 || words <= 0 || !ends_in_place(obj, region, (size_t)words)) {
    fail("bad completion", "DEFER of " UINT64_FORMAT_X " which would have %d words and end where no object of its "
         "region can", address, words);
    return false;
  }
  // A device may defer an object again.
  if (unsized) {
    if (_sized == NULL) {
      _sized = new G1MerapiVisited(_g1h->reserved());
    }
    if (!_sized->is_mapped()) {
      fail("no memory", "cannot map " SIZE_FORMAT " bytes to tell objects without a shape apart", _sized->bytes());
      return false;
    }
    if (!_sized->at(obj)) {
      _sized->set(obj);
      Atomic::add(&_cm->_region_mark_stats[region->hrm_index()]._live_words, (size_t)words);
    }
  }
  _scan.scan(obj);
  _trace._deferred++;
  return true;
}

void G1MerapiMark::fail_by_fault(uint32_t code, uint64_t address, uint64_t detail) {
  // What is the device's to say of the heap as such: it may bound its size.
  const uint64_t region_count = MERAPI_CONFIG_OFFSET + offset_of(merapi_config, region_count);
  if (code == MERAPI_FAULT_BAD_CONFIG && address == region_count) {
    fail("device fault", "expected a device that takes a heap of " SIZE_FORMAT " bytes, found one that refuses it (%s at "
         UINT64_FORMAT_X ", detail " UINT64_FORMAT_X "); use a smaller -Xmx", _window->heap_size(),
         G1MerapiLibrary::fault_name(code), address, detail);
    return;
  }
  fail("device fault", "%s at " UINT64_FORMAT_X ", detail " UINT64_FORMAT_X, G1MerapiLibrary::fault_name(code), address,
       detail);
}

// What libmerapi says of a ring: an index or an entry that cannot be, or a device that is gone.
void G1MerapiMark::fail_by_ring(int error, const char* what) {
  fail(error == -EBADMSG ? "bad completion" : "device lost", "%s: %s", what, os::strerror(-error));
}

bool G1MerapiMark::handle_completion(const merapi_completion* completion) {
  if (completion->cycle != _cycle) {
    return true;  // of a cycle that is over
  }
  if (completion->count > MERAPI_ENTRY_WORDS) {
    fail("bad completion", "%u payload words in a completion of type %u", completion->count, completion->type);
    return false;
  }
  switch (completion->type) {
    case MERAPI_COMP_DONE:
      return true;
    case MERAPI_COMP_DEFER: {
      bool unsized = (completion->flags & (1u << MERAPI_DEFER_FLAG_UNSIZED)) != 0;
      for (uint i = 0; i < completion->count; i++) {
        if (!handle_deferred(completion->payload[i], unsized)) {
          return false;
        }
      }
      return true;
    }
    case MERAPI_COMP_SHAPE_SEEN: {
      G1MerapiOopClosure cl(&_greys, NULL);
      for (uint i = 0; i < completion->count; i++) {
        Klass* klass = _shapes.klass_of(completion->payload[i]);
        if (klass == NULL) {
          fail("bad completion", "SHAPE_SEEN of klass word " UINT64_FORMAT_X " which has no shape",
               completion->payload[i]);
          return false;
        }
        cl.do_klass(klass);
      }
      return true;
    }
    case MERAPI_COMP_FAULT:
      fail_by_fault(completion->arg, completion->payload[0], completion->payload[1]);
      return false;
    default:
      fail("bad completion", "unexpected type %u", completion->type);
      return false;
  }
}

// How many completions were handled; -1 after a failure. No more than the ring holds:
// a device may fill it as fast as it is emptied here.
int G1MerapiMark::drain_completions() {
  const int Batch = 32;
  const int most = (int)(G1MerapiLibrary::layout_of(_handle)->area[MERAPI_AREA_COMPLETION].size / sizeof(merapi_completion));
  merapi_completion entries[Batch];
  int total = 0;
  while (true) {
    int count = G1MerapiLibrary::complete(_handle, entries, Batch);
    if (count < 0) {
      fail_by_ring(count, "reading completions");
      return -1;
    }
    for (int i = 0; i < count; i++) {
      if (!handle_completion(&entries[i])) {
        return -1;
      }
    }
    total += count;
    if (count < Batch || total >= most || SuspendibleThreadSet::should_yield()) {
      return total;
    }
  }
}

class G1MerapiSATBClosure : public SATBBufferClosure {
  G1MerapiGreys* _greys;
  size_t         _entries;
public:
  G1MerapiSATBClosure(G1MerapiGreys* greys) : _greys(greys), _entries(0) { }
  virtual void do_buffer(void** buffer, size_t size) {
    for (size_t i = 0; i < size; i++) {
      _greys->add(cast_to_oop(buffer[i]));
    }
    _entries += size;
  }
  size_t entries() const { return _entries; }
};

// Mutators may fill buffers as fast as they are drained here, until the device
// has marked what is in them: after some, it is the device's turn. Returns
// whether there was anything new in them, or are more of them.
bool G1MerapiMark::drain_satb() {
  const int Batch = 32;
  SATBMarkQueueSet& queues = G1BarrierSet::satb_mark_queue_set();
  G1MerapiSATBClosure cl(&_greys);
  const size_t added = _greys.added();
  int buffers = 0;
  while (buffers < Batch && !SuspendibleThreadSet::should_yield() && queues.apply_closure_to_completed_buffer(&cl)) {
    buffers++;
  }
  _trace._satb += cl.entries();
  return _greys.added() != added || buffers == Batch;
}

// The device's record is of the first fault in this generation.
bool G1MerapiMark::check_fault() {
  uint32_t code = G1MerapiLibrary::fault_get(_handle, NULL);
  if (code == MERAPI_FAULT_NONE) {
    return true;
  }
  merapi_fault_record record;
  G1MerapiLibrary::fault_get(_handle, &record);
  fail_by_fault(code, record.address, record.detail);
  return false;
}

// A device proves that it lives by acknowledging a pause, and that it gets on by its counters.
bool G1MerapiMark::check_alive() {
  if (!check_fault()) {
    return false;
  }
  if (G1MerapiLibrary::device_gone(_handle)) {
    fail("device lost", "its process has gone");
    return false;
  }
  // While the ring has room nobody else looks at what it says that it has taken.
  int room = G1MerapiLibrary::submission_room(_handle);
  if (room < 0) {
    fail_by_ring(room, "what it has taken of the submissions");
    return false;
  }
  if (!hold_device()) {
    return false;
  }
  bool progress = check_unseen() && check_progress();
  release_device();
  return progress && scan_unseen();
}

bool G1MerapiMark::check_progress() {
  uint64_t progress = G1MerapiLibrary::progress(_handle);
  if (progress != _progress || G1MerapiLibrary::idle(_handle, _cycle) == 1) {
    _progress = progress;
    _stale_checks = 0;
  } else if (++_stale_checks >= StaleChecks) {
    fail("device stuck", "%u pauses acknowledged without progress between them", _stale_checks);
    return false;
  }
  return true;
}

void G1MerapiMark::serve() {
  jlong last_news = os::javaTimeNanos();
  jlong last_check = last_news;
  const jlong silence = MAX2(SilenceNanos, (jlong)G1MerapiLibrary::patience_us(_handle) * 1000 / SilencePerPatience);
  _progress = 0;
  _stale_checks = 0;
  while (true) {
    if (SuspendibleThreadSet::should_yield()) {
      SuspendibleThreadSet::yield();
    }
    if (_cm->has_aborted() || _state != Device) {
      return;  // a full collection, or a pause that found the device failed
    }
    if (is_exiting()) {
      fail("exit", "the JVM is about to exit");
      return;
    }
    int completions = drain_completions();
    if (completions < 0) {
      return;
    }
    bool work = drain_satb() || completions != 0;
    int regions = submit_regions();
    if (regions < 0) {
      return;
    }
    bool submitted = regions > 0;
    if (!_greys.is_empty()) {
      size_t before = _greys.submitted();
      int result = _greys.submit();
      if (result < 0) {
        fail_by_ring(result, "submitting GREY");
        return;
      }
      submitted = submitted || _greys.submitted() != before;
    }
    if (submitted) {
      G1MerapiLibrary::doorbell(_handle);
    }
    // Mutators may keep SATB buffers coming for as long as they like: only what the device
    // says is news of it.
    jlong now = os::javaTimeNanos();
    if (completions != 0) {
      last_news = now;
    }
    const jlong with_news = _stale_checks > 0 ? silence : SilencesWithNews * silence;
    if (now - last_news > silence || now - last_check > with_news) {
      if (!check_alive()) {
        return;
      }
      last_news = now;
      last_check = now;
    }
    if (work || submitted) {
      continue;
    }
    // Nothing new here. If the device has consumed everything, holds nothing and has said
    // nothing that was not read, the closure is complete up to what SATB holds back.
    if (_greys.is_empty() && _next_region >= _g1h->max_reserved_regions() &&
        G1MerapiLibrary::idle(_handle, _cycle) == 1) {
      if (!_unseen.is_empty()) {
        if (!check_unseen() || !scan_unseen()) {
          return;
        }
      } else if (!SuspendibleThreadSet::should_yield()) {
        hand_back();
        return;
      }
      continue;
    }
    SuspendibleThreadSetLeaver sts_leave;
    G1MerapiLibrary::wait(_handle, WaitMicros);
  }
}
