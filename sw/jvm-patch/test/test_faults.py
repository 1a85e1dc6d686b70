# SPDX-License-Identifier: Apache-2.0
"""The real device process: absent, late, killed, stopped, restarted; JVMs that die."""

import os
import re
import resource
import signal
import subprocess
import time

import jvm_harness
import pytest
from fault_runs import LONG, LONG_PROGRAM, MIB, SHORT_PROGRAM, on_the_cpu, said
from jvm_options import BASE, G1_VERIFY


@pytest.fixture
def own_device(device_program, tmp_path):
    # Twice the usual patience: what happens here is meant, not the machine's other work.
    with jvm_harness.ServedDevice(device_program, tmp_path / "device", "--model", "--patience-us", 200000) as served:
        yield served


# ------------------------------------------------------------------ no device


def test_socket_absent(start, tmp_path):
    result = start(f"device:{tmp_path}/absent.sock", *SHORT_PROGRAM).finish(60)
    on_the_cpu(result, 5)
    said(result, "no device")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("file:/nonexistent/folder/window", "/nonexistent/folder/window"),
        ("floppy:a", "floppy:a"),
        ("dax:/dev/null", "/dev/null"),
    ],
)
def test_no_window(name, word, start):
    result = start(name, *SHORT_PROGRAM).finish(60)
    on_the_cpu(result, 5)
    said(result, "Marking stays on the CPU", word)


def test_device_comes_late(start, device_program, tmp_path):
    """A JVM that began without a device uses it from the cycle after its arrival."""
    finished = tmp_path / "finished"
    late = jvm_harness.ServedDevice(device_program, tmp_path / "device")
    run = start(f"device:{late.socket}", *SHORT_PROGRAM, "cycles=100000", f"until={finished}")
    run.wait_count("fallbacks", 2, 30)
    with late:
        run.wait_count("traces", 2, 30)
        finished.touch()
        result = run.finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    assert not any(f["abandoned"] for f in result.log.fallbacks), result.describe("a cycle was abandoned")


# ------------------------------------------------------------- very large heaps


def test_a_reserved_heap_costs_the_device_little(start, device_program, tmp_path):
    """Of 40 TiB that are reserved and not in use the flags of chunks and the marks of regions would be 300 MiB of the
    device, which took it longer to make than hosts wait for a sign of life."""
    flags = ["-Xms64m", "-Xmx40t"]
    patient = ["--model", "--patience-us", 10_000_000]
    with jvm_harness.ServedDevice(device_program, tmp_path / "device", *patient) as device:
        run = start(f"device:{device.socket}", "GraphRewiring", "count=200", "cycles=3", flags=flags)
        result = run.finish(120)
        most = jvm_harness.bytes_of_process(device.process.pid, "VmHWM")
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 3)
    assert most < 200 * MIB, result.describe(f"{most} bytes of the device were in memory at a time")


def test_a_heap_beyond_the_device_is_told(start, own_device):
    """A device may bound the heap: the functional model takes 64 TiB."""
    flags = ["-Xms64m", "-Xmx65t"]
    result = start(f"device:{own_device.socket}", "GraphRewiring", "count=200", "cycles=4", flags=flags).finish(120)
    on_the_cpu(result, 2)
    said(result, "device fault", f"expected a device that takes a heap of {65 << 40} bytes, found one that refuses it")
    jvm_harness.check_abandoned(result)


# -------------------------------------------------------------- device's death


def kill_in_a_trace(run, device):
    """Kill the device a little after the next marking begins, and start it again once the JVM has told of a fallback,
    which it must within 30 s. The log by then."""
    fallbacks = run.count("fallbacks")
    run.wait_marking(30)
    time.sleep(0.004)
    device.kill()
    log = run.wait_count("fallbacks", fallbacks + 1, 30)
    device.restart()
    return log


def test_killed_and_restarted(start, own_device, tmp_path):
    """Killed in the middle of traces, twice; each time the cycle is given up, marked on the CPU, and the next process
    at the same socket is used."""
    finished = tmp_path / "finished"
    run = start(f"device:{own_device.socket}", *LONG_PROGRAM, f"until={finished}", flags=LONG)
    abandoned = 0
    for _ in range(2):
        run.wait_count("traces", run.count("traces") + 1, 60)
        for _ in range(20):
            log = kill_in_a_trace(run, own_device)
            now = sum(f["abandoned"] for f in log.fallbacks)
            if now > abandoned:
                break
            # The trace was quicker than the kill.
        assert now > abandoned, run.end().describe("no kill hit a trace in 20 attempts")
        abandoned = now
    run.wait_count("traces", run.count("traces") + 2, 60)
    finished.touch()
    result = run.finish(90)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    jvm_harness.check_abandoned(result, 2)
    reasons = {f["reason"] for f in result.log.fallbacks}
    expected = {"device lost", "device silent", "pause not acknowledged", "abort not acknowledged", "no device"}
    assert reasons <= expected, result.describe(f"expected reasons among {sorted(expected)}, found {sorted(reasons)}")


def test_killed_before_a_pause(start, device_program, tmp_path):
    """A pause does not wait for a device that is gone, however patient that one has asked its host to be: of
    two minutes a tenth is when the host asks by itself."""
    finished = tmp_path / "finished"
    patient = ["--model", "--patience-us", 120_000_000]
    with jvm_harness.ServedDevice(device_program, tmp_path / "device", *patient) as device:
        flags = [*LONG, "-Xmn8m"]
        run = start(f"device:{device.socket}", *LONG_PROGRAM, f"until={finished}", flags=flags)
        run.wait_count("traces", 1, 60)
        in_a_pause = False
        for _ in range(20):
            log = kill_in_a_trace(run, device)
            in_a_pause = in_a_pause or any("a pause" in f["detail"] for f in log.fallbacks)
            if in_a_pause:
                break
        finished.touch()
        result = run.finish(90)
    assert in_a_pause, result.describe("no kill came before a pause in 20 attempts")
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)


def stop_in_a_trace(run, device):
    """Stops the device in the middle of a trace, which is abandoned. Returns the log as it is then."""
    for _ in range(20):
        fallbacks = run.count("fallbacks")
        run.wait_marking(30)
        time.sleep(0.004)
        device.stop()
        log = run.wait_count("fallbacks", fallbacks + 1, 30)
        if log.fallbacks[-1]["abandoned"]:
            return log
        device.wake()
        run.wait_count("traces", run.count("traces") + 1, 30)
    raise AssertionError(run.end().describe("no stop hit a trace in 20 attempts"))


def test_stopped_and_woken(start, own_device, tmp_path):
    """Stopped in the middle of a trace and woken seconds later, when the CPU has marked and remarked: what the device
    does then reaches no mark of the CPU's, and it is used again."""
    finished = tmp_path / "finished"
    run = start(f"device:{own_device.socket}", *LONG_PROGRAM, f"until={finished}", flags=LONG)
    run.wait_count("traces", 1, 60)
    remarks = len(stop_in_a_trace(run, own_device).gc_ids("remark"))
    run.wait_for(lambda log: len(log.gc_ids("remark")) >= remarks + 3, 60, "three cycles on the CPU")
    # Woken while the CPU marks, and again while it is between cycles.
    run.wait_marking(30)
    time.sleep(0.01)
    own_device.wake()
    run.wait_count("traces", run.count("traces") + 2, 60)
    finished.touch()
    result = run.finish(90)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    jvm_harness.check_abandoned(result)
    # Each time that it was asked for a handshake while it was stopped; only the first one is worth a long wait.
    asked = re.findall(r"to answer within (\d+) us, found nothing", result.log.text("gc,merapi"))
    assert (asked[0], asked[-1]) == ("500000", "100000"), result.describe(f"handshakes of {asked} us")
    assert own_device.alive(), result.describe(f"the device ended; see {own_device.log.name}")


def check_told(text, window, device, before, after):
    """What print_on says, between two looks at the log."""
    lines = [line for line in text.splitlines() if not line.startswith("  cycle ")]
    at = next(i for i, line in enumerate(lines) if line.startswith(" merapi window "))
    assert re.fullmatch(rf" merapi window        total \d+K, {window}", lines[at])
    assert re.fullmatch(
        rf"  device merapi-model \(model, process {device.process.pid}\), generation \d+(; .* private)?", lines[at + 1]
    )
    traces, on_cpu, fallbacks, last = jvm_harness.MARKED.fullmatch(lines[at + 2]).groups()
    # Counted when the device hands back; the line in the log follows.
    assert len(before.traces) <= int(traces) <= len(after.traces) + 1
    assert len(before.fallbacks) <= int(fallbacks) <= len(after.fallbacks)
    # A cycle that replaces an abandoned one.
    assert int(on_cpu) >= (int(fallbacks) > 0)
    if last is None:
        assert int(fallbacks) == 0
    else:
        assert last in [f"GC({f['gc_id']}): {f['reason']}" for f in after.fallbacks]


def test_what_a_jvm_tells_of_its_window(start, own_device, java, tmp_path):
    """Asked with jcmd while it runs, and in the file that a crash leaves."""
    window = f"device:{own_device.socket}"
    run = start(window, *LONG_PROGRAM, f"until={tmp_path}/never", flags=LONG)

    def told():
        before = run.log()
        jcmd = [java.parent / "jcmd", str(run.pid), "GC.heap_info"]
        done = subprocess.run(jcmd, capture_output=True, text=True, timeout=60, check=True)
        time.sleep(0.1)
        check_told(done.stdout, window, own_device, before, run.log())

    run.wait_count("traces", 2, 60)
    told()
    stop_in_a_trace(run, own_device)
    own_device.wake()
    run.wait_count("traces", run.count("traces") + 1, 60)
    told()
    before = run.log()
    os.kill(run.pid, signal.SIGSEGV)
    result = run.finish(60)
    (crash,) = tmp_path.glob("hs_err*.log")
    check_told(crash.read_text(), window, own_device, before, result.log)


@pytest.mark.parametrize(
    ("limit", "size"), [(resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")], ids=["space", "data"]
)
def test_stopped_where_memory_is_limited(runs, java, classes, own_device, tmp_path, limit, size):
    """Where the address space is limited (ulimit -v), or the size of a process's data (ulimit -d), both bitmaps leave
    the window without taking more of it: threads and the C heap would lack it. G1's own verification judges the
    previous one's marks."""
    finished = tmp_path / "finished"
    flags = [jvm_harness.flag_of_window(f"device:{own_device.socket}"), *BASE, *G1_VERIFY, "-Xms224m", "-Xmx16g"]
    run = runs(java, [*flags, "-cp", classes, *LONG_PROGRAM, f"until={finished}"], tmp_path)
    run.wait_count("traces", 2, 60)
    # A bitmap takes 256 MiB. So does what the JVM maps now and then to follow references: not in the least of these.
    least = min(jvm_harness.bytes_of_process(run.pid, size) for _ in range(400) if time.sleep(0.005) is None)
    most = least + (128 << 20)
    resource.prlimit(run.pid, limit, (most, most))
    remarks = len(stop_in_a_trace(run, own_device).gc_ids("remark"))
    run.wait_for(lambda log: len(log.gc_ids("remark")) >= remarks + 2, 60, "two cycles on the CPU")
    assert jvm_harness.bytes_of_process(run.pid, size) < most, "the bitmaps count"
    own_device.wake()
    run.wait_count("traces", run.count("traces") + 2, 60)
    finished.touch()
    result = run.finish(90)
    jvm_harness.check_ok(result)
    assert not result.log.problems, result.describe("the log complains")


# ------------------------------------------------------------- many JVMs, and dead ones


def descriptors(device):
    return len(os.listdir(f"/proc/{device.process.pid}/fd"))


def test_many_jvms_and_some_killed(start, own_device, tmp_path):
    """One device process serves several JVMs at once; what those leave that are killed in mid-cycle is taken back."""
    before = descriptors(own_device)
    finished = tmp_path / "finished"
    window = f"device:{own_device.socket}"
    program = ["GraphRewiring", "count=400", "cycles=100000", f"until={finished}"]
    jvms = [start(window, *program, flags=["-Xms48m", "-Xmx48m"], folder=tmp_path / f"jvm{i}") for i in range(4)]
    for run in jvms:
        run.wait_count("traces", 2, 60)
    for run in jvms[:2]:
        run.wait_marking(30)
        os.kill(run.pid, signal.SIGKILL)
        run.process.wait()
    survivors = jvms[2:]
    for run in survivors:
        run.wait_count("traces", run.count("traces") + 2, 60)
    finished.touch()
    for run in survivors:
        result = run.finish(60)
        jvm_harness.check_ok(result)
        jvm_harness.check_offloaded(result, 4)
    deadline = time.monotonic() + 10
    while descriptors(own_device) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descriptors(own_device) <= before, f"the device still holds windows; see {own_device.log.name}"
    assert own_device.alive(), f"the device ended; see {own_device.log.name}"


@pytest.mark.parametrize(
    "arguments",
    [["--strict"], ["--stack-entries", "64"], ["--stack-entries", "64", "--no-spill", "--strict"]],
    ids=["strict", "spilling", "dropping"],
)
@pytest.mark.parametrize("program", ["ReferenceBlocks", "ListsAndArrays"])
def test_small_device(program, arguments, start, device_program, tmp_path):
    """A device that holds little spills, drops and finds again; a strict one checks its invariants."""
    flags = jvm_harness.programs()[program].flags
    arguments = [*jvm_harness.PATIENT_MODEL, *arguments]
    with jvm_harness.ServedDevice(device_program, tmp_path / "device", *arguments) as device:
        result = start(f"device:{device.socket}", program, "cycles=3", flags=flags).finish(120)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 3)
