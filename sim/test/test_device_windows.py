# SPDX-License-Identifier: Apache-2.0
"""Windows that are truncated, of another version, damaged or random: what the device process makes of them."""

import mmap
import os
import random
import struct
import time

import pytest
from device_processes import finish
from native_fixtures import wait_until

# Offsets of docs/contract.md.
VERSION, GENERATION, DEVICE_IDENTITY, DEVICE_GENERATION, FAULT = 8, 0x200, 0x400, 0x440, 0x500
DIRECTORY, BEGIN_CYCLE = 0x80, 1
DEVICE_MAGIC, IDLE, BAD_MAGIC, BAD_VERSION = 0x43525452, 3, 1, 2


def map_file(path, length=0):
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)


def test_truncated_file_ends_one_context(start, probes, folder):
    device = start("--socket", folder / "s", "--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    probes(f"file:{folder}/w", "--linger-ms", 100000)
    window = map_file(folder / "w", 4096)
    wait_until(lambda: struct.unpack_from("<I", window, DEVICE_GENERATION + 32)[0] == IDLE)
    other = probes(f"device:{folder}/s", "--cycles", 20, "--linger-ms", 20)
    os.truncate(folder / "w", 4096)
    # A submission: the ring lies where the file has no more bytes.
    produced = struct.unpack_from("<Q", window, GENERATION + 8)[0]
    struct.pack_into("<Q", window, GENERATION + 8, produced + 1)
    ended = device.wait_event("ended", want=lambda e: e["context"]["window"] == str(folder / "w"))
    assert ended["context"]["end"] == "fault"
    assert ended["context"]["last_fault"] == "window truncated"
    assert struct.unpack_from("<I", (folder / "w").read_bytes(), FAULT)[0] == 12
    code, result = finish(other)
    assert code == 0, result
    assert device.process.poll() is None


def test_truncated_to_nothing_ends_the_only_context(start, folder):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    os.truncate(folder / "w", 0)
    assert device.process.wait(20) == 4


def test_a_fault_s_cycle_is_told(start, probes, folder):
    """Also when the cycle began in the same step."""
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    assert finish(probes(f"file:{folder}/w"))[0] == 0
    window = map_file(folder / "w")
    generation = struct.unpack_from("<Q", window, GENERATION)[0] | 1
    struct.pack_into("<QQQ", window, GENERATION, generation, 0, 0)
    ring = struct.unpack_from("<Q", window, DIRECTORY)[0]
    for i, opcode in enumerate((BEGIN_CYCLE, 99)):
        struct.pack_into("<BBHI6QII", window, ring + 64 * i, opcode, 0, 0, 0, *[0] * 6, i + 1, 77)
    struct.pack_into("<Q", window, GENERATION, generation + 1)
    wait_until(lambda: struct.unpack_from("<Q", window, DEVICE_GENERATION)[0] == generation + 1)
    struct.pack_into("<Q", window, GENERATION + 8, 2)
    wait_until(lambda: struct.unpack_from("<I", window, FAULT)[0] != 0)
    wait_until(lambda: any("fault " in line for line in device.log.all))
    (line,) = (line for line in device.log.all if "fault " in line)
    assert "fault bad command in cycle 77;" in line


def test_unformatted_window_is_refused(start, folder):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    window = map_file(folder / "w")
    struct.pack_into("<Q", window, 0, 0x1234)
    struct.pack_into("<Q", window, GENERATION, 2)
    wait_until(lambda: struct.unpack_from("<Q", window, DEVICE_GENERATION)[0] == 2)
    assert struct.unpack_from("<I", window, FAULT)[0] == BAD_MAGIC
    assert struct.unpack_from("<Q", window, FAULT + 8)[0] == 0x1234


@pytest.mark.parametrize("major,minor,refused", [(1, 0, False), (2, 0, True), (0, 9, True), (1, 99, True)])
def test_foreign_version_is_refused(start, probes, folder, major, minor, refused):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    assert finish(probes(f"file:{folder}/w"))[0] == 0  # lays the window out
    window = map_file(folder / "w")
    generation = struct.unpack_from("<Q", window, GENERATION)[0] | 1
    struct.pack_into("<QQQ", window, GENERATION, generation, 0, 0)
    time.sleep(0.3)  # the device sees the end of the old generation
    struct.pack_into("<HH", window, VERSION, major, minor)
    struct.pack_into("<Q", window, GENERATION, generation + 1)
    wait_until(lambda: struct.unpack_from("<Q", window, DEVICE_GENERATION)[0] == generation + 1)
    assert struct.unpack_from("<I", window, FAULT)[0] == (BAD_VERSION if refused else 0)
    # The host reads from the identity line which version the device speaks.
    assert struct.unpack_from("<IHH", window, DEVICE_IDENTITY)[:2] == (DEVICE_MAGIC, 1)


def test_garbage_windows(start, probes, folder):
    """Random windows, some with a valid start and random contents, are refused or stop with a fault; nothing else."""
    seed = int(os.environ.get("MERAPI_SEED", "1"))
    print(f"replay: MERAPI_SEED={seed}")
    dice = random.Random(seed)
    files = [folder / f"w{i}" for i in range(6)]
    arguments = [word for path in files for word in ("--window", path)]
    device = start("--socket", folder / "s", "--size", "16M", *arguments)
    device.wait_event("ready", want=lambda e: e["where"].endswith("/s"))
    for round_ in range(4):
        for path in files:
            window = map_file(path)
            window[:65536] = dice.randbytes(65536)
            if dice.random() < 0.7:
                struct.pack_into("<QHHI", window, 0, 0x3149504152454D, 1, 0, 4096)
            submitted = 0
            if dice.random() < 0.5:  # rings that pass the checks, with random entries
                struct.pack_into("<QQQQ", window, 0x80, 0x1000, 0x1000, 0x2000, 0x1000)
                submitted = dice.randrange(65)
                struct.pack_into("<QQ", window, 0x208, 0, 0)
                for i in range(64):
                    struct.pack_into("<BBHI", window, 0x1000 + 64 * i, dice.randrange(8), 0, dice.randrange(8), 1)
                    struct.pack_into("<II", window, 0x1000 + 64 * i + 56, i + 1, 1)
            struct.pack_into("<III", window, 0x240, 0, 0, dice.randrange(3))
            struct.pack_into("<Q", window, GENERATION, 2 * round_ + 2)
            wait_until(lambda w=window, g=2 * round_ + 2: struct.unpack_from("<Q", w, DEVICE_GENERATION)[0] == g)
            if submitted != 0:
                struct.pack_into("<Q", window, 0x208, submitted)
                wait_until(
                    lambda w=window, n=submitted: (
                        struct.unpack_from("<I", w, FAULT)[0] != 0
                        or struct.unpack_from("<Q", w, DEVICE_GENERATION + 8)[0] == n
                    )
                )
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    assert device.stop() == 0
