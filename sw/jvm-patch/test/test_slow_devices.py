# SPDX-License-Identifier: Apache-2.0
"""What a device costs that is slow, stopped or given up: memory of the JVM, and the time of pauses and of the JVM's
end."""

import itertools
import re
import time

import jvm_harness
import pytest
from rogue_runs import SILENT, check_told, rogue, start


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


def test_what_waits_for_a_slow_device(java, rogue_program, classes, runs, tmp_path):
    """While the device marks nothing, the program overwrites references to the same 20,000 objects millions of times.
    Each waits once, and costs its memory once."""
    # No pause waits for the device: the host is patient, and nobody allocates.
    slow = ["--mode", "stop", "--from-cycle", "2", "--after-us", "0", "--patience-us", 60_000_000]
    given = jvm_harness.programs()["OverwrittenReferences"].flags
    with jvm_harness.ServedDevice(rogue_program, tmp_path / "device", *slow) as device:
        run = start(runs, java, device, classes, tmp_path, program="OverwrittenReferences", given=given)
        run.wait_for(lambda _: "strike stop " in device.said(), 60, "a device that stops itself")
        # Not the heap's pages, which the program comes to use meanwhile.
        before = jvm_harness.bytes_of_process(run.pid, "RssAnon")
        # Of its own time: on a busy machine it would overwrite little in any other. The least of the second half: what
        # nobody has looked at yet comes and goes, and is more where threads wait for processors.
        begun, after = jvm_harness.processor_seconds(run.pid), []

        def overwritten_long_enough(_):
            used = jvm_harness.processor_seconds(run.pid) - begun
            if used >= 1:
                after.append(jvm_harness.bytes_of_process(run.pid, "RssAnon"))
            return used >= 2

        run.wait_for(overwritten_long_enough, 45, "a program that overwrites")
        device.wake()
        result = run.finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4)
    overwritten = max(trace["satb"] for trace in result.log.traces)
    # Where each waits it takes 8 bytes, hundreds of megabytes altogether. A busy machine may be behind by a second.
    assert min(after) - before < 4 * overwritten, result.describe(
        f"the JVM grew by {min(after) - before} bytes for {overwritten} references"
    )
    waited = [int(n) for n in re.findall(r"waited for room in the ring: at most (\d+)", result.log.text("gc,merapi"))]
    # Those of the class library are some more; the ring itself holds 6,000.
    assert 5_000 < max(waited) < 30_000, result.describe(f"{max(waited)} references waited")
    assert overwritten > 1000 * max(waited), result.describe("few were overwritten")


def beside_a_slow_device(java, device, classes, runs, tmp_path, until, *more):
    """A program that fills its heap with garbage again and again, until its log satisfies a condition."""
    program, finished = "SteadyGarbage", tmp_path / "finished"
    arguments = ["cycles=100000", f"until={finished}", *more]
    given = jvm_harness.programs()[program].flags
    run = start(runs, java, device, classes, tmp_path, *arguments, program=program, given=given)
    run.wait_for(*until)
    finished.touch()
    result = run.finish(60)
    jvm_harness.check_ok(result)
    return result


def test_a_device_that_is_too_slow(java, rogue_program, classes, runs, tmp_path):
    """The heap is full before it is done, in five cycles. Marking is on the CPU more and more of the time; the device
    is used again when it is fast enough."""
    with rogue(rogue_program, tmp_path, "slow", "--times", "5") as device:
        until = (lambda log: len(log.traces) >= 2, 120, "two traces")
        result = beside_a_slow_device(java, device, classes, runs, tmp_path, until)
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

    def soon(log):
        # The JVM's own border is half a second. On a busy machine the heap is full later, now and then.
        filled = [float(f["detail"].split("after ")[1].split()[0]) for f in log.fallbacks]
        return len(filled) >= 2 and min(filled) < 500

    with rogue(rogue_program, tmp_path, "slow", "--times", "-1") as device:
        until = (soon, 120, "two fallbacks, one of them of cycles in which the heap was full soon")
        result = beside_a_slow_device(java, device, classes, runs, tmp_path, until, "count=315000")
    assert {f["reason"] for f in result.log.fallbacks} == {"device too slow"}, result.describe("another reason")
    assert result.log.gc_ids("remark"), result.describe("no marking was finished on the CPU")
