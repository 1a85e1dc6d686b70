#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A preset's SystemVerilog with memories that answer anything where what is read is written in the same cycle.

firtool writes a memory with a registered read address, which answers with what was written. Chisel promises no
such thing (SyncReadMem: undefined), and neither do block RAMs, so nothing may depend on it: with the old data and
the inverted new data by turns the regression passes all the same, and what leaves the ports is what is recorded.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

MEMORY = re.compile(r"reg +(\[\d+:0\])? *Memory\[0:\d+\];")
PORT = re.compile(r"reg +_(R\d+)_en_d0;")
WRITER = re.compile(r"input +(?:\[\d+:0\])? *(W\d+)_addr,")
# Declared to be read first (ReferenceFilter): distributed memory answers with the old data, this one with the new.
# Either is right, but they differ by a cycle, and ports would be other ones than recorded.
READ_FIRST = re.compile(r"module entries_\d+x\d+\(")


def colliding(text: str) -> str:
    """A memory's module; any other text, and a memory without a registered address, as it is."""
    found = MEMORY.search(text)
    if not found or READ_FIRST.search(text):
        return text
    width = found[1] or ""
    writers = WRITER.findall(text)
    for port in PORT.findall(text):
        hit = " || ".join(f"({w}_en && {w}_addr == {port}_addr)" for w in writers)
        if not hit:
            continue
        read = (
            f"reg {width} _{port}_q;\n  reg _{port}_odd = 1'b0;\n  always @(posedge {port}_clk) begin\n"
            f"    _{port}_odd <= ~_{port}_odd;\n"
            f"    _{port}_q <= ({hit}) && _{port}_odd ? ~{writers[0]}_data : Memory[{port}_addr];\n  end\n"
            f"  assign {port}_data = _{port}_en_d0 ? _{port}_q : "
        )
        text, times = re.subn(
            rf"assign {port}_data = _{port}_en_d0 \? Memory\[_{port}_addr_d0\] : ", lambda _, read=read: read, text
        )
        if times != 1:
            raise ValueError(f"expected firtool's memory with one answer of {port}, found {times} in\n{text[:400]}")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rtl", type=Path, help="an elaborated preset")
    parser.add_argument("out", type=Path, help="written anew, but for what is built there")
    given = parser.parse_args()
    changed = 0
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        for name in ("filelist.f", "preset.json"):
            shutil.copy(given.rtl / name, given.out / name)
        for source in sorted(given.rtl.glob("*.sv")) + sorted(given.rtl.glob("verification/**/*.sv")):
            to = given.out / source.relative_to(given.rtl)
            to.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text()
            written = colliding(text)
            changed += written != text
            to.write_text(written)
    except (OSError, ValueError) as error:
        print(f"collisions: {error}", file=sys.stderr)
        return 1
    if changed == 0:
        print(f"collisions: expected memories with a registered address in {given.rtl}, found none", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
