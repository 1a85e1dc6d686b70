# SPDX-License-Identifier: Apache-2.0
"""Named arrangements of CXL expanders, as QEMU options. docs/emulation.md says what each one is for."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
# CXL fixed memory windows are multiples of 256 MiB (CXL 3.0, 9.18.1.3).
WINDOW_GRANULE = 256 * MIB


@dataclass(frozen=True)
class Topology:
    """`bridges`: for each CXL host bridge the number of expanders below it; `windows`: host bridges of each fixed
    memory window, several meaning interleave; `kind`: ram or pmem."""

    bridges: tuple
    windows: tuple
    kind: str = "ram"

    @property
    def expanders(self):
        return sum(self.bridges)


TOPOLOGIES = {
    "one": Topology((1,), ((0,),)),
    "two": Topology((2,), ((0,), (0,))),
    "interleaved": Topology((1, 1), ((0, 1),)),
    "pmem": Topology((1,), ((0,),), "pmem"),
}


def value(text):
    """`text` as a value in a list of QEMU's options, where a comma ends a value and two are one."""
    return str(text).replace(",", ",,")


def bridge_name(number):
    return f"cxl.{number + 1}"


def slot_name(bridge, slot):
    return f"expander_port{bridge}{slot}"


def backing_files(topology, folder):
    """Paths of the files that are the expanders' memory, in the order mem0, mem1, ..."""
    return [Path(folder) / f"expander{i}.mem" for i in range(topology.expanders)]


def make_backing(topology, folder, size):
    """Create the expanders' memory (sparse, zero) and, for pmem, their label storage. Old contents are dropped: a new
    file, since another process may still map the old one."""
    if size % WINDOW_GRANULE:
        raise ValueError(f"expected a multiple of 256 MiB for the size of an expander, found {size} bytes")
    for path in backing_files(topology, folder):
        for file, length in ((path, size), (path.with_suffix(".labels"), MIB)):
            file.unlink(missing_ok=True)
            if file == path or topology.kind == "pmem":
                with open(file, "xb") as made:
                    made.truncate(length)


def arguments(topology, folder, size):
    """QEMU options that make the expanders; `size` is the bytes of each."""
    options, number = [], 0
    files = backing_files(topology, folder)
    for bridge, slots in enumerate(topology.bridges):
        # Bus numbers far apart: each bridge has room for its ports.
        options += ["-device", f"pxb-cxl,bus_nr={12 + 40 * bridge},bus=pcie.0,id={bridge_name(bridge)}"]
        for slot in range(slots):
            port = slot_name(bridge, slot)
            slot_options = f"chassis=0,slot={2 + number}"
            options += ["-device", f"cxl-rp,port={slot},bus={bridge_name(bridge)},id={port},{slot_options}"]
            options += memory(topology.kind, files[number], number, port, size)
            number += 1
    # All windows in one option: QEMU wants a list whole.
    parts = []
    for number, bridges in enumerate(topology.windows):
        window = f"cxl-fmw.{number}"
        parts += [f"{window}.targets.{i}={bridge_name(b)}" for i, b in enumerate(bridges)]
        # A window holds what the expanders below it have, or one of them when there is one window for each.
        parts.append(f"{window}.size={size * len(bridges)}")
        if len(bridges) > 1:
            parts.append(f"{window}.interleave-granularity=256")
    options += ["-M", ",".join(parts)]
    return options


def memory(kind, file, number, port, size):
    """One expander: its memory object(s) and the device."""
    name = f"expander{number}"
    options = ["-object", f"memory-backend-file,id={name},share=on,mem-path={value(file)},size={size}"]
    # Functions above 0 of the slot are kept free for tracers.
    device = f"cxl-type3,bus={port},addr=00.0,multifunction=on,id={name}-device,sn={number + 1}"
    if kind == "pmem":
        labels, label_file = f"{name}-labels", value(file.with_suffix(".labels"))
        options += [
            "-object",
            f"memory-backend-file,id={labels},share=on,mem-path={label_file},size={MIB}",
        ]
        return [*options, "-device", f"{device},persistent-memdev={name},lsa={labels}"]
    return [*options, "-device", f"{device},volatile-memdev={name}"]
