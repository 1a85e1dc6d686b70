# SPDX-License-Identifier: Apache-2.0
"""The real device process: absent, late, killed, stopped, restarted, replaced; files that are no windows; dead JVMs."""

import os
import re
import resource
import signal
import subprocess
import time

import jvm_harness
import pytest
from jvm_options import BASE, G1_VERIFY, VERIFY

MIB = 1 << 20
# A list in random order: no tracer is done with it in less than some tens of milliseconds, time enough to hit one.
LONG = ["-Xms224m", "-Xmx224m"]
LONG_PROGRAM = ["GraphRewiring", "ballast=1200000", "count=300", "cycles=100000"]
SHORT = ["-Xms128m", "-Xmx128m"]
SHORT_PROGRAM = ["GraphRewiring", "count=1000", "cycles=5"]


@pytest.fixture
def start(runs, java, classes, tmp_path):
    """Starts a program on a window; `until` lets a LONG one end."""

    def begin(window, *program, flags=SHORT, folder=None):
        flag = jvm_harness.flag_of_window(window)
        return runs(java, [flag, *VERIFY, *BASE, *flags, "-cp", classes, *program], folder or tmp_path)

    return begin


@pytest.fixture
def own_device(device_program, tmp_path):
    # Twice the usual patience: what happens here is meant, not the machine's other work.
    with jvm_harness.ServedDevice(device_program, tmp_path / "device", "--model", "--patience-us", 200000) as served:
        yield served


def on_the_cpu(result, cycles=1):
    """Nothing was offloaded and nothing was missing."""
    jvm_harness.check_ok(result)
    assert not result.log.traces, result.describe("expected no trace without a device")
    remarks = [kind for kind, _ in result.log.events if kind == "remark"]
    assert len(remarks) >= cycles, result.describe(f"expected {cycles} cycles marked on the CPU, found {len(remarks)}")
    assert not result.log.problems, result.describe("the log complains")


def said(result, *words):
    """The log tells why, in one line that holds all the words."""
    lines = result.log.text("gc,merapi").splitlines()
    found = any(all(word in line for word in words) for line in lines)
    assert found, result.describe(f"expected a line under gc,merapi with {words}")


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


# Of a heap of 128 MiB a bitmap has 2 MiB. What the JVM maps for itself is not shared.
NO_MAPPING = r"""
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static int seen;
  const int shown = (flags & MAP_SHARED) && (flags & MAP_FIXED) && bytes == strtoul(getenv("NO_MAPPING_OF"), 0, 0);
  if (shown && ++seen == atoi(getenv("NO_MAPPING_NUMBER"))) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void*)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}
"""


@pytest.fixture
def no_mapping(tmp_path, monkeypatch):
    """no_mapping(bytes_, number): of the mappings of that many bytes of a window that are to lie somewhere, that one
    fails in programs that are started from then on."""
    library = tmp_path / "no-mapping.so"
    compiler = ["cc", "-x", "c", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, "-"]
    subprocess.run(compiler, input=NO_MAPPING, text=True, check=True, timeout=60)

    def arrange(bytes_, number):
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("NO_MAPPING_OF", str(bytes_))
        monkeypatch.setenv("NO_MAPPING_NUMBER", str(number))

    return arrange


@pytest.mark.parametrize("number", [1, 2])
def test_bitmaps_that_cannot_be_mapped(number, start, own_device, no_mapping):
    """The window is given up before its heap is mapped, whichever of the two it is."""
    no_mapping(2 * MIB, number)
    result = start(f"device:{own_device.socket}", *SHORT_PROGRAM).finish(60)
    on_the_cpu(result, 5)
    said(result, "Marking stays on the CPU: cannot map the mark bitmaps of window", "Not enough space")
    assert not result.log.fallbacks, result.describe("expected a JVM without a window")


def test_a_heap_that_cannot_be_mapped(start, own_device, no_mapping):
    """A mapping that failed may have left a hole in the heap's reservation: there is nothing to go on with."""
    no_mapping(128 * MIB, 1)
    result = start(f"device:{own_device.socket}", *SHORT_PROGRAM).finish(60)
    told = "Could not map the heap at offset" in result.output
    assert result.status == 1 and told, result.describe("expected an error")


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


MARKED = re.compile(
    r"^  marked (\d+) time\(s\) by a device, (\d+) on the CPU; fallbacks: (\d+)(?:, the last in (.*))?$"
)


def check_told(text, window, device, before, after):
    """What print_on says, between two looks at the log."""
    lines = [line for line in text.splitlines() if not line.startswith("  cycle ")]
    at = next(i for i, line in enumerate(lines) if line.startswith(" merapi window "))
    assert re.fullmatch(rf" merapi window        total \d+K, {window}", lines[at])
    assert re.fullmatch(
        rf"  device merapi-model \(model, process {device.process.pid}\), generation \d+(; .* private)?", lines[at + 1]
    )
    traces, on_cpu, fallbacks, last = MARKED.fullmatch(lines[at + 2]).groups()
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


def address_space(pid):
    return int(jvm_harness.Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def test_stopped_where_address_space_is_short(runs, java, classes, own_device, tmp_path):
    """Where the address space is limited (ulimit -v), both bitmaps leave the window without taking more of it. G1's own
    verification judges the previous one's marks."""
    finished = tmp_path / "finished"
    flags = [jvm_harness.flag_of_window(f"device:{own_device.socket}"), *BASE, *G1_VERIFY, "-Xms224m", "-Xmx16g"]
    run = runs(java, [*flags, "-cp", classes, *LONG_PROGRAM, f"until={finished}"], tmp_path)
    run.wait_count("traces", 2, 60)
    # A bitmap takes 256 MiB. So does what the JVM maps now and then to follow references: not in the least of these.
    least = min(address_space(run.pid) for _ in range(400) if time.sleep(0.005) is None)
    most = least + (128 << 20)
    resource.prlimit(run.pid, resource.RLIMIT_AS, (most, most))
    remarks = len(stop_in_a_trace(run, own_device).gc_ids("remark"))
    run.wait_for(lambda log: len(log.gc_ids("remark")) >= remarks + 2, 60, "two cycles on the CPU")
    own_device.wake()
    run.wait_count("traces", run.count("traces") + 2, 60)
    finished.touch()
    result = run.finish(90)
    jvm_harness.check_ok(result)
    assert not result.log.problems, result.describe("the log complains")


# ------------------------------------------------------------ windows in files

# Heap of 128 MiB, two bitmaps of a sixty-fourth each, tables, alignment.
ROOMY = 192 * MIB


@pytest.fixture
def window_file(tmp_path):
    # On tmpfs where there is one: a heap on a disk's pages is slow and wears it.
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    path = jvm_harness.Path(folder) / f"merapi-test-{os.getpid()}.window"
    yield path
    path.unlink(missing_ok=True)


def serve_file(processes, program, path, folder, arguments=("--model",)):
    with open(folder / "file-device.log", "a") as log:
        return processes([program, *map(str, arguments), "--window", path], stdout=log, stderr=log)


def fill(path, bytes_, head=b""):
    with open(path, "wb") as file:
        file.truncate(bytes_)
        file.write(head)


@pytest.mark.parametrize(
    "head",
    [b"", b"MERAPI1\0" + (99).to_bytes(2, "little") * 2044],
    ids=["zeros", "other-version"],
)
def test_a_file_of_any_window_is_formatted(head, start, device_program, processes, window_file, tmp_path):
    """A window is laid out anew by the JVM that takes it, of whatever version it was."""
    fill(window_file, ROOMY, head)
    serve_file(processes, device_program, window_file, tmp_path)
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


# Fields of 64 bits in the control page (the contract, section 18).
HOST_GENERATION, SUBMISSION_PRODUCED = 0x200, 0x208
DEVICE_PID, DEVICE_GENERATION, SUBMISSION_CONSUMED = 0x418, 0x440, 0x448


def word(path, at):
    with open(path, "rb") as file:
        file.seek(at)
        return int.from_bytes(file.read(8), "little")


def wait_word(path, what, condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"expected {what} in {path} within 30 s"


@pytest.fixture
def serve(processes, device_program, window_file, tmp_path):
    """A device process on the file's window."""
    return lambda: serve_file(processes, device_program, window_file, tmp_path, jvm_harness.PATIENT_MODEL)


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
    os.kill(run.pid, signal.SIGSTOP)
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
