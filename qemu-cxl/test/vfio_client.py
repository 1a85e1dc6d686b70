# SPDX-License-Identifier: Apache-2.0
"""A front process, and a client of the vfio-user protocol in a few lines."""

import array
import contextlib
import os
import select
import socket
import struct
import subprocess
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

    def bound(self, offset, length):
        """Tell what the window is; returns what is in force then."""
        for at, value in ((OFFSET, offset), (LENGTH, length)):
            self.write(BAR0, at, value & 0xFFFFFFFF)
            self.write(BAR0, at + 4, value >> 32)
        self.write(BAR0, RESET_REGISTER, 1)
        return self.bounds()

    def bounds(self):
        return [self.read(BAR0, at) | self.read(BAR0, at + 4) << 32 for at in (OFFSET, LENGTH)]


@contextlib.contextmanager
def front(folder, engine, status=0):
    """A front process with a memory of 64 MiB, nothing of which is a window yet, and the given engine; it is to end
    with this status. Yields (process, socket, file of the memory)."""
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


def event(page, value):
    page[EVENT : EVENT + 4] = struct.pack("<I", value)


def fired(fd, seconds):
    """Whether the eventfd is signalled within `seconds`; takes the signal."""
    if not select.select([fd], [], [], seconds)[0]:
        return False
    return os.eventfd_read(fd) == 1
