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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPITURN_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPITURN_HPP

#include "gc/shared/gcId.hpp"
#include "memory/allocation.hpp"
#include "utilities/globalDefinitions.hpp"

// Whether the next marking is the device's or the CPU's.
//
// The one that replaces an abandoned cycle is the CPU's. When a device fails
// again before it has completed one, the next 2 are, then 4 and so on: each
// failure costs a marking. So are some when a device was outrun: the heap was
// full before it was done. That is no failure, but a device that is always
// outrun would let no marking finish. From the second time on they are 1, then
// 2, 4 and so on, until it completes one. Where the heap is full soon after a
// marking began, so that one on the CPU may be ended, too, some of these make
// one.
//
// All of this is by cycle. One whose remark pause had no room in the mark stack
// marks again, and stays the CPU's if it was.
class G1MerapiTurn {
  // The most of them.
  static const uint MostSkipped = 16;
  static const uint SoonForOne = 8;

  bool _replaces;
  uint _abandoned;       // the CPU's when the last cycle was abandoned; 0 when a device has completed one since
  uint _next_skipped;    // when the device is next outrun
  uint _skipped_left;
  uint _outrun_soon;
  enum Marker { Nobody, Device, Cpu, Markers };
  uint   _gc_id;                // of the newest cycle
  Marker _marker;               // and who has marked it
  uint   _cycles[Markers];

  // Each cycle counts once, for the last of those that marked it.
  void count(Marker marker) {
    _cycles[_marker]--;
    _cycles[marker]++;
    _marker = marker;
  }

public:
  G1MerapiTurn() :
    _replaces(false), _abandoned(0), _next_skipped(0), _skipped_left(0), _outrun_soon(0), _gc_id(GCId::undefined()),
    _marker(Nobody), _cycles() { }

  // A marking begins: is it the device's?
  bool take(uint gc_id) {
    if (gc_id == _gc_id) {
      return _marker != Cpu;
    }
    if (_marker == Device && !_replaces) {
      _abandoned = 0;  // it has handed the last cycle back, and remark found nothing wrong
    }
    _gc_id = gc_id;
    _marker = Nobody;
    _cycles[Nobody]++;
    if (_replaces) {
      _replaces = false;
    } else if (_skipped_left > 0) {
      _skipped_left--;
    } else {
      return true;
    }
    count(Cpu);
    return false;
  }
  // It was to be the device's, and there is none.
  void note_no_device() { count(Cpu); }
  // The device has handed it back.
  void note_done() {
    _next_skipped = 0;
    _outrun_soon = 0;
    count(Device);
  }
  // The cycle is abandoned, and the next one replaces it. Returns how many of the next
  // markings are the CPU's.
  uint note_abandoned() {
    _replaces = true;
    _abandoned = clamp(2 * _abandoned, 1u, MostSkipped);
    _skipped_left = MAX2(_skipped_left, _abandoned - 1);
    return _abandoned;
  }
  // The heap was full before the device was done. Returns how many of the next markings are the CPU's.
  uint note_outrun(bool soon) {
    if (soon && ++_outrun_soon < SoonForOne) {
      return 0;
    }
    _outrun_soon = 0;
    _skipped_left = _next_skipped;
    _next_skipped = clamp(2 * _next_skipped, 1u, MostSkipped);
    return _skipped_left;
  }

  bool next_replaces() const { return _replaces; }
  uint on_device() const { return _cycles[Device]; }
  uint on_cpu() const { return _cycles[Cpu]; }
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPITURN_HPP
