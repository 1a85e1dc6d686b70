# SPDX-License-Identifier: Apache-2.0
"""QEMU makes each machine, stopped before its first instruction: no guest, so this takes a second or two."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import time

import machine as machines
import pytest
import topology
from children import die_with_parent
from emulate import DEVICE_PROGRAM, lost_function
from machine import Machine
from native_fixtures import stop_process, wait_until
from pci_front import FRONT, PciFront
from topology import MIB, TOPOLOGIES

SECONDS = 120


class Stopped:
    """A machine that is made and not started, and its QMP monitor."""

    def __init__(self, machine, terminal=None):
        self.path, self.log = f"{machine.private}/monitor", machine.folder / "qemu.log"
        command = [*machine.command(), "-S"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, stdin=terminal, stdout=terminal or log, stderr=log, preexec_fn=die_with_parent
            )
        self.socket, self.stream = socket.socket(socket.AF_UNIX), None
        try:
            self.connect()
        except BaseException:
            self.end()
            raise

    def connect(self):
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                self.socket.connect(self.path)
                break
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, "QEMU did not listen"
                time.sleep(0.1)
        self.stream = self.socket.makefile("rw")
        assert "QMP" in self.stream.readline()
        self.call("qmp_capabilities")

    def tell(self, name, **arguments):
        self.stream.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
        self.stream.flush()

    def call(self, name, **arguments):
        self.tell(name, **arguments)
        while True:
            answer = json.loads(self.stream.readline())
            if "event" not in answer:
                assert "return" in answer, answer
                return answer["return"]

    def tree(self):
        """QEMU's device tree as text."""
        return self.call("human-monitor-command", **{"command-line": "info qtree"})

    def end(self):
        if self.stream is not None:
            self.stream.close()
        self.socket.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def made(prepared, tmp_path):
    """Function that makes a Machine with its expanders' files, not started."""
    begun = []

    def make(name):
        (tmp_path / "out").mkdir(exist_ok=True)
        machine = Machine(name, tmp_path, {"out": tmp_path / "out"}, 256 * MIB)
        machine.private, machine.lock = machines.private_folder(machine.topology.expanders * machine.expander_bytes)
        begun.append(machine)
        topology.make_backing(machine.topology, machine.private, machine.expander_bytes)
        return machine

    yield make
    for machine in begun:
        shutil.rmtree(machine.private, ignore_errors=True)
        machine.lock.close()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_machine_of_each_topology(made, name):
    machine = made(name)
    stopped = Stopped(machine)
    try:
        tree = stopped.tree()
        memory = stopped.call("query-memdev")
    finally:
        stopped.end()
    assert tree.count("dev: cxl-type3") == TOPOLOGIES[name].expanders
    shared = [m for m in memory if m["share"] and m["size"] == 256 * MIB]
    assert len(shared) == TOPOLOGIES[name].expanders


def test_a_shells_guest_that_does_nothing_can_be_ended(made):
    """From the terminal, by Ctrl-A x: all else goes to the guest, and one that did not boot held the terminal."""
    machine = made("one")
    machine.shell = True
    ours, its = pty.openpty()
    with open(ours, "r+b", buffering=0) as terminal:
        stopped = Stopped(machine, terminal=its)
        os.close(its)
        try:
            terminal.write(b"\x03")
            assert stopped.call("query-status")["status"] == "prelaunch"
            terminal.write(b"\x01x")
            assert stopped.process.wait(SECONDS) == 0
        finally:
            stopped.end()


def test_tracer_is_a_function_beside_the_expander(made, tmp_path):
    if not FRONT.exists():
        pytest.skip(f"expected {FRONT}, found nothing; run 'make qemu-pci'")
    machine = made("one")
    with PciFront(DEVICE_PROGRAM, "model", tmp_path, machine.files()[0], f"{machine.private}/tracer") as front:
        machine.front = front
        stopped = Stopped(machine)
        try:
            tree = stopped.tree()
        finally:
            stopped.end()
        assert front.alive(), "the front outlives its client"
    assert "class Class 1200, addr 00:00.1, pci id 1234:4d52" in tree


def test_a_function_that_qemu_gives_up_is_told(made, tmp_path):
    """Of a front that answers too late, which went unseen: both processes run on."""
    machine = made("one")
    with PciFront(DEVICE_PROGRAM, "model", tmp_path, machine.files()[0], f"{machine.private}/tracer") as front:
        machine.front = front
        stopped = Stopped(machine)
        try:
            stopped.tree()
            assert lost_function(front, True, tmp_path) == []
            # Otherwise a reset, which the function has to answer, ends QEMU.
            stopped.call("set-action", reboot="reset")
            stop_process(front.process.pid)
            try:
                # It answers when all is reset.
                stopped.tell("system_reset")
                wait_until(lambda: "timed out waiting for reply" in stopped.log.read_text(), SECONDS)
            finally:
                os.kill(front.process.pid, signal.SIGCONT)
            wait_until(front.left)
            assert stopped.process.poll() is None
            told = lost_function(front, True, tmp_path)
        finally:
            stopped.end()
    assert told == [f"QEMU gave up the PCI function during the run; see {tmp_path / 'qemu.log'}"]
