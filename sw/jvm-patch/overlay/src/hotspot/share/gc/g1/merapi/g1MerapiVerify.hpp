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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPIVERIFY_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPIVERIFY_HPP

#include "memory/allocation.hpp"

class G1CollectedHeap;
class G1ConcurrentMark;

// -XX:+MerapiVerify: checks the marking that remark has just finished, before
// anything is freed by it (weak references, classes and regions are untouched).
//  (a) Everything that is strongly reachable now and lies below its region's
//      limit is marked ("missed" counts what is not).
//  (b) For every marked object, floating ones included, what it strongly
//      references and the holder of its klass are marked or above the limits
//      ("incomplete"), and the sizes of a region's marked objects add up to its
//      live words ("live_mismatch" counts regions).
// "floating" counts marked objects that (a) did not reach.
class G1MerapiVerify : AllStatic {
public:
  // At the remark pause, after finalize_marking and with task caches flushed. Logs the
  // result and returns whether (a) and (b) hold. Without memory to verify in, it
  // warns and takes them to hold.
  static bool verify(G1CollectedHeap* g1h, G1ConcurrentMark* cm,
                     size_t* missed, size_t* incomplete, size_t* live_mismatch);
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPIVERIFY_HPP
