# SPDX-License-Identifier: Apache-2.0
"""A JVM in the shared guest with its heap on the expander, traced by a process outside."""

import shlex
import threading

import emulate
import pytest
from emulate import DEVICE_PROGRAM
from jvm_log import read
from window_device import WindowDevice

HEAP = ["-Xms192m", "-Xmx192m", "-XX:+ExplicitGCInvokesConcurrent"]
LONGEST = 600


def program(name, *arguments):
    return [*HEAP, "-cp", "/merapi/apps/classes", f"merapi.apps.{name}", *map(str, arguments)]


def java(window, log, arguments, on_line=None):
    """Run a program with its heap on the expander. Returns (status, output, log)."""
    command = emulate.java_command(f"dax:{window.device}", f"/merapi/out/{log}", arguments)
    status, output = window.machine.run(shlex.join(command), LONGEST, on_line)
    return status, output, read(window.machine.out / log)


@pytest.fixture
def device(window, tmp_path):
    with WindowDevice(DEVICE_PROGRAM, "model", tmp_path, window.file) as device:
        yield device


def test_cycles_are_marked_from_outside_and_verified(window, device):
    status, output, log = java(window, "marked.log", program("MarkBench", "hashmap", 3, 50000))
    assert status == 0, output
    assert "checksum" in output
    cycles = log.offloaded()
    assert len(cycles) >= 3, output
    assert log.fallbacks == []
    for cycle in cycles:
        assert cycle.trace["objects"] > 100_000
        assert cycle.verify is not None
        assert [cycle.verify[k] for k in ("missed", "incomplete", "live_mismatch")] == [0, 0, 0]
    assert device.alive()


def test_without_a_device_the_guest_marks_itself(window):
    status, output, log = java(window, "alone.log", program("MarkBench", "list", 1, 20000))
    assert status == 0, output
    assert "checksum" in output
    assert log.offloaded() == []


def test_device_killed_and_started_again_under_a_running_jvm(window, tmp_path):
    """The program goes on without the device, and the next device gets the window by a fresh handshake."""
    log = window.machine.out / "killed.log"
    outcome = []

    def marked():
        return len(read(log).offloaded()) if log.exists() else 0

    def wait_for_cycles(number):
        # The program runs in the meantime; it ends the wait if it ends first.
        while marked() < number and not outcome:
            thread.join(0.5)
        return marked()

    thread = threading.Thread(
        target=lambda: outcome.append(java(window, "killed.log", program("MarkBench", "hashmap", 12, 30000)))
    )
    with WindowDevice(DEVICE_PROGRAM, "model", tmp_path / "first", window.file) as first:
        thread.start()
        assert wait_for_cycles(1) >= 1
        first.process.kill()
        first.process.wait()
    before = marked()
    with WindowDevice(DEVICE_PROGRAM, "model", tmp_path / "second", window.file):
        after = wait_for_cycles(before + 1)
        thread.join(LONGEST)
    assert outcome, "the program did not end"
    status, output, read_log = outcome[0]
    assert status == 0, output
    assert after > before, output
    for cycle in read_log.offloaded():
        assert [cycle.verify[k] for k in ("missed", "incomplete", "live_mismatch")] == [0, 0, 0]
