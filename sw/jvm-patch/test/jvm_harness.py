# SPDX-License-Identifier: Apache-2.0
"""Runs Java programs on the patched JVM with a device beside it, and reads what the JVM says of each cycle."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from native_fixtures import stop_process

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "sim/run"))

import jvm_log  # noqa: E402
from device import DEVICES, Device, prepare_child  # noqa: E402

JAVA_SOURCES = Path(__file__).parent / "java"
HELPERS = ("Stress", "ClassBytes", "Redefinition")

# Fields of a Trace line; a line without one of them, or with another type, is a broken promise to its readers.
TRACE_FIELDS = {
    "cycle": int,
    "gc_id": int,
    "device": str,
    "objects": int,
    "references": int,
    "live_bytes": int,
    "deferred": int,
    "ahead": int,
    "shapes": int,
    "satb": int,
    "greys": int,
    "pauses": int,
    "pause_us_max": (int, float),
    "device_ms": (int, float),
    "device_cpu_ms": (int, float),
    "concurrent_ms": (int, float),
    "host_cpu_ms": (int, float),
}
# GCId::undefined() in HotSpot.
UNDEFINED_GC_ID = 0xFFFFFFFF
VERIFY_FIELDS = ("missed", "incomplete", "floating", "live_mismatch", "ms")
# What verification says of each thing that it found wrong, in lines of its own.
COMPLAINT = re.compile(r"^(Reachable but not marked|.* is not marked: |Region \d+ .*live words say)")


# A line of what a JVM tells of its window.
MARKED = re.compile(
    r"^  marked (\d+) time\(s\) by a device, (\d+) on the CPU; fallbacks: (\d+)(?:, the last in (.*))?$", re.MULTILINE
)


def flag_of_window(name):
    return f"-XX:MerapiWindow={name}"


@dataclass
class Program:
    """A Java program and what its source says of running it (@flags, @traces, @log in its class comment)."""

    name: str
    flags: list
    traces: int  # offloaded cycles that a run completes at least
    log: str | None  # what the GC log must show, or the program did not stress what it is for

    @classmethod
    def read(cls, path):
        text = path.read_text()

        def tag(name):
            match = re.search(rf"^ \* @{name} (.*)$", text, re.MULTILINE)
            return match[1].strip() if match else None

        flags, traces = tag("flags"), tag("traces")
        if flags is None or traces is None:
            raise ValueError(f"{path}: expected the lines '@flags ...' and '@traces N' in the class comment")
        return cls(path.stem, flags.split(), int(traces), tag("log"))


def programs():
    """All programs by name."""
    paths = sorted(p for p in JAVA_SOURCES.glob("*.java") if p.stem not in HELPERS)
    return {p.stem: Program.read(p) for p in paths}


def compile_programs(javac, folder):
    sources = sorted(str(p) for p in JAVA_SOURCES.glob("*.java"))
    done = subprocess.run(
        [javac, "-Xlint:all", "-Werror", "--release", "17", "-d", folder, *sources], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"javac failed:\n{done.stdout}{done.stderr}")


@dataclass
class Log(jvm_log.JvmLog):
    """Beside what runs and benches read of a log: all lines, all records in order, and whatever is not as promised."""

    lines: list = field(default_factory=list)  # (tags, gc id or None, text)
    traces: list = field(default_factory=list)
    verifies: list = field(default_factory=list)
    events: list = field(default_factory=list)  # ("trace" | "fallback" | "verify" | "remark" | "abort", gc id)

    def take(self, line):
        self.lines.append((line.tags, line.gc_id, line.text))
        if line.tags == "gc,merapi" and COMPLAINT.match(line.text):
            self.problems.append(line.text)
        event = super().take(line)
        if event:
            kind, value = event
            check = {"trace": self.trace, "verify": self.verify, "fallback": self.fallback}.get(kind)
            if check:
                check(value, line.text)
            gc_id = value.get("gc_id", line.gc_id) if kind == "fallback" else value.gc_id
            self.events.append((kind, gc_id))
        return event

    def trace(self, cycle, text):
        self.traces.append(cycle.trace)
        for name, kind in TRACE_FIELDS.items():
            if not isinstance(cycle.trace.get(name), kind):
                self.problems.append(f"Trace without a proper '{name}': {text}")
        if cycle.trace.get("fallback", "none") is not None:
            self.problems.append(f"Trace without 'fallback', which is null: {text}")

    def verify(self, cycle, text):
        self.verifies.append(cycle.verify)
        missing = [name for name in VERIFY_FIELDS if name not in cycle.verify]
        if missing:
            self.problems.append(f"Verify without {', '.join(missing)}: {text}")

    def fallback(self, value, text):
        if not value.get("reason") or "detail" not in value:
            self.problems.append(f"Fallback without reason or detail: {text}")
        if value.get("gc_id") == UNDEFINED_GC_ID:
            self.problems.append(f"Fallback of no collection: {text}")

    def gc_ids(self, kind):
        return {gc_id for what, gc_id in self.events if what == kind}

    def text(self, tags):
        """Lines under exactly these tags, as one text."""
        return "\n".join(text for found, _, text in self.lines if found == tags)


@dataclass
class Result:
    command: list
    status: int | None  # None: it had to be ended
    output: str
    seconds: float
    log: Log
    folder: Path

    def describe(self, what):
        """A failure's whole story: what was expected, what was said, where to look."""
        crash = sorted(self.folder.glob("hs_err*.log"))
        tail = "\n".join(self.output.splitlines()[-25:])
        merapi = "\n".join(self.log.text("gc,merapi").splitlines()[-12:])
        head = "".join(crash[0].read_text(errors="replace").splitlines(True)[:25]) if crash else ""
        return (
            f"{what}\n  {' '.join(map(str, self.command))}\nstatus {self.status} after {self.seconds:.1f} s, files in "
            f"{self.folder}\noutput:\n{tail}\nlast lines under gc,merapi:\n{merapi}\n{head}"
        )


class Run:
    """A running JVM of ours; ended by its own id, with a thread dump first when it hangs."""

    def __init__(self, java, arguments, folder, patched=True):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.log_path = folder, folder / "gc.log"
        selections = "gc*=info,gc+merapi*=debug" if patched else "gc*=info"
        self.command = [
            str(java),
            f"-Xlog:{selections}:file={self.log_path}:tn,tg:filecount=0",
            f"-XX:ErrorFile={folder}/hs_err_%p.log",
            "-XX:-CreateCoredumpOnCrash",
            *map(str, arguments),
        ]
        self.output_path = folder / "output.txt"
        self.started = time.monotonic()
        with open(self.output_path, "w") as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder
            )

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def log(self):
        """The log so far."""
        return jvm_log.read(self.log_path, Log) if self.log_path.exists() else Log()

    def wait_for(self, condition, seconds, what):
        """Wait until condition(log) holds while the JVM runs."""
        deadline = time.monotonic() + seconds
        while True:
            alive, log = self.alive(), self.log()
            if condition(log):
                return log
            if not alive or time.monotonic() > deadline:
                result = self.end() if alive else self.finish(10)
                raise AssertionError(result.describe(f"expected {what} within {seconds} s"))
            time.sleep(0.02)

    def count(self, kind):
        """How many "traces", "fallbacks" or "verifies" the log has so far."""
        return len(getattr(self.log(), kind))

    def wait_count(self, kind, count, seconds):
        """Wait until there are so many of them."""
        return self.wait_for(lambda log: len(getattr(log, kind)) >= count, seconds, f"{count} {kind}")

    def wait_marking(self, seconds):
        """Return as soon as the next concurrent marking begins."""
        deadline = time.monotonic() + seconds
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            file.seek(0, os.SEEK_END)
            rest = ""
            while time.monotonic() < deadline and self.alive():
                *lines, rest = (rest + file.read()).split("\n")
                if any(line.endswith("Concurrent Mark From Roots") for line in lines):
                    return
                time.sleep(0.001)
        raise AssertionError(self.end().describe(f"expected a marking to begin within {seconds} s"))

    def finish(self, seconds):
        status = None
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            time.sleep(2)
            self.process.kill()
            self.process.wait()
        spent = time.monotonic() - self.started
        output = self.output_path.read_text(errors="replace")
        return Result(self.command, status, output, spent, self.log(), self.folder)

    def end(self):
        """End it now, whatever it does."""
        if self.alive():
            self.process.kill()
        return self.finish(10)


def bytes_of_process(pid, name):
    """A size that /proc/PID/status has, VmRSS for one."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


def processor_seconds(pid):
    """What all threads of a process have used, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid, start, bytes_):
    """How much of a range of a process' addresses is in memory."""
    total, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(head[1], 16) >= start and int(head[2], 16) <= start + bytes_
        elif inside and (size := re.match(r"Rss: +(\d+) kB", line)):
            total += int(size[1]) << 10
    return total


def data_bytes(file, start, bytes_):
    """How much of a file's range is no hole."""
    total, at, end = 0, start, start + bytes_
    while at < end:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from there on
                break
            raise
        hole = os.lseek(file, at, os.SEEK_HOLE)
        total += max(0, min(hole, end) - at)
        at = hole
    return total


# The model as `make run` has it: a busy machine must not cost a cycle. Patience is what fault tests are about.
PATIENT_MODEL = tuple(DEVICES["model"])


class ServedDevice(Device):
    """A device process of any kind at a socket that stays the same over restarts, with what fault tests do to it."""

    def __init__(self, program, folder, *arguments):
        super().__init__(program, "model", folder)
        self.arguments = arguments or ("--model",)
        # Not under the test's own folder: pytest's names are longer than a socket's path may be.
        self.private = tempfile.mkdtemp(prefix="merapi-")
        self.socket = Path(self.private) / "device.sock"
        self.starts = 0

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def start(self):
        self.starts += 1
        self.log = open(self.folder / f"device-{self.starts}.log", "w")  # noqa: SIM115 (closed in __exit__)
        command = [self.program, *map(str, self.arguments), "--socket", self.socket]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, preexec_fn=prepare_child
        )
        self.wait_ready(10)

    def restart(self):
        """After its end: another process at the same socket."""
        self.process.stdout.close()
        self.log.close()
        self.start()

    def said(self):
        return Path(self.log.name).read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        stop_process(self.process.pid)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def __exit__(self, *arguments):
        if self.process is not None and self.process.poll() is None:
            self.wake()  # a stopped process does not see that it is asked to end
        super().__exit__(*arguments)


def check_ok(result):
    """The program found its own data as they must be."""
    assert result.status == 0, result.describe(f"expected exit status 0, found {result.status}")
    said = [line for line in result.output.splitlines() if line.startswith("OK ")]
    assert said, result.describe("expected a line 'OK ...', found none")


def check_verified(result):
    """Every remark's verification found nothing wrong, and the log complains of nothing."""
    log = result.log
    assert not log.problems, result.describe("the log complains: " + "; ".join(log.problems[:5]))
    for verify in log.verifies:
        wrong = {name: verify.get(name) for name in ("missed", "incomplete", "live_mismatch") if verify.get(name) != 0}
        assert not wrong, result.describe(f"verification found {wrong}")
    # A full collection between hand-back and remark leaves a remark that does nothing.
    unverified = (log.gc_ids("trace") & log.gc_ids("remark")) - log.gc_ids("verify") - log.gc_ids("abort")
    assert not unverified, result.describe(f"no Verify line for the offloaded cycles GC({sorted(unverified)})")


def check_offloaded(result, traces, verified=True):
    """At least `traces` cycles were traced by the device, none was abandoned, and each was right."""
    log = result.log
    # The JVM's exit ends the cycle that runs; that is no failure of anything, and none is told.
    assert not log.fallbacks, result.describe(f"expected no fallback, found {log.fallbacks[0]}")
    done = log.traces
    assert len(done) >= traces, result.describe(f"expected at least {traces} offloaded cycles, found {len(done)}")
    cycles = [trace["cycle"] for trace in done]
    assert len(set(cycles)) == len(cycles), result.describe(f"a cycle id was used twice: {cycles}")
    for trace in done:
        assert trace["live_bytes"] >= 8 * trace["objects"], result.describe(f"fewer live bytes than objects: {trace}")
        assert trace["concurrent_ms"] > 0, result.describe(f"a trace took no time: {trace}")
    if verified:
        check_verified(result)


def check_abandoned(result, at_least=1):
    """Each cycle that was abandoned ended without a remark, was not reported as traced, and another one followed."""
    log = result.log
    abandoned = [f for f in log.fallbacks if f.get("abandoned")]
    assert len(abandoned) >= at_least, result.describe(f"expected {at_least} abandoned cycles, found {len(abandoned)}")
    for fallback in abandoned:
        gc_id = fallback["gc_id"]
        assert gc_id != UNDEFINED_GC_ID, result.describe(f"expected the cycle's GC id, found none: {fallback}")
        # Verification runs inside remark: a cycle that it drops has one, and a Trace line before it.
        if fallback["reason"] != "verification":
            counted = {t["gc_id"] for t in log.traces} | log.gc_ids("remark")
            assert gc_id not in counted, result.describe(f"GC({gc_id}) was abandoned and went on all the same")
        later = [e for e in log.events if e[0] == "remark" and e[1] is not None and e[1] > gc_id]
        assert later, result.describe(f"no cycle was marked after GC({gc_id}) was abandoned")


def jdk_folder():
    return Path(os.environ.get("MERAPI_JDK", ROOT / "build/jdk/image"))


def stock_jdk_folder():
    """The unpatched build, or the machine's own JDK 17; LookupError tells what there is instead."""
    built = ROOT / "build/jdk/stock-image"
    if (built / "bin/java").exists():
        return built
    java, found = shutil.which("java"), "none"
    if java:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace")
        version = re.search(r'version "((\d+)[^"]*)"', said.stderr)
        folder = Path(java).resolve().parents[1]
        if said.returncode or not version:
            found = f"{java} that tells no release (status {said.returncode})"
        elif version[2] == "17" and (folder / "bin/java").exists():
            return folder
        else:
            found = f"{java} of release {version[1]}"
    raise LookupError(f"expected an unpatched JDK 17 at {built} or in PATH, found {found}; run 'make jdk-stock'")


def device_program():
    return Path(os.environ.get("MERAPI_DEVICE", ROOT / "build/native/bin/merapi-device"))


def rogue_program():
    return Path(os.environ.get("MERAPI_ROGUE", ROOT / "build/native/bin/merapi-rogue"))
