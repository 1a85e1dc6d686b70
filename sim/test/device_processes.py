# SPDX-License-Identifier: Apache-2.0
"""Starts device processes and probes."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from native_fixtures import BINARIES, binary


class Lines:
    """Lines of a process' output as they come."""

    def __init__(self, stream):
        self.queue = queue.Queue()
        self.all = []
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream):
        for line in stream:
            self.all.append(line.rstrip("\n"))
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def next(self, timeout):
        """The next line; None at the end of the output; queue.Empty when there is none in time."""
        return self.queue.get(timeout=timeout)


# A simulated tracer that is quick to simulate, for tests of what surrounds it.
RTL = ["--rtl", "--preset", "sim-small"]


def simulated_tracer():
    """Fails the test when sim-small was not built beside the binaries."""
    path = (BINARIES / "../../rtl/lib/merapi-rtl-sim-small.so").resolve()
    if not path.exists():
        pytest.fail(f"expected {path}, found nothing; run: make rtl-simulations", pytrace=False)
    return RTL


def run(*arguments):
    """A device process that ends by itself."""
    return subprocess.run([binary("merapi-device"), *map(str, arguments)], capture_output=True, text=True, timeout=30)


class Device:
    def __init__(self, *arguments, engine=("--model",), under=()):
        command = [*under, binary("merapi-device"), *engine, "--json", "--log-level", "debug", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = Lines(self.process.stdout)
        self.log = Lines(self.process.stderr)

    def wait_event(self, kind, timeout=30, want=lambda event: True):
        """The next event of this kind for which want(event) holds."""
        end = time.monotonic() + timeout
        while True:
            try:
                line = self.lines.next(max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no event {kind} within {timeout} s; log: {self.log.all[-5:]}") from None
            if line is None:
                raise AssertionError(f"the device ended before an event {kind}; log: {self.log.all[-5:]}")
            event = json.loads(line)
            if event["event"] == kind and want(event):
                return event

    def status(self):
        self.process.send_signal(signal.SIGUSR1)
        return self.wait_event("status")["contexts"]

    def maps_windows(self):
        maps = Path(f"/proc/{self.process.pid}/maps").read_text()
        return sum("memfd:merapi-window" in line for line in maps.splitlines())

    def stop(self, timeout=20):
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait(10)


def finish(process, timeout=120):
    """The exit code of a probe and the object it printed last."""
    out, _ = process.communicate(timeout=timeout)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return process.returncode, json.loads(lines[-1]) if lines else None


def processor_seconds(process):
    """User and system time: fields 14 and 15 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
