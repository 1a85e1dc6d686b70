# SPDX-License-Identifier: Apache-2.0
"""The PCI function without a virtual machine: its registers, events, doorbell, resets and bounds."""

import ctypes
import mmap
import os
import struct
import subprocess
import threading
import time

import pytest
from gen_contract import offset_of
from native_fixtures import wait_until
from vfio_client import (
    ARM,
    BAR0,
    CONFIG,
    DEVICE_INFO,
    DOORBELL,
    EINVAL,
    EVENT,
    IRQ_INFO,
    LENGTH,
    MAGIC,
    MIB,
    MSIX,
    REGION_INFO,
    RESET,
    RESET_REGISTER,
    ROOT,
    SENT,
    SIZE,
    STARTS,
    STATUS,
    VERSION,
    Client,
    event,
    fired,
    front,
)

RUNG = offset_of("host_index", "doorbell")
GENERATION = offset_of("host_index", "generation")
SYS_FUTEX = 202  # x86-64


# PCI Express capability, device control: bit 15 resets the function.
DEVICE_CONTROL = 0x48


POWER_MANAGEMENT = 1


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
    wait_until(lambda: client.read(BAR0, STATUS) == 1)
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
        client.write(BAR0, DOORBELL, 1)  # no window yet: nobody is there
        assert client.bound(begin, 16 * MIB) == [begin, 16 * MIB]
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
    wait_until(lambda: client.read(BAR0, STARTS) == 1)
    client.write(BAR0, ARM, 0)
    client.write(BAR0, RESET_REGISTER, 1)
    wait_until(lambda: client.read(BAR0, STARTS) == 2 and client.read(BAR0, STATUS) == 1)
    assert client.read(BAR0, SENT) == 0
    client.write(CONFIG, 4, 2, 2)
    assert client.call(RESET)[0] == 0
    assert client.read(CONFIG, 4, 2) == 0, "configuration space is as at the start"
    wait_until(lambda: client.read(BAR0, STATUS) == 0)
    client.bound(0, 64 * MIB)
    wait_until(lambda: client.read(BAR0, STARTS) == 3)
    client.write(CONFIG, 0x10, 0xFEA00000)
    client.write(CONFIG, DEVICE_CONTROL, 0x8000, 2)
    wait_until(lambda: client.read(BAR0, STATUS) == 0)
    assert client.read(BAR0, STARTS) == 3
    assert client.read(CONFIG, 0x10) == 0 and client.read(CONFIG, DEVICE_CONTROL, 2) == 0


def test_waking_from_d3hot_resets(served):
    client, _ = served
    wait_until(lambda: client.read(BAR0, STARTS) == 1)
    at = client.read(CONFIG, 0x34, 1)
    while client.read(CONFIG, at, 1) != POWER_MANAGEMENT:
        at = client.read(CONFIG, at + 1, 1)
        assert at, "no such capability"
    assert client.read(CONFIG, at + 1, 1) == 0, "the last one"
    client.bound(0, 32 * MIB)
    wait_until(lambda: client.read(BAR0, STARTS) == 2)
    for state in (0, 1, 2):
        client.write(CONFIG, at + 4, state, 2)
        assert client.read(CONFIG, at + 4) == 0, "D0, and no states between it and D3hot"
    client.write(CONFIG, at + 4, 3, 2)
    assert client.read(CONFIG, at + 4) == 3
    assert (client.read(BAR0, LENGTH), client.read(BAR0, STARTS)) == (32 * MIB, 2)
    client.write(CONFIG, at + 4, 0, 2)
    assert (client.read(CONFIG, at + 4), client.read(BAR0, LENGTH)) == (0, 0)
    wait_until(lambda: client.read(BAR0, STATUS) == 0)
    assert client.read(BAR0, STARTS) == 2


def test_bounds_are_taken_by_reset(tmp_path):
    told = tmp_path / "told"
    engine = ["sh", "-c", f'echo "$0" >> {told}; exec sleep 1000', "{window}"]
    with front(tmp_path, engine) as (_, path, window), open(window, "r+b") as file:
        client = Client(path)
        assert client.bounds() == [0, 0]
        assert client.bound(0, 64 * MIB) == [0, 64 * MIB]
        wait_until(lambda: told.exists() and told.read_text())
        assert client.bound(32 * MIB, 16 * MIB) == [32 * MIB, 16 * MIB]
        wait_until(lambda: client.read(BAR0, STARTS) == 2 and len(told.read_text().splitlines()) == 2)
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
            assert client.bound(*wrong) == [32 * MIB, 16 * MIB], wrong
        assert client.call(RESET)[0] == 0
        assert client.bounds() == [0, 0], "a function reset forgets them"
        client.close()


def test_nothing_is_traced_without_a_window(tmp_path):
    """The memory is whose it is until somebody says which part of it is a window: it may be the system's. Nobody is
    woken there, nothing is news, and an engine that traced is ended."""
    with front(tmp_path, ["sleep", "1000"]) as (_, path, window), open(window, "r+b") as file:
        page = mmap.mmap(file.fileno(), 4096)
        client, fd = Client(path), os.eventfd(0)
        client.set_vector(fd)
        event(page, 1)
        for _ in range(2):
            client.write(BAR0, ARM, 0)
            client.write(BAR0, ARM, 2)
            client.write(BAR0, RESET_REGISTER, 1)
        assert not fired(fd, 0.3)
        assert [client.read(BAR0, at) for at in (STATUS, STARTS, SENT)] == [0, 0, 0]
        for number in (1, 2):
            client.bound(0, 16 * MIB)
            wait_until(lambda: client.read(BAR0, STATUS) == 1)
            assert client.bound(2 * MIB, 0) == [2 * MIB, 0]
            wait_until(lambda: client.read(BAR0, STATUS) == 0)
            assert client.read(BAR0, STARTS) == number
        client.close()
        page.close()


def test_a_function_reset_leaves_other_windows_alone(tmp_path):
    """It takes a while until the bounds are there again; an engine that had all of the memory meanwhile answered what
    looks like a host in the first window."""
    programs = ROOT / "build/native/bin"
    if not programs.exists():
        pytest.skip(f"expected {programs}, found nothing; run 'make native'")
    command = [programs / "merapi-device", "--model", "--window", "{window}"]
    with front(tmp_path, command) as (_, path, window), open(window, "r+b") as file:
        first = [programs / "merapi", "create-window", f"file:{window}", "--heap", "16M"]
        subprocess.run(first, check=True, stdout=subprocess.DEVNULL)
        page = mmap.mmap(file.fileno(), 4096)
        client = Client(path)
        client.bound(32 * MIB, 16 * MIB)
        wait_until(lambda: client.read(BAR0, STATUS) == 1)
        page[GENERATION : GENERATION + 8] = struct.pack("<Q", 2)
        before = page[:]
        assert client.call(RESET)[0] == 0
        time.sleep(0.5)
        client.bound(32 * MIB, 16 * MIB)
        wait_until(lambda: client.read(BAR0, STATUS) == 1)
        assert page[:] == before
        client.close()
        page.close()
