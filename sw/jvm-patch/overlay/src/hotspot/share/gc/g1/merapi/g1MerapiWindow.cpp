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
#include "gc/g1/g1CollectedHeap.inline.hpp"
#include "gc/g1/g1ConcurrentMark.hpp"
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
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
#include "runtime/safepoint.hpp"
#include "services/memTracker.hpp"
#include "utilities/align.hpp"
#include "utilities/formatBuffer.hpp"
#include "utilities/globalDefinitions.hpp"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
  _configured(false),
  _unanswered(false)
{
  for (int i = 0; i < 2; i++) {
    _bitmap_base[i] = NULL;
    _bitmap_size[i] = 0;
    _bitmap_private[i] = false;
    _place_freed[i] = false;
  }
}

static merapi_area bitmap_area(int which) {
  return which == 0 ? MERAPI_AREA_BITMAP0 : MERAPI_AREA_BITMAP1;
}

uint64_t G1MerapiWindow::area_offset(merapi_area area) const {
  return G1MerapiLibrary::layout_of(_window)->area[area].offset;
}

int G1MerapiWindow::map(uint64_t offset, size_t size, char* base) {
  int result = G1MerapiLibrary::map_fixed(_window, offset, size, base);
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
  if (start >= _heap_base && start < _heap_base + _heap_size) {
    return true;
  }
  for (int i = 0; i < 2; i++) {
    if (start >= _bitmap_base[i] && start < _bitmap_base[i] + _bitmap_size[i]) {
      return true;
    }
  }
  return false;
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
  result = self->map_bitmap(0);
  if (result == 0) {
    result = self->map_bitmap(1);
  }
  if (result != 0) {
    log_warning(gc, merapi)("Marking stays on the CPU: cannot map the mark bitmaps of window %s: %s", MerapiWindow,
                            os::strerror(-result));
    self->unmap_bitmaps();
    delete self;
    G1MerapiLibrary::close(window);
    return;
  }
  uint64_t offset = self->area_offset(MERAPI_AREA_HEAP);
  result = self->map(offset, heap.size(), heap.base());
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
               _bitmap_private[0] && _bitmap_private[1]   ? "; both bitmaps are private"
               : _bitmap_private[0] || _bitmap_private[1] ? "; one bitmap is private"
                                                          : "");
}

ReservedSpace G1MerapiWindow::heap_space(const ReservedSpace& heap) {
  if (_instance == NULL) {
    return heap;
  }
  return G1MerapiSpace(heap);
}

int G1MerapiWindow::map_bitmap(int which) {
  const merapi_area_desc* desc = &G1MerapiLibrary::layout_of(_window)->area[bitmap_area(which)];
  size_t mapped = align_up(G1CMBitMap::compute_size(_heap_size), (size_t)MERAPI_MAPPED_ALIGNMENT);
  ReservedSpace reserved(mapped, MERAPI_MAPPED_ALIGNMENT, os::vm_page_size());
  if (!reserved.is_reserved()) {
    return -ENOMEM;
  }
  _bitmap_base[which] = reserved.base();
  _bitmap_size[which] = mapped;
  int result = G1MerapiLibrary::zero(_window, desc->offset, desc->size);
  return result != 0 ? result : map(desc->offset, mapped, reserved.base());
}

void G1MerapiWindow::unmap_bitmaps() {
  for (int i = 0; i < 2; i++) {
    if (_bitmap_base[i] != NULL) {
      os::release_memory(_bitmap_base[i], _bitmap_size[i]);
    }
  }
}

G1RegionToSpaceMapper* G1MerapiWindow::bitmap_storage(int which, size_t size, size_t translation_factor) {
  if (_instance == NULL) {
    return NULL;
  }
  guarantee(size <= G1MerapiLibrary::layout_of(_instance->_window)->area[bitmap_area(which)].size,
            "bitmap area too small");
  G1MerapiSpace space(_instance->_bitmap_base[which], _instance->_bitmap_size[which]);
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
  log_info(gc, merapi)("Device %.*s (%s, process " UINT64_FORMAT ") answered generation " UINT64_FORMAT,
                       (int)sizeof(identity.name), (const char*)identity.name,
                       G1MerapiLibrary::kind_name(identity.kind), identity.pid,
                       G1MerapiLibrary::generation(_window));
  return true;
}

// Copies what G1 reads of the previous bitmap: of each region in use the marks
// below its previous limit. Above it every object is live and no bit is set or
// looked at; the bits of a region that is not in use are cleared when it comes
// into use, unless it never was, and then they are expected to be zero. All of
// them stay untouched pages of the new memory, and holes in the window stay
// holes: neither time nor memory follows the size of the reserved heap.
class G1MerapiCopyMarks : public HeapRegionClosure {
  const char* _from;
  char*       _to;
  char*       _heap_base;
public:
  G1MerapiCopyMarks(const char* from, char* to, char* heap_base) : _from(from), _to(to), _heap_base(heap_base) { }

  virtual bool do_heap_region(HeapRegion* region) {
    // Bytes of heap that a byte of the bitmap stands for; a region is a multiple of it.
    size_t factor = G1CMBitMap::heap_map_factor();
    size_t first = (size_t)((char*)region->bottom() - _heap_base);
    size_t limit = (size_t)((char*)region->prev_top_at_mark_start() - _heap_base);
    assert(is_aligned(first, factor), "regions share no byte of a bitmap");
    size_t begin = first / factor;
    size_t end = align_up(limit, factor) / factor;
    memcpy(_to + begin, _from + begin, end - begin);
    return false;
  }
};

// A file in memory; -1 if there can be none. Its pages count when they are first
// used. Where the system promises no more memory than it has, shared memory without
// a file counts as a whole when it is mapped, whatever MAP_NORESERVE says
// (vm.overcommit_memory=2).
static int memory_file(size_t size) {
  int file = ::memfd_create("merapi-bitmap", MFD_CLOEXEC);
  if (file >= 0 && ::ftruncate(file, (off_t)size) != 0) {
    ::close(file);
    return -1;
  }
  return file;
}

// New memory, at this place or, for NULL, anywhere. What was mapped at the place
// is replaced in one step, which needs no address space beside it. It is private
// in that nobody else has it. To the system it is shared memory, as the window's
// was: a private mapping is data of the process, of which there may be no more
// than so much (ulimit -d), and what bitmaps took of that, threads would lack.
static char* private_memory(char* place, size_t size) {
  int file = memory_file(size);
  int flags = MAP_SHARED | (place == NULL ? 0 : MAP_FIXED) | (file < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0);
  void* memory = ::mmap(place, size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (file >= 0) {
    ::close(file);
  }
  if (memory == MAP_FAILED) {
    return NULL;
  }
  ::madvise(memory, size, MADV_DONTFORK);
  return (char*)memory;
}

bool G1MerapiWindow::make_next_private(int which) {
  if (private_memory(_bitmap_base[which], _bitmap_size[which]) == NULL) {
    return false;
  }
  _bitmap_private[which] = true;
  _place_freed[which] = false;
  return true;
}

static void copy_marks(const char* from, char* to, char* heap_base) {
  G1MerapiCopyMarks copy(from, to, heap_base);
  G1CollectedHeap::heap()->heap_region_iterate(&copy);
}

bool G1MerapiWindow::make_previous_private(int which, char* clear) {
  size_t size = _bitmap_size[which];
  char* base = _bitmap_base[which];
  char* memory = private_memory(NULL, size);
  bool moved = false;
  if (memory != NULL) {
    // It is filled before it replaces the window's pages.
    copy_marks(base, memory, _heap_base);
    moved = ::mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, base) != MAP_FAILED;
  }
  if (!moved) {
    // No address space is left (ulimit -v), or hardly a mapping (vm.max_map_count), of which a move takes more than a
    // replacement: by way of the other bitmap, twice the work. Nobody reads either meanwhile.
    if (clear == NULL) {
      return false;
    }
    if (memory != NULL) {
      // What would not be moved may have left nothing at its destination.
      copy_marks(memory, clear, _heap_base);
      ::munmap(memory, size);
    } else {
      copy_marks(base, clear, _heap_base);
    }
    if (private_memory(base, size) == NULL) {
      return false;
    }
    copy_marks(clear, base, _heap_base);
    if (private_memory(clear, size) == NULL) {
      return false;
    }
  }
  _bitmap_private[which] = true;
  _place_freed[which] = false;
  return true;
}

int G1MerapiWindow::clear_place(int which) {
  merapi_area area = bitmap_area(which);
  return G1MerapiLibrary::zero(_window, area_offset(area), G1MerapiLibrary::layout_of(_window)->area[area].size);
}

void G1MerapiWindow::free_places() {
  // An expander's memory stays where it is, and to clear it here would be in vain.
  const char* transport = G1MerapiLibrary::transport_name(_window);
  if (strcmp(transport, "device") != 0 && strcmp(transport, "file") != 0) {
    return;
  }
  for (int which = 0; which < 2; which++) {
    if (_bitmap_private[which] && !_place_freed[which]) {
      // What goes wrong shows when the bitmap is to return.
      clear_place(which);
      _place_freed[which] = true;
    }
  }
}

bool G1MerapiWindow::revoke(int next) {
  assert(SafepointSynchronize::is_at_safepoint(), "bitmaps change under nobody");
  G1MerapiLibrary::revoke(_window);
  int previous = 1 - next;
  assert(_bitmap_size[next] == _bitmap_size[previous], "one takes in the other's marks");
  bool dropped = !_bitmap_private[next];
  if ((dropped && !make_next_private(next)) ||
      (!_bitmap_private[previous] && !make_previous_private(previous, dropped ? _bitmap_base[next] : NULL))) {
    vm_exit_out_of_memory(_bitmap_size[next], OOM_MMAP_ERROR, "private mark bitmap after a device failure");
  }
  return dropped;
}

bool G1MerapiWindow::prepare_return(int which) {
  merapi_error error;
  if (!ensure_attached(&error)) {
    log_debug(gc, merapi)("The next bitmap stays private: %s", error.message);
    free_places();
    return false;
  }
  // The device has answered a new generation and holds no cycle: it writes no
  // bitmap, so the window's pages can be cleared and shown again.
  int result = clear_place(which);
  if (result != 0) {
    log_warning(gc, merapi)("The next bitmap stays private: %s", os::strerror(-result));
    return false;
  }
  return true;
}

void G1MerapiWindow::return_bitmap(int which) {
  int result = map(area_offset(bitmap_area(which)), _bitmap_size[which], _bitmap_base[which]);
  if (result != 0) {
    log_warning(gc, merapi)("The next bitmap stays private: %s", os::strerror(-result));
    // A mapping that failed may have left nothing in its place. The bitmap is all clear, as new memory is.
    if (private_memory(_bitmap_base[which], _bitmap_size[which]) == NULL) {
      vm_exit_out_of_memory(_bitmap_size[which], OOM_MMAP_ERROR, "private mark bitmap that cannot return to the window");
    }
    return;
  }
  _bitmap_private[which] = false;
  log_info(gc, merapi)("Bitmap %d is in the window again", which);
}
