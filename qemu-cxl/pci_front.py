# SPDX-License-Identifier: Apache-2.0
"""The tracer as a PCI function of a guest: starts merapi-pci-front, whose engine is merapi-device."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from device import Device, DeviceError
from topology import slot_name
from window_device import engine_arguments

FRONT = Path(__file__).resolve().parents[1] / "build/qemu/bin/merapi-pci-front"
# What it says in its log when QEMU has left it, or ended.
LEFT = "merapi-pci-front: the connection to a client ended"

RESTART_SECONDS = 20
# The engine proper starts when the file $0 is not there (any more).
WHEN_FREE = 'while [ -e "$0" ]; do sleep 0.1; done; exec "$@"'


class PciFront(Device):
    """merapi-pci-front on the file `window`, listening at `socket`. It must be there before QEMU starts. `options` are
    further arguments of the engine, merapi-device.

    With `held` no engine traces until release(): hold() lets another device have the window, or none.
    """

    def __init__(self, program, name, folder, window, socket, held=False, options=()):
        super().__init__(program, name, folder, options)
        self.gate = Path(f"{socket}.held")
        if held:
            self.gate.touch()
        if not FRONT.exists():
            raise DeviceError(f"expected the PCI function's process at {FRONT}, found nothing; run 'make qemu-pci'")
        self.window, self.path = window, socket

    def __enter__(self):
        engine = [self.program, *engine_arguments(self.name), *self.options, "--window", "{window}"]
        engine = ["/bin/sh", "-c", WHEN_FREE, self.gate, *engine]
        return self.start([FRONT, "--socket", self.path, "--window", self.window, "--", *engine])

    def left(self):
        """Has a client left? QEMU does not come back: while it runs its guest has lost the function."""
        return LEFT in Path(self.log.name).read_text(errors="replace")

    def engine(self):
        """Number of the engine's process, None while there is none."""
        # A thread of the front's own starts it.
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [pid for task in tasks for pid in (task / "children").read_text().split()]
        return int(children[0]) if children else None

    def hold(self):
        """End the engine and start no other one."""
        self.gate.touch()
        if self.engine() is not None:  # there is none without a window
            self.kill_engine()

    def release(self):
        """Let an engine trace."""
        self.gate.unlink(missing_ok=True)

    def kill_engine(self):
        """Kill the engine, and wait until the front has started another one."""
        killed, deadline = self.engine(), time.monotonic() + RESTART_SECONDS
        if killed is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(killed, signal.SIGKILL)
        while self.engine() in (None, killed):
            if time.monotonic() > deadline:
                raise DeviceError(
                    f"expected another engine within {RESTART_SECONDS} s, found none; see {self.log.name}"
                )
            time.sleep(0.01)

    def qemu_options(self, bridge=0, slot=0):
        """QEMU's options for the function, as function 1 beside the expander in that slot."""
        device = {
            "driver": "vfio-user-pci",
            "socket": {"path": str(self.path), "type": "unix"},
            "bus": slot_name(bridge, slot),
            "addr": "0.1",
        }
        return ["-device", json.dumps(device)]
