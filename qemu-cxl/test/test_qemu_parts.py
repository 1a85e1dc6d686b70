# SPDX-License-Identifier: Apache-2.0
"""The launcher's parts without a guest: the agent's protocol, topologies, shared memory, the accelerator."""

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import accelerator
import bench_qemu
import emulate
import machine as machines
import pytest
import topology
from machine import GuestError, Machine
from topology import MIB, TOPOLOGIES


class Running:
    """Stands in for QEMU's process."""

    returncode = None

    def poll(self):
        return self.returncode


@pytest.fixture
def guest(tmp_path):
    """A Machine that was never started, and the agent's end of its channel."""
    made = Machine("one", tmp_path, {}, 256 * MIB)
    (tmp_path / "qemu.log").write_text("last words of QEMU")
    made.process = Running()
    made.channel, agent = socket.socketpair()
    agent.settimeout(10)
    yield made, agent
    made.channel.close()
    agent.close()


NOBODY_READS = """
import os, signal, sys, types
from pathlib import Path
import emulate
signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does
emulate.check_inputs = emulate.prepare.ready = lambda *_: None
told = []
class Guest:
    def run(self, command, seconds, on_line):
        for number in range(1000):
            on_line(f"line {number}")
            told.append(number)
        return 0, ""
def run(args, out):
    try:
        return emulate.run_java(Guest(), ["java"], out / "jvm.log", 5)[0]
    finally:
        Path("told").write_text(str(len(told)))
emulate.run = run
sys.argv = ["emulate.py", "--folder", os.getcwd()]
sys.exit(emulate.main())
"""


def test_a_guest_whose_output_nobody_reads_is_ended(tmp_path):
    """The whole program ran on, up to a quarter of an hour, and then there was a traceback."""
    here = Path(emulate.__file__).parent
    path = os.pathsep.join(map(str, (here, here.parent / "tools", here.parent / "sim/run")))
    command = [sys.executable, "-c", NOBODY_READS]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(30) == 141 and errors == b"", errors
    assert (tmp_path / "told").read_text() == "0"


def test_output_and_status_of_a_command(guest):
    made, agent = guest
    # Whatever way it is cut into pieces, and when the output does not end its line.
    agent.sendall(b"first\r\nsec")
    agent.sendall(b"ond\x1e1 3\n")
    seen = []
    assert made.run("some command", 5, seen.append) == (3, "first\nsecond")
    assert seen == ["first", "second"]
    assert agent.recv(100) == b"1 some command\n"
    agent.sendall(b"\x1e2 0\n")
    assert made.check("other") == ""


def test_expanders_that_do_not_fit_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "SHARED_MEMORY", tmp_path)
    with pytest.raises(GuestError, match=rf"expected {2 << 30} MiB free in {tmp_path} .*, found \d+ MiB; make it"):
        Machine("two", tmp_path / "guest", {}, 1 << 50).__enter__()
    assert not list(tmp_path.glob("merapi-qemu-*")), "nothing is left"
    monkeypatch.setattr(machines, "SHARED_MEMORY", tmp_path / "none")
    with pytest.raises(GuestError, match="expected a folder in memory, .*/none, that can be written"):
        Machine("one", tmp_path / "guest", {}, MIB).__enter__()


@pytest.mark.parametrize("shell", [False, True])
def test_commas_in_paths_end_no_value(tmp_path, monkeypatch, shell):
    monkeypatch.setattr(machines.prepare, "qemu_command", lambda: ["qemu"])
    folder = tmp_path / "a,b"
    made = Machine("pmem", folder, {"native": folder / "native", "out": folder / "out"}, 256 * MIB, shell=shell)
    made.private = folder / "c,d"
    command = made.command()
    lists = [x for x in command if str(tmp_path) in x]
    # Console, agent, monitor, two shares, memory and its labels.
    assert len(lists) == (6 if shell else 7), lists
    doubled = str(folder).replace(",", ",,")
    for text in lists:
        assert doubled in text
        # As QEMU cuts it: single commas only.
        values = re.split(r"(?<!,),(?!,)", text)
        assert all(
            "=" in x or x in ("file", "socket", "local", "memory-backend-file") or x.startswith("unix:") for x in values
        )
    assert made.folder == folder


def test_failures_of_a_command(guest):
    made, agent = guest
    agent.sendall(b"no such thing\n\x1e1 127\n")
    with pytest.raises(GuestError, match="'nonsense' ended with status 127\nno such thing"):
        made.check("nonsense")
    with pytest.raises(ValueError, match="one line"):
        made.run("two\nlines")
    with pytest.raises(GuestError, match="did not finish in time: sleep(.|\n)*last words of QEMU"):
        made.run("sleep 10", 0.1)
    made.process.returncode = 1
    with pytest.raises(GuestError, match="QEMU ended .status 1. during: ls"):
        made.run("ls", 5)


def test_guest_that_goes_away(guest):
    """Between two commands, which ended `make qemu` without a word, or in the middle of one."""
    made, agent = guest
    made.channel.sendall(b"what the agent does not read")
    agent.close()
    for _ in range(2):  # reset by its peer, at its end
        with pytest.raises(GuestError, match="the guest ended during: boot\nlast words of QEMU"):
            next(made.lines(time.monotonic() + 5, "boot"))
    with pytest.raises(GuestError, match="the guest ended during: ls\nlast words of QEMU"):
        made.run("ls", 5)


def test_a_function_that_does_not_answer_is_told(guest, tmp_path):
    """QEMU may not have left it yet: it waits for an answer, or has not read the one that came too late."""
    made, agent = guest
    front = SimpleNamespace(alive=lambda: True, left=lambda: False)
    for answer, lost in (("3\n\x1e1 0", 0), (f"{0xFFFFFFFF}\n\x1e2 0", 1), ("no\n\x1e3 1", 1)):
        agent.sendall(f"{answer}\n".encode())
        told = emulate.lost_function(front, emulate.function_answers(made), tmp_path)
        assert [str(tmp_path / "qemu.log") in line for line in told] == lost * [True]


def test_provisioned_devices_are_read(guest):
    made, agent = guest
    # The guest met the second expander first.
    expanders = [{"expander": "mem0", "serial": "0x2"}, {"expander": "mem1", "serial": "0x1"}]
    ready = {"window": "dax:/dev/dax1.0", "bytes": 256 * MIB, "align": 2 * MIB, "changed": True}
    agent.sendall(json.dumps({"expanders": expanders}, indent=1).encode() + b"\n\x1e1 0\n")
    agent.sendall(json.dumps(ready).encode() + b"\n\x1e2 0\n")
    agent.sendall(json.dumps({**ready, "window": "dax:/dev/dax0.0"}).encode() + b"\n\x1e3 0\n")
    found = made.provision()
    assert [(w["device"], w["memdev"], w["expander"]) for w in found] == [
        ("/dev/dax1.0", "mem1", 0),
        ("/dev/dax0.0", "mem0", 1),
    ]
    assert found[0]["bytes"] == 256 * MIB and found[0]["alignment"] == 2 * MIB and found[0]["changed"]
    agent.sendall(b"merapi: expected an expander, found none\n\x1e4 3\n")
    with pytest.raises(GuestError, match="expected an expander"):
        made.provision()


def test_unknown_topology(tmp_path):
    with pytest.raises(GuestError, match="expected a topology of one, two, interleaved, pmem, found 'three'"):
        Machine("three", tmp_path, {}, 256 * MIB)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_options_of_a_topology(name, tmp_path):
    wanted = TOPOLOGIES[name]
    options = topology.arguments(wanted, tmp_path, 512 * MIB)
    text = " ".join(options)
    assert text.count("cxl-type3") == text.count("cxl-rp") == wanted.expanders
    assert text.count("pxb-cxl") == len(wanted.bridges)
    ids = re.findall(r"\bid=([^, ]+)", text)
    assert len(ids) == len(set(ids)), "names are used once"
    assert len(set(re.findall(r"slot=\d+", text))) == wanted.expanders
    # What the windows hold together is what the expanders have.
    sizes = re.findall(r"cxl-fmw\.\d\.size=(\d+)", text)
    assert sum(map(int, sizes)) == wanted.expanders * 512 * MIB
    assert ("interleave-granularity" in text) == (name == "interleaved")
    assert ("persistent-memdev" in text) == ("lsa=" in text) == (wanted.kind == "pmem")


def test_backing_files(tmp_path):
    topology.make_backing(TOPOLOGIES["pmem"], tmp_path, 256 * MIB)
    (file,) = topology.backing_files(TOPOLOGIES["pmem"], tmp_path)
    assert file.stat().st_size == 256 * MIB
    assert file.with_suffix(".labels").stat().st_size == MIB
    before = file.stat().st_ino
    with open(file, "r+b") as held:
        held.write(b"old")
        topology.make_backing(TOPOLOGIES["pmem"], tmp_path, 256 * MIB)
        assert file.stat().st_ino != before, "a mapping of the old file must not be cut"
        assert file.read_bytes()[:3] == b"\0\0\0"
    with pytest.raises(ValueError, match="multiple of 256 MiB"):
        topology.make_backing(TOPOLOGIES["one"], tmp_path, 100 * MIB)


def test_what_a_dead_launcher_left_is_removed(tmp_path, monkeypatch):
    """By its lock: the processes of another container that shares the memory have numbers of their own."""
    monkeypatch.setattr(machines, "SHARED_MEMORY", tmp_path)
    ended = subprocess.Popen(["true"])
    ended.wait()
    folders = [tmp_path / f"merapi-qemu-{pid}-{i}" for i, pid in enumerate((ended.pid, ended.pid, os.getpid()))]
    for folder in folders:
        folder.mkdir()
        (folder / "expander0.mem").write_text("memory")
        (folder / machines.LOCK).touch()
    alive, dead, reused = folders
    with open(alive / machines.LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        own, held = machines.private_folder(MIB)
        assert alive.exists() and not dead.exists() and not reused.exists()
        again, other = machines.private_folder(MIB)
        assert Path(own).exists() and Path(own).name.startswith(f"merapi-qemu-{os.getpid()}-")
    held.close()
    machines.private_folder(MIB)[1].close()
    assert not Path(own).exists() and not alive.exists() and Path(again).exists()
    other.close()


def test_what_a_dead_launcher_left_takes_no_room(tmp_path, monkeypatch):
    """It was counted by the looks that come before a guest is started, which alone removed it."""
    left = tmp_path / "merapi-qemu-1-dead"
    left.mkdir()
    (left / machines.LOCK).touch()
    monkeypatch.setattr(machines, "SHARED_MEMORY", tmp_path)
    room = {True: 0, False: MIB}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=room[left.exists()]))
    machines.check_room(MIB)


def accelerators(tmp_path, monkeypatch, why):
    """The module accelerator with a device, a memory of its own and a guest that does not boot for the reason `why`
    (None: it boots); and how often one was booted."""
    booted = []
    (tmp_path / "kvm").touch()
    (tmp_path / "initramfs.sha256").write_text("recipe")
    monkeypatch.setattr(accelerator, "DEVICE", tmp_path / "kvm")
    monkeypatch.setattr(accelerator, "MEMORY", tmp_path / "accelerator.json")
    monkeypatch.setattr(accelerator.prepare, "OUT", tmp_path)
    monkeypatch.setattr(accelerator, "boots", lambda native: booted.append(native) or why)
    return booted


def test_that_kvm_does_not_work_is_remembered_and_told(tmp_path, monkeypatch, capsys):
    booted = accelerators(tmp_path, monkeypatch, "QEMU ended")
    for _ in range(2):
        assert accelerator.choose("auto", tmp_path) == "tcg"
    assert booted == [tmp_path]
    assert f"(QEMU ended); to look once more remove {tmp_path / 'accelerator.json'}" in capsys.readouterr().out
    for cut_off in ("", "{"):
        (tmp_path / "accelerator.json").write_text(cut_off)
        assert accelerator.choose("auto", tmp_path) == "tcg"
    assert booted == 3 * [tmp_path]


def test_no_room_for_a_guest_says_nothing_of_kvm(tmp_path, monkeypatch):
    booted = accelerators(tmp_path, monkeypatch, None)
    monkeypatch.setattr(accelerator, "PROBE_BYTES", 1 << 60)
    with pytest.raises(GuestError, match="MiB free in"):
        accelerator.choose("auto", tmp_path)
    assert booted == [] and not (tmp_path / "accelerator.json").exists()


def test_what_a_guest_needs_is_looked_at_first(tmp_path, monkeypatch, capsys):
    """Before the JDK is built and packages are fetched: room in memory, and for a shell a terminal."""
    monkeypatch.setattr(sys, "argv", ["emulate.py", "--check"])
    assert emulate.main() == 0
    monkeypatch.setattr(machines, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(emulate, "EXPANDER_BYTES", 1 << 60)
    with pytest.raises(SystemExit) as ended:
        emulate.main()
    assert ended.value.code == 1 and f"MiB free in {tmp_path}" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["emulate.py", "--check", "--shell"])
    with open(os.devnull) as nothing, pytest.raises(SystemExit) as ended:
        monkeypatch.setattr(sys, "stdin", nothing)
        emulate.main()
    assert ended.value.code == 2 and "expected a terminal for a shell" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--boots", "--round-trips"])
def test_nothing_is_measured_without_a_run(option):
    command = [sys.executable, bench_qemu.__file__, option, "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "expected a whole number, 1 or more, found '0'" in done.stderr
