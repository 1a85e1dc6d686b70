# SPDX-License-Identifier: Apache-2.0
"""KVM where a guest really boots with it, TCG (QEMU's translator) everywhere else.

That /dev/kvm is there says little: inside virtual machines it may be a stand-in that fails on a guest's kernel. So a
guest is booted with it once; what came of it is remembered until this machine boots again or the guest's parts change.
"""

import json
import os
import tempfile
from pathlib import Path

import prepare
from common import BUILD, say
from machine import ACCELERATORS, GuestError, Machine
from topology import MIB

CHOICES = ("auto", *ACCELERATORS)
DEVICE = Path("/dev/kvm")
MEMORY = BUILD / "qemu/accelerator.json"
# With KVM a guest boots in a second or two.
PROBE_SECONDS = 15


def boots(native):
    """Boot a guest with KVM and make its expander a window. Returns None, or why it did not work."""
    with tempfile.TemporaryDirectory(prefix="merapi-kvm-") as folder:
        try:
            shares = {"native": native}
            with Machine("one", folder, shares, 256 * MIB, accelerator="kvm", boot_seconds=PROBE_SECONDS) as machine:
                machine.provision()
        except GuestError as error:
            return str(error).splitlines()[0]
    return None


def choose(wanted, native):
    """The accelerator to use for `wanted` of CHOICES; `native` is the folder with the merapi command."""
    if wanted != "auto":
        return wanted
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    state = f"{boot} {(prepare.OUT / 'initramfs.sha256').read_text()}"
    if MEMORY.exists():
        known = json.loads(MEMORY.read_text())
        if known["state"] == state:
            return known["accelerator"]
    say(f"looking whether a guest boots with KVM (at most {PROBE_SECONDS} s)")
    why = boots(native)
    found = {"state": state, "accelerator": "kvm" if why is None else "tcg", "why": why}
    MEMORY.write_text(json.dumps(found, indent=1) + "\n")
    say("it does" if why is None else f"it does not ({why}); using TCG")
    return found["accelerator"]
