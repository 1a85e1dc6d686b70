# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a folder for sockets, device processes and probes that end with the test."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from device_processes import Device, binary


@pytest.fixture
def folder():
    # Short, for the length that a unix socket's path may have, and on tmpfs.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="merapi-", dir=base) as path:
        yield Path(path)


@pytest.fixture
def start():
    """start(arguments...): a device process that ends with the test; engine: what executes commands."""
    started = []

    def make(*arguments, **options):
        started.append(Device(*map(str, arguments), **options))
        return started[-1]

    yield make
    for device in started:
        if device.process.poll() is None:
            device.kill()


@pytest.fixture
def probes():
    """probes(arguments...): a probe as a process that ends with the test."""
    started = []

    def make(*arguments):
        started.append(
            subprocess.Popen([binary("device_probe"), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield make
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(10)
