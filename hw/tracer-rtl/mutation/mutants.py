# SPDX-License-Identifier: Apache-2.0
"""Mutants of a design: Yosys chooses them and puts them into one Verilog file, of which an input selects one; what they
are called. The choice depends on nothing of how they are hunted (mutate.py)."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
from yosys import run_script  # noqa: E402

# More than are wanted are put into the design: those that change nothing because a bit is constant, and those that no
# run can reach (unreachable.json), are left out.
SPARE = 1.3
MARK = re.compile(r"^mutate .*?-mode (\S+)(.*)$")


def fail(message: str) -> NoReturn:
    print(f"mutate: {message}", file=sys.stderr)
    sys.exit(2)


def make(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    made = math.ceil(arguments.count * SPARE)
    width = made.bit_length()
    files = sorted(arguments.rtl.glob("*.sv"))
    if not files:
        fail(f"expected SystemVerilog in {arguments.rtl}, found none")
    # Memories stay as they are: mutated at their ports, in the module that uses them.
    memory = {f: re.search(r"_\d+x\d+$", f.stem) is not None for f in files}
    names = {
        kind: " ".join(shlex.quote(os.path.relpath(f, out)) for f in files if memory[f] == kind)
        for kind in (True, False)
    }
    logic = " ".join(f.stem for f in files if not memory[f])
    (out / "make.ys").write_text(
        f"read_verilog -sv {names[False]}\nread_verilog -sv -lib {names[True]}\n"
        "hierarchy -check -top Tracer\nproc\nopt_expr\n"
        f"mutate -list {made} -seed {arguments.seed} -ctrl mutant {width} 1 -o mutants.txt {logic}\n"
        "write_json cells.json\nscript mutants.txt\n"
        "write_verilog -noattr mutated.v\n"
    )
    (out / "memories.f").write_text("".join(f"{f.resolve()}\n" for f in files if memory[f]))
    run_script(arguments.yosys, "make.ys", out, 1200)
    found = mutants(out / "mutants.txt")
    if len(found) != made:
        fail(f"expected {made} mutants, found {len(found)}")
    modules = json.loads((out / "cells.json").read_text())["modules"]
    constant = {n for n, entry in found.items() if changes_nothing(entry, modules)}
    reachable = [n for n, entry in found.items() if n not in constant and out_of_reach(entry) is None]
    same = [one for one, times in Counter(label(found[n]) for n in reachable).items() if times > 1]
    if same:
        fail(f"expected a label for each mutant, found one for several: {same[0]}")
    if len(reachable) < arguments.count:
        fail(f"expected {arguments.count} mutants that a run can reach, found {len(reachable)} of {made}")
    (out / "chosen.json").write_text(json.dumps(reachable[: arguments.count]) + "\n")
    print(f"mutate: {arguments.count} mutants in {out / 'mutated.v'}; of {made} {len(constant)} change nothing, "
          f"{made - len(reachable) - len(constant)} are out of reach")  # fmt: skip
    return 0


def changes_nothing(entry: dict[str, str], modules: dict[str, Any]) -> bool:
    """Whether a mutant holds a constant at its own value, or turns a bit by a constant that never turns it."""
    bits = modules[entry["module"]]["cells"][entry["name"]]["connections"][entry["port"]]
    mode, value = entry["mode"], bits[int(entry.get("portbit", 0))]
    if mode in ("const0", "const1"):
        return value == mode[-1]
    # cnot0 turns the bit while the other is 0, cnot1 while it is 1.
    return mode in ("cnot0", "cnot1") and bits[int(entry["ctrlbit"])] == str(1 - int(mode[-1]))


def out_of_reach(entry: dict[str, str]) -> str | None:
    """Why no run of the regression is long enough to see this mutant; None: it may be seen."""
    for rule in json.loads((HERE / "unreachable.json").read_text()):
        if (entry["module"] == rule["module"] and re.fullmatch(rule["cell"], entry["cell"])
                and int(entry.get("portbit", 0)) >= rule["from"]):  # fmt: skip
            return str(rule["why"])
    return None


def mutants(path: Path) -> dict[int, dict[str, str]]:
    """What Yosys chose, by the number that selects it, from 1."""
    out: dict[int, dict[str, str]] = {}
    for line in path.read_text().splitlines():
        m = MARK.match(line)
        if not m:
            continue
        words = shlex.split(m.group(2))
        entry = {"mode": m.group(1)}
        for option, value in zip(words, words[1:], strict=False):
            if option == "-src":
                # Several places, the cell's own last.
                entry["src"] = Path(value).name
            elif option in ("-module", "-port", "-portbit", "-ctrlbit", "-wire", "-wirebit"):
                entry[option[1:]] = value.lstrip("\\")
            elif option == "-cell":
                entry["name"] = value.lstrip("\\")
                entry["cell"] = value.split("$")[1] if value.startswith("$") else entry["name"]  # its kind
        out[len(out) + 1] = entry
    return out


def label(r: dict[str, Any]) -> str:
    """A mutant by what it changes and where in firtool's output; another one of the same design has another label."""
    wire = f" {r['wire']}[{r['wirebit']}]" if "wire" in r else ""
    # Yosys' own names are $KIND$PLACE$NUMBER.
    cell = r["cell"] + ("$" + r["name"].rsplit("$", 1)[1] if r["name"].startswith("$") else "")
    control = f" by {r['ctrlbit']}" if r["mode"].startswith("cnot") else ""
    bit = f"{r['port']}[{r.get('portbit', 0)}]"
    return f"{r['mode']} {r['module']} {cell}.{bit}{control}{wire} {r.get('src', '')}".strip()
