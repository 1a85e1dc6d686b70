# SPDX-License-Identifier: Apache-2.0
"""The process that serves the PCI function: command line, output, how it ends, and clients that break the protocol."""

import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from native_fixtures import wait_until
from pci_front import LEFT
from vfio_client import (
    ARM,
    BAR0,
    EINVAL,
    ENOTSUP,
    EVENTFD_TRIGGER,
    FRONT,
    MAGIC,
    MIB,
    MSIX,
    READ,
    ROOT,
    SENT,
    SET_IRQS,
    STARTS,
    WRITE,
    Client,
    front,
)


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


def test_engine_that_dies_is_replaced_and_the_connection_stays(tmp_path):
    pid_file = tmp_path / "pid"
    engine = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]
    with front(tmp_path, engine) as (process, path, _):
        client = Client(path)
        client.bound(0, 64 * MIB)
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        first = int(pid_file.read_text())
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: client.read(BAR0, STARTS) == 2 and int(pid_file.read_text() or first) != first)
        assert process.poll() is None
        client.close()


def test_engine_ends_with_the_front(tmp_path):
    pid_file = tmp_path / "pid"
    with front(tmp_path, ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]) as (_, path, _):
        with contextlib.closing(Client(path)) as client:
            client.bound(0, 64 * MIB)
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        engine = int(pid_file.read_text())
    wait_until(lambda: not Path(f"/proc/{engine}").exists())


def test_a_file_that_becomes_smaller_is_told(tmp_path):
    """The front looks at its memory for itself while it is armed; it died of that, and said nothing."""
    pid_file = tmp_path / "pid"
    engine = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"]
    with front(tmp_path, engine, status=3) as (process, path, window), contextlib.closing(Client(path)) as client:
        client.bound(0, 64 * MIB)
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        os.truncate(window, 0)
        assert client.read(BAR0, MAGIC).to_bytes(4, "little") == b"MRPI"
        # The answer may not come any more.
        request = struct.pack("<HHIIIQII", 1, WRITE, 36, 0, 0, ARM, BAR0, 4) + bytes(4)
        client.socket.sendall(request)
        assert process.wait(10) == 3
    log = (tmp_path / "front.log").read_text()
    assert log.startswith("merapi-pci-front: expected memory behind what is mapped, found that a file became smaller")
    engine = int(pid_file.read_text())
    wait_until(lambda: not Path(f"/proc/{engine}").exists())
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


def test_a_client_that_leaves_is_told(tmp_path):
    """QEMU gave up the function while its guest ran, and nothing noticed."""
    log = tmp_path / "front.log"
    with front(tmp_path, ["sleep", "1000"]) as (_, path, _), contextlib.closing(Client(path)) as kept:
        assert kept.read(BAR0, MAGIC) and log.read_text() == ""
        kept.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: log.read_text() == f"{LEFT}\n")
        with contextlib.closing(Client(path)) as dropped:
            dropped.socket.sendall(struct.pack("<HHIII", 1, READ, 8, 0, 0))
            wait_until(lambda: log.read_text().count(LEFT) == 2)
        served = Client(path)
        assert served.read(BAR0, MAGIC)
    # It is the front that ended.
    assert log.read_text().count(LEFT) == 2
    served.close()


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
        client.bound(0, 64 * MIB)
        client.set_vector(fd)
        client.write(BAR0, ARM, 1)  # news are there
        wait_until(lambda: client.read(BAR0, SENT) == 1)
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
