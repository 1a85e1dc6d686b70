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
#include "gc/g1/merapi/g1MerapiDecimal.hpp"
#include "gc/g1/merapi/g1MerapiLibrary.hpp"
#include "gc/g1/merapi/g1MerapiTrace.hpp"
#include "jfr/jfrEvents.hpp"
#include "logging/log.hpp"

void G1MerapiTrace::send_event(const DeviceWork& work, const char* fallback_reason) const {
  EventMerapiTrace event(UNTIMED);
  if (event.should_commit()) {
    event.set_starttime(_start_ticks);
    event.set_endtime(Ticks::now());
    event.set_gcId(_gc_id);
    event.set_device(work._device);
    event.set_objects(work._objects);
    event.set_references(work._references);
    event.set_liveBytes(work._live_bytes);
    event.set_deferred(work._deferred);
    event.set_deviceTime(work._nanos);
    event.set_hostTime(_cpu_nanos);
    event.set_fallbackReason(fallback_reason);
    event.commit();
  }
}

// How many bytes the character there has in UTF-8; 0 for one that is cut off, or of another encoding.
static int utf8_length(const unsigned char* c) {
  int length = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
  for (int i = 1; i < length; i++) {
    if ((c[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  return length;
}

// Messages are plain text, of whatever locale, and may have been cut; keep the JSON line whole.
static void make_plain(char* text) {
  for (unsigned char* c = (unsigned char*)text; *c != '\0'; ) {
    int length = utf8_length(c);
    if (length == 0) {
      *c = '?';
    } else if (*c == '"' || *c == '\\' || *c < ' ') {
      *c = '\'';
    }
    c += MAX2(length, 1);
  }
}

void G1MerapiTrace::report_fallback(const char* reason, const char* detail, bool abandoned) const {
  char plain[sizeof(merapi_error)];
  jio_snprintf(plain, sizeof(plain), "%s", detail);
  make_plain(plain);
  log_warning(gc, merapi)("Fallback {\"reason\":\"%s\",\"detail\":\"%s\",\"abandoned\":%s,\"gc_id\":%u}",
                          reason, plain, abandoned ? "true" : "false", _gc_id);
  DeviceWork none = { "none", 0, 0, 0, 0, 0 };
  send_event(none, reason);
}

void G1MerapiTrace::report(merapi_window* window, size_t greys) const {
  merapi_device_identity identity;
  G1MerapiLibrary::device_info(window, &identity);
  DeviceWork work;
  work._device     = G1MerapiLibrary::kind_name(identity.kind);
  work._objects    = G1MerapiLibrary::counter(window, MERAPI_COUNTER_OBJECTS_MARKED);
  work._references = G1MerapiLibrary::counter(window, MERAPI_COUNTER_REFERENCES_READ);
  work._live_bytes = G1MerapiLibrary::counter(window, MERAPI_COUNTER_LIVE_WORDS) * HeapWordSize;
  work._deferred   = _deferred;
  work._nanos      = (jlong)G1MerapiLibrary::counter(window, MERAPI_COUNTER_NANOSECONDS);
  jlong  cpu       = (jlong)G1MerapiLibrary::counter(window, MERAPI_COUNTER_CPU_NANOSECONDS);
  size_t cycles    = G1MerapiLibrary::counter(window, MERAPI_COUNTER_CYCLES);

  log_info(gc, merapi)("Trace {\"cycle\":%u,\"gc_id\":%u,\"device\":\"%s\",\"objects\":" SIZE_FORMAT
                       ",\"references\":" SIZE_FORMAT ",\"live_bytes\":" SIZE_FORMAT ",\"deferred\":" SIZE_FORMAT
                       ",\"ahead\":" SIZE_FORMAT ",\"shapes\":" SIZE_FORMAT ",\"satb\":" SIZE_FORMAT
                       ",\"greys\":" SIZE_FORMAT ",\"pauses\":" SIZE_FORMAT ",\"pause_us_max\":%s"
                       ",\"device_ms\":%s,\"device_cpu_ms\":%s,\"device_cycles\":" SIZE_FORMAT
                       ",\"concurrent_ms\":%s,\"host_cpu_ms\":%s,\"fallback\":null}",
                       _cycle, _gc_id, work._device, work._objects, work._references, work._live_bytes, _deferred,
                       _ahead, _shapes, _satb, greys, _pauses, G1MerapiDecimal::micros(_pause_max_nanos).text(),
                       G1MerapiDecimal::millis(work._nanos).text(), G1MerapiDecimal::millis(cpu).text(), cycles,
                       G1MerapiDecimal::millis(_end_nanos - _start_nanos).text(),
                       G1MerapiDecimal::millis(_cpu_nanos).text());
  send_event(work, NULL);
}
