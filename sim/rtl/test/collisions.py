#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A preset's SystemVerilog with memories that answer anything where what is read is written in the same cycle.

firtool writes a memory with a registered read address, which answers with what was written. Chisel promises no
such thing (SyncReadMem: undefined), and neither do block RAMs, so nothing may depend on it: with the old data and
the inverted new data by turns the regression passes all the same, and what leaves the ports is what is recorded.
"""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import firtool_memory  # noqa: E402


def colliding(text: str) -> str:
    """A memory's module; any other text, and a memory without a registered address, as it is."""
    memory = firtool_memory.memory(text)
    if memory is None or not memory.writers:
        return text
    for port in memory.registered:
        hit = " || ".join(f"({w}_en && {w}_addr == {port}_addr)" for w in memory.writers)
        memory.replace(
            port,
            f"  reg {memory.width} _{port}_q;\n  reg _{port}_odd = 1'b0;\n  always @(posedge {port}_clk) begin\n"
            f"    _{port}_odd <= ~_{port}_odd;\n"
            f"    _{port}_q <= ({hit}) && _{port}_odd ? ~{memory.writers[0]}_data : Memory[{port}_addr];\n  end\n",
        )
    return memory.text


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
