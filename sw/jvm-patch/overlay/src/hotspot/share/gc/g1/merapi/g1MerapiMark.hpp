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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIMARK_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIMARK_HPP

#include "gc/g1/merapi/g1MerapiGreys.hpp"
#include "gc/g1/merapi/g1MerapiScan.hpp"
#include "gc/g1/merapi/g1MerapiShapes.hpp"
#include "gc/g1/merapi/g1MerapiTrace.hpp"
#include "gc/g1/merapi/g1MerapiTurn.hpp"
#include "gc/g1/merapi/g1MerapiWindow.hpp"
#include "gc/shared/gcId.hpp"
#include "memory/allocation.hpp"
#include "runtime/atomic.hpp"

class G1CollectedHeap;
class G1ConcurrentMark;
class G1MerapiRetryTask;
class G1MerapiVisited;
class HeapRegion;

// Concurrent marking by a tracer beside the memory.
//
// The next bitmap has one owner at a time. Root marks are the host's; then
// mark_from_roots hands the bitmap over with the greys in it, and until
// hand-back the host marks nothing: what it finds (SATB values, fields of
// deferred objects, class-loader data) it sends as grey candidates. Young
// collections pause the device and own bitmap, live words and limits while
// the pause lasts. After hand-back preclean and remark are stock.
//
// Whatever goes wrong with the device (dead, stuck, slow, or an answer that
// cannot be right) ends in one way: at a safepoint the generation is ended,
// both bitmaps move to private memory, and the whole cycle is abandoned; a new
// cycle is requested at once and marks on the CPU. It never continues
// from a bitmap that a failed device wrote, and it cannot merely clear it: the
// marks from the start pause and root-region scan exist nowhere else.
//
// State, written inside the suspendible thread set or at safepoints only:
//   Host    the host owns the bitmap
//   Device  the device owns it
//   Failed  the device owned it and must not be trusted any more; the next
//           safepoint abandons the cycle
class G1MerapiMark : public CHeapObj<mtGC> {
  friend class G1MerapiServeTask;

  enum State { Host, Device, Failed };
  static const uint64_t Unsized = 1;
  // While it waits for an acknowledgement it looks this often whether the JVM ends, and waits no longer when it does.
  static const jlong HoldMicros = 20 * 1000;
  // A heap that is full sooner may be too small, whoever marks it.
  static const jlong OutrunNanos = 500 * NANOSECS_PER_MILLISEC;

  G1CollectedHeap*   _g1h;
  G1ConcurrentMark*  _cm;
  G1MerapiWindow*    _window;
  merapi_window*     _handle;
  G1MerapiShapes     _shapes;
  G1MerapiGreys      _greys;
  G1MerapiScan       _scan;
  G1MerapiGreyList   _unseen;             // deferred objects whose marks were not seen yet, Unsized in their lowest bit
  size_t             _waited;             // how many were in it in this cycle
  G1MerapiVisited*   _sized;              // objects whose words the host has added; NULL: none in this cycle
  G1MerapiRetryTask* _retry_task;

  volatile State     _state;
  uint32_t           _cycle;
  uint               _next_region;        // regions below it were submitted, or had nothing to trace
  G1MerapiTurn       _turn;
  bool               _abandoned;          // this cycle was abandoned and is not completed
  uint               _abandoned_full_gcs; // full collections when it was
  bool               _next_is_clear;      // the abort that goes on has nothing to clear
  bool               _retry;              // ask for a new cycle when this one has ended
  uint               _traced_gc_id;       // the last cycle that a device has handed back
  G1MerapiTrace      _trace;
  uint64_t           _progress;           // what the device had done at the last check
  uint               _stale_checks;       // checks since then that found no more

  char               _reason[64];
  char               _detail[320];

  // For print_on.
  uint               _fallbacks;
  char               _last_reason[64];
  uint               _last_gc_id;

  static G1MerapiMark* _instance;
  static volatile int  _waiting;          // requests that wait for a marking (G1MerapiWaiter)
  static volatile bool _exiting;          // the JVM ends

  friend class G1MerapiWaiter;

  G1MerapiMark(G1CollectedHeap* g1h, G1ConcurrentMark* cm, G1MerapiWindow* window);

  void fail(const char* reason, const char* format, ...) ATTRIBUTE_PRINTF(3, 4);
  void report_fallback(const char* reason, const char* detail, bool abandoned);
  void report_failure();

  // Steps of a cycle, in the suspendible thread set, by the serving worker.
  void set_limits();
  bool hand_over();
  void serve();
  bool hand_back();
  bool add_live_words();

  // Parts of serve().
  bool has_objects_below_limit(uint index) const;
  int  submit_regions();
  int  drain_completions();
  bool handle_completion(const merapi_completion* completion);
  bool handle_deferred(uint64_t address, bool unsized);
  bool scan_deferred(oop obj, HeapRegion* region, bool unsized);
  HeapRegion* region_below_limit(oop obj) const;
  bool ends_in_place(oop obj, HeapRegion* region, size_t words) const;
  bool check_unseen();
  bool scan_unseen();
  void release_deferred();
  bool hold_device();
  void release_device();
  bool drain_satb();
  void fail_by_fault(uint32_t code, uint64_t address, uint64_t detail);
  void fail_by_ring(int error, const char* what);
  bool check_fault();
  bool check_alive();
  bool check_progress();

  // At a safepoint, where the flag does not change: how long the device may take to acknowledge, 0 for its patience.
  static uint64_t timeout_micros() { return is_exiting() ? HoldMicros : 0; }
  void note_outrun();
  void note_abandoned();
  void revoke_and_abandon();

public:
  // After the collector and its window exist.
  static void initialize(G1CollectedHeap* g1h, G1ConcurrentMark* cm);
  static G1MerapiMark* instance() { return _instance; }

  // G1ConcurrentMark::mark_from_roots: false if the cycle has to be marked on the
  // CPU; true when it is marked, or aborted.
  bool mark_from_roots();

  // Index of the bitmap under construction.
  int next_bitmap() const;
  // At a safepoint before marking starts: brings the window into the state of a
  // hand-over, for saving.
  bool prepare_image(merapi_error* error);

  // Around a young collection, at its safepoint.
  void pause();
  void resume();

  // G1ConcurrentMark::concurrent_cycle_abort, at a safepoint, before the bitmap
  // is cleared. Returns whether it is clear already: then it is new memory, which
  // clearing would fill with pages.
  bool before_abort();
  // A region was reclaimed in a pause: forget what the device counted in it.
  void region_reclaimed(uint region);
  // At the remark pause: verification found a device's marks to be wrong.
  void abandon_at_remark(size_t missed, size_t incomplete, size_t live_mismatch);
  // At a safepoint, if the device failed.
  void abandon_if_failed();
  // G1ConcurrentMarkThread::run_service, at the end of every cycle, aborted ones
  // included; the next bitmap is clear. Outside the suspendible thread set: a
  // device that is to be used again takes its time to answer.
  void cycle_is_over();
  // G1FullCollector::complete_collection, at its safepoint, when the bitmaps have
  // changed places and the next one is clear.
  void full_collection_is_over();
  // The concurrent mark thread ends a cycle: true if it was abandoned and must
  // not count as completed.
  bool cycle_ends_abandoned();
  // After the end of a cycle: starts the retry of an abandoned one.
  void request_retry();
  // G1Policy::concurrent_operation_is_full_mark: must the next cycle mark even if a
  // humongous allocation asks for it and its pause frees enough? It must if it
  // replaces an abandoned one, or if somebody waits for a marking: G1 counts a
  // cycle that it undoes as a completed one and would let them go.
  static bool owes_marking() {
    return _instance != NULL && (_instance->_turn.next_replaces() || Atomic::load(&_waiting) > 0);
  }

  // G1CollectedHeap::stop, before it waits for any thread: one of them may wait for
  // a safepoint that waits for the worker that serves the device.
  static void note_exit() { Atomic::store(&_exiting, true); }
  static bool is_exiting() { return Atomic::load(&_exiting); }

  // G1CollectedHeap::print_on: window, device and who has marked. Whatever thread, at whatever time.
  void print_on(outputStream* st) const;

  void note_unloading() { _shapes.note_unloading(); }
  void note_removal() { _shapes.note_removal(); }
  // At the remark pause: was this cycle traced by a device? One that was saved as an image was not.
  bool traced_this_cycle() const { return _traced_gc_id == GCId::current(); }
};

// G1CollectedHeap::try_collect: for the scope of a request that waits for a complete
// collection (System.gc() with ExplicitGCInvokesConcurrent), from before it looks
// at the number of cycles that were started.
class G1MerapiWaiter : public StackObj {
  bool _waits;
public:
  explicit G1MerapiWaiter(bool waits) : _waits(G1MerapiMark::instance() != NULL && waits) {
    if (_waits) {
      Atomic::inc(&G1MerapiMark::_waiting);
    }
  }
  ~G1MerapiWaiter() {
    if (_waits) {
      Atomic::dec(&G1MerapiMark::_waiting);
    }
  }
};

// Pauses the device for a scope of a young collection.
class G1MerapiPause : public StackObj {
public:
  G1MerapiPause() {
    if (G1MerapiMark::instance() != NULL) {
      G1MerapiMark::instance()->pause();
    }
  }
  ~G1MerapiPause() {
    if (G1MerapiMark::instance() != NULL) {
      G1MerapiMark::instance()->resume();
    }
  }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIMARK_HPP
