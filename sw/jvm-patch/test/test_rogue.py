# SPDX-License-Identifier: Apache-2.0
"""A device that misbehaves once, in each way there is: the program's result is right, the log says what happened, the
cycle is marked on the CPU, and the device is used again when it answers properly."""

import itertools
import json
import re
import resource
import subprocess
from pathlib import Path

import jvm_harness
import pytest
from rogue_runs import ARGUMENTS, AT_HANDSHAKE, BAD, IN_TRACE, SILENT, check_told, check_used_again, rogue, start

# The host must see through these without giving the cycle up.
HARMLESS = ["idle-unconsumed", "idle-unread", "idle-other-cycle"]
# Tests of their own, here and in test_slow_devices.py.
OTHERS = ["die", "stop", "defer-inside", "defer-marked", "defer-no-klass", "deferring", "forgetful", "dozing", "slow"]
# A device that completes a cycle in between is asked again after each failure.
EVERY_OTHER = ["--times", "-1", "--every", "2"]


def test_every_mode_has_its_test(rogue_program):
    listed = subprocess.run([rogue_program, "--list"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in listed.splitlines()} == {*AT_HANDSHAKE, *IN_TRACE, *HARMLESS, *OTHERS}


def test_unknown_mode_is_refused(rogue_program, tmp_path):
    done = subprocess.run([rogue_program, "--socket", tmp_path / "s", "--mode", "x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "expected a mode of" in done.stderr


@pytest.mark.parametrize("mode", AT_HANDSHAKE)
def test_handshake(mode, java, rogue_program, classes, runs, tmp_path):
    with rogue(rogue_program, tmp_path, mode) as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        # The rogue changes its answer right after giving it. On a busy machine the host may have read it by then; it
        # meets a device that obeys and does not trace.
        overtaken = result.log.fallbacks and result.log.fallbacks[0]["reason"] == "device stuck"
        check_told(result, device, mode, "device stuck" if overtaken else AT_HANDSHAKE[mode], abandoned=overtaken)
        # Nothing was handed over: the marks of the start pause are intact and no cycle was given up.
        if not overtaken:
            assert not any(f["abandoned"] for f in result.log.fallbacks), result.describe("a cycle was abandoned")
        check_used_again(result)
    assert not result.log.problems, result.describe("the log complains")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("endless-patience", "a patience of at most 600000000 us, found 4294967295"),
        ("no-heap-scope", "(capability SCOPE_HEAP), found rogue with capabilities"),
    ],
)
def test_what_a_device_states_is_refused(mode, words, java, rogue_program, classes, runs, tmp_path):
    """It is not given a cycle, though it answers well else. The host reads that at one handshake of three at least."""
    with rogue(rogue_program, tmp_path, mode, "--times", "3") as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
    jvm_harness.check_ok(result)
    told = [f["detail"] for f in result.log.fallbacks if f["reason"] == "no device"]
    assert any(words in detail for detail in told), result.describe(f"expected '{words}', found {told}")


@pytest.mark.parametrize("mode", IN_TRACE)
def test_trace(mode, java, rogue_program, classes, runs, tmp_path):
    with rogue(rogue_program, tmp_path, mode) as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
        check_used_again(result)


@pytest.mark.parametrize("mode", ["stuck", "chatter", "deaf", "consumed-far", "fault-record", "defer-unmarked", "die"])
def test_nobody_else_notices(mode, java, rogue_program, classes, runs, tmp_path):
    """No mutator runs: no young collection pauses the device, no SATB buffer fills, nothing but the host's own watch
    over the device ends the cycle."""
    with rogue(rogue_program, tmp_path, mode) as device:
        result = start(runs, java, device, classes, tmp_path, "quiet=1").finish(30)
        reasons = {**IN_TRACE, "defer-unmarked": BAD, "die": f"device lost|{SILENT}"}[mode]
        check_told(result, device, mode, reasons, abandoned=True)


def test_objects_that_are_deferred_are_progress(java, rogue_program, classes, runs, tmp_path):
    """Long runs of objects that the host scans move no other counter of a device."""
    with rogue(rogue_program, tmp_path, "deferring") as device:
        result = start(runs, java, device, classes, tmp_path, "quiet=1").finish(60)
        check_told(result, device, "deferring", "device stuck", abandoned=True)
        assert "counts no more\n" in device.said(), result.describe("given up while it counted")


def test_stuck_between_full_collections(java, rogue_program, classes, runs, tmp_path):
    """Full collections end every cycle before the host has asked often enough to say that the device is stuck. What it
    acknowledges and never takes fills the ring, and the next cycle finds no room for its first command."""
    given = ["-Xms160m", "-Xmx160m", "cycles=6"]
    # The host asks a device as patient as this every six seconds, and forty times: minutes.
    patient = ["--mode", "stuck", "--patience-us", 60_000_000]
    with jvm_harness.ServedDevice(rogue_program, tmp_path / "device", *patient) as device:
        result = start(runs, java, device, classes, tmp_path, program="FullCollectionRaces", given=given).finish(120)
        check_told(result, device, "stuck", "device stuck", abandoned=True)
        check_used_again(result)
    detail = next(f["detail"] for f in result.log.fallbacks)
    assert re.fullmatch(r"expected a device without a cycle .*, found all 1024 submission entries taken", detail), (
        detail
    )


def test_fault_before_a_full_collection(java, rogue_program, classes, runs, tmp_path):
    """The device faults, and a full collection ends the cycle before the host has looked. The record stays as long as
    the generation: the cycle that the device failed in is the one that is told of, not the next one."""
    mode = "fault-record"
    given = jvm_harness.programs()["FullCollectionRaces"].flags
    # The host asks a device as patient as this every six seconds.
    patient = ["--mode", mode, "--after-us", "0", "--patience-us", 60_000_000]
    with jvm_harness.ServedDevice(rogue_program, tmp_path / "device", *patient) as device:
        result = start(runs, java, device, classes, tmp_path, program="FullCollectionRaces", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
        check_used_again(result)
    (fallback,) = [f for f in result.log.fallbacks if f["abandoned"]]
    struck = next(gc_id for _, gc_id, text in result.log.lines if text == "Concurrent Mark From Roots")
    assert fallback["gc_id"] == struck, result.describe(
        f"GC({struck}) faulted, and GC({fallback['gc_id']}) was told of"
    )


def test_bitmap_returns_beside_full_collections(java, rogue_program, classes, runs, tmp_path):
    """Cycle after cycle is given up, and at the end of the one that replaces it the device takes its time to answer
    before a bitmap can return to the window: full collections, which mark in that bitmap, come in the meantime."""
    mode = "garbage-bytes"
    given = ["-Xms160m", "-Xmx160m", "cycles=30"]
    late = ["--after-us", "500", "--answer-after-us", "70000"]
    with rogue(rogue_program, tmp_path, mode, *EVERY_OTHER, *late) as device:
        result = start(runs, java, device, classes, tmp_path, program="FullCollectionRaces", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    assert "is in the window again" in result.log.text("gc,merapi"), result.describe("no bitmap returned to the window")
    jvm_harness.check_verified(result)


def after_both_returned(result):
    """What the log says once both bitmaps, each once, are in the window again."""
    lines = result.log.text("gc,merapi").splitlines()
    returned = [i for i, line in enumerate(lines) if re.fullmatch(r"Bitmap \d is in the window again", line)]
    assert len(returned) == 2, result.describe(f"expected two bitmaps to return to the window, found {len(returned)}")
    return lines[returned[-1] :]


def test_device_is_used_again_though_no_cycle_ends(java, rogue_program, classes, runs, tmp_path):
    """The device faults once, and from then on a full collection aborts every cycle, also the one that replaces the
    failed one. Both bitmaps return to the window nevertheless, and cycles are handed to the device again."""
    mode = "fault-record"
    given = [*jvm_harness.programs()["AbortedCycles"].flags, "cycles=40"]
    with rogue(rogue_program, tmp_path, mode, "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program="AbortedCycles", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=False)
    later = [line for line in after_both_returned(result) if line.startswith("Fallback")]
    assert not later, result.describe(f"expected a device that is used again, found {later[0]}")


def test_device_is_used_again_though_bitmaps_change_places(java, rogue_program, classes, runs, tmp_path):
    """The device faults once, and a full collection comes between any two cycles: each time the other bitmap is the
    next one. One of them was private in every cycle, and the other one at every cycle's end."""
    mode = "fault-record"
    given = [*jvm_harness.programs()["FullBetweenCycles"].flags, "cycles=12"]
    with rogue(rogue_program, tmp_path, mode, "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program="FullBetweenCycles", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    after_both_returned(result)
    assert len(result.log.fallbacks) == 1, result.describe("expected a device that is used again in the next cycle")
    assert len(result.log.traces) >= 10, result.describe("expected a trace of each cycle but two")


def test_explicit_request_waits_for_marking(java, rogue_program, classes, runs, tmp_path):
    """Every third cycle is given up. The one that replaces it marks, even if a humongous allocation starts it and its
    pause reclaims so much that G1 alone would undo it: a System.gc() that waits has been promised a marking."""
    mode = "garbage-bytes"
    given = [*jvm_harness.programs()["ExplicitRequests"].flags, "cycles=300"]
    with rogue(rogue_program, tmp_path, mode, *EVERY_OTHER, "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program="ExplicitRequests", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
        strikes = device.said().count(f"strike {mode} ")
    assert strikes >= 80, result.describe(f"expected a fault in every other of some 200 traces, found {strikes}")


@pytest.mark.parametrize("mode", HARMLESS)
def test_host_sees_through(mode, java, rogue_program, classes, runs, tmp_path):
    with rogue(rogue_program, tmp_path, mode, "--times", "3") as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        assert f"strike {mode} " in device.said(), result.describe(f"the device never got to '{mode}'")
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4)


@pytest.mark.parametrize(
    ("mode", "beyond", "found"),
    [
        ("defer-inside", 0, "is not marked"),
        ("defer-marked", 0, r"would have \d+ words and end where no object of its region can"),
        ("defer-no-klass", 1, "holds no klass"),
    ],
)
def test_what_looks_like_an_object_is_none(mode, beyond, found, java, rogue_program, classes, runs, tmp_path):
    """The device defers a place in an array of numbers that look like an array of references beyond the heap's end.
    The host does not read what is there before it has seen a mark. Where that has been set, too, it reads nothing
    beyond the place's region, and nothing of what is not a class."""
    program = jvm_harness.programs()["FalseObjects"]
    with rogue(rogue_program, tmp_path, mode, "--after-us", "0") as device:
        given = [*program.flags, f"beyond={beyond}"]
        result = start(runs, java, device, classes, tmp_path, program=program.name, given=given).finish(60)
        check_told(result, device, mode, BAD, abandoned=True)
        check_used_again(result)
    detail = next(f["detail"] for f in result.log.fallbacks)
    assert re.fullmatch(rf"DEFER of [0-9a-f]+ which {found}", detail), detail


def test_what_is_deferred_again_is_counted_once(java, rogue_program, classes, runs, tmp_path):
    """No klass has a shape: the host adds the words of each object, and each is deferred twice. Verification compares
    live words with marks."""
    with rogue(rogue_program, tmp_path, "forgetful") as device:
        result = start(runs, java, device, classes, tmp_path, "count=300").finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    assert not result.log.fallbacks, result.describe(f"expected no fallback, found {result.log.fallbacks[:1]}")
    assert len(result.log.traces) >= 2, result.describe("expected at least 2 offloaded cycles")
    for trace in result.log.traces:
        assert trace["deferred"] >= 2 * trace["objects"] > 0, result.describe(f"not all was deferred twice: {trace}")


def test_without_memory_to_count_in(java, rogue_program, classes, runs, tmp_path):
    """Where the host cannot remember what it has counted, it gives the cycle up: too few live words would free what is
    alive."""
    flags = ["-Xms64m", "-Xmx4t"]
    program = ["count=200", "cycles=100000", f"until={tmp_path}/finished"]
    with rogue(rogue_program, tmp_path, "forgetful") as device:
        run = start(runs, java, device, classes, tmp_path, *program, given=flags)
        run.wait_count("traces", 1, 60)
        # A bit for each place of an object in the heap is 64 GiB.
        most = (int(Path(f"/proc/{run.pid}/statm").read_text().split()[0]) * resource.getpagesize()) + (32 << 30)
        resource.prlimit(run.pid, resource.RLIMIT_AS, (most, most))
        log = run.wait_count("fallbacks", 1, 60)
        abandoned = log.fallbacks[0]["gc_id"]
        run.wait_for(lambda log: max(log.gc_ids("remark"), default=-1) > abandoned, 60, "a cycle after it")
        (tmp_path / "finished").touch()
        result = run.finish(60)
    jvm_harness.check_ok(result)
    assert result.log.fallbacks[0]["reason"] == "no memory", result.describe("expected another reason")
    jvm_harness.check_abandoned(result)


@pytest.mark.parametrize("mode", ["garbage-bytes", "deaf", "silent"])
def test_for_ever(mode, java, rogue_program, classes, runs, tmp_path):
    """Each cycle that the device is given fails; none is lost for it."""
    with rogue(rogue_program, tmp_path, mode, "--times", "-1") as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        check_told(result, device, mode, {**AT_HANDSHAKE, **IN_TRACE}[mode], abandoned=mode != "silent")
    assert not result.log.offloaded(), result.describe("a cycle was reported as traced")
    remarks = [kind for kind, _ in result.log.events if kind == "remark"]
    assert len(remarks) >= 6, result.describe(f"expected 6 cycles marked on the CPU, found {len(remarks)}")


def test_a_device_that_fails_again_and_again_is_asked_less(java, rogue_program, classes, runs, tmp_path):
    """Each failure costs a marking: the next ones are on the CPU more and more of the time, until the device has
    completed one."""
    mode, finished = "garbage-bytes", tmp_path / "finished"
    with rogue(rogue_program, tmp_path, mode, "--times", "5", "--from-cycle", "2") as device:
        run = start(runs, java, device, classes, tmp_path, "count=300", "cycles=100000", f"until={finished}")
        run.wait_count("traces", 3, 90)
        finished.touch()
        result = run.finish(60)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    remarks = result.log.gc_ids("remark")
    failures = [f["gc_id"] for f in result.log.fallbacks]
    used_again = min(gc_id for gc_id in result.log.gc_ids("trace") if gc_id > failures[-1])
    attempts = [*failures, used_again]
    between = [sum(1 for gc_id in remarks if first < gc_id < then) for first, then in itertools.pairwise(attempts)]
    assert between == [1, 2, 4, 8, 16], result.describe(f"markings between attempts: {between}")


def test_a_device_that_fails_now_and_then_is_asked_as_before(java, rogue_program, classes, runs, tmp_path):
    mode = "garbage-bytes"
    with rogue(rogue_program, tmp_path, mode, *EVERY_OTHER) as device:
        result = start(runs, java, device, classes, tmp_path, "count=300", "cycles=20").finish(60)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    assert len(result.log.fallbacks) >= 4 and len(result.log.traces) >= 4, result.describe("few attempts")


def test_idle_early_beside_overwriting(java, rogue_program, classes, runs, tmp_path):
    """What the program overwrites without end is nothing new: it does not keep a cycle from its end that the device has
    declared, nor verification from finding what that is worth."""
    mode, program = "idle-early", "OverwrittenReferences"
    given = jvm_harness.programs()[program].flags
    with rogue(rogue_program, tmp_path, mode, "--from-cycle", "2", "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program=program, given=given).finish(60)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
        check_used_again(result)


def test_event_of_a_fallback(java, rogue_program, classes, runs, tmp_path):
    """Its numbers are 0, also where the device had traced before its marks were found to be wrong."""
    mode, recording = "idle-early", tmp_path / "recording.jfr"
    flags = [*ARGUMENTS, f"-XX:StartFlightRecording:filename={recording}"]
    with rogue(rogue_program, tmp_path, mode) as device:
        result = start(runs, java, device, classes, tmp_path, given=flags).finish(90)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    command = [java.parent / "jfr", "print", "--json", "--events", "MerapiTrace", recording]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    events = [event["values"] for event in json.loads(printed)["recording"]["events"]]
    (event,) = [event for event in events if event["fallbackReason"] == IN_TRACE[mode]]
    numbers = {name: event[name] for name in ("objects", "references", "liveBytes", "deferred")}
    assert event["device"] == "none" and not any(numbers.values()), event


def test_die(java, rogue_program, classes, runs, tmp_path):
    with rogue(rogue_program, tmp_path, "die") as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        check_told(result, device, "die", f"device lost|{SILENT}", abandoned=True)
        assert device.process.wait(5) < 0


@pytest.mark.parametrize(
    ("program", "given"),
    [
        ("HeapResizing", ["-Xms8m", "-Xmx64m", "-XX:MinHeapFreeRatio=5", "-XX:MaxHeapFreeRatio=15"]),
        # The bits of eight regions share a page.
        ("GraphRewiring", ["-Xms16m", "-Xmx256m", "-XX:ObjectAlignmentInBytes=256", "count=500", "cycles=20"]),
    ],
)
def test_previous_marks_survive(program, given, java, rogue_program, classes, runs, tmp_path):
    """Every third cycle is given up. G1 itself verifies the heap by the previous bitmap before each collection: a lost
    mark makes a live object look dead."""
    mode = "garbage-bytes"
    flags = ["-XX:G1HeapRegionSize=1m", "-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifyBeforeGC", *given]
    with rogue(rogue_program, tmp_path, mode, *EVERY_OTHER) as device:
        result = start(runs, java, device, classes, tmp_path, program=program, given=flags).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    jvm_harness.check_verified(result)
