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
#include "classfile/javaClasses.hpp"
#include "gc/g1/g1RegionToSpaceMapper.hpp"
#include "gc/g1/heapRegion.hpp"
#include "gc/g1/merapi/g1MerapiAdvice.hpp"
#include "gc/g1/merapi/g1MerapiWindow.hpp"
#include "logging/log.hpp"
#include "oops/arrayOop.hpp"
#include "oops/compressedOops.hpp"
#include "runtime/globals.hpp"
#include "runtime/java.hpp"
#include "runtime/os.hpp"
#include "services/memTracker.hpp"
#include "utilities/align.hpp"
#include "utilities/formatBuffer.hpp"
#include "utilities/globalDefinitions.hpp"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

// How long a handshake may take before the cycle is marked on the CPU. A simulated tracer on a busy machine takes its
// time; one that has not answered may be stopped, and costs each later cycle less.
static const uint64_t HandshakeMicros = 500 * 1000;
static const uint64_t HandshakeAgainMicros = 100 * 1000;

G1MerapiWindow* G1MerapiWindow::_instance = NULL;

// A reservation whose memory is already there, in the window's pages whatever it was reserved for.
class G1MerapiSpace : public ReservedSpace {
public:
  G1MerapiSpace(char* base, size_t size) {
    initialize_members(base, size, MERAPI_MAPPED_ALIGNMENT, os::vm_page_size(), true /* special */, false /* executable */);
  }
  G1MerapiSpace(const ReservedSpace& reserved) : ReservedSpace(reserved) {
    _special = true;
    _page_size = os::vm_page_size();
  }
};

G1MerapiWindow::G1MerapiWindow(merapi_window* window, const ReservedSpace& heap) :
  _window(window),
  _heap_base(heap.base()),
  _heap_size(heap.size()),
  _bitmaps(window, heap.base(), heap.size()),
  _configured(false),
  _unanswered(false)
{ }

int G1MerapiWindow::map(merapi_window* window, uint64_t offset, size_t size, char* base) {
  int result = G1MerapiLibrary::map_fixed(window, offset, size, base);
  if (result != 0) {
    return result;
  }
  // A child that native code forks would write into the heap of its parent, which
  // goes on: a private heap becomes a copy there, a shared one does not.
  if (::madvise(base, size, MADV_DONTFORK) != 0) {
    log_debug(gc, merapi)("Processes forked from this one share its heap: %s", os::strerror(errno));
  }
  if (UseTransparentHugePages) {
    // As os::realign_memory does for memory that is committed.
    ::madvise(base, size, MADV_HUGEPAGE);
  }
  return 0;
}

bool G1MerapiWindow::contains(const char* start) const {
  return (start >= _heap_base && start < _heap_base + _heap_size) || _bitmaps.contains(start);
}

void G1MerapiWindow::note_committed(char* start, size_t size) {
  if (_instance != NULL && _instance->contains(start)) {
    MemTracker::record_virtual_memory_commit(start, size, CALLER_PC);
  }
}

void G1MerapiWindow::note_uncommitted(char* start, size_t size) {
  if (_instance == NULL || !_instance->contains(start)) {
    return;
  }
  if (MemTracker::enabled()) {
    Tracker tracker(Tracker::uncommit);
    tracker.record((address)start, size);
  }
  // No object is there that a tracer would follow a reference to or mark: such a
  // region's limit is its start. Memory of an expander stays where it is.
  if (::madvise(start, size, MADV_REMOVE) != 0) {
    log_trace(gc, merapi)("What is uncommitted stays in memory: %s", os::strerror(errno));
  }
}

void G1MerapiWindow::initialize(const ReservedSpace& heap) {
  if (MerapiWindow == NULL) {
    return;
  }
  char reason[512];
  if (!G1MerapiLibrary::load(reason, sizeof(reason))) {
    log_warning(gc, merapi)("Marking stays on the CPU: %s", reason);
    return;
  }
  if (!is_aligned(heap.base(), MERAPI_MAPPED_ALIGNMENT) || !is_aligned(heap.size(), os::vm_page_size())) {
    log_warning(gc, merapi)("Marking stays on the CPU: expected a heap aligned to %u bytes, found it at " PTR_FORMAT,
                            MERAPI_MAPPED_ALIGNMENT, p2i(heap.base()));
    return;
  }

  merapi_geometry geometry;
  memset(&geometry, 0, sizeof(geometry));
  geometry.heap_bytes = heap.size();
  geometry.region_log2 = (uint8_t)HeapRegion::LogOfHRGrainBytes;
  geometry.alignment_log2 = (uint8_t)LogMinObjAlignmentInBytes;

  merapi_error error;
  merapi_window* window = NULL;
  int result = G1MerapiLibrary::open(MerapiWindow, &geometry, MERAPI_OPEN_FORMAT, &window, &error);
  if (result != 0) {
    log_warning(gc, merapi)("Marking stays on the CPU: cannot open window %s: %s", MerapiWindow, error.message);
    return;
  }
  G1MerapiWindow* self = new G1MerapiWindow(window, heap);
  // First the bitmaps: the heap's reservation is untouched as long as there may be none.
  result = self->_bitmaps.map();
  if (result != 0) {
    log_warning(gc, merapi)("Marking stays on the CPU: cannot map the mark bitmaps of window %s: %s", MerapiWindow,
                            os::strerror(-result));
    delete self;
    G1MerapiLibrary::close(window);
    return;
  }
  uint64_t offset = G1MerapiLibrary::layout_of(window)->area[MERAPI_AREA_HEAP].offset;
  result = map(window, offset, heap.size(), heap.base());
  if (result != 0) {
    // The reservation may be damaged now: there is no heap to go on with.
    vm_exit_during_initialization(err_msg("Could not map the heap at offset " UINT64_FORMAT " of window %s: %s",
                                          offset, MerapiWindow, os::strerror(-result)));
  }
  G1MerapiAdvice::tell(MerapiWindow, G1MerapiLibrary::transport_name(window),
                       G1MerapiLibrary::layout_of(window)->window_bytes);
  if (AllocateHeapAt != NULL) {
    log_warning(gc, merapi)("AllocateHeapAt is ignored: the heap is in window %s", MerapiWindow);
  }
  _instance = self;
  log_info(gc, merapi)("Window %s: " UINT64_FORMAT " bytes, heap at offset " UINT64_FORMAT " mapped at " PTR_FORMAT,
                       MerapiWindow, G1MerapiLibrary::window_bytes(window), offset, p2i(heap.base()));
}

void G1MerapiWindow::print_on(outputStream* st) const {
  st->print_cr(" %-20s total " UINT64_FORMAT "K, %s", "merapi window", G1MerapiLibrary::window_bytes(_window) / K,
               MerapiWindow);
  if (!G1MerapiLibrary::attached(_window)) {
    st->print("  no device");
  } else {
    merapi_device_identity identity;
    G1MerapiLibrary::device_info(_window, &identity);
    st->print("  device %.*s (%s, process " UINT64_FORMAT ")", (int)sizeof(identity.name), (const char*)identity.name,
              G1MerapiLibrary::kind_name(identity.kind), identity.pid);
  }
  st->print_cr(", generation " UINT64_FORMAT "%s", G1MerapiLibrary::generation(_window),
               is_private(0) && is_private(1)   ? "; both bitmaps are private"
               : is_private(0) || is_private(1) ? "; one bitmap is private"
                                                : "");
}

ReservedSpace G1MerapiWindow::heap_space(const ReservedSpace& heap) {
  if (_instance == NULL) {
    return heap;
  }
  return G1MerapiSpace(heap);
}

G1RegionToSpaceMapper* G1MerapiWindow::bitmap_storage(int which, size_t size, size_t translation_factor) {
  if (_instance == NULL) {
    return NULL;
  }
  const G1MerapiBitmaps& bitmaps = _instance->_bitmaps;
  guarantee(size <= bitmaps.capacity(which), "bitmap area too small");
  G1MerapiSpace space(bitmaps.base(which), bitmaps.size(which));
  // As G1CollectedHeap::create_aux_memory_mapper says it; the window decides on pages.
  os::trace_page_sizes_for_requested_size(which == 0 ? "Prev Bitmap" : "Next Bitmap", size, os::vm_page_size(),
                                          os::vm_page_size(), space.base(), space.size());
  return G1RegionToSpaceMapper::create_mapper(space, size, os::vm_page_size(), HeapRegion::GrainBytes,
                                              translation_factor, mtGC);
}

bool G1MerapiWindow::ensure_configured(merapi_error* error) {
  if (_configured) {
    return true;
  }
  merapi_config config;
  memset(&config, 0, sizeof(config));
  config.heap_base = (uint64_t)_heap_base;
  config.narrow_oop_base = UseCompressedOops ? (uint64_t)CompressedOops::base() : 0;
  config.narrow_oop_shift = (uint8_t)(UseCompressedOops ? CompressedOops::shift() : 0);
  config.oop_bytes = (uint8_t)heapOopSize;
  config.klass_bytes = (uint8_t)(UseCompressedClassPointers ? sizeof(narrowKlass) : sizeof(Klass*));
  config.alignment_log2 = (uint8_t)LogMinObjAlignmentInBytes;
  config.region_log2 = (uint8_t)HeapRegion::LogOfHRGrainBytes;
  config.coherence = MERAPI_COHERENCE_COHERENT;
  config.mirror_size_offset = (uint32_t)java_lang_Class::oop_size_offset();
  config.region_count = (uint32_t)(_heap_size >> HeapRegion::LogOfHRGrainBytes);
  assert(oopDesc::klass_offset_in_bytes() == 8, "the contract fixes the klass word's offset");
  assert(arrayOopDesc::length_offset_in_bytes() == 8 + config.klass_bytes, "the length follows the klass word");
  _configured = G1MerapiLibrary::configure(_window, &config, error) == 0;
  return _configured;
}

bool G1MerapiWindow::ensure_attached(merapi_error* error) {
  error->message[0] = '\0';
  if (!ensure_configured(error)) {
    return false;
  }
  if (G1MerapiLibrary::attached(_window)) {
    if (!G1MerapiLibrary::device_gone(_window)) {
      return true;
    }
    G1MerapiLibrary::revoke(_window);
  }
  int result = G1MerapiLibrary::attach(_window, _unanswered ? HandshakeAgainMicros : HandshakeMicros, error);
  _unanswered = result == -ETIMEDOUT;
  if (result != 0) {
    return false;
  }
  merapi_device_identity identity;
  G1MerapiLibrary::device_info(_window, &identity);
  if ((identity.capabilities & (1u << MERAPI_CAP_SCOPE_HEAP)) == 0) {
    jio_snprintf(error->message, sizeof(error->message), "expected a device that traces through the whole heap "
                 "(capability SCOPE_HEAP), found %.*s with capabilities " UINT64_FORMAT_X "; use another device",
                 (int)sizeof(identity.name), (const char*)identity.name, identity.capabilities);
    G1MerapiLibrary::revoke(_window);
    return false;
  }
  log_info(gc, merapi)("Device %.*s (%s, process " UINT64_FORMAT ") answered generation " UINT64_FORMAT,
                       (int)sizeof(identity.name), (const char*)identity.name,
                       G1MerapiLibrary::kind_name(identity.kind), identity.pid,
                       G1MerapiLibrary::generation(_window));
  return true;
}

bool G1MerapiWindow::revoke(int next) {
  G1MerapiLibrary::revoke(_window);
  return _bitmaps.leave(next);
}

bool G1MerapiWindow::prepare_return(int which) {
  merapi_error error;
  if (!ensure_attached(&error)) {
    log_debug(gc, merapi)("The next bitmap stays private: %s", error.message);
    _bitmaps.free_places();
    return false;
  }
  return prepare_return_now(which);
}

bool G1MerapiWindow::prepare_return_now(int which) {
  if (!G1MerapiLibrary::attached(_window) || G1MerapiLibrary::device_gone(_window)) {
    return false;
  }
  // The device has answered a new generation and holds no cycle: it writes no
  // bitmap, so the window's pages can be cleared and shown again.
  int result = _bitmaps.clear_place(which);
  if (result != 0) {
    log_warning(gc, merapi)("The next bitmap stays private: %s", os::strerror(-result));
    return false;
  }
  return true;
}
