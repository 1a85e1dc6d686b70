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
#include "gc/g1/g1ConcurrentMarkBitMap.inline.hpp"
#include "gc/g1/heapRegion.hpp"
#include "gc/g1/merapi/g1MerapiBitmaps.hpp"
#include "gc/g1/merapi/g1MerapiWindow.hpp"
#include "logging/log.hpp"
#include "memory/virtualspace.hpp"
#include "runtime/os.hpp"
#include "runtime/safepoint.hpp"
#include "utilities/align.hpp"
#include "utilities/debug.hpp"
#include "utilities/globalDefinitions.hpp"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

G1MerapiBitmaps::G1MerapiBitmaps(merapi_window* window, char* heap_base, size_t heap_size) :
  _window(window),
  _heap_base(heap_base),
  _heap_size(heap_size)
{
  for (int i = 0; i < 2; i++) {
    _base[i] = NULL;
    _size[i] = 0;
    _private[i] = false;
    _place_freed[i] = false;
  }
}

const merapi_area_desc* G1MerapiBitmaps::area(int which) const {
  return &G1MerapiLibrary::layout_of(_window)->area[which == 0 ? MERAPI_AREA_BITMAP0 : MERAPI_AREA_BITMAP1];
}

int G1MerapiBitmaps::map(int which) {
  size_t mapped = align_up(G1CMBitMap::compute_size(_heap_size), (size_t)MERAPI_MAPPED_ALIGNMENT);
  ReservedSpace reserved(mapped, MERAPI_MAPPED_ALIGNMENT, os::vm_page_size());
  if (!reserved.is_reserved()) {
    return -ENOMEM;
  }
  _base[which] = reserved.base();
  _size[which] = mapped;
  int result = clear_place(which);
  return result != 0 ? result : G1MerapiWindow::map(_window, area(which)->offset, mapped, _base[which]);
}

int G1MerapiBitmaps::map() {
  int result = map(0);
  if (result == 0) {
    result = map(1);
  }
  if (result != 0) {
    for (int i = 0; i < 2; i++) {
      if (_base[i] != NULL) {
        os::release_memory(_base[i], _size[i]);
        _base[i] = NULL;
        _size[i] = 0;
      }
    }
  }
  return result;
}

bool G1MerapiBitmaps::contains(const char* start) const {
  for (int i = 0; i < 2; i++) {
    if (start >= _base[i] && start < _base[i] + _size[i]) {
      return true;
    }
  }
  return false;
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

bool G1MerapiBitmaps::make_next_private(int which) {
  if (private_memory(_base[which], _size[which]) == NULL) {
    return false;
  }
  _private[which] = true;
  _place_freed[which] = false;
  return true;
}

static void copy_marks(const char* from, char* to, char* heap_base) {
  G1MerapiCopyMarks copy(from, to, heap_base);
  G1CollectedHeap::heap()->heap_region_iterate(&copy);
}

bool G1MerapiBitmaps::make_previous_private(int which, char* clear) {
  size_t size = _size[which];
  char* base = _base[which];
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
  _private[which] = true;
  _place_freed[which] = false;
  return true;
}

bool G1MerapiBitmaps::leave(int next) {
  assert(SafepointSynchronize::is_at_safepoint(), "bitmaps change under nobody");
  int previous = 1 - next;
  assert(_size[next] == _size[previous], "one takes in the other's marks");
  bool dropped = !_private[next];
  if ((dropped && !make_next_private(next)) ||
      (!_private[previous] && !make_previous_private(previous, dropped ? _base[next] : NULL))) {
    vm_exit_out_of_memory(_size[next], OOM_MMAP_ERROR, "private mark bitmap after a device failure");
  }
  return dropped;
}

int G1MerapiBitmaps::clear_place(int which) {
  return G1MerapiLibrary::zero(_window, area(which)->offset, area(which)->size);
}

void G1MerapiBitmaps::free_places() {
  // An expander's memory stays where it is, and to clear it here would be in vain.
  const char* transport = G1MerapiLibrary::transport_name(_window);
  if (strcmp(transport, "device") != 0 && strcmp(transport, "file") != 0) {
    return;
  }
  for (int which = 0; which < 2; which++) {
    if (_private[which] && !_place_freed[which]) {
      // What goes wrong shows when the bitmap is to return.
      clear_place(which);
      _place_freed[which] = true;
    }
  }
}

void G1MerapiBitmaps::return_bitmap(int which) {
  int result = G1MerapiWindow::map(_window, area(which)->offset, _size[which], _base[which]);
  if (result != 0) {
    log_warning(gc, merapi)("The next bitmap stays private: %s", os::strerror(-result));
    // A mapping that failed may have left nothing in its place. The bitmap is all clear, as new memory is.
    if (private_memory(_base[which], _size[which]) == NULL) {
      vm_exit_out_of_memory(_size[which], OOM_MMAP_ERROR, "private mark bitmap that cannot return to the window");
    }
    return;
  }
  _private[which] = false;
  log_info(gc, merapi)("Bitmap %d is in the window again", which);
}
