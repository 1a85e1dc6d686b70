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

#ifndef SHARE_GC_G1_MERAPI_G1MERAPITRACE_HPP
#define SHARE_GC_G1_MERAPI_G1MERAPITRACE_HPP

#include "memory/allocation.hpp"
#include "utilities/ticks.hpp"

struct merapi_window;

// What one offloaded cycle did, and how it is told: a line of the log tag
// gc+merapi (JSON after the first word) and a JFR event.
struct G1MerapiTrace {
  uint32_t _cycle;
  uint     _gc_id;           // of the concurrent cycle, whoever reports it
  size_t   _shapes;
  size_t   _satb;            // references taken from SATB buffers
  size_t   _deferred;        // objects left to the host
  size_t   _ahead;           // References that the host scanned before they were left to it
  size_t   _pauses;
  jlong    _pause_max_nanos;  // longest wait for an acknowledgement
  Ticks    _start_ticks;
  jlong    _start_nanos;     // hand-over
  jlong    _end_nanos;       // hand-back
  jlong    _cpu_nanos;       // host threads, between hand-over and hand-back

  // The cycle was handed back. `greys` is the number of references that the host
  // submitted; what the device did is read from its counters in the window.
  void report(merapi_window* window, size_t greys) const;
  // The device was given up, for `reason`; `abandoned` if the bitmap was its own by then.
  void report_fallback(const char* reason, const char* detail, bool abandoned) const;

private:
  struct DeviceWork {
    const char* _device;
    size_t      _objects;
    size_t      _references;
    size_t      _live_bytes;
    size_t      _deferred;
    jlong       _nanos;
  };
  void send_event(const DeviceWork& work, const char* fallback_reason) const;
};

#endif // SHARE_GC_G1_MERAPI_G1MERAPITRACE_HPP
