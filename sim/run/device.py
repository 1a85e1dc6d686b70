# SPDX-License-Identifier: Apache-2.0
"""Starts and ends a device process (merapi-device) of our own on a private socket."""

import contextlib
import functools
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from children import die_with_parent, end

# Devices by the name that DEVICE= takes: the arguments of merapi-device that choose them. The model's patience
# is ten times the usual one: on a busy machine it may wait long for a core, and every fallback would only say that. A
# simulated tracer states its own.
DEVICES = {"model": ["--model", "--patience-us", "1000000"], "rtl": ["--rtl"]}
SIMULATING = re.compile(r"simulating (\S+) with memory (.+)$", re.M)
# A unix socket's path has room for 108 bytes (sun_path in unix(7)), one of them the final zero.
SOCKET_PATH_MAX = 107


class DeviceError(Exception):
    """The device did not start; the text says what was expected and found."""


# The device stands in for hardware, which does not queue for a core behind other programs.
NICE = -10


def prepare_child(first=True):
    """In the child: end when the starting process is gone, however it went. `first`: before others, where allowed."""
    die_with_parent()
    if first:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICE)


def realtime_permitted():
    """May this process's children run before all ordinary threads (merapi-device --realtime)?

    Asked by a thread of its own, whose policy ends with it: who may take it by a limit alone (RLIMIT_RTPRIO) may not
    give back that it ends at a fork."""
    permitted = []

    def ask():
        lowest = os.sched_get_priority_min(os.SCHED_RR)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(lowest))
            permitted.append(True)

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return bool(permitted)


class Device:
    """A running device process. Use as a context manager: the process and its socket are gone at its end."""

    def __init__(self, program, name, folder, options=()):
        if name not in DEVICES:
            raise DeviceError(f"expected a device of {', '.join(sorted(DEVICES))}, found '{name}'; use DEVICE=model")
        if not Path(program).exists():
            raise DeviceError(f"expected the device process at {program}, found nothing; run 'make native'")
        self.program, self.name, self.folder = Path(program), name, Path(folder)
        self.options = list(options)  # further arguments of merapi-device
        self.private, self.process, self.socket = None, None, None

    def __enter__(self):
        self.socket = self.folder / f"{self.name}-{os.getpid()}.sock"
        if len(os.fsencode(self.socket)) > SOCKET_PATH_MAX:
            self.private = tempfile.mkdtemp(prefix="merapi-")
            self.socket = Path(self.private) / f"{self.name}.sock"
        return self.start([self.program, *DEVICES[self.name], *self.options, "--socket", self.socket])

    def start(self, command):
        """Start `command` as the device's process and wait until it is ready. Returns self."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = (self.folder / "device.log").open("w")
        try:
            # In a process group of its own: Ctrl-C ends the program first, and its device only after that. But in no
            # session of its own: where the scheduler shares processors among those (autogroup) it would wait long.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self.log,
                process_group=0,
                # A simulation is busy for minutes; it takes its turn like everything else.
                preexec_fn=functools.partial(prepare_child, self.name == "model"),
            )
            self.wait_ready(10)
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_ready(self, seconds):
        """Wait for the line 'ready PATH'."""
        selector, text, deadline = selectors.DefaultSelector(), b"", time.monotonic() + seconds
        selector.register(self.process.stdout, selectors.EVENT_READ)
        while b"\n" not in text:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise DeviceError(f"{self.program} said nothing for {seconds} s; see {self.log.name}")
            block = os.read(self.process.stdout.fileno(), 4096)
            if not block:
                status = self.process.wait()
                detail = Path(self.log.name).read_text(errors="replace").strip()
                raise DeviceError(f"{self.program} ended with status {status} before it was ready\n{detail}")
            text += block
        if not text.startswith(b"ready "):
            raise DeviceError(f"{self.program}: expected 'ready PATH', found {text!r}")

    def simulated(self):
        """(preset, memory) of a simulated tracer, as the device said at its start; (None, None) for others."""
        match = SIMULATING.search(Path(self.log.name).read_text(errors="replace"))
        return (match[1], match[2].strip()) if match else (None, None)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def cpu_ms(self):
        """CPU time of the process so far, all threads, in milliseconds."""
        total = 0
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e6

    def __exit__(self, *_):
        if self.process is not None:
            end(self.process, 5)
            self.process.stdout.close()
        self.log.close()
        if self.socket:
            self.socket.unlink(missing_ok=True)
        if self.private:
            shutil.rmtree(self.private, ignore_errors=True)
