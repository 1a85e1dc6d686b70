# SPDX-License-Identifier: Apache-2.0
"""The flags: inert without a window and with other collectors; the event that each trace leaves in a recording."""

import json
import os
import re
import resource
import subprocess
from pathlib import Path

import jvm_harness
import pytest
from jvm_options import BASE, VERIFY
from native_fixtures import OWN_MOUNTS

PROGRAM = ["GraphRewiring", "count=500", "cycles=4"]


def test_without_a_window_nothing_is_offloaded(java, classes, runs, tmp_path):
    result = runs(java, [*BASE, "-Xmx96m", "-cp", classes, *PROGRAM], tmp_path).finish(60)
    jvm_harness.check_ok(result)
    assert not result.log.text("gc,merapi"), result.describe("expected nothing under gc,merapi")


def test_verification_without_a_window(java, classes, runs, tmp_path):
    """MerapiVerify judges marking on the CPU too, which shows that it finds stock marking right."""
    result = runs(java, [*BASE, *VERIFY, "-Xmx96m", "-cp", classes, *PROGRAM], tmp_path).finish(60)
    jvm_harness.check_ok(result)
    assert len(result.log.verifies) >= 4, result.describe("expected every remark to be verified")
    jvm_harness.check_verified(result)


def test_verification_beside_half_an_archive(java, device, classes, runs, tmp_path):
    """An archive that was dumped in a larger heap: its strings can be mapped, what keeps them alive cannot."""
    archive = f"-XX:SharedArchiveFile={tmp_path}/large.jsa"
    dump = [java, "-XX:+UseG1GC", "-Xshare:dump", "-Xmx2g", "-XX:G1HeapRegionSize=32m", archive]
    subprocess.run(dump, check=True, capture_output=True, timeout=120)
    program = jvm_harness.programs()["ArchivedStrings"]
    for window in ([jvm_harness.flag_of_window(f"device:{device.socket}")], []):
        folder = tmp_path / ("window" if window else "plain")
        folder.mkdir()
        flags = [*window, *VERIFY, *BASE, archive, f"-Xlog:cds:file={folder}/cds.log", *program.flags]
        result = runs(java, [*flags, "-cp", classes, program.name], folder).finish(60)
        assert "Unable to allocate region" in (folder / "cds.log").read_text(), result.describe("all of it was mapped")
        jvm_harness.check_ok(result)
        jvm_harness.check_verified(result)


def heap_mapping(pid):
    """Lines of /proc/PID/smaps for the heap in the window."""
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text(), flags=re.MULTILINE)
    windows = [mapping for mapping in mappings if "/memfd:merapi-window" in mapping]
    return max(windows, key=lambda mapping: int(re.search(r"^Size:\s+(\d+) kB$", mapping, re.MULTILINE)[1]))


def run_beside_mapping(runs, java, classes, tmp_path, flags, count):
    """Runs a program until it was traced; its result, and the heap's mapping meanwhile."""
    finished = tmp_path / "finished"
    program = ["GraphRewiring", f"count={count}", "cycles=100000", f"until={finished}"]
    run = runs(java, [*BASE, *flags, "-cp", classes, *program], tmp_path)
    run.wait_count("traces", 1, 60)
    mapping = heap_mapping(run.pid)
    finished.touch()
    result = run.finish(60)
    jvm_harness.check_ok(result)
    return result, mapping


@pytest.mark.parametrize("prefix", ["device:", ""], ids=["device", "path-alone"])
def test_heap_is_for_this_process_and_takes_large_pages(prefix, java, device, classes, runs, tmp_path):
    """A forked child would write into the heap of its parent. What -XX:+UseTransparentHugePages asks for is asked of
    the window as well; where the kernel refuses it, a warning says so, however the window was named."""
    support = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    if not support.exists():
        pytest.skip("this kernel has no transparent huge pages of shared memory")
    flags = ["-XX:+UseTransparentHugePages", jvm_harness.flag_of_window(f"{prefix}{device.socket}"), "-Xmx64m"]
    result, mapping = run_beside_mapping(runs, java, classes, tmp_path, flags, count=200)
    held = re.search(r"^VmFlags:(.*)$", mapping, re.MULTILINE)[1].split()
    assert "dc" in held and "hg" in held, mapping
    allowed = support.read_text()
    refused = "[never]" in allowed or "[deny]" in allowed
    assert ("no transparent huge pages" in result.log.text("gc,merapi")) == refused


@pytest.mark.parametrize(
    ("private", "shared", "asked", "told"),
    [
        ("[always] madvise never", "always advise [never]", False, "which it has without a window"),
        ("[always] madvise never", "always [advise] never", False, "which it has without a window"),
        ("[always] madvise never", "[always] advise never", False, None),
        ("always [madvise] never", "always advise [never]", False, None),
        ("[always] madvise never", "always [advise] never", True, None),
        ("always [madvise] never", "always advise [never]", True, "no transparent huge pages: expected 'advise'"),
    ],
    ids=["never-shared", "shared-if-asked", "all", "private-if-asked", "asked", "asked-in-vain"],
)
def test_huge_pages_that_the_heap_lacks_are_told(private, shared, asked, told, java, device, tmp_path):
    """Where the kernel gives them to a heap that is not shared, asked or unasked."""
    settings = Path("/sys/kernel/mm/transparent_hugepage")
    if not (settings / "shmem_enabled").exists():
        pytest.skip("this kernel has no transparent huge pages of shared memory")
    script = ""
    for name, text in (("enabled", private), ("shmem_enabled", shared)):
        (tmp_path / name).write_text(text + "\n")
        script += f"mount --bind {tmp_path / name} {settings / name} || exit 77; "
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    flag = "-XX:+UseTransparentHugePages" if asked else "-XX:-UseTransparentHugePages"
    command = ["sh", "-c", script + 'exec "$@"', "sh", java, window, flag, "-Xmx64m", "-Xlog:gc+merapi", "-version"]
    done = subprocess.run([*OWN_MOUNTS, *command], capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        pytest.skip("this user may not mount anything")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Window device:" in done.stdout, done.stdout
    lines = [line for line in done.stdout.splitlines() if "transparent huge pages" in line]
    assert [told in line for line in lines] == ([True] if told else []), done.stdout


def test_a_touched_heap_is_there_in_small_pages(java, device, classes, runs, tmp_path):
    """-XX:+UseLargePages takes pages from a pool that a window does not use: a warning says so, and -XX:+AlwaysPreTouch
    touches each of the window's small pages."""
    free = re.search(r"^HugePages_Free:\s+(\d+)$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if free is None or int(free[1]) < 80:
        pytest.skip("fewer than 80 large pages in the pool; as root: sysctl vm.nr_hugepages=80")
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    flags = ["-XX:+UseLargePages", "-XX:+AlwaysPreTouch", "-Xms128m", "-Xmx128m", window]
    result, mapping = run_beside_mapping(runs, java, classes, tmp_path, flags, count=50)
    assert re.search(r"^Rss:\s+131072 kB$", mapping, re.MULTILINE), mapping
    warning = "no large pages: expected -XX:+UseTransparentHugePages"
    assert warning in result.log.text("gc,merapi"), result.describe("expected a warning")


def test_waiting_for_a_pause_is_logged_with_it(java, device, classes, runs, tmp_path):
    """What a collection waits for the tracer lies before what the log calls its time: a phase tells of it."""
    flags = [*BASE, jvm_harness.flag_of_window(f"device:{device.socket}"), "-Xmx224m", "-Xmn8m"]
    log = tmp_path / "phases.log"
    program = ["GraphRewiring", "ballast=1200000", "count=300", "cycles=6"]
    result = runs(java, [*flags, f"-Xlog:gc+phases=debug:file={log}", "-cp", classes, *program], tmp_path).finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4, verified=False)
    waits = [float(wait) for wait in re.findall(r"Merapi Pause Waiting: ([\d.]+)ms", log.read_text())]
    pauses = sum(trace["pauses"] for trace in result.log.traces)
    # The program's end may cut a trace short, whose pauses nobody tells.
    cut = result.log.fallbacks or result.log.gc_ids("abort")
    right = len(waits) >= pauses if cut else len(waits) == pauses
    assert pauses > 0 and right, result.describe(f"{len(waits)} waits in {log}, {pauses} pauses in traces")
    # To a tenth of a millisecond.
    longest = max(trace["pause_us_max"] for trace in result.log.traces) / 1000
    assert max(waits) >= longest - 0.1, result.describe(f"the longest wait is {max(waits)} ms, of a trace {longest} ms")


def test_verification_costs_what_is_used(java, classes, runs, tmp_path):
    """A bit for each place of an object in the reserved heap would be 1 GiB."""
    finished = tmp_path / "finished"
    flags = [*BASE, *VERIFY, "-Xms64m", "-Xmx64g", "-cp", classes]
    run = runs(java, [*flags, "GraphRewiring", "count=200", "cycles=100000", f"until={finished}"], tmp_path)
    run.wait_count("verifies", 3, 60)
    most = jvm_harness.bytes_of_process(run.pid, "VmHWM")
    finished.touch()
    result = run.finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    assert most < 768 << 20, result.describe(f"{most} bytes of the JVM were in memory at a time")


def test_without_memory_to_verify_in_the_program_goes_on(java, classes, runs, tmp_path):
    finished = tmp_path / "finished"
    flags = [*BASE, *VERIFY, "-Xms64m", "-Xmx4t", "-cp", classes]
    run = runs(java, [*flags, "GraphRewiring", "count=200", "cycles=100000", f"until={finished}"], tmp_path)
    # Beside the heap G1 reserves two bitmaps of 64 GiB and three tables of 8. For all else half a bitmap is left.
    most = (4096 + 2 * 64 + 3 * 8 + 32) << 30
    resource.prlimit(run.pid, resource.RLIMIT_AS, (most, most))
    run.wait_for(lambda log: log.text("gc,merapi").count("Marking is not verified") >= 2, 60, "two warnings")
    finished.touch()
    result = run.finish(60)
    jvm_harness.check_ok(result)
    said = f"Marking is not verified: cannot map {64 << 30} bytes for a bitmap: "
    assert said in result.log.text("gc,merapi"), result.describe(f"expected '{said}'")


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (["-XX:MerapiSaveImage=image"], "MerapiSaveImage is ignored: expected a window to save"),
        (["-XX:MerapiSaveImage="], "MerapiSaveImage is ignored: expected the path of a file, found nothing"),
        (["-XX:MerapiSaveImageCycle=2"], "MerapiSaveImageCycle is ignored: expected an image to save"),
        (["-XX:MerapiWindow="], "MerapiWindow is ignored: expected device:SOCKET,"),
        (["-XX:+UseSerialGC", "-XX:+MerapiVerify"], "MerapiVerify is ignored: expected the G1 collector"),
        (["-XX:+UseSerialGC", "-XX:MerapiSaveImage=image"], "MerapiSaveImage is ignored: expected the G1 collector"),
    ],
)
def test_what_is_ignored_is_told(flags, warning, java, tmp_path):
    collector = [] if "-XX:+UseSerialGC" in flags else ["-XX:+UseG1GC"]
    done = subprocess.run([java, *collector, *flags, "-version"], capture_output=True, text=True, cwd=tmp_path)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "Merapi" in line]
    assert done.returncode == 0
    assert len(said) == 1, said
    assert f"warning: {warning}" in said[0]


def test_a_heap_that_was_to_be_elsewhere_is_told(java, device, classes, runs, tmp_path):
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    flags = [*BASE, window, f"-XX:AllocateHeapAt={tmp_path}", "-Xmx96m", "-cp", classes]
    result = runs(java, [*flags, *PROGRAM], tmp_path).finish(60)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4, verified=False)
    assert "AllocateHeapAt is ignored" in result.log.text("gc,merapi"), result.describe("expected a warning")


@pytest.mark.parametrize("collector", ["UseSerialGC", "UseParallelGC", "UseZGC", "UseShenandoahGC", "UseEpsilonGC"])
def test_other_collectors_ignore_the_window_and_say_so(collector, java, device, classes, runs, tmp_path):
    flags = ["-XX:+UnlockExperimentalVMOptions", f"-XX:+{collector}", "-Xmx512m"]
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    result = runs(java, [window, *VERIFY, *flags, "-cp", classes, *PROGRAM], tmp_path).finish(60)
    if "not supported" in result.output or "Unrecognized VM option" in result.output:
        pytest.skip(f"this JDK has no {collector}")
    jvm_harness.check_ok(result)
    assert not result.log.traces, result.describe("expected no trace with another collector")
    assert "MerapiWindow is ignored: expected the G1 collector" in result.output, result.describe("expected a warning")


def test_a_file_of_other_data_is_left_alone(java, classes, runs, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(b"precious")
    os.truncate(data, 256 << 20)
    window = jvm_harness.flag_of_window(f"file:{data}")
    result = runs(java, [window, *BASE, "-Xmx96m", "-cp", classes, *PROGRAM], tmp_path).finish(60)
    jvm_harness.check_ok(result)
    assert "found other data, which is left as it is" in result.output, result.describe("expected a warning")
    assert not result.log.offloaded(), result.describe("expected marking on the CPU")
    with open(data, "rb") as file:
        assert file.read(1 << 20) == b"precious".ljust(1 << 20, b"\0")


def test_every_trace_leaves_an_event(java, device, classes, runs, tmp_path):
    recording = tmp_path / "recording.jfr"
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    flags = [*BASE, "-Xmx96m", f"-XX:StartFlightRecording:filename={recording},+jdk.MerapiTrace#enabled=true"]
    result = runs(java, [window, *flags, "-cp", classes, *PROGRAM], tmp_path).finish(90)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4, verified=False)
    command = [java.parent / "jfr", "print", "--json", "--events", "MerapiTrace", recording]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    events = {e["values"]["gcId"]: e["values"] for e in json.loads(printed)["recording"]["events"]}
    for trace in result.log.traces:
        event = events.get(trace["gc_id"])
        assert event, result.describe(f"no jdk.MerapiTrace event for {trace}")
        for name, field in (("objects", "objects"), ("references", "references"), ("liveBytes", "live_bytes")):
            assert event[name] == trace[field], f"event says {name} {event[name]}, log says {trace[field]}"
        assert event["device"] == "model"
        assert event["fallbackReason"] in (None, ""), event


def test_linked_images_are_patched(java, device, classes, runs, tmp_path):
    """What jlink makes has the same libjvm, the library that it loads, and events that recordings name rightly."""
    linked, recording = tmp_path / "linked", tmp_path / "linked.jfr"
    modules = ["--add-modules", "java.base,java.management,jdk.jfr,jdk.management"]
    subprocess.run([java.parent / "jlink", *modules, "--output", linked], check=True, timeout=120)
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    flags = [*BASE, "-Xmx96m", f"-XX:StartFlightRecording:filename={recording},+jdk.MerapiTrace#enabled=true"]
    result = runs(linked / "bin/java", [window, *flags, "-cp", classes, *PROGRAM], tmp_path).finish(90)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 4, verified=False)
    command = [linked / "bin/jfr", "print", "--json", "--events", "MerapiTrace,GarbageCollection", recording]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    events = [event["type"] for event in json.loads(printed)["recording"]["events"]]
    assert events.count("jdk.MerapiTrace") >= 4 and "jdk.GarbageCollection" in events, events
