# SPDX-License-Identifier: Apache-2.0
"""firtool's memories in SystemVerilog, and other answers of theirs.

Each memory is a module of its own (`NAME_DEPTHxWIDTH`). A port that answers in the cycle after (SyncReadMem) is
written as a registered address, which answers with what is written in the same cycle; Chisel promises no such
thing. Who needs a port that says so puts registers of its own in its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DECLARED = re.compile(r"reg +(\[\d+:0\])? *Memory\[0:(\d+)\];")
WRITER = re.compile(r"input +(?:\[\d+:0\])? *(W\d+)_addr,")
REGISTERED = re.compile(
    r"  reg +_(R\d+)_en_d0;\n  reg +(?:\[\d+:0\])? *_\1_addr_d0;\n  always @\(posedge \w+_clk\) begin\n"
    r"    _\1_en_d0 <= \1_en;\n    _\1_addr_d0 <= \1_addr;\n  end[^\n]*\n"
)


@dataclass
class Memory:
    """The module `text`. `width` is its range (`[37:0]`, empty for one bit); `writers` and
    `registered` are names of ports: those that write, and those whose address is registered."""

    text: str
    declaration: str
    width: str
    depth: int
    writers: list[str]
    registered: list[str]

    def replace(self, port: str, registers: str) -> None:
        """`registers` stand in place of the port's registered address; they hold its answer in `_PORT_q`.
        ValueError: the port is written otherwise."""
        block = next((b for b in REGISTERED.finditer(self.text) if b[1] == port), None)
        if block is None:
            raise ValueError(f"expected a registered address of {port} in\n{self.text[:600]}")
        text = self.text[: block.start()] + registers + self.text[block.end() :]
        answer = rf"assign {port}_data = _{port}_en_d0 \? Memory\[_{port}_addr_d0\] : [^;]*;"
        self.text, times = re.subn(answer, f"assign {port}_data = _{port}_q;", text)
        if times != 1:
            raise ValueError(f"expected firtool's memory with one answer of {port}, found {times} in\n{text[:600]}")


def memory(text: str) -> Memory | None:
    """None: this module is no memory. ValueError: it has an address that is registered in another way."""
    found = DECLARED.search(text)
    if not found:
        return None
    registered = [block[1] for block in REGISTERED.finditer(text)]
    if text.count("_en_d0;\n") != len(registered):
        raise ValueError(f"expected firtool's registered addresses, found another form of them in\n{text[:600]}")
    return Memory(text, found[0], found[1] or "", int(found[2]) + 1, WRITER.findall(text), registered)
