# SPDX-License-Identifier: Apache-2.0
"""A JVM in the shared guest with its heap on the expander, traced by a process outside."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

import emulate
import pytest
from common import BUILD
from emulate import DEVICE_PROGRAM
from gen_contract import offset_of
from jvm_log import read
from native_fixtures import stop_process
from window_device import WindowDevice

HEAP = ["-Xms192m", "-Xmx192m", "-XX:+ExplicitGCInvokesConcurrent"]
LONGEST = 300
SIMULATION = BUILD / "rtl/lib/merapi-rtl-sim-small.so"
WAITING = offset_of("host_index", "waiting")  # of 32 bits


def program(name, *arguments):
    return [*HEAP, "-cp", "/merapi/apps/classes", f"merapi.apps.{name}", *map(str, arguments)]


def command_line(name, log, arguments):
    return shlex.join(emulate.java_command(name, f"/merapi/out/{log}", arguments))


def java(machine, name, log, arguments):
    """Run a program with its heap in the window `name`. Returns (status, output, log)."""
    status, output = machine.run(command_line(name, log, arguments), LONGEST)
    return status, output, read(machine.out / log)


def all_right(log):
    """Every cycle that came to its remark was verified there; the program may end in the middle of one."""
    verified = [c.verify for c in log.offloaded() if c.remark_ms is not None]
    return bool(verified) and all(
        v is not None and [v[k] for k in ("missed", "incomplete", "live_mismatch")] == [0, 0, 0] for v in verified
    )


class Background:
    """A program that runs while the test goes on; `cycles` counts those that the device has marked so far."""

    def __init__(self, machine, name, log, arguments):
        self.log, self.outcome = machine.out / log, []
        self.thread = threading.Thread(target=lambda: self.outcome.append(java(machine, name, log, arguments)))
        self.thread.start()

    def cycles(self):
        return len(read(self.log).offloaded()) if self.log.exists() else 0

    def wait_for(self, cycles):
        """Wait for so many marked cycles or the program's end. Returns how many there are."""
        while self.cycles() < cycles and not self.outcome:
            self.thread.join(0.2)
        return self.cycles()

    def end(self):
        self.thread.join(LONGEST)
        assert self.outcome, "the program did not end"
        return self.outcome[0]


def test_cycles_are_marked_from_outside_and_verified(window, tmp_path):
    with WindowDevice(DEVICE_PROGRAM, "model", tmp_path, window.file) as device:
        arguments = program("MarkBench", "hashmap", 3, 50000)
        status, output, log = java(window.machine, f"dax:{window.device}", "marked.log", arguments)
        assert device.alive()
    assert status == 0, output
    assert "checksum" in output
    cycles = log.offloaded()
    assert len(cycles) >= 3, output
    assert log.fallbacks == []
    # A cycle during the program's start finds little, the others its map.
    assert max(cycle.trace["objects"] for cycle in cycles) > 100_000
    assert all_right(log)


def test_cycle_is_marked_by_the_simulated_tracer(window, tmp_path):
    assert SIMULATION.exists(), f"expected {SIMULATION}, found nothing; run 'make rtl-simulations'"
    with WindowDevice(DEVICE_PROGRAM, "rtl", tmp_path, window.file, ["--preset", "sim-small"]) as device:
        arguments = ["-Xms64m", "-Xmx64m", *program("MarkBench", "list", 1, 5000)[2:]]
        status, output, log = java(window.machine, f"dax:{window.device}", "rtl.log", arguments)
        assert device.alive()
    assert status == 0, output
    assert log.offloaded(), output
    assert log.fallbacks == []
    assert all_right(log)


def test_without_a_device_the_guest_marks_itself(window):
    arguments = program("MarkBench", "list", 1, 20000)
    status, output, log = java(window.machine, f"dax:{window.device}", "alone.log", arguments)
    assert status == 0, output
    assert "checksum" in output
    assert log.offloaded() == []


def let_the_host_sleep(window, engine, run):
    """Stop an engine until its host was seen asleep. One that is faster than the guest may never see that. It sleeps
    for two milliseconds at a time, and the function stays armed in between."""
    stop_process(engine)
    try:
        asleep = 0
        while asleep < 3 and not run.outcome:
            asleep += window.host_peek(WAITING) & 0xFFFFFFFF
            time.sleep(0.01)
    finally:
        os.kill(engine, signal.SIGCONT)


def test_engine_killed_under_a_jvm_that_uses_the_function(tracer, window):
    """The same code behind the name of the PCI function; its front starts another engine, which gets the window by a
    fresh handshake, and the program goes on in between."""
    interrupts = tracer.attribute("interrupts")
    run = Background(tracer.machine, tracer.name, "pci.log", program("MarkBench", "hashmap", 10, 30000))
    assert run.wait_for(1) >= 1
    let_the_host_sleep(window, tracer.front.engine(), run)
    tracer.front.kill_engine()
    before = run.cycles()
    after = run.wait_for(before + 2)
    status, output, log = run.end()
    assert status == 0, output
    assert after > before, output
    assert all_right(log)
    # The JVM slept on the function's interrupt.
    assert tracer.attribute("interrupts") > interrupts


def test_guest_reset_during_a_trace(tracer):
    """The engine is in the middle of a cycle whose host is gone without a word; the next host finds a device."""
    machine = tracer.machine
    log = machine.out / "reset.log"
    line = command_line(tracer.name, "reset.log", program("MarkBench", "hashmap", 1000, 30000))
    machine.check(f"{line} >/merapi/out/reset.txt 2>&1 &")
    deadline = time.monotonic() + LONGEST
    while not (log.exists() and read(log).offloaded()):
        assert time.monotonic() < deadline, (machine.out / "reset.txt").read_text()
        time.sleep(0.2)
    # Stopped, so that the next cycle is still there when the guest goes; a host has two seconds of patience.
    stop_process(tracer.front.engine())
    time.sleep(1)
    machine.reset()
    assert machine.run("ls /dev/dax0.0")[0] != 0, "a guest that has just booted"
    assert [w["device"] for w in machine.provision()] == [tracer.memory]
    tracer.bind()
    assert tracer.round_trips(100)["round_trips"] == 100
    status, output, read_log = java(machine, tracer.name, "after.log", program("MarkBench", "hashmap", 2, 30000))
    assert status == 0, output
    assert len(read_log.offloaded()) >= 2, output
    assert all_right(read_log)


FULL = pytest.mark.skipif(os.environ.get("MERAPI_FULL") != "1", reason="20 s each; MERAPI_FULL=1 runs it")


@pytest.mark.parametrize(
    ("topology", "device"),
    [
        ("pmem", ["model"]),
        ("one", ["rtl", "--preset", "sim-small"]),
        pytest.param("one", ["model"], marks=FULL),
        pytest.param("two", ["model"], marks=FULL),
        pytest.param("pmem", ["rtl", "--preset", "sim-small"], marks=FULL),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_whole_run_as_make_qemu_does_it(prepared, topology, device, tmp_path):
    command = [sys.executable, emulate.__file__, "--topology", topology, "--packages", "800"]
    command += ["--folder", tmp_path, "--device", *device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["cycles"] >= emulate.LEAST_CYCLES and report["fallbacks"] == 0
    assert report["verify"]["cycles"] == report["cycles"]
    assert (report["device"], report["emulation"]["topology"]) == (device[0], topology)
    assert (report["device_cycles"] > 0) == (device[0] == "rtl")
