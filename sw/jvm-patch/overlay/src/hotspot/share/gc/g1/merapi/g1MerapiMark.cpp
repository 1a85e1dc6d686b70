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
#include "gc/g1/g1CollectorState.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkThread.inline.hpp"
#include "gc/g1/g1Policy.hpp"
#include "gc/g1/g1ServiceThread.hpp"
#include "gc/g1/heapRegion.inline.hpp"
#include "gc/g1/merapi/g1MerapiDecimal.hpp"
#include "gc/g1/merapi/g1MerapiGreys.inline.hpp"
#include "gc/g1/merapi/g1MerapiMark.hpp"
#include "gc/g1/merapi/g1MerapiRetry.hpp"
#include "gc/shared/gcId.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "gc/shared/workgroup.hpp"
#include "logging/log.hpp"
#include "memory/resourceArea.hpp"
#include "runtime/os.hpp"
#include "runtime/vmThread.hpp"

G1MerapiMark* G1MerapiMark::_instance = NULL;
volatile int G1MerapiMark::_waiting = 0;
volatile bool G1MerapiMark::_exiting = false;

class VM_G1MerapiAbandon : public VM_Operation {
public:
  virtual VMOp_Type type() const { return VMOp_G1MerapiAbandon; }
  virtual void doit() { G1MerapiMark::instance()->abandon_if_failed(); }
};

// One worker of the concurrent gang serves the device: a worker, since
// reference discovery finds its list by worker id.
class G1MerapiServeTask : public AbstractGangTask {
  G1MerapiMark* _mark;
public:
  G1MerapiServeTask(G1MerapiMark* mark) : AbstractGangTask("Merapi Serve"), _mark(mark) { }
  virtual void work(uint worker_id) {
    ResourceMark rm;
    jlong start = os::current_thread_cpu_time();
    SuspendibleThreadSetJoiner sts_join;
    if (_mark->hand_over()) {
      _mark->serve();
    }
    _mark->_trace._cpu_nanos += os::current_thread_cpu_time() - start;
  }
};

G1MerapiMark::G1MerapiMark(G1CollectedHeap* g1h, G1ConcurrentMark* cm, G1MerapiWindow* window) :
  _g1h(g1h),
  _cm(cm),
  _window(window),
  _handle(window->handle()),
  _shapes(window->handle()),
  _greys(g1h, window->handle()),
  _scan(g1h->reserved(), &_greys),
  _unseen(),
  _waited(0),
  _sized(NULL),
  _retry_task(new G1MerapiRetryTask()),
  _state(Host),
  _cycle(0),
  _next_region(0),
  _turn(),
  _abandoned(false),
  _abandoned_full_gcs(0),
  _next_is_clear(false),
  _retry(false),
  _traced_gc_id(GCId::undefined()),
  _trace(),
  _progress(0),
  _stale_checks(0),
  _fallbacks(0),
  _last_gc_id(GCId::undefined())
{
  _reason[0] = '\0';
  _detail[0] = '\0';
  _last_reason[0] = '\0';
}

void G1MerapiMark::initialize(G1CollectedHeap* g1h, G1ConcurrentMark* cm) {
  if (G1MerapiWindow::instance() == NULL) {
    return;
  }
  _instance = new G1MerapiMark(g1h, cm, G1MerapiWindow::instance());
}

int G1MerapiMark::next_bitmap() const {
  return _cm->_next_mark_bitmap == &_cm->_mark_bitmap_1 ? 0 : 1;
}

void G1MerapiMark::fail(const char* reason, const char* format, ...) {
  if (_state == Failed) {
    return;  // the first reason is the one to tell
  }
  jio_snprintf(_reason, sizeof(_reason), "%s", reason);
  va_list ap;
  va_start(ap, format);
  jio_vsnprintf(_detail, sizeof(_detail), format, ap);
  va_end(ap);
  _state = Failed;
}

void G1MerapiMark::report_fallback(const char* reason, const char* detail, bool abandoned) {
  _fallbacks++;
  jio_snprintf(_last_reason, sizeof(_last_reason), "%s", reason);
  _last_gc_id = _trace._gc_id;
  _trace.report_fallback(reason, detail, abandoned);
}

// The JVM's end is no failure of anything, whatever it has found the device doing.
void G1MerapiMark::report_failure() {
  if (is_exiting()) {
    log_debug(gc, merapi)("The JVM's end cuts the cycle: %s, %s", _reason, _detail);
  } else {
    report_fallback(_reason, _detail, true);
  }
}

bool G1MerapiMark::prepare_image(merapi_error* error) {
  assert_at_safepoint_on_vm_thread();
  if (_window->is_private(0) || _window->is_private(1)) {
    jio_snprintf(error->message, sizeof(error->message), "a bitmap is not in the window after a device failure");
    return false;
  }
  if (!_window->ensure_configured(error)) {
    return false;
  }
  _shapes.publish(false /* may_yield */);
  set_limits();
  return true;
}

void G1MerapiMark::release_deferred() {
  _unseen.release();
  _waited = 0;
  delete _sized;
  _sized = NULL;
}

// ------------------------------------------------------------------ hand-over

void G1MerapiMark::set_limits() {
  uint regions = _g1h->max_reserved_regions();
  char* base = _window->heap_base();
  for (uint i = 0; i < regions; i++) {
    // A region that is free or not committed has its limit at its start.
    HeapRegion* region = _g1h->region_at_or_null(i);
    uint64_t limit = region != NULL ? (uint64_t)((char*)region->next_top_at_mark_start() - base)
                                    : (uint64_t)i << HeapRegion::LogOfHRGrainBytes;
    G1MerapiLibrary::limit_set(_handle, i, limit);
  }
}

bool G1MerapiMark::hand_over() {
  if (_cm->has_aborted() || _state == Failed) {
    return false;
  }
  _shapes.publish(true /* may_yield */);
  if (_cm->has_aborted()) {
    return false;
  }
  _trace._shapes = _shapes.published();
  set_limits();

  _cycle = G1MerapiLibrary::next_cycle(_handle);
  _trace._cycle = _cycle;
  _greys.reset(_cm->_next_mark_bitmap, _cycle);
  _scan.reset(_g1h->ref_processor_cm());

  merapi_submission begin;
  memset(&begin, 0, sizeof(begin));
  begin.opcode = MERAPI_OP_BEGIN_CYCLE;
  begin.arg = (uint32_t)next_bitmap();
  begin.cycle = _cycle;
  // From here on a pause has to stop the device.
  _state = Device;
  _next_region = 0;
  int submitted = G1MerapiLibrary::submit(_handle, &begin, 1);
  if (submitted < 0) {
    fail_by_ring(submitted, "submitting BEGIN_CYCLE");
    return false;
  }
  if (submitted == 0) {
    // The cycle before ended with an idle record or an acknowledged abort; either says that all was consumed.
    uint64_t entries = G1MerapiLibrary::layout_of(_handle)->area[MERAPI_AREA_SUBMISSION].size / sizeof(begin);
    fail("device stuck", "expected a device without a cycle to have consumed what was submitted, found all "
         UINT64_FORMAT " submission entries taken", entries);
    return false;
  }
  // Where nothing lies below a limit no other command follows.
  G1MerapiLibrary::doorbell(_handle);
  return true;
}

// ------------------------------------------------------------------ hand-back

bool G1MerapiMark::add_live_words() {
  uint regions = _g1h->max_reserved_regions();
  // All are checked before the first is added.
  for (uint pass = 0; pass < 2; pass++) {
    for (uint i = 0; i < regions; i++) {
      uint64_t words = G1MerapiLibrary::live_get(_handle, i);
      if (words == 0) {
        continue;
      }
      HeapRegion* region = _g1h->region_at_or_null(i);
      size_t below = region == NULL ? 0 : pointer_delta(region->next_top_at_mark_start(), region->bottom());
      bool whole = region != NULL && region->is_starts_humongous();
      if (pass == 0) {
        if (below == 0 || (words > below && !whole) || words > _window->heap_size() / HeapWordSize) {
          fail("bad live words", UINT64_FORMAT " in region %u with " SIZE_FORMAT " words below the limit",
               words, i, below);
          return false;
        }
      } else {
        Atomic::add(&_cm->_region_mark_stats[i]._live_words, (size_t)words);
      }
    }
  }
  return true;
}

bool G1MerapiMark::hand_back() {
  assert(_unseen.is_empty(), "scanned");
  if (!add_live_words()) {
    return false;
  }
  _trace._ahead = _scan.ahead();
  _scan.reset(NULL);
  // Remark must not scan the bitmap again.
  _cm->_finger = _cm->_heap.end();
  _traced_gc_id = _trace._gc_id;
  _turn.note_done();
  _state = Host;
  return true;
}

// ------------------------------------------------- the concurrent mark thread

bool G1MerapiMark::mark_from_roots() {
  _trace = G1MerapiTrace();
  if (!_turn.take(GCId::current())) {
    return false;
  }
  _trace._gc_id = GCId::current();
  _trace._start_nanos = os::javaTimeNanos();
  _trace._start_ticks = Ticks::now();
  jlong cpu = os::current_thread_cpu_time();
  merapi_error error;
  bool attached = false;
  if (_window->is_private(next_bitmap())) {
    jio_snprintf(error.message, sizeof(error.message), "the next bitmap is not in the window yet");
  } else {
    attached = _window->ensure_attached(&error);
  }
  if (!attached) {
    // Nothing was handed over: the root marks are intact and the CPU goes on with them. No
    // failure of the device either, so a pause that comes now has nothing to abandon.
    report_fallback("no device", error.message, false);
    _turn.note_no_device();
    return false;
  }

  G1MerapiServeTask task(this);
  _cm->_concurrent_workers->run_task(&task, 1);
  log_debug(gc, merapi)("References that waited for room in the ring: at most " SIZE_FORMAT, _greys.most());
  log_debug(gc, merapi)("Deferred objects that waited for their marks: " SIZE_FORMAT, _waited);
  _greys.release();
  _scan.release();
  release_deferred();

  bool failed;
  {
    // Inside the set no safepoint is in the middle of giving the device up.
    SuspendibleThreadSetJoiner sts_join;
    failed = _state == Failed;
  }
  if (failed) {
    VM_G1MerapiAbandon op;
    VMThread::execute(&op);
  }
  SuspendibleThreadSetJoiner sts_join;
  if (!_cm->has_aborted()) {
    _trace._end_nanos = os::javaTimeNanos();
    _trace._cpu_nanos += os::current_thread_cpu_time() - cpu;
    _trace.report(_handle, _greys.submitted());
  }
  return true;
}

bool G1MerapiMark::cycle_ends_abandoned() {
  if (!_abandoned) {
    return false;
  }
  _abandoned = false;
  // A full collection since then has examined the whole heap, and the waiters
  // of this cycle may go.
  return _abandoned_full_gcs == _g1h->total_full_collections();
}

void G1MerapiMark::request_retry() {
  if (_retry) {
    _retry = false;
    _retry_task->request(_g1h->service_thread());
  }
}

void G1MerapiMark::cycle_is_over() {
  const int which = next_bitmap();
  // The cycle that replaces an abandoned one marks on the CPU: it needs no device, and this one has just failed.
  if (_turn.next_replaces() || !_window->is_private(which) || is_exiting() ||
      !_window->prepare_return(which)) {
    return;
  }
  // The device took its time to answer, and a full collection may have come. It marks in the next bitmap, makes the
  // previous one of it, and leaves the other one clear.
  SuspendibleThreadSetJoiner sts_join;
  if (which == next_bitmap()) {
    _window->return_bitmap(which);
  } else {
    log_debug(gc, merapi)("The bitmap stays private: a full collection has marked in it");
  }
}

void G1MerapiMark::full_collection_is_over() {
  assert_at_safepoint_on_vm_thread();
  const int which = next_bitmap();
  // It may be the one that is still private. At the end of the cycle that is marked in it, on the CPU, it would be the
  // previous one, and the next one again after a further full collection: with one of them between any two cycles no
  // device would get any. A cycle that is under way, or aborted now, sees to it at its end.
  if (!_cm->cm_thread()->in_progress() && !_turn.next_replaces() && _window->is_private(which) && !is_exiting() &&
      _window->prepare_return_now(which)) {
    _window->return_bitmap(which);
  }
}

// --------------------------------------------------------------- safepoints

void G1MerapiMark::pause() {
  assert_at_safepoint_on_vm_thread();
  jlong start = os::javaTimeNanos();
  if (_state == Device) {
    int result = G1MerapiLibrary::pause(_handle, timeout_micros());
    jlong waited = os::javaTimeNanos() - start;
    _trace._pauses++;
    _trace._pause_max_nanos = MAX2(_trace._pause_max_nanos, waited);
    log_debug(gc, merapi)("Pause acknowledged after %s us", G1MerapiDecimal::micros(waited).text());
    if (result != 0) {
      fail(result == -ENODEV ? "device lost" : "pause not acknowledged", "a pause, after %s ms: %s",
           G1MerapiDecimal::millis(waited).text(), os::strerror(-result));
    }
  }
  if (_state != Host) {
    abandon_if_failed();
    // Like the wait for root regions it stands before what the log and JFR call the pause.
    _g1h->phase_times()->record_merapi_pause_wait_time((os::javaTimeNanos() - start) / 1e6);
  }
}

void G1MerapiMark::resume() {
  assert_at_safepoint_on_vm_thread();
  if (_state == Device) {
    // Eager reclaim has freed regions; evacuation failure has changed limits.
    set_limits();
    G1MerapiLibrary::resume(_handle);
    G1MerapiLibrary::doorbell(_handle);
  }
}

void G1MerapiMark::region_reclaimed(uint region) {
  if (_state == Device) {
    G1MerapiLibrary::live_clear(_handle, region);
  }
}

bool G1MerapiMark::before_abort() {
  bool clear = _next_is_clear;
  _next_is_clear = false;
  if (_state == Host) {
    return clear;
  }
  if (_state == Device) {
    int result = G1MerapiLibrary::abort(_handle, timeout_micros());
    if (result != 0) {
      fail(result == -ENODEV ? "device lost" : "abort not acknowledged", "an abort by a full collection: %s",
           os::strerror(-result));
    } else if (check_fault()) {  // its record outlives the abort: the next cycle would be blamed for it
      note_outrun();
    }
  }
  if (_state == Failed) {
    report_failure();
    clear = _window->revoke(next_bitmap());
    note_abandoned();
  }
  _scan.reset(NULL);
  _state = Host;
  return clear;
}

void G1MerapiMark::note_outrun() {
  if (_g1h->gc_cause() != GCCause::_g1_compaction_pause) {
    return;
  }
  jlong nanos = os::javaTimeNanos() - _trace._start_nanos;
  uint skipped = _turn.note_outrun(nanos < OutrunNanos);
  if (skipped == 0) {
    return;
  }
  char detail[160];
  jio_snprintf(detail, sizeof(detail), "the heap was full after %s ms of tracing; marked on the CPU: the next %u cycle(s)",
               G1MerapiDecimal::millis(nanos).text(), skipped);
  report_fallback("device too slow", detail, true);
}

void G1MerapiMark::note_abandoned() {
  uint on_cpu = _turn.note_abandoned();
  if (on_cpu > 1 && !is_exiting()) {
    log_info(gc, merapi)("The device has failed again and completed no cycle in between; marked on the CPU: the next "
                         "%u cycles", on_cpu);
  }
}

void G1MerapiMark::revoke_and_abandon() {
  assert_at_safepoint_on_vm_thread();
  bool exiting = is_exiting();
  report_failure();
  // The device is revoked first, so that nothing it does later reaches the
  // bitmap that the abort leaves clear.
  _next_is_clear = _window->revoke(next_bitmap());
  _scan.reset(NULL);
  _state = Host;
  _trace._end_nanos = 0;
  _abandoned = true;
  _abandoned_full_gcs = _g1h->total_full_collections();
  note_abandoned();
  _retry = !exiting;

  _g1h->abort_concurrent_cycle();
  _next_is_clear = false;

  // The collector's state, as the end of a full collection sets it.
  G1CollectorState* state = _g1h->collector_state();
  state->set_mark_or_rebuild_in_progress(false);
  state->set_clearing_next_bitmap(false);
  state->set_initiate_conc_mark_if_possible(!exiting);
  _g1h->policy()->abort_time_to_mixed_tracking();
}

void G1MerapiMark::abandon_if_failed() {
  if (_state == Failed) {
    revoke_and_abandon();
  }
}

void G1MerapiMark::abandon_at_remark(size_t missed, size_t incomplete, size_t live_mismatch) {
  fail("verification", SIZE_FORMAT " reachable objects not marked, " SIZE_FORMAT " references of marked objects not "
       "marked, " SIZE_FORMAT " regions with wrong live words", missed, incomplete, live_mismatch);
  revoke_and_abandon();
}

void G1MerapiMark::print_on(outputStream* st) const {
  _window->print_on(st);
  st->print("  marked %u time(s) by a device, %u on the CPU; fallbacks: %u", _turn.on_device(), _turn.on_cpu(),
            _fallbacks);
  if (_fallbacks > 0) {
    st->print(", the last in GC(%u): %s", _last_gc_id, _last_reason);
  }
  st->cr();
  if (_state != Host) {
    st->print_cr("  cycle %u, GC(%u): %s", _cycle, _trace._gc_id,
                 _state == Device ? "the device marks" : "the device has failed");
  }
}
