# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the merapi command's tests."""

import os
import signal
import stat

import pytest
from cli_harness import OK, MockSystem, Process, binary, devices_at, merapi
from divided_expander import divide
from native_fixtures import folder  # noqa: F401

FAKE_JAVA = """#!/bin/sh
echo "arguments $*"
case "$MODE" in
  status) exit 42;;
  signal) kill -SEGV $$;;
  trap) trap 'echo got; exit 7' TERM; echo waiting; while :; do sleep 0.05; done;;
  long) echo waiting; exec sleep 30;;
esac
"""


@pytest.fixture
def java(folder):  # noqa: F811
    """A program of that name which says its arguments and does what MODE tells."""
    path = folder / "java"
    path.write_text(FAKE_JAVA)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def start():
    """start(command...): a process that ends with the test."""
    started = []

    def make(*command, **more):
        started.append(Process(*command, **more))
        return started[-1]

    yield make
    for process in started:
        process.end()


@pytest.fixture
def device(folder, start):  # noqa: F811
    """A device process at a socket of its own."""
    process = start(binary("merapi-device"), "--model", "--socket", folder / "d.sock")
    process.wait_line("ready")
    process.socket = folder / "d.sock"
    return process


@pytest.fixture
def window_file(folder, start):  # noqa: F811
    """A window file with a traced random heap that nobody has open any more."""
    path = folder / "window"
    served = start(binary("merapi-device"), "--model", "--window", path, "--size", "64M")
    served.wait_line("ready")
    probe = start(binary("device_probe"), f"file:{path}", "--seed", "7", "--cycles", "1")
    assert probe.process.wait(120) == 0, probe.errors
    served.end()
    return path


@pytest.fixture
def system(tmp_path):
    return MockSystem(tmp_path)


@pytest.fixture
def divided(system):
    return divide(system)


@pytest.fixture
def env(folder):  # noqa: F811
    """Variables of a run whose device is at a socket of its own."""
    socket = str(folder / "run" / "device.sock")
    yield {"MERAPI_SOCKET": socket, "MERAPI_DEVICE_PROGRAM": binary("merapi-device")}
    for pid in devices_at(socket):  # of a test that failed
        os.kill(pid, signal.SIGKILL)


def forget_half(path):
    """Clear the marks of the upper half of the heap, so that a trace has something to find."""
    info = merapi("info", path, "--json").json()
    bitmap = next(area for area in info["layout"] if area["area"] == "bitmap0")
    heap = info["config"]["region_count"] * info["config"]["region_bytes"]
    used = heap // info["config"]["alignment_bytes"] // 8
    with open(path, "r+b") as file:
        file.seek(bitmap["offset"] + used // 2)
        file.write(bytes(used - used // 2))


@pytest.fixture
def image(window_file, folder):  # noqa: F811
    """An image of a random heap whose greys are its lower half's marks."""
    forget_half(window_file)
    path = folder / "image"
    done = merapi("save", window_file, path, "--bitmap", "0", "--note", "half")
    assert done.status == OK, done.err
    return path
