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
from common import BUILD, read_json, say, write_whole
from machine import ACCELERATORS, GuestError, Machine, check_room
from topology import MIB

CHOICES = ("auto", *ACCELERATORS)
DEVICE = Path("/dev/kvm")
MEMORY = BUILD / "qemu/accelerator.json"
# With KVM a guest boots in a second or two.
PROBE_SECONDS = 15
PROBE_BYTES = 256 * MIB


def boots(native):
    """Boot a guest with KVM and make its expander a window. Returns None, or why it did not work."""
    with tempfile.TemporaryDirectory(prefix="merapi-kvm-") as folder:
        try:
            shares = {"native": native}
            with Machine("one", folder, shares, PROBE_BYTES, accelerator="kvm", boot_seconds=PROBE_SECONDS) as machine:
                machine.provision()
        except GuestError as error:
            return str(error).splitlines()[0]
    return None


def choose(wanted, native):
    """The accelerator to use for `wanted` of CHOICES; `native` is the folder with the merapi command. GuestError when
    there is no room for a guest, whatever it would boot with."""
    if wanted != "auto":
        return wanted
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    state = f"{boot} {(prepare.OUT / 'initramfs.sha256').read_text()}"
    known = read_json(MEMORY)
    if known is not None and known["state"] == state:
        if known["accelerator"] == "tcg":
            say(f"using TCG: no guest booted with KVM here ({known['why']}); to look once more remove {MEMORY}")
        return known["accelerator"]
    check_room(PROBE_BYTES)
    say(f"looking whether a guest boots with KVM (at most {PROBE_SECONDS} s)")
    why = boots(native)
    found = {"state": state, "accelerator": "kvm" if why is None else "tcg", "why": why}
    write_whole(MEMORY, (json.dumps(found, indent=1) + "\n").encode())
    say("it does" if why is None else f"it does not ({why}); using TCG")
    return found["accelerator"]
