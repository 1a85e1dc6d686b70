# SPDX-License-Identifier: Apache-2.0
"""What tests of native programs share: where the binaries are, a folder for sockets and windows, and waiting.

Binaries come from build/native/bin or the folder in MERAPI_NATIVE.
"""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest
from common import ROOT

BINARIES = Path(os.environ.get("MERAPI_NATIVE", ROOT / "build/native/bin"))
# Before a command: what it mounts is seen by itself and its children alone.
OWN_MOUNTS = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
# Likewise: it sees no processes but its own.
OWN_PROCESSES = [str(ROOT / "tools/own_processes.sh")]


def binary(name):
    """Path of a program; the test fails when it was not built."""
    path = BINARIES / name
    if not path.exists():
        pytest.fail(f"expected {path}, found nothing; run: make native", pytrace=False)
    return str(path)


@pytest.fixture
def folder():
    # Short, for the length that a unix socket's path may have, and on tmpfs.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="merapi-", dir=base) as path:
        yield Path(path)


def wait_until(condition, seconds=30):
    """Ask for a condition until it holds; the test fails when that takes longer than so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s"
        time.sleep(0.02)


def is_stopped(pid):
    """Whether no thread of a process runs, since it is stopped or over: field 3 of proc_pid_stat(5)."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread that just ended
    return all(state in "TZX" for state in states)


def stop_process(pid):
    """SIGSTOP, and wait for it: one thread takes the signal, and until that has a processor the others run on."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid))
