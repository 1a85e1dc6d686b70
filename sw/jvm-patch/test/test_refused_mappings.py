# SPDX-License-Identifier: Apache-2.0
"""What the system may refuse: mappings of a window that is opened, memory for the bitmaps when a device has failed, and
mappings of the window when they return to it."""

import subprocess

import jvm_harness
import pytest
import rogue_runs
from fault_runs import MIB, SHORT_PROGRAM, on_the_cpu, said

# What the JVM maps for itself is not shared, or is no file, or one from its beginning on.
REFUSING = r"""
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t given(const char* name) {
  const char* text = getenv(name);
  return text ? strtoul(text, 0, 0) : 0;
}

static void* refused(void) {
  errno = ENOMEM;
  return MAP_FAILED;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static size_t seen;
  if ((flags & MAP_SHARED) && (flags & MAP_FIXED) && offset > 0 && bytes == given("REFUSED_OF_WINDOW") &&
      ++seen == given("REFUSED_NUMBER")) {
    munmap(address, bytes);
    return refused();
  }
  const size_t most = given("MOST_WITHOUT_FILE");
  if (most && (flags & MAP_SHARED) && (flags & MAP_ANONYMOUS) && bytes > most) return refused();
  return (void*)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}

int memfd_create(const char* name, unsigned flags) {
  static size_t seen;
  const size_t most = given("MOST_FILES");
  if (most && ++seen > most) {
    errno = EMFILE;
    return -1;
  }
  return (int)syscall(SYS_memfd_create, name, flags);
}

void* mremap(void* old, size_t old_bytes, size_t bytes, int flags, ...) {
  va_list more;
  va_start(more, flags);
  void* address = flags & MREMAP_FIXED ? va_arg(more, void*) : 0;
  va_end(more);
  if (address && given("NO_MOVES")) {
    munmap(address, bytes);
    return refused();
  }
  return (void*)syscall(SYS_mremap, old, old_bytes, bytes, flags, address);
}
"""


@pytest.fixture
def refusing(tmp_path, monkeypatch):
    """refusing(NAME=number, ...): what is refused to programs that are started from then on.

    REFUSED_OF_WINDOW, REFUSED_NUMBER: of the mappings of that many bytes of a window that are to lie somewhere, that
    one; what was there is gone, as it may be. MOST_WITHOUT_FILE: shared mappings of more bytes that are of no file.
    MOST_FILES: files in memory, but for so many. NO_MOVES: to move a mapping to a given place; what was there is gone.
    """
    library = tmp_path / "refusing.so"
    compiler = ["cc", "-x", "c", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, "-"]
    subprocess.run(compiler, input=REFUSING, text=True, check=True, timeout=60)

    def arrange(**numbers):
        monkeypatch.setenv("LD_PRELOAD", str(library))
        for name, number in numbers.items():
            monkeypatch.setenv(name, str(number))

    return arrange


# ----------------------------------------------------------- a window is opened


# Of a heap of 128 MiB a bitmap has 2 MiB.
BITMAP = 2 * MIB


@pytest.mark.parametrize("number", [1, 2])
def test_bitmaps_that_cannot_be_mapped(number, start, device, refusing):
    """The window is given up before its heap is mapped, whichever of the two it is."""
    refusing(REFUSED_OF_WINDOW=BITMAP, REFUSED_NUMBER=number)
    result = start(f"device:{device.socket}", *SHORT_PROGRAM).finish(60)
    on_the_cpu(result, 5)
    said(result, "Marking stays on the CPU: cannot map the mark bitmaps of window", "Not enough space")
    assert not result.log.fallbacks, result.describe("expected a JVM without a window")


def test_a_heap_that_cannot_be_mapped(start, device, refusing):
    """A mapping that failed may have left a hole in the heap's reservation: there is nothing to go on with."""
    refusing(REFUSED_OF_WINDOW=128 * MIB, REFUSED_NUMBER=1)
    result = start(f"device:{device.socket}", *SHORT_PROGRAM).finish(60)
    told = "Could not map the heap at offset" in result.output
    assert result.status == 1 and told, result.describe("expected an error")


# ------------------------------------------------------------ a device has failed

MODE = "garbage-bytes"
# The previous bitmap's marks are judged by G1 before each collection.
FLAGS = ["-XX:G1HeapRegionSize=1m", "-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifyBeforeGC"]


def beside_a_failure(java, rogue_program, classes, runs, tmp_path, most=128):
    """A program whose device goes wrong in its third cycle, which costs that cycle and no more."""
    with rogue_runs.rogue(rogue_program, tmp_path, MODE, "--from-cycle", "3") as device:
        given = [*FLAGS, "-Xms128m", f"-Xmx{most}m", "count=1500", "cycles=10"]
        result = rogue_runs.start(runs, java, device, classes, tmp_path, given=given).finish(90)
        rogue_runs.check_told(result, device, MODE, rogue_runs.BAD, abandoned=True)
    rogue_runs.check_used_again(result)
    jvm_harness.check_verified(result)
    return result


def test_bitmaps_do_not_count_as_a_whole(java, rogue_program, classes, runs, tmp_path, refusing):
    """Where the system promises no more memory than it has, what is shared and no file counts as a whole. Of a heap
    that is reserved and not in use that were two bitmaps of 256 MiB."""
    refusing(MOST_WITHOUT_FILE=64 * MIB)
    beside_a_failure(java, rogue_program, classes, runs, tmp_path, most=16 << 10)


def test_bitmaps_without_files(java, rogue_program, classes, runs, tmp_path, refusing):
    """Where there can be no more of them (ulimit -n) the system is asked for shared memory without."""
    refusing(MOST_FILES=1)  # the window
    beside_a_failure(java, rogue_program, classes, runs, tmp_path)


def test_a_bitmap_that_cannot_be_moved(java, rogue_program, classes, runs, tmp_path, refusing):
    """A process that has nearly all the mappings that it may have (vm.max_map_count) can replace one and move none."""
    refusing(NO_MOVES=1)
    beside_a_failure(java, rogue_program, classes, runs, tmp_path)


# ------------------------------------------------- a bitmap returns to the window


def test_a_bitmap_that_cannot_return(java, rogue_program, classes, runs, tmp_path, refusing):
    """A mapping that failed may have left a hole where the private bitmap was: it gets new memory, in which the CPU
    marks, and returns another time."""
    refusing(REFUSED_OF_WINDOW=BITMAP, REFUSED_NUMBER=3)
    result = beside_a_failure(java, rogue_program, classes, runs, tmp_path)
    told = result.log.text("gc,merapi")
    refused = told.find("The next bitmap stays private: Not enough space")
    assert refused >= 0, result.describe("expected a bitmap that cannot return")
    used = "the next bitmap is not in the window yet" in told[refused:]
    assert used, result.describe("expected a marking on the CPU in the bitmap that stayed private")
