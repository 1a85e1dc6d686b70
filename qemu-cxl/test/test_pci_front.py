# SPDX-License-Identifier: Apache-2.0
"""The PCI function without a virtual machine: a client of the vfio-user protocol, in a few lines."""

import array
import contextlib
import ctypes
import mmap
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from gen_contract import offset_of

ROOT = Path(__file__).resolve().parents[2]
FRONT = ROOT / "build/qemu/bin/merapi-pci-front"
MIB = 1 << 20
VERSION, DEVICE_INFO, REGION_INFO, IRQ_INFO, SET_IRQS, READ, WRITE, RESET = 1, 4, 5, 7, 8, 9, 10, 13
BAR0, BAR2, CONFIG = 0, 2, 7
MSIX = 2
EVENTFD_TRIGGER = 0x4 | 0x20
MAGIC, SIZE, DOORBELL, ARM, STATUS, SENT, RESET_REGISTER, STARTS = 0x00, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24
OFFSET, LENGTH = 0x28, 0x30
EVENT = offset_of("device_index", "event")
RUNG = offset_of("host_index", "doorbell")
SYS_FUTEX = 202  # x86-64
# PCI Express capability, device control: bit 15 resets the function.
DEVICE_CONTROL = 0x48
POWER_MANAGEMENT = 1
EINVAL, ENOTSUP = 22, 95


class Client:
    """Speaks to one front process at `path`."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        self.number = 0

    def close(self):
        self.socket.close()

    def call(self, command, payload=b"", fds=()):
        """Send a message. Returns (error, payload of the reply)."""
        self.number += 1
        message = struct.pack("<HHIII", self.number, command, 16 + len(payload), 0, 0) + payload
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([message], rights)
        number, answered, size, flags, error = struct.unpack("<HHIII", self.receive(16))
        assert (number, answered, flags & 1) == (self.number, command, 1)
        assert bool(flags & 0x20) == bool(error)
        return error, self.receive(size - 16)

    def receive(self, size):
        data = b""
        while len(data) < size:
            block = self.socket.recv(size - len(data))
            assert block, "the front closed the connection"
            data += block
        return data

    def read(self, region, offset, size=4):
        error, reply = self.call(READ, struct.pack("<QII", offset, region, size))
        assert error == 0
        return int.from_bytes(reply[16:], "little")

    def write(self, region, offset, value, size=4):
        error, _ = self.call(WRITE, struct.pack("<QII", offset, region, size) + value.to_bytes(size, "little"))
        assert error == 0

    def set_vector(self, fd):
        error, _ = self.call(SET_IRQS, struct.pack("<IIIII", 20, EVENTFD_TRIGGER, MSIX, 0, 1), [fd])
        assert error == 0


@contextlib.contextmanager
def front(folder, engine, status=0):
    """A front process with a window of 64 MiB and the given engine; it is to end with this status. Yields (process,
    socket, window file)."""
    if not FRONT.exists():
        pytest.skip(f"expected {FRONT}, found nothing; run 'make qemu-setup'")
    window, path = folder / "window", folder / "s"
    with open(window, "wb") as file:
        file.truncate(64 * MIB)
    with open(folder / "front.log", "w") as log:
        command = [FRONT, "--socket", path, "--window", window, "--", *engine]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout.readline().startswith(b"ready "), (folder / "front.log").read_text()
        yield process, path, window
    finally:
        process.terminate()
        assert process.wait(10) == status
        process.stdout.close()


@pytest.fixture
def served(tmp_path):
    """A client, and the window's control page as this process maps it."""
    with front(tmp_path, ["sleep", "1000"]) as (_, path, window), open(window, "r+b") as file:
        page = mmap.mmap(file.fileno(), 4096)
        client = Client(path)
        yield client, page
        client.close()
        page.close()


def run_front(*arguments, stdout=subprocess.PIPE):
    if not FRONT.exists():
        pytest.skip(f"expected {FRONT}, found nothing; run 'make qemu-setup'")
    return subprocess.run([FRONT, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=30)


NOT_WRITTEN = "merapi-pci-front: expected to write to standard output, found: No space left on device"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_output_that_is_lost_is_told(option):
    with open("/dev/full", "w") as full:
        done = run_front(option, stdout=full)
    assert (done.returncode, done.stderr) == (3, f"{NOT_WRITTEN}\n")


def test_a_ready_line_that_is_lost_is_told(tmp_path):
    if not FRONT.exists():
        pytest.skip(f"expected {FRONT}, found nothing; run 'make qemu-setup'")
    with open(tmp_path / "window", "wb") as window:
        window.truncate(64 * MIB)
    command = [FRONT, "--socket", tmp_path / "s", "--window", tmp_path / "window", "--", "sleep", "1000"]
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True)
    try:
        assert select.select([process.stderr], [], [], 10)[0], "nothing was said"
        assert process.stderr.readline() == f"{NOT_WRITTEN}\n"
        client = Client(tmp_path / "s")
        assert client.read(BAR0, MAGIC) != 0
        client.close()
    finally:
        process.terminate()
        assert process.wait(10) == 3
        process.stderr.close()


def test_version():
    assert re.fullmatch(r"merapi-pci-front \d+\.\d+\.\d+ \(contract \d+\.\d+\)\n", run_front("--version").stdout)


def test_options_are_documented():
    done = run_front("--help")
    assert done.returncode == 0
    offered = set(re.findall(r"^ +(?:-\w,)?(--[a-z][a-z-]+)", done.stdout, re.M))
    page = (ROOT / "qemu-cxl/pci/merapi-pci-front.1").read_text()
    own = page.partition(".SH EXAMPLE")[0]
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", own)) == offered


@pytest.mark.parametrize(
    "arguments",
    [
        ("--socket", "", "--window", "/nowhere/w", "--", "sleep"),
        ("--socket", "/nowhere/s", "--window=", "--", "sleep"),
        ("--socket", "/nowhere/s", "--window", "", "--", "sleep"),
        ("--socket", "/nowhere/s", "--window", "/nowhere/w", "--version=no", "--", "sleep"),
    ],
)
def test_wrong_command_line(arguments):
    done = run_front(*arguments)
    assert done.returncode == 2 and "expected" in done.stderr, done


def event(page, value):
    page[EVENT : EVENT + 4] = struct.pack("<I", value)


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within time"
        time.sleep(0.01)


def fired(fd, seconds):
    """Whether the eventfd is signalled within `seconds`; takes the signal."""
    if not select.select([fd], [], [], seconds)[0]:
        return False
    return os.eventfd_read(fd) == 1


def test_version_and_shape_of_the_function(served):
    client, _ = served
    error, reply = client.call(VERSION, struct.pack("<HH", 0, 1) + b"{}\0")
    assert error == 0 and reply[:4] == struct.pack("<HH", 0, 1) and b"max_msg_fds" in reply
    assert client.call(VERSION, struct.pack("<HH", 1, 0) + b"{}\0")[0] == EINVAL
    error, reply = client.call(DEVICE_INFO, struct.pack("<IIII", 16, 0, 0, 0))
    assert error == 0 and struct.unpack("<IIII", reply)[2:] == (9, 5)
    sizes = []
    for region in range(9):
        error, reply = client.call(REGION_INFO, struct.pack("<IIIIQQ", 32, 0, region, 0, 0, 0))
        assert error == 0
        sizes.append(struct.unpack("<IIIIQQ", reply)[4])
    assert sizes == [4096, 0, 4096, 0, 0, 0, 0, 4096, 0]
    assert client.call(REGION_INFO, struct.pack("<IIIIQQ", 32, 0, 9, 0, 0, 0))[0] == EINVAL
    error, reply = client.call(IRQ_INFO, struct.pack("<IIII", 16, 0, MSIX, 0))
    assert error == 0 and struct.unpack("<IIII", reply)[3] == 1


def test_configuration_space(served):
    client, _ = served
    assert client.read(CONFIG, 0) == 0x4D521234
    assert client.read(CONFIG, 0x0A, 2) == 0x1200
    client.write(CONFIG, 0x10, 0xFFFFFFFF)
    client.write(CONFIG, 0x14, 0xFFFFFFFF)
    assert client.read(CONFIG, 0x10) == 0xFFFFF000, "size of BAR 0"
    assert client.read(CONFIG, 0x14) == 0, "there is no BAR 1"
    client.write(CONFIG, 0, 0)
    assert client.read(CONFIG, 0) == 0x4D521234, "identity is read-only"


def test_registers(served):
    client, _ = served
    assert client.read(BAR0, MAGIC).to_bytes(4, "little") == b"MRPI"
    assert client.read(BAR0, SIZE) == 64 * MIB
    until(lambda: client.read(BAR0, STATUS) == 1)
    assert client.read(BAR0, 0x800) == 0xFFFFFFFF
    assert client.read(BAR0, MAGIC, 2) == 0xFFFF, "registers are read whole"


class Sleeper(threading.Thread):
    """Sleeps at a word of a mapped file as an engine does, five seconds at most; `woken` says how that ended."""

    def __init__(self, file, offset):
        super().__init__()
        self.file, self.offset, self.woken = file, offset, None
        self.start()

    def run(self):
        page = mmap.mmap(self.file.fileno(), 4096, offset=self.offset - self.offset % 4096)
        word = ctypes.c_uint32.from_buffer(page, self.offset % 4096)
        libc, timeout = ctypes.CDLL(None, use_errno=True), (ctypes.c_long * 2)(5, 0)
        self.woken = libc.syscall(SYS_FUTEX, ctypes.byref(word), 0, word.value, timeout, None, 0) == 0


def rung(client, file, offset):
    """Whether the doorbell wakes who sleeps there. It is rung until then: nobody can tell when somebody is asleep."""
    sleeper = Sleeper(file, offset)
    while sleeper.is_alive():
        client.write(BAR0, DOORBELL, 1)
        sleeper.join(0.05)
    return sleeper.woken


@pytest.mark.parametrize("begin", [0, 32 * MIB])
def test_the_doorbell_wakes_the_engine(tmp_path, begin):
    """An engine looks by itself now and then, so nothing else would miss it."""
    with front(tmp_path, ["sleep", "1000"]) as (_, path, window), open(window, "r+b") as file:
        client = Client(path)
        client.write(BAR0, OFFSET, begin)
        client.write(BAR0, LENGTH, 16 * MIB)
        client.write(BAR0, RESET_REGISTER, 1)
        assert client.read(BAR0, OFFSET) == begin
        assert rung(client, file, begin + RUNG)
        assert not rung(client, file, (32 * MIB - begin) + RUNG), "another window's"
        client.close()


def test_an_event_after_arming_interrupts_once(served):
    client, page = served
    fd = os.eventfd(0)
    client.set_vector(fd)
    client.write(BAR0, ARM, 0)
    assert not fired(fd, 0.05)
    assert client.read(BAR0, STATUS) & 2
    event(page, 1)
    assert fired(fd, 5)
    assert not client.read(BAR0, STATUS) & 2
    event(page, 2)
    assert not fired(fd, 0.05), "not armed any more"
    assert client.read(BAR0, SENT) == 1


def test_an_event_before_arming_is_not_lost(served):
    client, page = served
    fd = os.eventfd(0)
    client.set_vector(fd)
    event(page, 7)
    client.write(BAR0, ARM, 6)
    assert fired(fd, 5)


def test_no_event_is_lost_in_many_round_trips(served):
    client, page = served
    fd = os.eventfd(0)
    client.set_vector(fd)
    for number in range(1, 2001):
        # Every second one comes before arming, the others after.
        if number % 2:
            event(page, number)
        client.write(BAR0, ARM, number - 1)
        if not number % 2:
            event(page, number)
        assert fired(fd, 5), f"event {number} was lost"
    assert client.read(BAR0, SENT) == 2000
    assert not fired(fd, 0.05)


def test_reset_starts_a_new_engine_and_disarms(served):
    client, page = served
    until(lambda: client.read(BAR0, STARTS) == 1)
    client.write(BAR0, ARM, 0)
    client.write(BAR0, RESET_REGISTER, 1)
    until(lambda: client.read(BAR0, STARTS) == 2 and client.read(BAR0, STATUS) == 1)
    assert client.read(BAR0, SENT) == 0
    client.write(CONFIG, 4, 2, 2)
    assert client.call(RESET)[0] == 0
    until(lambda: client.read(BAR0, STARTS) == 3)
    assert client.read(CONFIG, 4, 2) == 0, "configuration space is as at the start"
    client.write(CONFIG, 0x10, 0xFEA00000)
    client.write(CONFIG, DEVICE_CONTROL, 0x8000, 2)
    until(lambda: client.read(BAR0, STARTS) == 4)
    assert client.read(CONFIG, 0x10) == 0 and client.read(CONFIG, DEVICE_CONTROL, 2) == 0


def test_waking_from_d3hot_resets(served):
    client, _ = served
    until(lambda: client.read(BAR0, STARTS) == 1)
    at = client.read(CONFIG, 0x34, 1)
    while client.read(CONFIG, at, 1) != POWER_MANAGEMENT:
        at = client.read(CONFIG, at + 1, 1)
        assert at, "no such capability"
    assert client.read(CONFIG, at + 1, 1) == 0, "the last one"
    client.write(BAR0, LENGTH, 32 * MIB)
    client.write(BAR0, RESET_REGISTER, 1)
    until(lambda: client.read(BAR0, STARTS) == 2)
    for state in (0, 1, 2):
        client.write(CONFIG, at + 4, state, 2)
        assert client.read(CONFIG, at + 4) == 0, "D0, and no states between it and D3hot"
    client.write(CONFIG, at + 4, 3, 2)
    assert client.read(CONFIG, at + 4) == 3
    assert (client.read(BAR0, LENGTH), client.read(BAR0, STARTS)) == (32 * MIB, 2)
    client.write(CONFIG, at + 4, 0, 2)
    until(lambda: client.read(BAR0, STARTS) == 3)
    assert (client.read(CONFIG, at + 4), client.read(BAR0, LENGTH)) == (0, 64 * MIB)


def test_bounds_are_taken_by_reset(tmp_path):
    told = tmp_path / "told"
    engine = ["sh", "-c", f'echo "$0" >> {told}; exec sleep 1000', "{window}"]
    with front(tmp_path, engine) as (_, path, window), open(window, "r+b") as file:
        client = Client(path)

        def bounds():
            return [client.read(BAR0, at) | client.read(BAR0, at + 4) << 32 for at in (OFFSET, LENGTH)]

        def bound(offset, length):
            for at, value in ((OFFSET, offset), (LENGTH, length)):
                client.write(BAR0, at, value & 0xFFFFFFFF)
                client.write(BAR0, at + 4, value >> 32)
            client.write(BAR0, RESET_REGISTER, 1)
            return bounds()

        assert bounds() == [0, 64 * MIB]
        until(lambda: told.exists() and told.read_text())
        assert bound(32 * MIB, 16 * MIB) == [32 * MIB, 16 * MIB]
        until(lambda: client.read(BAR0, STARTS) == 2 and len(told.read_text().splitlines()) == 2)
        assert told.read_text().splitlines() == [str(window), f"{window}@{32 * MIB}+{16 * MIB}"]
        # The control page is where the window begins.
        page = mmap.mmap(file.fileno(), 64 * MIB)
        fd = os.eventfd(0)
        client.set_vector(fd)
        client.write(BAR0, ARM, 0)
        event(page, 1)
        assert not fired(fd, 0.05)
        page[32 * MIB + EVENT : 32 * MIB + EVENT + 4] = struct.pack("<I", 1)
        assert fired(fd, 5)
        page.close()
        # What does not lie inside, or is no window, is dropped.
        for wrong in ((48 * MIB, 32 * MIB), (MIB, MIB), (0, 2048), (1 << 40, MIB), (0, 1 << 40)):
            assert bound(*wrong) == [32 * MIB, 16 * MIB], wrong
        assert client.call(RESET)[0] == 0
        assert bounds() == [0, 64 * MIB], "a function reset forgets them"
        client.close()


def test_engine_that_dies_is_replaced_and_the_connection_stays(tmp_path):
    pid_file = tmp_path / "pid"
    engine = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]
    with front(tmp_path, engine) as (process, path, _):
        client = Client(path)
        until(lambda: pid_file.exists() and pid_file.read_text().strip())
        first = int(pid_file.read_text())
        os.kill(first, signal.SIGTERM)
        until(lambda: client.read(BAR0, STARTS) == 2 and int(pid_file.read_text() or first) != first)
        assert process.poll() is None
        client.close()


def test_engine_ends_with_the_front(tmp_path):
    pid_file = tmp_path / "pid"
    with front(tmp_path, ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]):
        until(lambda: pid_file.exists() and pid_file.read_text().strip())
        engine = int(pid_file.read_text())
    until(lambda: not Path(f"/proc/{engine}").exists())


def test_a_file_that_becomes_smaller_is_told(tmp_path):
    """The front looks at its memory for itself while it is armed; it died of that, and said nothing."""
    pid_file = tmp_path / "pid"
    engine = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]
    with front(tmp_path, engine, status=3) as (process, path, window), contextlib.closing(Client(path)) as client:
        until(lambda: pid_file.exists() and pid_file.read_text().strip())
        os.truncate(window, 0)
        assert client.read(BAR0, MAGIC).to_bytes(4, "little") == b"MRPI"
        # The answer may not come any more.
        request = struct.pack("<HHIIIQII", 1, WRITE, 36, 0, 0, ARM, BAR0, 4) + bytes(4)
        client.socket.sendall(request)
        assert process.wait(10) == 3
    log = (tmp_path / "front.log").read_text()
    assert log.startswith("merapi-pci-front: expected memory behind what is mapped, found that a file became smaller")
    engine = int(pid_file.read_text())
    until(lambda: not Path(f"/proc/{engine}").exists())
    # Its socket is stale, and makes way.
    with front(tmp_path, ["sleep", "1000"]):
        pass


def test_a_client_that_breaks_the_protocol_is_dropped_and_the_next_is_served(served, tmp_path):
    client, _ = served
    client.socket.sendall(struct.pack("<HHIII", 1, READ, 8, 0, 0))
    assert client.socket.recv(16) == b"", "a message shorter than its header"
    for size in (1 << 20, 0xFFFFFFFF):
        with contextlib.closing(Client(tmp_path / "s")) as other:
            other.socket.sendall(struct.pack("<HHIII", 1, READ, size, 0, 0))
            assert other.socket.recv(16) == b"", f"a message of {size} bytes"
    with contextlib.closing(Client(tmp_path / "s")) as other:
        assert other.call(99)[0] == ENOTSUP
        assert other.call(READ, b"short")[0] == EINVAL
        assert other.call(READ, struct.pack("<QII", 0, BAR0, 1 << 20))[0] == EINVAL
        assert other.call(WRITE, struct.pack("<QII", 0, BAR0, 4))[0] == EINVAL
        assert other.call(SET_IRQS, struct.pack("<IIIII", 20, EVENTFD_TRIGGER, MSIX, 0xFFFFFFFF, 2))[0] == EINVAL
        assert other.read(BAR0, MAGIC).to_bytes(4, "little") == b"MRPI"


def ends_at_once(process):
    process.terminate()
    try:
        return process.wait(10) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


@pytest.mark.parametrize("sent", [4, 16, 20])
def test_the_front_ends_in_the_middle_of_a_message(tmp_path, sent):
    message = struct.pack("<HHIII", 1, READ, 32, 0, 0) + bytes(16)
    with front(tmp_path, ["sleep", "1000"]) as (process, path, _), contextlib.closing(Client(path)) as client:
        assert client.read(BAR0, MAGIC).to_bytes(4, "little") == b"MRPI"
        client.socket.sendall(message[:sent])
        time.sleep(0.2)  # it waits for the rest by now
        assert ends_at_once(process)


def test_the_front_ends_while_a_client_takes_no_answers(tmp_path):
    with front(tmp_path, ["sleep", "1000"]) as (process, path, _), contextlib.closing(Client(path)) as client:
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):  # both directions are full
            while True:
                client.socket.sendall(struct.pack("<HHIIIQII", 1, READ, 32, 0, 0, 0, BAR0, 4))
        assert ends_at_once(process)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--socket", "s"], 2, "--window is required"),
        (["--socket", "s", "--window", "/nonexistent", "--", "true"], 3, "expected a window file at /nonexistent"),
        (["--socket", "x" * 200, "--window", "w", "--", "sleep", "9"], 3, "expected a socket path of at most 107"),
    ],
)
def test_wrong_use(tmp_path, arguments, status, text):
    if not FRONT.exists():
        pytest.skip(f"expected {FRONT}, found nothing; run 'make qemu-setup'")
    with open(tmp_path / "w", "wb") as file:
        file.truncate(MIB)
    done = subprocess.run([FRONT, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == status
    assert text in done.stderr


@pytest.mark.parametrize("kind", ["full eventfd", "full pipe", "pipe that nobody reads"])
def test_an_interrupt_that_finds_no_room_holds_up_nobody(tmp_path, kind):
    with front(tmp_path, ["sleep", "1000"]) as (process, path, _), contextlib.closing(Client(path)) as client:
        if kind == "full eventfd":
            fd = os.eventfd(0)
            os.eventfd_write(fd, 0xFFFFFFFFFFFFFFFE)
        else:
            reader, fd = os.pipe()
            if kind == "full pipe":
                os.set_blocking(fd, False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        os.write(fd, bytes(4096))
                os.set_blocking(fd, True)
            else:
                os.close(reader)
        client.set_vector(fd)
        client.write(BAR0, ARM, 1)  # news are there
        until(lambda: client.read(BAR0, SENT) == 1)
        assert ends_at_once(process)


def test_only_a_stale_socket_makes_way(tmp_path):
    with front(tmp_path, ["sleep", "1000"]) as (process, path, window):
        for wrong, text in ((window, "another kind of file"), (path, "another program listens")):
            done = run_front("--socket", wrong, "--window", window, "--", "sleep", "9")
            assert done.returncode == 3 and text in done.stderr, done
        assert window.stat().st_size == 64 * MIB
        with contextlib.closing(Client(path)) as client:
            assert client.read(BAR0, MAGIC).to_bytes(4, "little") == b"MRPI"
    assert not path.exists()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))
    with front(tmp_path, ["sleep", "1000"]):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"
