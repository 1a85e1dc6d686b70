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
#include "gc/g1/g1Policy.hpp"
#include "gc/g1/g1VMOperations.hpp"
#include "gc/g1/merapi/g1MerapiRetry.hpp"
#include "runtime/atomic.hpp"
#include "runtime/mutexLocker.hpp"
#include "runtime/vmThread.hpp"

void G1MerapiRetryTask::request(G1ServiceThread* thread) {
  if (Atomic::xchg(&_wanted, 1) != 0) {
    return;
  }
  // Not before: registering puts a task into the queue, where no other may put it
  // a second time.
  if (_registered) {
    thread->schedule_task(this, 0);
  } else {
    _registered = true;
    thread->register_task(this);
  }
}

void G1MerapiRetryTask::execute() {
  // Taken before it is done: a request that comes meanwhile is of a later cycle.
  if (Atomic::xchg(&_wanted, 0) == 0) {
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
  if (op.transient_failure() && Atomic::xchg(&_wanted, 1) == 0) {
    schedule(10);
  }
}
