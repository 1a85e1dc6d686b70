# SPDX-License-Identifier: Apache-2.0
"""The tracer as a PCI function of a guest: starts merapi-pci-front, whose engine is merapi-device."""

import json
from pathlib import Path

from device import Device, DeviceError
from topology import slot_name
from window_device import engine_arguments, start_serving

FRONT = Path(__file__).resolve().parents[1] / "build/qemu/bin/merapi-pci-front"


class PciFront(Device):
    """merapi-pci-front on the file `window`, listening at `socket`. It must be there before QEMU starts."""

    def __init__(self, program, name, folder, window, socket):
        super().__init__(program, name, folder)
        if not FRONT.exists():
            raise DeviceError(f"expected the PCI function's process at {FRONT}, found nothing; run 'make qemu-pci'")
        self.window, self.path = window, socket

    def __enter__(self):
        engine = [self.program, *engine_arguments(self.name), "--window", self.window]
        return start_serving(self, [FRONT, "--socket", self.path, "--window", self.window, "--", *engine])

    def qemu_options(self, bridge=0, slot=0):
        """QEMU's options for the function, as function 1 beside the expander in that slot."""
        device = {
            "driver": "vfio-user-pci",
            "socket": {"path": str(self.path), "type": "unix"},
            "bus": slot_name(bridge, slot),
            "addr": "0.1",
        }
        return ["-device", json.dumps(device)]
