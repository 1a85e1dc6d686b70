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
#include "gc/g1/g1CollectorState.hpp"
#include "gc/g1/g1ConcurrentMark.inline.hpp"
#include "gc/g1/g1ConcurrentMarkThread.inline.hpp"
#include "gc/g1/g1Policy.hpp"
#include "gc/g1/g1SATBMarkQueueSet.hpp"
#include "gc/g1/g1ServiceThread.hpp"
#include "gc/g1/g1VMOperations.hpp"
#include "gc/g1/heapRegion.inline.hpp"
#include "gc/g1/merapi/g1MerapiGreys.inline.hpp"
#include "gc/g1/merapi/g1MerapiMark.hpp"
#include "gc/shared/gcId.hpp"
#include "gc/shared/referenceProcessor.hpp"
#include "gc/shared/suspendibleThreadSet.hpp"
#include "gc/shared/workgroup.hpp"
#include "jfr/jfrEvents.hpp"
#include "logging/log.hpp"
#include "memory/metaspace.hpp"
#include "memory/resourceArea.hpp"
#include "oops/access.inline.hpp"
#include "runtime/mutexLocker.hpp"
#include "runtime/os.hpp"
#include "runtime/vmThread.hpp"

// SATB buffers give no notice, so the serving worker looks for them this often.
static const uint64_t WaitMicros = 2000;
// Without news for this long the device must show that it lives, by
// acknowledging a pause.
static const jlong SilenceNanos = 50 * NANOSECS_PER_MILLISEC;
// A device that acknowledges so many pauses in a row and does nothing between
// them is stuck: some two seconds. Counted in checks, not in time, so that a
// process that was stopped itself does not blame the device.
static const uint StaleChecks = 40;

G1MerapiMark* G1MerapiMark::_instance = NULL;

// Starts the cycle that replaces an abandoned one, from the service thread as
// periodic collections are.
class G1MerapiRetryTask : public G1ServiceTask {
  volatile int _wanted;
public:
  G1MerapiRetryTask() : G1ServiceTask("Merapi Retry Task"), _wanted(0) { }

  void request(G1ServiceThread* thread) {
    if (Atomic::xchg(&_wanted, 1) == 0) {
      thread->schedule_task(this, 0);
    }
  }

  virtual void execute() {
    if (Atomic::load(&_wanted) == 0) {
      return;
    }
    G1CollectedHeap* g1h = G1CollectedHeap::heap();
    uint gc_count;
    {
      MutexLocker ml(Heap_lock);
      gc_count = g1h->total_collections();
    }
    VM_G1TryInitiateConcMark op(gc_count, GCCause::_g1_merapi_retry, g1h->policy()->max_pause_time_ms());
    VMThread::execute(&op);
    if (op.transient_failure()) {
      schedule(10);
    } else {
      Atomic::store(&_wanted, 0);
    }
  }
};

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
  _retry_task(new G1MerapiRetryTask()),
  _state(Host),
  _cycle(0),
  _next_region(0),
  _mark_on_cpu(false),
  _abandoned(false),
  _abandoned_full_gcs(0),
  _retry(false),
  _trace(),
  _progress(0),
  _stale_checks(0)
{
  _reason[0] = '\0';
  _detail[0] = '\0';
}

void G1MerapiMark::initialize(G1CollectedHeap* g1h, G1ConcurrentMark* cm) {
  if (G1MerapiWindow::instance() == NULL) {
    return;
  }
  _instance = new G1MerapiMark(g1h, cm, G1MerapiWindow::instance());
  g1h->service_thread()->register_task(_instance->_retry_task);
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
  // The library's messages and ours are plain text; keep the JSON line whole.
  for (char* c = _detail; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') {
      *c = '\'';
    }
  }
  _state = Failed;
}

void G1MerapiMark::report_fallback(bool abandoned) const {
  log_warning(gc, merapi)("Fallback {\"reason\":\"%s\",\"detail\":\"%s\",\"abandoned\":%s,\"gc_id\":%u}",
                          _reason, _detail, abandoned ? "true" : "false", _trace._gc_id);

  EventMerapiTrace event(UNTIMED);
  if (event.should_commit()) {
    event.set_starttime(_trace._start_ticks);
    event.set_endtime(Ticks::now());
    event.set_gcId(_trace._gc_id);
    event.set_device("none");
    event.set_objects(0);
    event.set_references(0);
    event.set_liveBytes(0);
    event.set_deferred(_trace._deferred);
    event.set_deviceTime(0);
    event.set_hostTime(_trace._cpu_nanos);
    event.set_fallbackReason(_reason);
    event.commit();
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
  _shapes.publish();
  set_limits();
  return true;
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

bool G1MerapiMark::has_objects_below_limit(uint index) const {
  HeapRegion* region = _g1h->region_at_or_null(index);
  return region != NULL && region->next_top_at_mark_start() > region->bottom();
}

bool G1MerapiMark::hand_over() {
  if (_cm->has_aborted() || _state == Failed) {
    return false;
  }
  _shapes.publish();
  _trace._shapes = _shapes.published();
  set_limits();

  _cycle = G1MerapiLibrary::next_cycle(_handle);
  _trace._cycle = _cycle;
  _greys.reset(_cm->_next_mark_bitmap, _cycle);

  merapi_submission begin;
  memset(&begin, 0, sizeof(begin));
  begin.opcode = MERAPI_OP_BEGIN_CYCLE;
  begin.arg = (uint32_t)next_bitmap();
  begin.cycle = _cycle;
  // From here on a pause has to stop the device.
  _state = Device;
  _next_region = 0;
  if (G1MerapiLibrary::submit(_handle, &begin, 1) != 1) {
    fail("device lost", "the submission ring of a device without work is full");
    return false;
  }
  return true;
}

// One command for each run of regions with something below the limit; what
// does not fit into the ring follows when the device has taken entries. Regions that a
// pause has freed meanwhile have no greys and are left out.
bool G1MerapiMark::submit_regions() {
  uint regions = _g1h->max_reserved_regions();
  bool progress = false;
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
      if (G1MerapiLibrary::submit(_handle, &entry, 1) != 1) {
        break;
      }
      progress = true;
    }
    _next_region = end;
  }
  return progress;
}

// ------------------------------------------------------------------- serving

bool G1MerapiMark::handle_deferred(uint64_t address, bool unsized) {
  uint64_t base = (uint64_t)_window->heap_base();
  if (address < base || address >= base + _window->heap_size() ||
      !is_aligned(address, MinObjAlignmentInBytes)) {
    fail("bad completion", "DEFER of " UINT64_FORMAT_X " which is no object address in the heap", address);
    return false;
  }
  oop obj = cast_to_oop((uintptr_t)address);
  HeapRegion* region = _g1h->heap_region_containing(obj);
  if (region == NULL || region->obj_allocated_since_next_marking(obj)) {
    // Reclaimed in a pause since.
    return true;
  }
  if (!_cm->_next_mark_bitmap->is_marked(obj)) {
    fail("bad completion", "DEFER of " UINT64_FORMAT_X " which is not marked", address);
    return false;
  }
  Klass* klass = obj->klass_or_null();
  if (klass == NULL || (_shapes.klass_of(G1MerapiShapes::klass_word(klass)) != klass && !Metaspace::contains(klass))) {
    fail("bad completion", "DEFER of " UINT64_FORMAT_X " which holds no klass", address);
    return false;
  }
  if (unsized) {
    Atomic::add(&_cm->_region_mark_stats[region->hrm_index()]._live_words, (size_t)obj->size());
  }
  G1MerapiOopClosure cl(&_greys, _g1h->ref_processor_cm());
  obj->oop_iterate(&cl);
  _trace._deferred++;
  return true;
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
      fail("device fault", "%s at " UINT64_FORMAT_X ", detail " UINT64_FORMAT_X,
           G1MerapiLibrary::fault_name(completion->arg), completion->payload[0], completion->payload[1]);
      return false;
    default:
      fail("bad completion", "unexpected type %u", completion->type);
      return false;
  }
}

// How many completions were handled; -1 after a failure.
int G1MerapiMark::drain_completions() {
  const int Batch = 32;
  merapi_completion entries[Batch];
  int total = 0;
  while (true) {
    int count = G1MerapiLibrary::complete(_handle, entries, Batch);
    if (count < 0) {
      fail(count == -EBADMSG ? "bad completion" : "device lost", "reading completions: %s", os::strerror(-count));
      return -1;
    }
    for (int i = 0; i < count; i++) {
      if (!handle_completion(&entries[i])) {
        return -1;
      }
    }
    total += count;
    if (count < Batch || SuspendibleThreadSet::should_yield()) {
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

int G1MerapiMark::drain_satb() {
  SATBMarkQueueSet& queues = G1BarrierSet::satb_mark_queue_set();
  G1MerapiSATBClosure cl(&_greys);
  int buffers = 0;
  while (!SuspendibleThreadSet::should_yield() && queues.apply_closure_to_completed_buffer(&cl)) {
    buffers++;
  }
  _trace._satb += cl.entries();
  return buffers;
}

// A device without news proves that it lives by acknowledging a pause. In the
// suspendible thread set, so no collection pauses it at the same time.
bool G1MerapiMark::check_alive() {
  uint32_t code = G1MerapiLibrary::fault_get(_handle, NULL);
  if (code != MERAPI_FAULT_NONE) {
    merapi_fault_record record;
    G1MerapiLibrary::fault_get(_handle, &record);
    fail("device fault", "%s at " UINT64_FORMAT_X ", detail " UINT64_FORMAT_X,
         G1MerapiLibrary::fault_name(code), record.address, record.detail);
    return false;
  }
  if (G1MerapiLibrary::device_gone(_handle)) {
    fail("device lost", "its process has gone");
    return false;
  }
  int result = G1MerapiLibrary::pause(_handle, 0);
  if (result != 0) {
    fail("device silent", "no acknowledgement: %s", os::strerror(-result));
    return false;
  }
  // The counters are fresh while the pause is in force.
  bool progress = check_progress();
  G1MerapiLibrary::resume(_handle);
  G1MerapiLibrary::doorbell(_handle);
  return progress;
}

bool G1MerapiMark::check_progress() {
  static const enum merapi_counter counters[] = {
    MERAPI_COUNTER_OBJECTS_MARKED, MERAPI_COUNTER_OBJECTS_SCANNED, MERAPI_COUNTER_REFERENCES_READ,
    MERAPI_COUNTER_BITMAP_READS, MERAPI_COUNTER_RESCANS, MERAPI_COUNTER_SPILL_READS, MERAPI_COUNTER_ROUNDS
  };
  uint64_t progress = 0;
  for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
    progress += G1MerapiLibrary::counter(_handle, counters[i]);
  }
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
  _progress = 0;
  _stale_checks = 0;
  while (true) {
    if (SuspendibleThreadSet::should_yield()) {
      SuspendibleThreadSet::yield();
    }
    if (_cm->has_aborted() || _state != Device) {
      return;  // a full collection, or a pause that found the device failed
    }
    if (_cm->cm_thread()->should_terminate()) {
      fail("exit", "the JVM is about to exit");
      return;
    }
    int completions = drain_completions();
    if (completions < 0) {
      return;
    }
    int work = completions + drain_satb();
    bool submitted = submit_regions();
    if (!_greys.is_empty()) {
      size_t before = _greys.submitted();
      _greys.submit();
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
    } else if (now - last_news > SilenceNanos) {
      if (!check_alive()) {
        return;
      }
      last_news = now;
    }
    if (work != 0 || submitted) {
      continue;
    }
    // Nothing new here. If the device has consumed everything, holds nothing and has said
    // nothing that was not read, the closure is complete up to what SATB holds back.
    if (_greys.is_empty() && _next_region >= _g1h->max_reserved_regions() &&
        G1MerapiLibrary::idle(_handle, _cycle) == 1) {
      if (!SuspendibleThreadSet::should_yield()) {
        hand_back();
        return;
      }
      continue;
    }
    SuspendibleThreadSetLeaver sts_leave;
    G1MerapiLibrary::wait(_handle, WaitMicros);
  }
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
  if (!add_live_words()) {
    return false;
  }
  // Remark must not scan the bitmap again.
  _cm->_finger = _cm->_heap.end();
  _state = Host;
  return true;
}

void G1MerapiMark::report_trace() const {
  size_t objects    = G1MerapiLibrary::counter(_handle, MERAPI_COUNTER_OBJECTS_MARKED);
  size_t references = G1MerapiLibrary::counter(_handle, MERAPI_COUNTER_REFERENCES_READ);
  size_t words      = G1MerapiLibrary::counter(_handle, MERAPI_COUNTER_LIVE_WORDS);
  jlong  device     = (jlong)G1MerapiLibrary::counter(_handle, MERAPI_COUNTER_NANOSECONDS);
  jlong  device_cpu = (jlong)G1MerapiLibrary::counter(_handle, MERAPI_COUNTER_CPU_NANOSECONDS);
  size_t cycles     = G1MerapiLibrary::counter(_handle, MERAPI_COUNTER_CYCLES);
  merapi_device_identity identity;
  G1MerapiLibrary::device_info(_handle, &identity);
  const char* kind = G1MerapiLibrary::kind_name(identity.kind);

  log_info(gc, merapi)("Trace {\"cycle\":%u,\"gc_id\":%u,\"device\":\"%s\",\"objects\":" SIZE_FORMAT
                       ",\"references\":" SIZE_FORMAT ",\"live_bytes\":" SIZE_FORMAT ",\"deferred\":" SIZE_FORMAT
                       ",\"shapes\":" SIZE_FORMAT ",\"satb\":" SIZE_FORMAT ",\"greys\":" SIZE_FORMAT
                       ",\"pauses\":" SIZE_FORMAT ",\"pause_us_max\":%.1f,\"device_ms\":%.3f,\"device_cpu_ms\":%.3f"
                       ",\"device_cycles\":" SIZE_FORMAT ",\"concurrent_ms\":%.3f,\"host_cpu_ms\":%.3f"
                       ",\"fallback\":null}",
                       _trace._cycle, GCId::current_or_undefined(), kind, objects, references, words * HeapWordSize,
                       _trace._deferred, _trace._shapes, _trace._satb, _greys.submitted(), _trace._pauses,
                       _trace._pause_max_nanos / 1e3, device / 1e6, device_cpu / 1e6, cycles,
                       (_trace._end_nanos - _trace._start_nanos) / 1e6, _trace._cpu_nanos / 1e6);

  EventMerapiTrace event(UNTIMED);
  if (event.should_commit()) {
    event.set_starttime(_trace._start_ticks);
    event.set_endtime(Ticks::now());
    event.set_gcId(GCId::current_or_undefined());
    event.set_device(kind);
    event.set_objects(objects);
    event.set_references(references);
    event.set_liveBytes(words * HeapWordSize);
    event.set_deferred(_trace._deferred);
    event.set_deviceTime(device);
    event.set_hostTime(_trace._cpu_nanos);
    event.set_fallbackReason(NULL);
    event.commit();
  }
}

// ------------------------------------------------- the concurrent mark thread

bool G1MerapiMark::mark_from_roots() {
  _trace = G1MerapiTrace();
  if (_mark_on_cpu) {
    _mark_on_cpu = false;
    return false;
  }
  _trace._gc_id = GCId::current();
  _trace._start_nanos = os::javaTimeNanos();
  _trace._start_ticks = Ticks::now();
  jlong cpu = os::current_thread_cpu_time();
  int next = next_bitmap();
  merapi_error error;
  if (_window->is_private(next)) {
    fail("no device", "the next bitmap is not in the window yet");
  } else if (!_window->ensure_attached(&error)) {
    fail("no device", "%s", error.message);
  }
  if (_state == Failed) {
    // Nothing was handed over: the root marks are intact and the CPU goes on with them.
    _state = Host;
    report_fallback(false);
    return false;
  }

  G1MerapiServeTask task(this);
  _cm->_concurrent_workers->run_task(&task, 1);

  if (_state == Failed) {
    VM_G1MerapiAbandon op;
    VMThread::execute(&op);
  }
  if (!_cm->has_aborted()) {
    _trace._end_nanos = os::javaTimeNanos();
    _trace._cpu_nanos += os::current_thread_cpu_time() - cpu;
    report_trace();
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

void G1MerapiMark::next_bitmap_cleared() {
  _window->readopt(next_bitmap());
}

// --------------------------------------------------------------- safepoints

void G1MerapiMark::pause() {
  assert_at_safepoint_on_vm_thread();
  if (_state == Device) {
    jlong start = os::javaTimeNanos();
    int result = G1MerapiLibrary::pause(_handle, 0);
    jlong waited = os::javaTimeNanos() - start;
    _trace._pauses++;
    _trace._pause_max_nanos = MAX2(_trace._pause_max_nanos, waited);
    log_debug(gc, merapi)("Pause acknowledged after %.1f us", waited / 1e3);
    if (result != 0) {
      fail("pause not acknowledged", "after %.1f ms: %s", waited / 1e6, os::strerror(-result));
    }
  }
  abandon_if_failed();
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

void G1MerapiMark::before_abort() {
  if (_state == Host) {
    return;
  }
  if (_state == Device && G1MerapiLibrary::abort(_handle, 0) != 0) {
    fail("abort not acknowledged", "by a full collection");
  }
  if (_state == Failed) {
    report_fallback(true);
    _window->revoke(next_bitmap());
    _mark_on_cpu = true;
  }
  _greys.clear();
  _state = Host;
}

void G1MerapiMark::revoke_and_abandon() {
  assert_at_safepoint_on_vm_thread();
  bool exiting = _cm->cm_thread()->should_terminate();
  if (!exiting) {
    report_fallback(true);
  }
  // The device is revoked first, so that nothing it does later reaches the
  // bitmap that the abort clears.
  _window->revoke(next_bitmap());
  _greys.clear();
  _state = Host;
  _trace._end_nanos = 0;
  _abandoned = true;
  _abandoned_full_gcs = _g1h->total_full_collections();
  _mark_on_cpu = true;
  _retry = !exiting;

  _g1h->abort_concurrent_cycle();

  // The collector's state, as the end of a full collection sets it.
  G1CollectorState* state = _g1h->collector_state();
  state->set_mark_or_rebuild_in_progress(false);
  state->set_clearing_next_bitmap(false);
  state->set_initiate_conc_mark_if_possible(!exiting);
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
