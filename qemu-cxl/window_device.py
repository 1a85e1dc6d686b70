# SPDX-License-Identifier: Apache-2.0
"""A device process that serves the memory of an expander: the file is the window, the host is inside the guest."""

import os
import subprocess

from device import DEVICES, Device, prepare_child

# How long hosts wait for an acknowledgement, in microseconds. Emulated time is not the machine's time: a guest that
# gets a tenth of a processor must not give its device up for being slow.
PATIENCE_US = 2_000_000


def engine_arguments(name):
    """Arguments of merapi-device that choose the device `name`, with the patience for a guest. A simulated tracer asks
    for more by itself."""
    arguments = list(DEVICES[name])
    if "--patience-us" in arguments:
        arguments[arguments.index("--patience-us") + 1] = str(PATIENCE_US)
    return arguments


def start_serving(device, command):
    """Start `command` as the process of `device` and wait until it is ready. Returns `device`."""
    device.folder.mkdir(parents=True, exist_ok=True)
    device.socket = device.folder / f"{device.name}-{os.getpid()}.sock"  # never made; the base class removes it
    device.log = (device.folder / "device.log").open("w")
    try:
        device.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=device.log,
            start_new_session=True,
            preexec_fn=prepare_child,
        )
        device.wait_ready(10)
    except BaseException:
        device.__exit__()
        raise
    return device


class WindowDevice(Device):
    """merapi-device on the file `window`. Neither side hears the other's futex: both poll, at most 1 ms apart."""

    def __init__(self, program, name, folder, window, options=()):
        super().__init__(program, name, folder, options)
        self.window = window

    def __enter__(self):
        return start_serving(self, [self.program, *engine_arguments(self.name), *self.options, "--window", self.window])
