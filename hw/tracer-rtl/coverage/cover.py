#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the regression reaches in the tracer.

    cover.py states --scala hw/tracer-rtl/src/main/scala/merapi --rtl build/rtl/sim-small --out states.sv
    cover.py constant --rtl build/rtl/sim-small --out constant.json
    cover.py report --program build/coverage/sim/test/rtl_test --data counts.0.dat counts.1.dat \
      --constant constant.json --reached reached.txt --report build/coverage/report.json

`states` writes a cover point for every value of every enumeration of the sources (state machines and what else has
names) and for every handshake of the elaborated design that waits (valid without ready: what a full queue, a
taken turn or a slow memory makes of it), bound to the design, and into states.vlt what is not to be counted. `constant`
lets Yosys find the bits that are constant whatever the inputs do: they cannot toggle and are not counted, nor are those
of uncounted.json (registers that count from zero, from a bit on that a simulation is too short for). `report` reads
Verilator's counts and the names that the regression noted (counters, which stand for stall causes and overflow paths,
fault codes, device states, completions) and fails when a state, a wait or a name is neither reached nor explained in
unreached.json, when what must never be is met (`never` there; such points are not counted), a bit that is not counted
toggles, or a share of lines, branches, expressions or bits that toggle is
below what is asked for. Beside counts.0.dat there is counts.0.program, written when the run has passed: the SHA-256 of
its program. Counts of another program than the one given are refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from common import write_whole  # noqa: E402
from yosys import YosysError, run_script  # noqa: E402


class Register(NamedTuple):
    """That holds an enumeration's value."""

    name: str
    # In SystemVerilog, with names of its module's State: the value is one that counts. What a register of a pipeline
    # holds beside it was left there or is a guess.
    holds: str = "1'b1"
    module: str = ""  # that of the class which the enumeration stands in


# By the enumeration's name. Every line that a lane has fetched passes `a`; commands are executed in Check.
REGISTERS = {
    "State": Register("state"),
    "Op": Register("s1_op", "s1Valid"),
    "Phase": Register("a_phase", "aValid", "ScanLane"),
    "Verdict": Register("verdict", "state == State.Check & ~pending & mayGo", "Control"),
}
# What is bound to a module for its handshakes.
WAITS = "waits"
# Around tracers, not in one: what several contexts share is reached by tests of its own (docs/testing.md).
AROUND = {"ContextLives"}
# Enumerations of the contract whose every value must be met, and how the regression calls them.
NAMED = {"counter": "counter", "fault": "fault", "device_state": "state", "comp": "completion"}
# Modules that are memories, by the name that firtool gives them; and those of the assertions, whose bodies run when
# one fails.
MEMORY = re.compile(r"_\d+x\d+$")
ASSERTIONS = re.compile(r"_Verification_Assert$")
# Least share of points that were reached, by Verilator's kind: just below what was measured (docs/testing.md).
LEAST = {"line": 0.97, "branch": 0.98, "expr": 0.97, "toggle": 0.91}


def fail(message: str) -> None:
    print(f"cover: {message}", file=sys.stderr)
    sys.exit(2)


class Machine(NamedTuple):
    module: str
    register: Register
    values: list[str]  # their names, in order


def machines(scala: Path) -> list[Machine]:
    found = []
    for path in sorted(scala.rglob("*.scala")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
        modules = [(m.start(), m.group(1)) for m in re.finditer(r"^class (\w+)", text, re.M)]
        enumerations = list(re.finditer(r"^\s*object (\w+) extends ChiselEnum \{(.*?)\}", text, re.M | re.S))
        if len(enumerations) != len(re.findall(r"\bextends\s+[\w.]*ChiselEnum\b", text)):
            fail(f"expected every enumeration in {path.name} as `object NAME extends ChiselEnum {{ ... }}`")
        for m in enumerations:
            name, body = m.groups()
            if name not in REGISTERS:
                fail(f"expected an enumeration called {' or '.join(REGISTERS)} in {path.name}, found {name}")
            register = REGISTERS[name]
            owners = [register.module] if register.module else [c for at, c in modules if at < m.start()]
            if not owners:
                fail(f"expected {name} in {path.name} in a class, found it before all of them")
            if owners[-1] in AROUND:
                continue
            parts = re.findall(r"val ([\w,\s]+?)\s*= Value\b(?!\()", body)
            if not parts or len(parts) != len(re.findall(r"\bval\b", body)):
                fail(f"expected lines `val NAME, ... = Value` in {name} of {path.name}, found{body.rstrip()}")
            found.append(Machine(owners[-1], register, [n for part in parts for n in re.findall(r"\w+", part)]))
    return found


def states(arguments: argparse.Namespace) -> int:
    out = ["// Made by cover.py from the enumerations in the sources."]
    found = machines(arguments.scala)
    states_of = {m.module: m.values for m in found if m.register == REGISTERS["State"]}
    for module, register, names in found:

        def value_of(state: re.Match[str], module: str = module) -> str:
            return str(states_of[module].index(state.group(1)))

        holds = re.sub(r"\bState\.(\w+)", value_of, register.holds)
        # A module that the elaboration made several of has a number behind its name.
        files = [f for f in sorted(arguments.rtl.glob(f"{module}*.sv")) if re.fullmatch(rf"{module}(_\d+)?", f.stem)]
        if not files:
            fail(f"expected {module}.sv in {arguments.rtl}, found none")
        width = max(1, (len(names) - 1).bit_length())
        points = f"{register.name}_covered"
        out.append(f"module {module}_{points}(input clock, input holds, input [{width - 1}:0] value);")
        out += [f"  {n}: cover property (@(posedge clock) holds & value == {width}'d{i});" for i, n in enumerate(names)]
        out.append("endmodule")
        for f in files:
            text = f.read_text()
            for signal in (register.name, *re.findall(r"(?<!')\b[a-zA-Z]\w*", holds)):
                if not re.search(rf"\b{signal}\b", text):
                    fail(f"expected {signal} in {f.name}, found none")
            out.append(
                f"bind {f.stem} {module}_{points} {points}(.clock(clock), .holds({holds}), .value({register.name}));"
            )
    for f in sorted(arguments.rtl.glob("*.sv")):
        out += waits(f)
    arguments.out.write_text("\n".join(out) + "\n")
    # Memories are arrays: their bits are data (and Verilator 5.48 fails on expressions in them).
    memories = [f.name for f in sorted(arguments.rtl.glob("*.sv")) if MEMORY.search(f.stem)]
    lines = ["`verilator_config", *(f'coverage_off -file "*{name}"' for name in memories)]
    arguments.out.with_suffix(".vlt").write_text("\n".join(lines) + "\n")
    return 0


def waits(path: Path) -> list[str]:
    """Cover points for the handshakes at a module's ports. firtool leaves out what is always ready, but at the
    outermost ports, where `report` does. A module without a clock passes on the handshakes of others."""
    head = re.search(r"^module \w+\((.*?)^\);", path.read_text(), re.M | re.S)
    if not head:
        return []
    ports = set(re.findall(r"\b(\w+)\b(?=\s*(?:,|$))", re.sub(r"//.*", "", head.group(1))))
    pairs = sorted(q.removesuffix("_valid") for q in ports if q.endswith("_valid") and f"{q[:-6]}_ready" in ports)
    if not pairs or "clock" not in ports:
        return []
    name = f"{path.stem}_{WAITS}_covered"

    def side(which: str) -> str:
        return f".{which}({{{', '.join(f'{n}_{which}' for n in reversed(pairs))}}})"

    return [
        f"module {name}(input clock, input [{len(pairs) - 1}:0] valid, input [{len(pairs) - 1}:0] ready);",
        *(f"  {n}: cover property (@(posedge clock) valid[{i}] & ~ready[{i}]);" for i, n in enumerate(pairs)),
        "endmodule",
        f"bind {path.stem} {name} {WAITS}_covered(.clock(clock), {side('valid')}, {side('ready')});",
    ]


def constant(arguments: argparse.Namespace) -> int:
    files = sorted(arguments.rtl.glob("*.sv"))
    if not files:
        fail(f"expected SystemVerilog in {arguments.rtl}, found none")
    work: Path = arguments.out.resolve().parent
    work.mkdir(parents=True, exist_ok=True)
    logic, memories = (
        " ".join(shlex.quote(os.path.relpath(f.resolve(), work)) for f in files if bool(MEMORY.search(f.stem)) == kind)
        for kind in (False, True)
    )
    (work / "constant.ys").write_text(
        f"read_verilog -sv {logic}\nread_verilog -sv -lib {memories}\n"
        "hierarchy -check -top Tracer\nproc\nflatten\nopt -full\nopt_clean\nwrite_json constant-netlist.json\n"
    )
    try:
        run_script("yosys", "constant.ys", work, 900)
    except YosysError as error:
        fail(str(error))
    nets = json.loads((work / "constant-netlist.json").read_text())["modules"]["Tracer"]["netnames"]
    values = {name: {i: int(b) for i, b in enumerate(net["bits"]) if b in ("0", "1")} for name, net in nets.items()}
    write_whole(arguments.out, (json.dumps({name: bits for name, bits in values.items() if bits}) + "\n").encode())
    return 0


class Uncounted:
    """Bits that are not counted, and why; how many there were."""

    def __init__(self, constant: Path, rules: Path) -> None:
        self.constant: dict[str, dict[str, int]] = json.loads(constant.read_text())
        self.rules = json.loads(rules.read_text())
        self.count: dict[str, int] = defaultdict(int)
        self.wrong: list[str] = []  # those that toggle, each with what was said of it

    def has(self, module: str, fields: dict[str, str], count: int) -> bool:
        m = re.match(r"(.*?)(?:\[(\d+)\])?:\d->\d$", fields["o"])
        if not m:
            fail(f"expected a point of a bit that toggles, found {fields['o']}")
        signal, bit = m.group(1), int(m.group(2) or 0)
        path = ".".join([*fields["h"].split(".")[2:], signal])
        value = self.constant.get(path, {}).get(str(bit))
        if value is not None:
            self.count["constant"] += 1
            # In a simulation every bit begins at 0.
            if count and not (value == 1 and fields["o"].endswith(":0->1")):
                self.wrong.append(f"constant to Yosys, and toggles: {path}[{bit}]")
            return True
        for rule in self.rules:
            if bit < rule["from"] or not re.fullmatch(rule["module"], module):
                continue
            if re.fullmatch(rule["signals"], signal):
                self.count[rule["name"]] += 1
                if count:
                    self.wrong.append(f"not counted ({rule['name']}), and toggles: {path}[{bit}]")
                return True
        return False


def again(path: Path) -> str:
    return f"make cover-rtl COVER_PIECE={path.suffixes[0].removeprefix('.')}"


def refuse_others(program: Path, paths: list[Path]) -> None:
    """Counts of what is not this program: of another design, other tests, or a run that failed."""
    if not program.exists():
        fail(f"expected the program that was run in {program}, found no such file; make cover-rtl")
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    for path in paths:
        beside = path.with_suffix(".program")
        if not beside.exists():
            fail(f"expected {path.name} of a run that has passed, found no {beside.name} beside it; {again(path)}")
        if beside.read_text().split()[:1] != [digest]:
            fail(f"expected {path.name} of the program as it is, found that of another design or other tests; "
                 f"{again(path)}")  # fmt: skip


def points(paths: list[Path]) -> list[tuple[dict[str, str], int]]:
    """Verilator's points: what it knows of each, and how often it was reached in all runs together."""
    counts: dict[str, int] = defaultdict(int)
    for path in paths:
        if not path.exists():
            fail(f"expected the counts of a run in {path}, found no such file; {again(path)}")
        before = len(counts)
        for line in path.read_text(errors="replace").splitlines():
            if m := re.fullmatch(r"C '(.*)' (\d+)", line):
                counts[m.group(1)] += int(m.group(2))
        if not counts or (before and len(counts) != before):
            fail(f"expected coverage points in {path}, those of the other runs; found {len(counts) - before} more")
    return [
        (dict(pair.split("\x02", 1) for pair in name.split("\x01") if "\x02" in pair), count)
        for name, count in counts.items()
    ]


def contract_names() -> dict[str, dict[int, str]]:
    contract = tomllib.loads((ROOT / "sw" / "libmerapi" / "contract" / "contract.toml").read_text())
    names = {}
    for enum in contract["enum"]:
        if enum["name"] in NAMED:
            names[NAMED[enum["name"]]] = {v["value"]: v["name"] for v in enum["values"]}
    return names


def report(arguments: argparse.Namespace) -> int:
    refuse_others(arguments.program, [path for path in arguments.data if path.exists()])
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    modules: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    missed: dict[str, list[str]] = defaultdict(list)
    fsm: dict[str, int] = defaultdict(int)
    waiting: dict[str, int] = defaultdict(int)
    uncounted = Uncounted(arguments.constant, arguments.uncounted)
    toggles: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for fields, count in points(arguments.data):
        kind = fields.get("page", "").split("/")[0].removeprefix("v_")
        module = Path(fields.get("f", "")).stem
        if kind == "user":
            machine = fields["page"].split("/", 1)[1].removesuffix("_covered")
            point = fields["o"].removeprefix("cover_")
            if machine.endswith(f"_{WAITS}"):
                # TOP.Tracer.INSTANCE.waits_covered
                where = fields["h"].split(f".{WAITS}_covered")[0].partition(".")[2].partition(".")[2]
                if uncounted.constant.get(f"{where}.{point}_ready".lstrip("."), {}).get("0") != 1:
                    waiting[f"{where} {point} {WAITS}".strip()] += count
            else:
                fsm[f"{machine} {point}"] += count
            continue
        if MEMORY.search(module) or ASSERTIONS.search(module) or module == "states":
            continue
        if kind == "toggle" and uncounted.has(module, fields, count):
            continue
        which = [kinds[kind], modules[f"{module} {kind}"]]
        if kind == "toggle":
            which.append(toggles[f"{module} {fields['o'].rsplit(':', 1)[0].split('[')[0]}"])
        for w in which:
            w[0] += 1
            w[1] += count > 0
        if count == 0 and kind != "toggle":
            missed[kind].append(f"{module}.sv:{fields.get('l')}:{fields.get('n')} {fields.get('o', '')}"[:120])
    met = {name for path in arguments.reached for name in path.read_text().splitlines()}
    names = {f"{kind} {name}": f"{kind} {value}" in met for kind, values in contract_names().items()
             for value, name in values.items()}  # fmt: skip
    exceptions = json.loads(arguments.explained.read_text())
    explained = {e["point"]: e["why"] for e in exceptions}
    never = {e["point"] for e in exceptions if e.get("never")}
    unknown = [p for p in explained if p not in fsm | waiting | names]
    for p in unknown:
        print(f"cover: explained, and no point: {p}", file=sys.stderr)
    unreached = [p for p, count in sorted((fsm | waiting).items()) if count == 0]
    unreached += [p for p, hit in names.items() if not hit]
    wrong = [p for p in unreached if p not in explained]
    stale = [p for p in explained if p not in unreached and p not in unknown]
    for counted in (fsm, waiting, names):
        for p in never:
            counted.pop(p, None)
    low = [k for k, least in LEAST.items() if k not in kinds or kinds[k][1] / kinds[k][0] < least]
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(json.dumps({
        "kinds": {
            k: {"points": n, "reached": hit, "share": round(hit / n, 4)} for k, (n, hit) in sorted(kinds.items())
        },
        "states": {"points": len(fsm), "unreached": [p for p in unreached if p in fsm]},
        "waits": {"points": len(waiting), "unreached": [p for p in unreached if p in waiting]},
        "names": {"points": len(names), "unreached": [p for p in unreached if p in names]},
        "explained": explained,
        "modules": {m: {"points": n, "reached": hit} for m, (n, hit) in sorted(modules.items())},
        "missed": missed,
        "uncounted": uncounted.count,
        "toggles missed": {s: n - hit for s, (n, hit) in sorted(toggles.items(), key=lambda t: t[1][1] - t[1][0])
                           if hit < n},
    }, indent=1) + "\n")  # fmt: skip
    for name, n in sorted(uncounted.count.items()):
        print(f"cover: toggle: {n} points not counted: {name}")
    for k, (n, hit) in sorted(kinds.items()):
        print(f"cover: {k}: {hit} of {n} ({hit / n:.1%})")
    print(f"cover: states: {sum(c > 0 for c in fsm.values())} of {len(fsm)}; "
          f"handshakes that wait: {sum(c > 0 for c in waiting.values())} of {len(waiting)}; "
          f"counters, faults, device states and completions: {sum(names.values())} of {len(names)}; "
          f"what must never be met: {len(never)}, met: {sum(p in never for p in stale)}")  # fmt: skip
    for p in wrong:
        print(f"cover: not reached: {p}", file=sys.stderr)
    for p in stale:
        print(
            f"cover: {'must never be' if p in never else 'explained as unreachable'}, but reached: {p}", file=sys.stderr
        )
    for bit in uncounted.wrong[:20]:
        print(f"cover: {bit}", file=sys.stderr)
    for k in low:
        print(f"cover: expected at least {LEAST[k]:.0%} of the points of {k}", file=sys.stderr)
    print(f"report: {arguments.report}")
    return 1 if wrong or stale or unknown or low or uncounted.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    s = commands.add_parser("states")
    s.add_argument("--scala", type=Path, required=True)
    s.add_argument("--rtl", type=Path, required=True)
    s.add_argument("--out", type=Path, required=True)
    s.set_defaults(run=states)
    c = commands.add_parser("constant")
    c.add_argument("--rtl", type=Path, required=True)
    c.add_argument("--out", type=Path, required=True)
    c.set_defaults(run=constant)
    r = commands.add_parser("report")
    r.add_argument("--program", type=Path, required=True, help="that counted")
    r.add_argument("--data", type=Path, nargs="+", required=True, help="Verilator's counts, of several runs")
    r.add_argument("--reached", type=Path, nargs="+", required=True, help="names that the runs noted")
    r.add_argument("--constant", type=Path, required=True, help="what `constant` found")
    r.add_argument("--uncounted", type=Path, default=HERE / "uncounted.json")
    r.add_argument("--explained", type=Path, default=HERE / "unreached.json")
    r.add_argument("--report", type=Path, required=True)
    r.set_defaults(run=report)
    arguments = parser.parse_args()
    result: Any = arguments.run(arguments)
    return result


if __name__ == "__main__":
    sys.exit(main())
