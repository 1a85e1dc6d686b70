# SPDX-License-Identifier: Apache-2.0
"""Longest register-to-register paths of a flattened Yosys netlist (write_json), with a simple delay model.

Yosys places and routes nothing, so a path's delay is an estimate: each cell costs what its kind costs, and each LUT
includes the wire that leads to it. The figures below are for -2 UltraScale+ devices (the speed grade of U250, U280 and
U55C) and rounded up: data sheet DS923 gives 0.05-0.15 ns for a LUT6 and 0.08 ns clock to output; a routed net of a
design that fills a few per cent of the device takes 0.2-0.35 ns.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

LUT_NS = 0.35  # a LUT and the net to it, placed well: ten levels at 250 MHz. What misses with this is too deep
LUT_TIGHT_NS = 0.45  # the same in a crowded place: seven levels. What misses with this alone is tight
CARRY_NS = 0.04  # four bits of a carry chain, no net outside the column
CARRY_ENTRY_NS = 0.15  # from an operand of a carry chain to its output
MUX_NS = 0.12  # F7/F8/F9, inside one slice
CLOCK_TO_Q = {"FD": 0.10, "LD": 0.10, "RAMB": 1.00, "URAM": 1.40, "RAM": 0.65, "SRL": 0.60}
SETUP_NS = {"FD": 0.06, "LD": 0.06, "RAMB": 0.35, "URAM": 0.40, "RAM": 0.25, "SRL": 0.25}
NEVER = -1000.0  # arrival of what starts no path
LAST_NET_NS = 0.25  # the net to a register or memory


def kind(cell: str) -> str:
    """lut, carry, mux, lutram (asynchronous read), or the prefix of a sequential cell; other for constants."""
    if re.fullmatch(r"LUT[1-6](_2)?|INV|\$lut", cell):
        return "lut"
    if cell.startswith("CARRY"):
        return "carry"
    if cell.startswith("MUXF"):
        return "mux"
    if re.match(r"RAM(B18|B36)", cell):
        return "RAMB"
    if cell.startswith("URAM"):
        return "URAM"
    if re.match(r"RAM\d", cell):
        return "RAM"
    if cell.startswith("SRL"):
        return "SRL"
    if re.match(r"FD[RSPC]E", cell):
        return "FD"
    if cell.startswith("LD"):
        return "LD"
    return "other"


def sequential(k: str) -> bool:
    return k in ("RAMB", "URAM", "RAM", "SRL", "FD", "LD")


@dataclasses.dataclass
class Path:
    ns: float
    luts: int
    carries: int
    muxes: int
    start: str
    end: str
    through: list[str]

    def as_json(self) -> dict[str, Any]:
        out = dataclasses.asdict(self)
        out["ns"], out["tight_ns"] = round(self.ns, 2), round(self.tight_ns, 2)
        return out

    @property
    def tight_ns(self) -> float:
        return self.ns + self.luts * (LUT_TIGHT_NS - LUT_NS)


class Netlist:
    """One flattened module as written by write_json."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells = {n: c for n, c in module["cells"].items() if kind(c["type"]) != "other"}
        self.kinds = {n: kind(c["type"]) for n, c in self.cells.items()}
        self.driver: dict[int, str] = {}
        self.inputs: dict[str, list[int]] = {}  # what a cell's output, or its next state, follows from
        self.outputs: dict[str, list[int]] = {}
        for name, cell in self.cells.items():
            into: list[int] = []
            out: list[int] = []
            for pin, bits in cell["connections"].items():
                wires = [b for b in bits if isinstance(b, int)]
                if cell["port_directions"][pin] == "output":
                    out.extend(wires)
                elif not _clock(self.kinds[name], pin):
                    into.extend(wires)
            for b in out:
                self.driver[b] = name
            self.inputs[name], self.outputs[name] = into, out

    def asynchronous(self, name: str) -> list[int]:
        """Wires from which the output of a distributed memory follows without a clock: its read addresses. A port
        whose output is not there (H of a RAM32M16 that others read) is the one that writes."""
        connections = self.cells[name]["connections"]
        dual = any(pin.startswith("DPRA") for pin in connections)
        out: list[int] = []
        for pin, bits in connections.items():
            if pin.startswith("ADDR") and pin.replace("ADDR", "DO", 1) not in connections:
                continue
            if pin.startswith(("DPRA", "ADDR")) or (not dual and re.fullmatch(r"A\d?", pin)):
                out.extend(b for b in bits if isinstance(b, int))
        return out

    def arrivals(self, ignore: Callable[[str], bool]) -> tuple[dict[str, float], dict[str, str | None]]:
        """When each cell's output is stable after a clock edge, and the cell before it on its slowest way. A register
        that `ignore` names starts no path."""
        at: dict[str, float] = {}
        before: dict[str, str | None] = {}
        waits: dict[str, int] = {}
        after: dict[str, list[str]] = defaultdict(list)
        ready: list[str] = []
        for name, k in self.kinds.items():
            at[name], before[name] = CLOCK_TO_Q.get(k, 0.0), None
            if sequential(k) and k != "RAM" and ignore(name):
                at[name] = NEVER
            sources = [] if sequential(k) and k != "RAM" else self.inputs[name]
            if k == "RAM":
                sources = self.asynchronous(name)
            drivers = {self.driver[b] for b in sources if b in self.driver}
            if drivers and not sequential(k):
                # Until one of them says when; what follows from quasi-static registers alone never does.
                at[name] = NEVER
            waits[name] = len(drivers)
            for d in drivers:
                after[d].append(name)
            if not drivers:
                ready.append(name)
        done = 0
        while ready:
            name = ready.pop()
            done += 1
            for follower in after[name]:
                t = at[name] + self._through(name, follower)
                if t > at[follower]:
                    at[follower], before[follower] = t, name
                waits[follower] -= 1
                if waits[follower] == 0:
                    ready.append(follower)
        if done != len(self.cells):
            stuck = [n for n, w in waits.items() if w > 0][:4]
            raise ValueError(f"expected no combinational loop, found one through {', '.join(stuck)}")
        return at, before

    def _through(self, source: str, cell: str) -> float:
        k = self.kinds[cell]
        if k == "carry":
            return CARRY_NS if self.kinds[source] == "carry" else CARRY_ENTRY_NS
        if k == "mux":
            return MUX_NS
        if k == "RAM":
            return LUT_NS
        return LUT_NS if k == "lut" else 0.0

    def paths(self, ignore: Callable[[str], bool] = lambda _: False) -> list[Path]:
        """The slowest path to each register and memory, slowest first."""
        at, before = self.arrivals(ignore)
        out: list[Path] = []
        for name, k in self.kinds.items():
            if not sequential(k):
                continue
            drivers = {self.driver[b] for b in self.inputs[name] if b in self.driver}
            if not drivers:
                continue
            last = max(drivers, key=lambda d: at[d])
            if at[last] < 0:
                continue
            chain: list[str] = [last]
            while (previous := before[chain[-1]]) is not None:
                chain.append(previous)
            chain.reverse()
            kinds = [self.kinds[c] for c in chain]
            out.append(
                Path(
                    ns=at[last] + LAST_NET_NS + SETUP_NS[k],
                    luts=kinds.count("lut") + kinds[1:].count("RAM"),
                    carries=kinds.count("carry"),
                    muxes=kinds.count("mux"),
                    start=chain[0],
                    end=name,
                    through=chain,
                )
            )
        out.sort(key=lambda p: -p.ns)
        return out


def _clock(k: str, pin: str) -> bool:
    return (
        sequential(k) and re.fullmatch(r"C|G|CLK|W?CLK|CLK[A-B]?(RD|WR)?CLK|CLKARDCLK|CLKBWRCLK|WCLK", pin) is not None
    )
