# SPDX-License-Identifier: Apache-2.0
"""A device that misbehaves once, in each way there is: the program's result is right, the log says what happened, the
cycle is marked on the CPU, and the device is used again when it answers properly."""

import itertools
import json
import os
import re
import resource
import subprocess
import time
from pathlib import Path

import jvm_harness
import pytest
from jvm_options import BASE, VERIFY

PROGRAM = "GraphRewiring"
ARGUMENTS = ["-Xms128m", "-Xmx128m", "count=1500", "cycles=6"]

PATIENCE_US = 500_000

NO_DEVICE = "no device"
SILENT = "device silent|pause not acknowledged|abort not acknowledged"
BAD = "bad completion"

# Mode: the reasons that may be given.
AT_HANDSHAKE = {
    "silent": NO_DEVICE,
    "wrong-version": NO_DEVICE,
    "foreign-magic": NO_DEVICE,
    "non-coherent": NO_DEVICE,
    "small-window": NO_DEVICE,
    "dirty-rings": NO_DEVICE,
}
IN_TRACE = {
    "hang-up": f"device lost|{SILENT}",
    "deaf": SILENT,
    "stuck": "device stuck",
    "late-pause": SILENT,
    "garbage-bytes": BAD,
    "garbage-type": BAD,
    "too-many-words": BAD,
    "duplicate": BAD,
    "swapped": BAD,
    "torn": BAD,
    # An index below what the host has read is impossible; one that goes back no further only hides completions.
    "index-back": f"{BAD}|device stuck",
    "index-far": BAD,
    # The host itself marks what the program overwrites: an object that it came to mark was deferred rightly.
    "defer-unmarked": f"{BAD}|device stuck",
    "defer-outside": BAD,
    "defer-misaligned": BAD,
    "shape-unknown": BAD,
    "flood": "device fault",
    "chatter": "device stuck",
    "fault-completion": "device fault",
    "fault-record": "device fault",
    "idle-early": "verification",
    "live-too-large": "bad live words",
}
# The host must see through these without giving the cycle up.
HARMLESS = ["idle-unconsumed", "idle-unread", "idle-other-cycle"]
# Their tests are elsewhere in this file.
OTHERS = ["die", "stop", "defer-inside", "forgetful", "dozing", "slow"]


def start(runs, java, device, classes, folder, *more, program=PROGRAM, given=ARGUMENTS):
    flags = [flag for flag in given if flag.startswith("-")]
    arguments = [argument for argument in given if not argument.startswith("-")]
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    return runs(java, [window, *VERIFY, *BASE, *flags, "-cp", classes, program, *arguments, *more], folder)


def rogue(program, folder, mode, *more):
    # Generous where acknowledgements are not what is tested: the machine may be busy with other things.
    patience = [] if mode in ("late-pause", "deaf", "stop") else ["--patience-us", PATIENCE_US]
    return jvm_harness.ServedDevice(program, folder / "device", "--mode", mode, *patience, *more)


def check_told(result, device, mode, reasons, abandoned):
    assert f"strike {mode} " in device.said(), result.describe(f"the device never got to '{mode}'")
    jvm_harness.check_ok(result)
    found = [f["reason"] for f in result.log.fallbacks]
    assert found, result.describe(f"expected a fallback ({reasons}), found none")
    assert re.fullmatch(reasons, found[0]), result.describe(f"expected the reason '{reasons}', found '{found[0]}'")
    if abandoned:
        jvm_harness.check_abandoned(result)


def check_used_again(result):
    events = [kind for kind, _ in result.log.events]
    later = events[events.index("fallback") :]
    assert "trace" in later, result.describe("the device was not used again after its fault")


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


@pytest.mark.parametrize("mode", IN_TRACE)
def test_trace(mode, java, rogue_program, classes, runs, tmp_path):
    with rogue(rogue_program, tmp_path, mode) as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
        check_used_again(result)


@pytest.mark.parametrize("mode", ["stuck", "chatter", "deaf", "fault-record", "defer-unmarked", "die"])
def test_nobody_else_notices(mode, java, rogue_program, classes, runs, tmp_path):
    """No mutator runs: no young collection pauses the device, no SATB buffer fills, nothing but the host's own watch
    over the device ends the cycle."""
    with rogue(rogue_program, tmp_path, mode) as device:
        result = start(runs, java, device, classes, tmp_path, "quiet=1").finish(30)
        reasons = {**IN_TRACE, "defer-unmarked": BAD, "die": f"device lost|{SILENT}"}[mode]
        check_told(result, device, mode, reasons, abandoned=True)


def exit_beside_a_stopped_device(java, rogue_program, classes, runs, folder, *more):
    """A stopped device is asked whether it lives, after a tenth of its patience. The JVM ends while it waits for the
    answer. Its result, why its end has cut the cycle, and what the log says from then on."""
    patience_s = 20
    stopped = ["--mode", "stop", "--from-cycle", "2", "--after-us", "0", "--patience-us", patience_s * 1_000_000]
    program = jvm_harness.programs()["ExitInMidCycle"]
    micros = (patience_s // 10 + 2) * 1_000_000
    given = [*program.flags, "how=exit", f"micros={micros}", "count=100000", *more]
    with jvm_harness.ServedDevice(rogue_program, folder / "device", *stopped) as device:
        result = start(runs, java, device, classes, folder, program=program.name, given=given).finish(90)
        assert "strike stop " in device.said(), result.describe("the device did not stop")
    jvm_harness.check_ok(result)
    # No failure of the device, however it was busy: nothing is told without debugging.
    assert not result.log.fallbacks, result.describe("expected an exit before the device is given up")
    cut, lines = "The JVM's end cuts the cycle: ", [text for _, _, text in result.log.lines]
    (at,) = [i for i, text in enumerate(lines) if text.startswith(cut)]
    return result, lines[at].removeprefix(cut), lines[at + 1 :]


def test_exit_waits_for_no_device(java, rogue_program, classes, runs, tmp_path):
    result, why, _ = exit_beside_a_stopped_device(java, rogue_program, classes, runs, tmp_path)
    # After the whole patience it would be the device's silence.
    assert why.startswith("exit"), result.describe("the JVM waited for a stopped device")


def test_exit_waits_for_no_device_in_a_pause(java, rogue_program, classes, runs, tmp_path):
    """A young collection comes after the JVM has begun to end and before the cycle has heard of that: within two
    milliseconds. One that comes earlier waits for the whole patience, and may."""
    patience_s, tries = 3, 20
    program = jvm_harness.programs()["ExitInMidCycle"]
    stopped = ["--mode", "stop", "--from-cycle", "2", "--after-us", "0", "--patience-us", patience_s * 1_000_000]
    told = re.compile(r"The JVM's end cuts the cycle: pause not acknowledged, a pause, after ([0-9.]+) ms")
    for number in range(tries):
        folder = tmp_path / str(number)
        given = [*program.flags, "-Xmn2m", "how=garbage", f"micros={50_000 + 10_000 * number}", "count=100000"]
        with jvm_harness.ServedDevice(rogue_program, folder / "device", *stopped) as device:
            result = start(runs, java, device, classes, folder, program=program.name, given=given).finish(60)
        jvm_harness.check_ok(result)
        if hit := told.search(result.log.text("gc,merapi")):
            assert float(hit[1]) < patience_s * 500, result.describe("the JVM waited for a stopped device")
            return
    pytest.skip(f"no collection came at that time in {tries} tries")


def test_exit_is_no_fallback_where_a_full_collection_comes_first(java, rogue_program, classes, runs, tmp_path):
    """It is asked for while the JVM waits for the device, and ends the cycle before the cycle itself can."""
    # At half of that time: the device is asked after 2 s, and given up after 22.
    late = ["how=halt", "full=1", "micros=8000000"]
    result, why, later = exit_beside_a_stopped_device(java, rogue_program, classes, runs, tmp_path, *late)
    assert why.startswith("exit"), result.describe("the JVM waited for a stopped device")
    ends = [text.split(" (")[0] for text in later if re.match(r"Pause Full .*ms$|Concurrent Mark Cycle .*ms$", text)]
    assert ends[:1] == ["Pause Full"], result.describe("expected a full collection that ends the cycle")


def test_nothing_below_any_limit(java, rogue_program, classes, runs, tmp_path):
    """A cycle in which nothing lies below a limit has no regions to trace. The device is told of it all the same, and
    is not left asleep until the host asks whether it lives."""
    young = ["-Xms96m", "-Xmx96m", "-Xmn64m", "-XX:+NeverTenure", "-XX:SurvivorRatio=1", "-Xshare:off"]
    given = [*young, "count=10", "cycles=10"]
    with rogue(rogue_program, tmp_path, "dozing") as device:
        # Nobody but the cycle itself rings the doorbell.
        result = start(runs, java, device, classes, tmp_path, "quiet=1", given=given).finish(60)
        asked = [int(count) for count in re.findall(r"^cycle \d+ begun, pauses asked for: (\d+)$", device.said(), re.M)]
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 10)
    assert all(trace["objects"] == 0 for trace in result.log.traces), result.describe("objects below the limits")
    # The host asks again on a busy machine.
    assert len(asked) >= 10 and asked[-1] < 5, result.describe(f"pauses by the beginning of each cycle: {asked}")


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
    """Every cycle is given up, and at the end of the one that replaces it the device takes its time to answer before a
    bitmap can return to the window: full collections, which mark in that bitmap, come in the meantime."""
    mode = "garbage-bytes"
    given = ["-Xms160m", "-Xmx160m", "cycles=30"]
    with rogue(
        rogue_program, tmp_path, mode, "--times", "-1", "--after-us", "500", "--answer-after-us", "70000"
    ) as device:
        result = start(runs, java, device, classes, tmp_path, program="FullCollectionRaces", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    assert "is in the window again" in result.log.text("gc,merapi"), result.describe("no bitmap returned to the window")
    jvm_harness.check_verified(result)


def test_device_is_used_again_though_no_cycle_ends(java, rogue_program, classes, runs, tmp_path):
    """The device faults once, and from then on a full collection aborts every cycle, also the one that replaces the
    failed one. Both bitmaps return to the window nevertheless, and cycles are handed to the device again."""
    mode = "fault-record"
    given = [*jvm_harness.programs()["AbortedCycles"].flags, "cycles=40"]
    with rogue(rogue_program, tmp_path, mode, "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program="AbortedCycles", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=False)
    lines = result.log.text("gc,merapi").splitlines()
    returned = [i for i, line in enumerate(lines) if re.fullmatch(r"Bitmap \d is in the window again", line)]
    assert len(returned) == 2, result.describe(f"expected two bitmaps to return to the window, found {len(returned)}")
    later = [line for line in lines[returned[-1] :] if line.startswith("Fallback")]
    assert not later, result.describe(f"expected a device that is used again, found {later[0]}")


def test_explicit_request_waits_for_marking(java, rogue_program, classes, runs, tmp_path):
    """Every other cycle is given up. The one that replaces it marks, even if a humongous allocation starts it and its
    pause reclaims so much that G1 alone would undo it: a System.gc() that waits has been promised a marking."""
    mode = "garbage-bytes"
    given = [*jvm_harness.programs()["ExplicitRequests"].flags, "cycles=300"]
    with rogue(rogue_program, tmp_path, mode, "--times", "-1", "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program="ExplicitRequests", given=given).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
        strikes = device.said().count(f"strike {mode} ")
    assert strikes >= 200, result.describe(f"expected a fault in each of some 300 traces, found {strikes}")


@pytest.mark.parametrize("mode", HARMLESS)
def test_host_sees_through(mode, java, rogue_program, classes, runs, tmp_path):
    with rogue(rogue_program, tmp_path, mode, "--times", "3") as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        assert f"strike {mode} " in device.said(), result.describe(f"the device never got to '{mode}'")
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4)


def test_what_looks_like_an_object_is_none(java, rogue_program, classes, runs, tmp_path):
    """The device defers a place in an array of numbers that look like an array of references beyond the heap's end.
    The host does not read what is there before it has seen a mark."""
    mode, program = "defer-inside", jvm_harness.programs()["FalseObjects"]
    with rogue(rogue_program, tmp_path, mode, "--after-us", "0") as device:
        result = start(runs, java, device, classes, tmp_path, program=program.name, given=program.flags).finish(60)
        check_told(result, device, mode, BAD, abandoned=True)
        check_used_again(result)
    detail = next(f["detail"] for f in result.log.fallbacks)
    assert re.fullmatch(r"DEFER of [0-9a-f]+ which is not marked", detail), detail


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
    """Every cycle fails, or the one after a failed one; none is lost for it."""
    with rogue(rogue_program, tmp_path, mode, "--times", "-1") as device:
        result = start(runs, java, device, classes, tmp_path).finish(60)
        check_told(result, device, mode, {**AT_HANDSHAKE, **IN_TRACE}[mode], abandoned=mode != "silent")
    assert not result.log.offloaded(), result.describe("a cycle was reported as traced")
    remarks = [kind for kind, _ in result.log.events if kind == "remark"]
    assert len(remarks) >= 6, result.describe(f"expected 6 cycles marked on the CPU, found {len(remarks)}")


def test_what_waits_for_a_slow_device(java, rogue_program, classes, runs, tmp_path):
    """While the device marks nothing, the program overwrites references to the same 20,000 objects millions of times.
    Each waits once, and costs its memory once."""
    # No pause waits for the device: the host is patient, and nobody allocates.
    slow = ["--mode", "stop", "--from-cycle", "2", "--after-us", "0", "--patience-us", 60_000_000]
    given = jvm_harness.programs()["OverwrittenReferences"].flags
    with jvm_harness.ServedDevice(rogue_program, tmp_path / "device", *slow) as device:
        run = start(runs, java, device, classes, tmp_path, program="OverwrittenReferences", given=given)
        run.wait_for(lambda _: "strike stop " in device.said(), 60, "a device that stops itself")
        before = jvm_harness.bytes_of_process(run.pid, "VmRSS")
        time.sleep(4)
        after = jvm_harness.bytes_of_process(run.pid, "VmRSS")
        device.wake()
        result = run.finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4)
    assert after - before < 64 * MIB, result.describe(f"the JVM grew by {after - before} bytes")
    waited = [int(n) for n in re.findall(r"waited for room in the ring: at most (\d+)", result.log.text("gc,merapi"))]
    # Those of the class library are some more; the ring itself holds 6,000.
    assert 5_000 < max(waited) < 30_000, result.describe(f"{max(waited)} references waited")
    assert max(trace["satb"] for trace in result.log.traces) > 100 * max(waited), result.describe(
        "few were overwritten"
    )


def beside_a_slow_device(java, device, classes, runs, tmp_path, until, *more):
    """A program that fills its heap with garbage again and again, until its log has so many records of a kind."""
    program, finished = "SteadyGarbage", tmp_path / "finished"
    arguments = ["cycles=100000", f"until={finished}", *more]
    given = jvm_harness.programs()[program].flags
    run = start(runs, java, device, classes, tmp_path, *arguments, program=program, given=given)
    run.wait_count(*until, 120)
    finished.touch()
    result = run.finish(60)
    jvm_harness.check_ok(result)
    return result


def test_a_device_that_is_too_slow(java, rogue_program, classes, runs, tmp_path):
    """The heap is full before it is done, in five cycles. Marking is on the CPU more and more of the time; the device
    is used again when it is fast enough."""
    with rogue(rogue_program, tmp_path, "slow", "--times", "5") as device:
        result = beside_a_slow_device(java, device, classes, runs, tmp_path, ("traces", 2))
    jvm_harness.check_verified(result)
    assert {f["reason"] for f in result.log.fallbacks} == {"device too slow"}, result.describe("another reason")
    jvm_harness.check_abandoned(result, at_least=4)
    remarks = result.log.gc_ids("remark")
    attempts = [f["gc_id"] for f in result.log.fallbacks] + [result.log.traces[0]["gc_id"]]
    between = [sum(1 for gc_id in remarks if first < gc_id < then) for first, then in itertools.pairwise(attempts)]
    # A marking on the CPU may be ended by a full collection, too: then it has no remark.
    assert between[0] <= 1 and between[-1] > 2, result.describe(f"markings between attempts: {between}")


def test_a_device_that_is_too_slow_for_a_heap_that_is_full_soon(java, rogue_program, classes, runs, tmp_path):
    """A marking on the CPU may be quicker: such cycles count less, and not nothing."""
    with rogue(rogue_program, tmp_path, "slow", "--times", "-1") as device:
        result = beside_a_slow_device(java, device, classes, runs, tmp_path, ("fallbacks", 2), "count=315000")
    assert {f["reason"] for f in result.log.fallbacks} == {"device too slow"}, result.describe("another reason")
    filled = [float(f["detail"].split("after ")[1].split()[0]) for f in result.log.fallbacks]
    assert min(filled) < 500, result.describe(f"the heap was full after {filled} ms")
    assert result.log.gc_ids("remark"), result.describe("no marking was finished on the CPU")


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


def test_stop_and_wake(java, rogue_program, classes, runs, tmp_path):
    """Stopped in the middle of its trace and woken seconds later: its old trace ends there."""
    finished = tmp_path / "finished"
    with rogue(rogue_program, tmp_path, "stop") as device:
        run = start(runs, java, device, classes, tmp_path, "cycles=100000", f"until={finished}")
        run.wait_for(lambda log: any(f["abandoned"] for f in log.fallbacks), 30, "an abandoned cycle")
        # Cycles on the CPU, verified, while the device is asleep with half a trace in its hands.
        run.wait_for(lambda log: len(log.gc_ids("remark")) >= 3, 60, "three cycles marked on the CPU")
        time.sleep(2)
        before = run.count("traces")
        device.wake()
        run.wait_count("traces", before + 3, 60)
        finished.touch()
        result = run.finish(60)
        check_told(result, device, "stop", f"device lost|{SILENT}", abandoned=True)
    jvm_harness.check_verified(result)


MIB = 1 << 20


def bitmap_ranges(folder):
    """{name: (address, bytes)} of the mark bitmaps, by what the JVM logs of their pages."""
    pattern = r"(Prev|Next) Bitmap: .* base=(0x[0-9a-f]+).* size=(\d+)M"
    found = re.findall(pattern, (folder / "pages.log").read_text())
    return {name: (int(base, 16), int(size) * MIB) for name, base, size in found}


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
        resident = {name: jvm_harness.resident_bytes(run.pid, *where) for name, where in ranges.items()}
        filled = filled_beside_heap(run, 16 << 30)
        (tmp_path / "finished").touch()
        result = run.finish(60)
        check_told(result, device, "deaf", SILENT, abandoned=True)
    assert max(resident.values()) < 64 * MIB, result.describe(f"bytes of the bitmaps in memory: {resident}")
    assert filled < 128 * MIB, result.describe(f"bytes of the window that are neither heap nor holes: {filled}")


@pytest.mark.parametrize(
    ("program", "given"),
    [
        ("HeapResizing", ["-Xms8m", "-Xmx64m", "-XX:MinHeapFreeRatio=5", "-XX:MaxHeapFreeRatio=15"]),
        # The bits of eight regions share a page.
        ("GraphRewiring", ["-Xms16m", "-Xmx256m", "-XX:ObjectAlignmentInBytes=256", "count=500", "cycles=20"]),
    ],
)
def test_previous_marks_survive(program, given, java, rogue_program, classes, runs, tmp_path):
    """Cycle after cycle is given up. G1 itself verifies the heap by the previous bitmap before each collection: a lost
    mark makes a live object look dead."""
    mode = "garbage-bytes"
    flags = ["-XX:G1HeapRegionSize=1m", "-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifyBeforeGC", *given]
    with rogue(rogue_program, tmp_path, mode, "--times", "-1") as device:
        result = start(runs, java, device, classes, tmp_path, program=program, given=flags).finish(120)
        check_told(result, device, mode, IN_TRACE[mode], abandoned=True)
    jvm_harness.check_verified(result)
