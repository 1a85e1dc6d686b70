# SPDX-License-Identifier: Apache-2.0
"""A device process that serves the memory of an expander: the file is the window, the host is inside the guest."""

from device import DEVICES, Device

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


class WindowDevice(Device):
    """merapi-device on the file `window`. Neither side hears the other's futex: both poll, at most 1 ms apart."""

    def __init__(self, program, name, folder, window, options=()):
        super().__init__(program, name, folder, options)
        self.window = window

    def __enter__(self):
        return self.start([self.program, *engine_arguments(self.name), *self.options, "--window", self.window])
