# SPDX-License-Identifier: Apache-2.0
"""What bitmaps cost in memory: of a heap that is reserved and not in use, of one that has shrunk, and after a device's
failure."""

import os
import re
import subprocess
from pathlib import Path

import jvm_harness
from fault_runs import MIB
from rogue_runs import SILENT, check_told, rogue, start


def bitmap_ranges(folder):
    """{name: (address, bytes)} of the mark bitmaps, by what the JVM logs of their pages."""
    pattern = r"(Prev|Next) Bitmap: .* base=(0x[0-9a-f]+).* size=(\d+)M"
    found = re.findall(pattern, (folder / "pages.log").read_text())
    return {name: (int(base, 16), int(size) * MIB) for name, base, size in found}


def resident(run, ranges):
    """Bytes of each bitmap that are in the JVM's memory."""
    return {name: jvm_harness.resident_bytes(run.pid, *where) for name, where in ranges.items()}


def filled_beside_heap(run, heap_bytes):
    """How many bytes of a JVM's window are no holes, the heap apart."""
    (offset,) = re.findall(r"heap at offset (\d+) mapped at", run.log().text("gc,merapi"))
    files = Path(f"/proc/{run.pid}/fd").iterdir()
    (window,) = [file for file in files if os.readlink(file).startswith("/memfd:merapi-window")]
    with open(window, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        before = jvm_harness.data_bytes(file.fileno(), 0, int(offset))
        behind = int(offset) + heap_bytes
        return before + jvm_harness.data_bytes(file.fileno(), behind, end - behind)


def test_abandoning_costs_what_is_used(java, rogue_program, classes, runs, tmp_path):
    """Of a heap that is reserved and not in use each bitmap has 256 MiB. Private memory does not fill up with them, nor
    do the window's holes."""
    flags = ["-Xms64m", "-Xmx16g", f"-Xlog:pagesize=info:file={tmp_path}/pages.log"]
    program = ["count=200", "cycles=100000", f"until={tmp_path}/finished"]
    with rogue(rogue_program, tmp_path, "deaf") as device:
        run = start(runs, java, device, classes, tmp_path, *program, given=flags)
        log = run.wait_for(lambda log: any(f["abandoned"] for f in log.fallbacks), 30, "an abandoned cycle")
        # The fallback is told before anything is done about it; the next cycle's remark comes after that.
        abandoned = next(f["gc_id"] for f in log.fallbacks if f["abandoned"])
        run.wait_for(lambda log: max(log.gc_ids("remark"), default=-1) > abandoned, 30, "a cycle after it")
        ranges = bitmap_ranges(tmp_path)
        assert {name: bytes_ for name, (_, bytes_) in ranges.items()} == {"Prev": 256 * MIB, "Next": 256 * MIB}
        in_memory = resident(run, ranges)
        filled = filled_beside_heap(run, 16 << 30)
        (tmp_path / "finished").touch()
        result = run.finish(60)
        check_told(result, device, "deaf", SILENT, abandoned=True)
    assert max(in_memory.values()) < 64 * MIB, result.describe(f"bytes of the bitmaps in memory: {in_memory}")
    assert filled < 128 * MIB, result.describe(f"bytes of the window that are neither heap nor holes: {filled}")


def test_a_failed_device_leaves_nothing_in_the_window(java, rogue_program, classes, runs, tmp_path):
    """Private bitmaps are in use then; what they were made of stayed in the window for as long as no device came."""
    heap = 1 << 30
    flags = [f"-Xms{heap}", f"-Xmx{heap}"]
    program = ["count=200", "cycles=100000", f"until={tmp_path}/finished"]
    with rogue(rogue_program, tmp_path, "stop", "--from-cycle", "4", "--patience-us", 200_000) as device:
        run = start(runs, java, device, classes, tmp_path, *program, given=flags)
        run.wait_count("traces", 3, 60)
        before = filled_beside_heap(run, heap)
        run.wait_for(lambda log: any(f["abandoned"] for f in log.fallbacks), 60, "an abandoned cycle")
        device.kill()
        remarks = len(run.log().gc_ids("remark"))
        run.wait_for(lambda log: len(log.gc_ids("remark")) >= remarks + 4, 60, "cycles on the CPU")
        after = filled_beside_heap(run, heap)
        (tmp_path / "finished").touch()
        result = run.finish(60)
    jvm_harness.check_ok(result)
    # Each has 16 MiB.
    assert before > 32 * MIB, result.describe(f"bytes of the window that are neither heap nor holes: {before}")
    assert after < before - 24 * MIB, result.describe(f"of {before} bytes beside the heap {after} are still there")


def test_a_heap_that_shrinks_gives_its_bitmaps_back(java, device_program, classes, runs, tmp_path):
    """They are uncommitted with it. Native memory tracking said so, and they stayed in memory."""
    heap = 4 << 30
    sizes = [f"-XX:InitialHeapSize={heap}", f"-Xmx{heap}", "-XX:MinHeapSize=64m", "-XX:MinHeapFreeRatio=5"]
    flags = [*sizes, "-XX:MaxHeapFreeRatio=100", f"-Xlog:pagesize=info:file={tmp_path}/pages.log"]
    program = ["count=200", "cycles=100000", f"until={tmp_path}/finished"]
    with jvm_harness.ServedDevice(device_program, tmp_path / "device", "--model", "--patience-us", 1_000_000) as device:
        run = start(runs, java, device, classes, tmp_path, *program, given=flags)
        run.wait_count("traces", 3, 60)
        ranges = bitmap_ranges(tmp_path)
        assert {name: bytes_ for name, (_, bytes_) in ranges.items()} == {"Prev": 64 * MIB, "Next": 64 * MIB}
        large = resident(run, ranges)
        jcmd = [java.parent / "jcmd", str(run.pid), "VM.set_flag", "MaxHeapFreeRatio", "10"]
        subprocess.run(jcmd, capture_output=True, timeout=60, check=True)
        # Regions are uncommitted beside the program, some time after a cycle.

        def given_back(_):
            return max(resident(run, ranges).values()) < 16 * MIB

        run.wait_for(given_back, 60, f"bitmaps of less memory; before it was {large}")
        (tmp_path / "finished").touch()
        result = run.finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    assert min(large.values()) > 48 * MIB, result.describe(f"bytes of the bitmaps in memory: {large}")
