#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that `make qemu` needs besides the JDK: QEMU, the guest's kernel, the initramfs.

Packages are unpacked below ~/.cache/merapi/qemu, the initramfs lies in build/qemu. A second run takes no time.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import initramfs  # noqa: E402
import kernel  # noqa: E402
import packages  # noqa: E402
from common import BUILD, exclusive, say  # noqa: E402

OUT = BUILD / "qemu"
INITRAMFS = OUT / "initramfs.cpio"
VMLINUX = OUT / "vmlinux"


def qemu_command():
    """Command of the private QEMU, without options of the machine."""
    host = packages.tree("host")
    folders = [host / "usr/share" / name for name in ("qemu", "seabios", "ipxe/qemu")]
    options = [x for folder in folders if folder.is_dir() for x in ("-L", folder)]
    return packages.loader_command(host, host / "usr/bin/qemu-system-x86_64", *options)


def kernel_image():
    """The kernel image of the guest's package."""
    return next((packages.tree("kernel") / "boot").glob("vmlinuz-*"))


def fetch():
    """Fetch the packages that are missing. Returns what was taken as {tree: {package: version}}."""
    return {name: json.loads((packages.tree(name) / "packages.json").read_text()) for name in packages.TREES}


def ready():
    """Fetch and make what is missing. Returns the packages as fetch() does."""
    OUT.mkdir(parents=True, exist_ok=True)
    with exclusive("qemu-setup"):
        taken = fetch()
        stamp, recipe = OUT / "initramfs.sha256", initramfs.recipe()
        if not (INITRAMFS.exists() and VMLINUX.exists() and stamp.exists() and stamp.read_text() == recipe):
            say("guest: making the initramfs, unpacking the kernel")
            stamp.unlink(missing_ok=True)
            initramfs.make(INITRAMFS)
            kernel.unpack(kernel_image(), VMLINUX)
            stamp.write_text(recipe)
        (OUT / "packages.json").write_text(json.dumps(taken, indent=1, sort_keys=True) + "\n")
    return taken


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    taken = ready()
    qemu = taken["host"]["qemu-system-x86"]
    linux = next(version for name, version in taken["kernel"].items() if name.startswith("linux-image-"))
    say(f"QEMU {qemu}, guest kernel {linux}, initramfs of {INITRAMFS.stat().st_size >> 20} MB in {INITRAMFS}")


if __name__ == "__main__":
    main()
