# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a folder for sockets, device processes and probes that end with the test."""

import subprocess

import pytest
from device_processes import Device
from native_fixtures import binary, folder  # noqa: F401


@pytest.fixture
def start():
    """start(arguments...): a device process that ends with the test. engine: what executes commands; under: a program
    that becomes the device, and its arguments."""
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
