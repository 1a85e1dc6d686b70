# SPDX-License-Identifier: Apache-2.0
"""Windows in files: of any content, too small, taken; without a device, and with one that is replaced."""

import os
import signal
import subprocess
import time

import jvm_harness
import pytest
from fault_runs import LONG, LONG_PROGRAM, MIB, SHORT, SHORT_PROGRAM, on_the_cpu, said
from gen_contract import offset_of
from native_fixtures import OWN_MOUNTS, stop_process

# Heap of 128 MiB, two bitmaps of a sixty-fourth each, tables, alignment.
ROOMY = 192 * MIB


@pytest.fixture
def window_file(tmp_path):
    # On tmpfs where there is one: a heap on a disk's pages is slow and wears it.
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    path = jvm_harness.Path(folder) / f"merapi-test-{os.getpid()}.window"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def serve(processes, device_program, window_file, tmp_path):
    """Starts a device process on the file's window."""

    def begin():
        with open(tmp_path / "file-device.log", "a") as log:
            command = [device_program, *map(str, jvm_harness.PATIENT_MODEL), "--window", window_file]
            return processes(command, stdout=log, stderr=log)

    return begin


def fill(path, bytes_, head=b""):
    with open(path, "wb") as file:
        file.truncate(bytes_)
        file.write(head)


@pytest.mark.parametrize(
    "head",
    [b"", b"MERAPI1\0" + (99).to_bytes(2, "little") * 2044],
    ids=["zeros", "other-version"],
)
def test_a_file_of_any_window_is_formatted(head, start, serve, window_file):
    """A window is laid out anew by the JVM that takes it, of whatever version it was."""
    fill(window_file, ROOMY, head)
    serve()
    result = start(f"file:{window_file}", *SHORT_PROGRAM, "cycles=8").finish(60)
    jvm_harness.check_ok(result)
    # The device finds the new generation by looking now and then: the first cycle may be too early for it.
    assert len(result.log.offloaded()) >= 3, result.describe("expected the device to trace in the file's window")
    jvm_harness.check_verified(result)


@pytest.mark.parametrize("bytes_", [0, 4096, 100 * MIB], ids=["empty", "one-page", "truncated"])
def test_file_too_small(bytes_, start, window_file):
    fill(window_file, bytes_)
    result = start(f"file:{window_file}", *SHORT_PROGRAM).finish(60)
    on_the_cpu(result, 5)
    said(result, "Marking stays on the CPU", str(window_file))


def test_file_without_device(start, window_file):
    fill(window_file, ROOMY)
    result = start(f"file:{window_file}", *SHORT_PROGRAM).finish(60)
    on_the_cpu(result, 5)
    said(result, "no device")


@pytest.mark.parametrize("served", [True, False], ids=["served", "unserved"])
def test_a_cycle_that_marks_again_is_one(served, start, serve, window_file):
    """Whoever marks it again when the remark pause had no room in the mark stack."""
    fill(window_file, 2 * ROOMY)
    if served:
        serve()
    program = jvm_harness.programs()["MarkStackOverflow"]
    alone = ["-XX:-G1UseAdaptiveIHOP", "-XX:InitiatingHeapOccupancyPercent=100"]  # all cycles are the program's own
    result = start(
        f"file:{window_file}", program.name, flags=[*program.flags, *alone, "-Xlog:gc+heap+exit:stdout:none"]
    ).finish(90)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    again = [gc_id for _, gc_id, text in result.log.lines if "Restart for Mark Stack Overflow" in text]
    assert again, result.describe("no cycle marked again")
    traced, fallen = result.log.gc_ids("trace"), [f["gc_id"] for f in result.log.fallbacks]
    assert (set(again) <= traced) == served, result.describe(f"again: {again}, traced: {traced}")
    assert len(fallen) == len(set(fallen)), result.describe("a cycle fell back twice")
    (told,) = jvm_harness.MARKED.findall(result.output)
    assert told[:3] == tuple(map(str, (len(traced), len(fallen), len(fallen)))), result.describe(f"{told}")


def test_little_room(java, tmp_path):
    """A file that could outgrow its file system: told when the JVM starts, and not where there is room."""
    mount = tmp_path / "mount"
    mount.mkdir()
    command = [java, jvm_harness.flag_of_window(f"file:{mount}/window"), *SHORT, "-Xlog:gc+merapi", "-version"]
    said = []
    for taken in ("1M", "150M"):
        script = f"""mount -t tmpfs -o size=256M none {mount} || exit 77
            fallocate -l {taken} {mount}/other && truncate -s {ROOMY} {mount}/window && exec "$@" """
        done = subprocess.run([*OWN_MOUNTS, "sh", "-c", script, "sh", *command], capture_output=True, text=True)
        if done.returncode == 77:
            pytest.skip("this user may not mount a tmpfs")
        assert done.returncode == 0, done.stdout + done.stderr
        said.append("may outgrow its file system: expected room for" in done.stdout)
    assert said == [False, True]


def test_file_taken_by_another_jvm(start, window_file, tmp_path):
    fill(window_file, ROOMY)
    finished = tmp_path / "finished"
    first = start(
        f"file:{window_file}", *SHORT_PROGRAM, "cycles=100000", f"until={finished}", folder=tmp_path / "first"
    )
    first.wait_for(lambda log: log.gc_ids("remark"), 30, "a cycle of the first JVM")
    second = start(f"file:{window_file}", *SHORT_PROGRAM, folder=tmp_path / "second").finish(60)
    on_the_cpu(second, 5)
    said(second, "Marking stays on the CPU", str(window_file))
    finished.touch()
    on_the_cpu(first.finish(60))


# ------------------------------------------------------ a device in another's place

# Fields of 64 bits.
HOST_GENERATION = offset_of("host_index", "generation")
SUBMISSION_PRODUCED = offset_of("host_index", "submission_produced")
DEVICE_PID = offset_of("device_identity", "pid")
DEVICE_GENERATION = offset_of("device_index", "generation")
SUBMISSION_CONSUMED = offset_of("device_index", "submission_consumed")


def word(path, at):
    with open(path, "rb") as file:
        file.seek(at)
        return int.from_bytes(file.read(8), "little")


def wait_word(path, what, condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"expected {what} in {path} within 30 s"


def wait_answered(path, device):
    """Until that process has answered the host, or has looked at what another one has answered."""

    def answered():
        return word(path, DEVICE_PID) == device.pid and word(path, DEVICE_GENERATION) == word(path, HOST_GENERATION)

    wait_word(path, "the device's answer", answered)


def replace(device, serve, path):
    """Another process in the place of one that is killed; it has had time to do what it finds to be done."""
    device.kill()
    device.wait()
    device = serve()
    wait_answered(path, device)
    time.sleep(0.2)
    return device


def check_went_on(result):
    """The cycle that the other device knows nothing of is marked on the CPU, and that device is used later."""
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    jvm_harness.check_abandoned(result)
    kinds = [kind for kind, _ in result.log.events]
    assert "trace" in kinds[kinds.index("fallback") :], result.describe("expected the other device to be used")


@pytest.mark.parametrize("plan", ["cfrf", "cfcfrf"])
def test_replaced_between_full_collections(plan, start, serve, window_file, tmp_path):
    """Another device process begins on a file's window while the JVM holds its generation. What is in the ring is of a
    cycle that is long over: the bitmap in which it would mark is that of the next full collection."""
    fill(window_file, ROOMY)
    device = serve()
    asked = tmp_path / "asked"
    run = start(f"file:{window_file}", "DeviceReplaced", f"plan={plan}cccccc", f"asked={asked}")
    run.wait_for(lambda _: asked.exists(), 60, "a plan that has come to its r")
    replace(device, serve, window_file)
    asked.unlink()
    check_went_on(run.finish(90))


def test_replaced_in_a_trace(start, serve, window_file, tmp_path):
    """At its beginning, perhaps before the JVM has read any completion: its index is then what the new device's is."""
    fill(window_file, 320 * MIB)
    device = serve()
    finished = tmp_path / "finished"
    program = [*LONG_PROGRAM, "ballast=200000"]
    run = start(f"file:{window_file}", *program, f"until={finished}", flags=LONG)
    run.wait_count("traces", 1, 60)
    # The first trace after a handshake.
    device.kill()
    device.wait()
    run.wait_count("fallbacks", run.count("fallbacks") + 1, 30)
    device = serve()
    wait_answered(window_file, device)
    wait_word(window_file, "commands of a trace", lambda: word(window_file, SUBMISSION_PRODUCED) >= 2)
    stop_process(run.pid)
    time.sleep(0.05)
    fallbacks = run.count("fallbacks")
    assert word(window_file, SUBMISSION_CONSUMED) >= 2
    replace(device, serve, window_file)
    assert word(window_file, SUBMISSION_CONSUMED) == 0, run.end().describe("the new device has executed what is old")
    os.kill(run.pid, signal.SIGCONT)
    run.wait_count("fallbacks", fallbacks + 1, 30)
    run.wait_count("traces", run.count("traces") + 1, 60)
    finished.touch()
    check_went_on(run.finish(90))
