# SPDX-License-Identifier: Apache-2.0
"""Runs one JVM and measures it from outside: its log, CPU time of its marking threads, wall and CPU time."""

import bisect
import contextlib
import os
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import jvm_log
from children import die_with_parent

# Names (as /proc cuts them, 15 characters) of the threads that G1 marks with, and of the one that waits for them and
# does what else belongs to a cycle.
MARKERS = ("G1 Conc#",)
MARKING_THREADS = (*MARKERS, "G1 Main Marker")
SAMPLE_SECONDS = 0.004


class ThreadClock:
    """CPU time of a process's threads of some names over time, sampled from /proc/PID/task/*/schedstat."""

    def __init__(self, pid, names=MARKING_THREADS):
        self.names = names
        self.pid, self.instants, self.cpu, self.stop = pid, [], [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.known, self.looked = {}, 0.0

    def tasks(self):
        """Paths of the threads' counters; looked for again now and then, since G1 starts them late."""
        now = time.monotonic()
        if not self.known or now - self.looked > 0.5:
            self.looked = now
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{self.pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        if (task / "comm").read_text().startswith(self.names):
                            self.known[task.name] = task / "schedstat"
        return self.known.values()

    def run(self):
        while not self.stop.wait(SAMPLE_SECONDS):
            total = 0
            try:
                for path in self.tasks():
                    total += int(path.read_text().split()[0])
            except (OSError, IndexError):
                return
            self.instants.append(time.monotonic_ns())
            self.cpu.append(total)

    def between(self, begin_ns, end_ns):
        """CPU milliseconds between two instants, interpolated; None when they were not sampled."""
        if not self.instants or begin_ns < self.instants[0] or end_ns > self.instants[-1]:
            return None
        return (self.at(end_ns) - self.at(begin_ns)) / 1e6

    def at(self, instant):
        after = min(max(bisect.bisect_left(self.instants, instant), 1), len(self.instants) - 1)
        t0, t1, c0, c1 = self.instants[after - 1], self.instants[after], self.cpu[after - 1], self.cpu[after]
        return c0 + (c1 - c0) * (instant - t0) / max(1, t1 - t0)


@dataclass
class Measured:
    """What one JVM did."""

    status: int
    output: str
    wall_ms: float
    cpu_ms: float
    log: jvm_log.JvmLog | None = None
    marking_cpu_ms: dict = field(default_factory=dict)  # by gc id: CPU time of the sampled threads in its marking


class BenchError(Exception):
    """A measured program failed; the text says how."""


def run(java, arguments, log_path=None, sample=(), more_log=()):
    """Run java to its end. With log_path its log is read; `sample`: names of threads whose CPU time is taken."""
    flags = [jvm_log.log_flag(log_path, *more_log)] if log_path else []
    if log_path:
        Path(log_path).unlink(missing_ok=True)
    begin = time.monotonic()
    # Output is small and goes to the pipe; the process is reaped by wait4, which knows its CPU time.
    command = [str(java), *flags, *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=die_with_parent,
    )
    clock = ThreadClock(process.pid, sample) if sample else None
    if clock:
        clock.thread.start()
    try:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if clock:
            clock.stop.set()
            clock.thread.join()
        process.stdout.close()
    wall = (time.monotonic() - begin) * 1e3
    measured = Measured(process.returncode, output, wall, (usage.ru_utime + usage.ru_stime) * 1e3)
    if measured.status:
        raise BenchError(f"{java} {' '.join(arguments)} ended with status {measured.status}\n{output}")
    if log_path:
        measured.log = jvm_log.read(log_path)
    if clock:
        for cycle in measured.log.cycles.values():
            if cycle.mark_begin_ns and cycle.mark_end_ns:
                measured.marking_cpu_ms[cycle.gc_id] = clock.between(cycle.mark_begin_ns, cycle.mark_end_ns)
    return measured


def printed(measured, name):
    """The number that the program printed as 'NAME NUMBER'."""
    for line in measured.output.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return float(value)
    raise BenchError(f"expected a line '{name} NUMBER' from the program, found\n{measured.output}")
