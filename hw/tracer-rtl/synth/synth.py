#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Area and longest logic paths of the tracer for UltraScale+, estimated with Yosys.

    synth.py --yosys CMD --rtl build/rtl/PRESET ... --report build/synth/report.json

Each module is synthesised once (synth_xilinx -family xcup, hierarchy kept), counted with its instances, then the mapped
design is flattened for the paths (paths.py says what a cell is taken to cost). Exit code 1: an area limit or the clock
is missed; the report is written all the same.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tools")]
import firtool_memory  # noqa: E402
import paths  # noqa: E402
from common import count  # noqa: E402
from yosys import YosysError, run_script  # noqa: E402

# Lookup tables that one cell of distributed memory occupies (AMD UG974).
MEMORY_LUTS = {
    "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4, "RAM512X1S": 8,
    "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1D": 8,
    "RAM32X16DR8": 8, "RAM64X8SW": 8, "RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8,
    "SRL16E": 1, "SRLC16E": 1, "SRLC32E": 1,
}  # fmt: skip
# Modules that are parts of the block around them: queues, arbiters and memories.
PART = re.compile(r"(Queue|Fifo|SureFifo|Arbiter|RRArbiter)\d+_|.*_\d+x\d+$")
ULTRA_DEPTH = (
    4096  # a memory deeper than a URAM becomes URAM; one of just its depth is a few block RAMs, which are faster
)
RESOURCES = ("lut", "ff", "bram36", "uram")


def fail(message: str) -> NoReturn:
    print(f"synth: {message}", file=sys.stderr)
    sys.exit(2)


def for_synthesis(text: str) -> str:
    """A memory as tools infer one. firtool writes a registered read address, which a tool has to take for a port that
    reads what is written in the same cycle; Chisel promises no such thing (SyncReadMem: undefined), so the bypass for
    it is no part of the design."""
    memory = firtool_memory.memory(text)
    if memory is None:
        return text
    for port in memory.registered:
        memory.replace(
            port,
            f"  reg {memory.width} _{port}_q;\n"
            f"  always @(posedge R0_clk) if ({port}_en) _{port}_q <= Memory[{port}_addr];\n",
        )
    attributes = "(* no_rw_check" + (', ram_style = "ultra"' if memory.depth > ULTRA_DEPTH else "") + " *) "
    text = memory.text.replace(memory.declaration, attributes + memory.declaration, 1)
    # One clock drives all ports; the module alone does not say so, and URAM has but one.
    return re.sub(r"@\(posedge \w+_clk\)", "@(posedge R0_clk)", text)


def prepare(rtl: Path, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    for old in work.glob("*.sv"):
        old.unlink()
    files = sorted(rtl.glob("*.sv"))
    if not files:
        fail(f"expected SystemVerilog in {rtl}, found none: run 'make rtl RTL_PRESETS={rtl.name}'")
    for source in files:
        (work / source.name).write_text(for_synthesis(source.read_text()))


def run_yosys(yosys: str, work: Path, top: str, timeout: int) -> None:
    names = " ".join(p.name for p in sorted(work.glob("*.sv")))
    xilinx = f"synth_xilinx -family xcup -noiopad -noclkbuf -nowidelut -top {top} -run"
    # The steps before memories are those of synth_xilinx without its rounds of optimisation and sharing on words, which
    # take most of the time. Logic is mapped for depth (abc.script: two rounds of SOP balancing), as a tool does that
    # knows the clock; synth_xilinx's own mapping leaves chains of priority as deep as they were written. Wide LUTs (F7
    # to F9 multiplexers) are left out: ABC would count them as one level. ABC gives each register whose enable
    # is inverted a table of its own; opt_merge leaves one of them.
    (work / "synth.ys").write_text(
        f"read_verilog -sv {names}\nhierarchy -check -top {top}\n{xilinx} begin:prepare\n"
        "proc\nopt_expr\nopt_clean\nopt -nodffe -nosdff\nopt_dff -simple-dffe\nopt_expr\nwreduce\npeepopt\nopt_clean\n"
        "memory_dff\nalumacc\nopt_clean\nmemory -nomap\nopt_clean\n"
        f"{xilinx} map_memory:map_luts\n"
        f"opt_expr -mux_undef -noclkinv\nabc -luts 2:2,3,6:5 -script {HERE / 'abc.script'}\nopt_merge\nclean\n"
        "techmap -map +/xilinx/ff_map.v\nxilinx_srl -fixed -minlen 3\n"
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6\n"
        "xilinx_dffopt\nopt_lut_ins -tech xilinx\nclean\n"
        "write_json modules.json\nflatten\nopt_clean\nwrite_json flat.json\n"
    )
    run_script(yosys, "synth.ys", work, timeout)


def own_area(module: dict[str, Any]) -> tuple[Counter[str], Counter[str]]:
    """Resources of a module's own cells, and its instances by module."""
    area: Counter[str] = Counter()
    instances: Counter[str] = Counter()
    for cell in module["cells"].values():
        t = cell["type"]
        if re.fullmatch(r"LUT[1-6]|INV", t):
            area["lut"] += 1
        elif t in MEMORY_LUTS:
            area["lut"] += MEMORY_LUTS[t]
            area["lut_memory"] += MEMORY_LUTS[t]
        elif re.match(r"FD[RSPC]E", t):
            area["ff"] += 1
        elif t.startswith("RAMB36"):
            area["bram36"] += 1
        elif t.startswith("RAMB18"):
            area["bram36"] += 0.5
        elif t.startswith("URAM288"):
            area["uram"] += 1
        elif t.startswith(("CARRY", "MUXF")):
            area[t.lower()] += 1
        else:
            instances[t] += 1
    return area, instances


class Design:
    def __init__(self, modules: dict[str, Any], top: str) -> None:
        self.top = top
        self.own: dict[str, Counter[str]] = {}
        self.instances: dict[str, Counter[str]] = {}
        self.children: dict[str, dict[str, str]] = {}
        used = [top]
        while used:
            name = used.pop()
            if name in self.own:
                continue
            area, instances = own_area(modules[name])
            unknown = [t for t in instances if t not in modules or modules[t]["attributes"].get("blackbox")]
            if set(unknown) - {"GND", "VCC", "BUFG"}:
                raise ValueError(f"expected cells of UltraScale+, found {', '.join(unknown)} in {name}")
            self.own[name] = area
            self.instances[name] = Counter({t: n for t, n in instances.items() if t not in unknown})
            self.children[name] = {
                i.lstrip("\\"): c["type"]
                for i, c in modules[name]["cells"].items()
                if c["type"] in self.instances[name]
            }
            used.extend(self.instances[name])

    def whole(self, name: str) -> Counter[str]:
        total = Counter(self.own[name])
        for child, n in self.instances[name].items():
            for resource, amount in self.whole(child).items():
                total[resource] += amount * n
        return total

    def block(self, name: str) -> Counter[str]:
        """A module with its queues, arbiters and memories, without the blocks inside it."""
        total = Counter(self.own[name])
        for child, n in self.instances[name].items():
            if PART.match(child):
                for resource, amount in self.block(child).items():
                    total[resource] += amount * n
        return total

    def count(self) -> Counter[str]:
        """How often each module is there."""
        total: Counter[str] = Counter()

        def walk(name: str, times: int) -> None:
            total[name] += times
            for child, n in self.instances[name].items():
                walk(child, times * n)

        walk(self.top, 1)
        return total

    def block_of(self, cell: str) -> str:
        """The block in which a cell of the flattened design is."""
        module = block = self.top
        for part in re.split(r"[.\\]+", cell.replace("$flatten", "")):
            child = self.children[module].get(part)
            if child is None:
                if part:
                    break
                continue
            module = child
            if not PART.match(child):
                block = child
        return block


def measure(rtl: Path, arguments: argparse.Namespace, devices: dict[str, Any]) -> dict[str, Any]:
    preset, work, top, clock_mhz = rtl.name, arguments.work / rtl.name, arguments.top, devices["clock_mhz"]
    if not arguments.reuse:
        prepare(rtl, work)
        run_yosys(arguments.yosys, work, top, arguments.timeout)
    design = Design(json.loads((work / "modules.json").read_text())["modules"], top)
    found = paths.Netlist(json.loads((work / "flat.json").read_text())["modules"][top]).paths(
        lambda cell: design.block_of(cell) in devices["quasi_static"]
    )
    period = 1000 / clock_mhz
    slowest: dict[str, paths.Path] = {}
    misses: Counter[str] = Counter()
    for p in found:
        block = design.block_of(p.end)
        slowest.setdefault(block, p)
        misses[block] += p.ns > period
    count = design.count()
    blocks = []
    for name in sorted((n for n in count if not PART.match(n)), key=lambda n: -design.block(n)["lut"] * count[n]):
        area = design.block(name)
        entry: dict[str, Any] = {"block": name, "instances": count[name]}
        entry |= {r: area[r] for r in (*RESOURCES, "lut_memory")}
        if name in slowest:
            p = slowest[name]
            way = [design.block_of(cell) for cell in [*p.through, p.end]]
            entry["path"] = p.as_json() | {"start_block": way[0], "late_ends": misses[name]}
            entry["path"]["way"] = [b for b, before in zip(way, [None, *way], strict=False) if b != before]
            entry["path"]["meets"] = p.ns <= period
            entry["path"]["tight"] = p.ns <= period < p.tight_ns
        blocks.append(entry)
    total = design.whole(top)
    return {
        "preset": preset,
        "top": top,
        "total": {r: total[r] for r in (*RESOURCES, "lut_memory")},
        "blocks": blocks,
        "paths": {
            "slowest_ns": round(found[0].ns, 2) if found else 0,
            "late": sum(misses.values()),
            "ends": len(found),
        },
    }


def judge(result: dict[str, Any], devices: dict[str, Any]) -> list[str]:
    """What misses its limit, in words; adds the shares of the devices to the result."""
    total = result["total"]
    result["share"] = {
        name: {r: round(total[r] / d[r], 4) for r in RESOURCES} for name, d in devices["devices"].items()
    }
    wrong = []
    limit = devices["limits"].get(result["preset"], {})
    if total["lut"] > limit.get("lut", total["lut"]):
        wrong.append(f"{result['preset']}: expected at most {limit['lut']} LUT, found {total['lut']}")
    if "memory_share" in limit:
        device, of = limit["memory_share"]["device"], limit["memory_share"]["of"]
        for r in ("bram36", "uram"):
            if result["share"][device][r] > of:
                most = int(devices["devices"][device][r] * of)
                wrong.append(
                    f"{result['preset']}: expected at most {most} {r} ({of:.0%} of a {device}), found {total[r]}"
                )
    for b in result["blocks"]:
        if "path" in b and not b["path"]["meets"]:
            p = b["path"]
            wrong.append(
                f"{result['preset']}: {b['block']} misses {devices['clock_mhz']} MHz: {p['ns']} ns, "
                f"{p['luts']} LUT levels, "
                f"from {p['start_block']}, {p['late_ends']} late registers"
            )
    result["misses"] = wrong
    return wrong


def judgement(path: dict[str, Any]) -> str:
    return "MISS" if not path["meets"] else "tight" if path["tight"] else ""


def table(result: dict[str, Any]) -> str:
    rows = [("block", "n", "LUT", "(memory)", "FF", "BRAM36", "URAM", "levels", "ns", "late ends", "")]
    for b in result["blocks"]:
        p = b.get("path")
        rows.append(
            (b["block"], str(b["instances"]), str(b["lut"]), str(b["lut_memory"]), str(b["ff"]), f"{b['bram36']:g}",
             str(b["uram"]), *((str(p["luts"]), f"{p['ns']:.2f}", str(p["late_ends"]), judgement(p))
                               if p else ("-", "-", "-", "")))
        )  # fmt: skip
    t = result["total"]
    rows.append(("whole", "", str(t["lut"]), str(t["lut_memory"]), str(t["ff"]), f"{t['bram36']:g}", str(t["uram"]),
                 "", f"{result['paths']['slowest_ns']:.2f}", str(result["paths"]["late"]), ""))  # fmt: skip
    for name, share in result["share"].items():
        rows.append((f"  of {name}", "", f"{share['lut']:.1%}", "", f"{share['ff']:.1%}", f"{share['bram36']:.1%}",
                     f"{share['uram']:.1%}", "", "", "", ""))  # fmt: skip
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))).rstrip()
        for r in rows
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yosys", default="yosys", help="command that runs Yosys")
    parser.add_argument("--rtl", type=Path, nargs="+", required=True, help="folders of presets (SystemVerilog)")
    parser.add_argument("--work", type=Path, default=Path("build/synth"), help="folder for Yosys' files")
    parser.add_argument("--report", type=Path, default=Path("build/synth/report.json"))
    parser.add_argument("--top", default="Tracer", help="top module (a block alone is measured faster)")
    parser.add_argument("--reuse", action="store_true", help="judge what Yosys left in --work before")
    parser.add_argument("--timeout", type=count, default=3600, help="seconds for each preset")
    parser.add_argument("--jobs", type=count, default=1, help="presets at a time")
    arguments = parser.parse_args()
    devices = json.loads((HERE / "devices.json").read_text())
    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(lambda rtl: measure(rtl, arguments, devices), arguments.rtl))
    except YosysError as error:
        fail(str(error))
    wrong = [w for r in results for w in judge(r, devices)]
    report = {
        "clock_mhz": devices["clock_mhz"],
        "delays_ns": {
            "lut_with_net": paths.LUT_NS, "tight": paths.LUT_TIGHT_NS, "carry": paths.CARRY_NS,
            "into_carry": paths.CARRY_ENTRY_NS, "mux": paths.MUX_NS,
            "clock_to_output": paths.CLOCK_TO_Q, "setup": paths.SETUP_NS, "last_net": paths.LAST_NET_NS,
        },
        "quasi_static": devices["quasi_static"],
        "devices": devices["devices"],
        "presets": results,
    }  # fmt: skip
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(json.dumps(report, indent=1) + "\n")
    for r in results:
        print(f"{r['preset']} ({r['top']}), per instance; paths at {devices['clock_mhz']} MHz\n{table(r)}\n")
    for w in wrong:
        print(f"MISS {w}")
    print(f"report: {arguments.report}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
