#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a real Java program with its heap in a window and show what the device traced.

Without --app: an in-memory database of the machine's Debian package index, ranked
by PageRank in several rounds. With --app: your own program; write what you would
write after `java`, further JVM flags included (they win over those set here):

  make run APP="-Xmx4g -cp classes Main args"     make run APP="-jar server.jar"

The report is build/run/report.json, the JVM's log build/run/jvm.log.
Status: 0 success, 1 a check failed, 2 wrong use, 130 stopped, 141 nobody reads the output
any more; that of a program that failed is the program's own (128 and the signal's number
when a signal ended it).
"""

import argparse
import codecs
import functools
import io
import json
import locale
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
OUT = BUILD / "run"
sys.path.insert(0, str(ROOT / "tools"))

import java_words  # noqa: E402
import jvm_log  # noqa: E402
import report  # noqa: E402
from children import end  # noqa: E402
from common import count, exclusive, write_if_changed  # noqa: E402
from device import DEVICES, Device, DeviceError, prepare_child  # noqa: E402

LEAST_CYCLES = 3
LEAST_PACKAGES = 10_000
# A steady heap of half a gigabyte in 1500 MB: marking starts by itself, and once more at the end of each round.
DEFAULT_FLAGS = ["-Xms1500m", "-Xmx1500m", "-XX:InitiatingHeapOccupancyPercent=25", "-XX:+ExplicitGCInvokesConcurrent"]


def fail(message, status=1):
    print(f"run: {message}", file=sys.stderr)
    sys.exit(status)


# With a simulated tracer, thousands of times slower than a real one: still a million live objects.
RTL_PACKAGES = 12_000
RTL_FLAGS = ["-Xms1g", "-Xmx1g", "-XX:+ExplicitGCInvokesConcurrent"]


def packages_in(text):
    return len(re.findall(r"^Package:", text, re.M))


def usable(path, least=LEAST_PACKAGES):
    """Is this an index from before? A part of one (its writing was cut short) would make a small heap."""
    return path.exists() and packages_in(path.read_text(errors="replace")) >= least


def package_index():
    """File with the machine's Debian package index; of a private apt root when the machine has no lists."""
    path = OUT / "packages.txt"
    if usable(path):
        return path
    done = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True)
    text = done.stdout
    if done.returncode or packages_in(text) < LEAST_PACKAGES:
        command = [sys.executable, ROOT / "tools/apt_root.py", "index", "--suite", "bookworm"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            fail("expected a Debian package index (apt-cache dumpavail), found none and could not fetch one; see above")
        text = done.stdout
        if packages_in(text) < LEAST_PACKAGES:
            fail(f"expected a Debian package index of {LEAST_PACKAGES} packages, found one of {packages_in(text)}")
    write_if_changed(path, text.encode())
    return path


def part_of_index(packages):
    """File with the first so many packages of the index."""
    path = OUT / f"packages-{packages}.txt"
    if not usable(path, min(packages, LEAST_PACKAGES)):
        stanzas = package_index().read_text(errors="replace").split("\n\n")
        write_if_changed(path, ("\n\n".join(stanzas[:packages]) + "\n").encode())
    return path


def default_program(rounds, device):
    classpath = f"{BUILD / 'apps/classes'}:{BUILD / 'apps/lib'}/*"
    small = device == "rtl"
    index = part_of_index(RTL_PACKAGES) if small else package_index()
    flags = RTL_FLAGS if small else DEFAULT_FLAGS
    return [*flags, "-cp", classpath, "merapi.apps.PackageRank", str(index), str(rounds)]


def own_flags(socket, log, program):
    """JVM flags set here; what the program's own ones say comes later and wins."""
    flags = [f"-XX:MerapiWindow=device:{socket}", "-XX:+MerapiVerify", jvm_log.log_flag(log)]
    if not java_words.names_collector(program):
        flags.insert(0, "-XX:+UseG1GC")
    return flags


# Seconds without a word after which an unfinished line is shown.
QUIET = 0.5
# What is still taken of a stream that others hold open when the program has ended: bytes (more than a pipe holds, so
# that all of the program's own are among them), and seconds in which nothing came.
LEFT_BYTES, LEFT_SECONDS = 1 << 20, 5
# Seconds for the output of a run that was stopped: nobody may be reading it.
STOPPED = 5


class Console:
    """The program's output, each line marked, beside our own lines; one writer at a time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.lost = None  # why nothing more can be printed: nobody reads it, the disk is full

    def say(self, text):
        with self.lock:
            if self.lost:
                return
            try:
                print(text, flush=True)
            except OSError as error:
                self.lost = error

    def copy(self, stream, mark, ended):
        """To the end of the stream, read or not: a program whose pipe is full does not end. A line that is not finished
        is shown when nothing more comes: it may be a prompt. Once `ended` is set so is the copy, when nothing more
        comes: what the program has left behind may keep the stream open, and may go on writing. However long our own
        output waits for its reader, nothing that the program wrote is left out."""
        decode = codecs.getincrementaldecoder(locale.getpreferredencoding(False))("replace")
        decoder, parts, over = io.IncrementalNewlineDecoder(decode, translate=True), [], False
        left_bytes, left_seconds = LEFT_BYTES, LEFT_SECONDS
        while not over:
            last, begin, lines = ended.is_set(), time.monotonic(), []
            if quiet := not select.select([stream], [], [], QUIET)[0]:
                over = last
            else:
                waited = time.monotonic() - begin
                block = os.read(stream.fileno(), 1 << 16)
                if last:
                    left_bytes, left_seconds = left_bytes - len(block), left_seconds - waited
                over = not block or left_bytes <= 0 or left_seconds <= 0
                first, *others = decoder.decode(block, final=over).split("\n")
                parts.append(first)
                if others:  # joined only then: a long line comes in many blocks
                    lines, parts = ["".join(parts), *others[:-1]], others[-1:]
            if (quiet or over) and (rest := "".join(parts)):
                lines, parts = [*lines, rest], []
            for line in lines:
                self.say(f"  {mark} {line.rstrip()}")


class Watcher:
    """Follows the JVM's log and prints a line for each trace once its cycle's remark is over."""

    def __init__(self, path, console):
        self.follower, self.console, self.log = jvm_log.Follower(path), console, jvm_log.JvmLog()
        self.waiting, self.number = None, 0

    def flush(self):
        if self.waiting:
            self.number += 1
            self.console.say(report.trace_line(self.number, self.waiting))
            self.waiting = None

    def poll(self):
        for line in self.follower.lines():
            event = self.log.feed(line)
            if not event:
                continue
            kind, value = event
            if kind == "trace":
                self.flush()
                self.waiting = value
            elif kind == "remark" and self.waiting is value:
                self.flush()
            elif kind == "fallback":
                self.console.say(f"fallback to the CPU: {value.get('reason')} ({value.get('detail')})")

    def end(self):
        self.poll()
        self.flush()
        self.follower.close()


def run_java(java, arguments, log_path):
    """Run the program to its end. Returns (status, log). OSError when its output cannot be printed any more:
    BrokenPipeError when nobody reads it."""
    console = Console()
    watcher = Watcher(log_path, console)
    ended, patience = threading.Event(), STOPPED
    process = subprocess.Popen(
        [java, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=functools.partial(prepare_child, first=False),
    )
    threads = [
        threading.Thread(target=console.copy, args=(process.stdout, "|", ended), daemon=True),
        threading.Thread(target=console.copy, args=(process.stderr, "!", ended), daemon=True),
    ]
    try:
        for thread in threads:
            thread.start()
        while process.poll() is None and not console.lost:
            watcher.poll()
            time.sleep(0.05)
        patience = None
    finally:
        end(process, 10)
        ended.set()
        for thread in threads:
            thread.join(patience)
        if not any(thread.is_alive() for thread in threads):
            watcher.end()
    if console.lost:
        raise console.lost
    return process.returncode, watcher.log


def stop_on_signal(number, _frame):
    """SIGTERM and SIGHUP end the run like Ctrl-C does: everything started here is ended first."""
    raise KeyboardInterrupt(number)


def leave_streams():
    """Let the interpreter end quietly when its streams take nothing more: nobody reads them, the disk is full."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def status_of_lost_output(error):
    """The exit status when nobody reads what is printed; whatever else is in its way is raised."""
    leave_streams()
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    raise error


def print_anything():
    """What a program prints may have characters that the user's locale has not: they are shown as \\u20ac."""
    sys.stdout.reconfigure(errors="backslashreplace")


def device_options(args):
    """Arguments of merapi-device for what --preset and --memory say. DeviceError without a simulated tracer."""
    options = [("--preset", args.preset), ("--memory", args.memory)]
    given = [(name, value) for name, value in options if value]
    if given and args.device != "rtl":
        name, value = given[0]
        raise DeviceError(
            f"{name[2:].upper()}: expected with DEVICE=rtl alone, found '{value}' with DEVICE={args.device}"
        )
    if args.preset and args.preset not in presets():
        raise DeviceError(f"PRESET: expected one of {', '.join(sorted(presets()))}, found '{args.preset}'")
    known = known_memories()
    if args.memory and args.memory not in known and not Path(args.memory).is_file():
        raise DeviceError(
            f"MEMORY: expected one of {', '.join(known)}, or the path of a DRAMsim3 configuration, "
            f"found '{args.memory}'"
        )
    return [word for option in given for word in option]


def known_memories():
    """Memory times that have a name: `ideal`, and those that the simulation's build makes files for."""
    source = (ROOT / "sim/rtl/dramsim3.cmake").read_text()
    return ["ideal", *re.findall(r'"([\w-]+):\w+"', re.search(r"foreach\(pair (.*)\)", source)[1])]


def presets():
    """Names of the tracers that the RTL's sources describe, but for those that are for proofs alone."""
    source = (ROOT / "hw/tracer-rtl/src/main/scala/merapi/common/Parameters.scala").read_text()
    return {name for name in re.findall(r'\bname = "([^"]+)"', source) if not re.match(r"proof\b", name)}


def exit_status(status, problems):
    """Of this process, for the program's status (as subprocess tells it) and what was found wrong."""
    if status == 0:
        return 1 if problems else 0
    return status if status > 0 else 128 - status


def run(args):
    program = shlex.split(args.app) if args.app.strip() else default_program(args.rounds, args.device)
    java, log = args.jdk / "bin/java", OUT / "jvm.log"
    if not java.exists():
        fail(f"expected the patched JDK's java at {java}, found nothing; run 'make jdk'")
    for old in (log, OUT / "report.json"):
        old.unlink(missing_ok=True)
    with Device(args.device_program, args.device, OUT, args.device_options) as device:
        arguments = [*own_flags(device.socket, log, program), *program]
        print(f"device: {args.device} at {device.socket}\nprogram: java {shlex.join(arguments)}", flush=True)
        status, read = run_java(java, arguments, log)
        died, simulated = not device.alive(), device.simulated()
    result = report.build(read, args.device, ["java", *arguments], status, simulated)
    (OUT / "report.json").write_text(json.dumps(result, indent=1) + "\n")
    print()
    for line in report.table(result):
        print(line)
    print(f"\nreport: {OUT / 'report.json'}")
    found = report.problems(result, 0 if args.app.strip() else LEAST_CYCLES)
    if status == 0 and (reason := report.not_traced(read, log)):
        found.append(reason)
    if died:
        found.append(f"the device process ended during the run; see {OUT / 'device.log'}")
    for problem in found:
        print(f"run: {problem}", file=sys.stderr)
    if sentence := report.fallbacks(result):
        print(f"run: {sentence}")
    if result["cycles"] == 0 and not found:
        print(f"run: {report.no_cycles(read)}")
    return exit_status(status, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="model", help="what traces: " + ", ".join(sorted(DEVICES)))
    parser.add_argument("--app", default="", help="java's arguments for your own program")
    parser.add_argument("--check", action="store_true", help="only check --device, --preset, --memory and --app")
    parser.add_argument("--preset", default="", help="with --device rtl: which tracer (ddr4-1ch)")
    parser.add_argument("--memory", default="", help="with --device rtl: memory time (what suits the preset)")
    parser.add_argument("--rounds", type=count, default=4, help="rounds of the default program")
    parser.add_argument("--jdk", type=Path, default=BUILD / "jdk/image")
    parser.add_argument("--device-program", type=Path, default=BUILD / "native/bin/merapi-device")
    args = parser.parse_args()
    if args.device not in DEVICES:
        fail(f"DEVICE: expected one of {', '.join(sorted(DEVICES))}, found '{args.device}'", 2)
    try:
        shlex.split(args.app)
    except ValueError as error:
        fail(f"APP: expected java's arguments as a shell would take them, found {error}: {args.app}", 2)
    try:
        args.device_options = device_options(args)
    except DeviceError as error:
        fail(str(error), 2)
    if args.check:
        return 0
    if sys.stdout is None or sys.stderr is None:
        fail("expected open standard output and error, found one that is closed")
    print_anything()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_on_signal)
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        with exclusive("run"):
            return run(args)
    except DeviceError as error:
        fail(str(error))
    except OSError as error:
        return status_of_lost_output(error)
    except KeyboardInterrupt:
        print("run: stopped; the program and its device were ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
