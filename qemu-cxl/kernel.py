# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel as QEMU loads it fastest: unpacked, started through its PVH entry.

An emulated processor takes some two seconds to unpack what the packaged image holds; this machine takes a tenth.
"""

import struct
import subprocess

from common import fail

# Linux/x86 boot protocol: number of real-mode sectors; offset and length of what the image holds compressed, counted
# from the first protected-mode sector.
SETUP_SECTORS, PAYLOAD = 0x1F1, 0x248
SECTOR = 512
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The build appends the unpacked size.
SIZE_BYTES = 4


def unpack(image, out):
    """Write the ELF file inside the kernel image `image` to `out`."""
    data = image.read_bytes()
    offset, length = struct.unpack_from("<II", data, PAYLOAD)
    begin = ((data[SETUP_SECTORS] or 4) + 1) * SECTOR + offset
    payload = data[begin : begin + length - SIZE_BYTES]
    if not payload.startswith(ZSTD_MAGIC):
        fail(f"expected a kernel compressed with zstd in {image}, found bytes that begin with {payload[:4].hex()}")
    done = subprocess.run(["zstd", "-dc"], input=payload, capture_output=True)
    if done.returncode or not done.stdout.startswith(b"\x7fELF"):
        fail(f"could not unpack the kernel in {image}; is the package zstd installed?\n{done.stderr.decode()}")
    part = out.with_name(out.name + ".part")
    part.write_bytes(done.stdout)
    part.replace(out)
