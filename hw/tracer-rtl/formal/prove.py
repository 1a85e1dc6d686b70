#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proofs about blocks of the tracer: Yosys makes an and-inverter graph of a block, its assertions and an environment,
ABC proves it (PDR: inductive, for every number of cycles) or searches it for a counterexample (BMC: bounded).

    prove.py --yosys CMD --rtl build/rtl --out build/formal [NAME ...]

proofs.json lists them, the parameter set of each (sim-small unless it says otherwise) and what each must reach. Every
proof is also run with its goal (a state that the environment must let the block come to, asserted never to happen),
which has to be found: a proof about a block that nothing can happen to says nothing. Proofs of one harness may share
one (`goal_of`). How many assertions a proof has is listed too: one without any would hold.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
from common import count  # noqa: E402
from yosys import YosysError, run_script  # noqa: E402


def fail(message: str) -> NoReturn:
    print(f"prove: {message}", file=sys.stderr)
    sys.exit(2)


def with_assertions(rtl: Path, module: str) -> str:
    """A module's text with its assertions in it. firtool puts them into a module of their own that is bound to it."""
    text = (rtl / f"{module}.sv").read_text()
    bound = rtl / "verification" / "assert" / f"{module}_Verification_Assert.sv"
    if not bound.exists():
        return text
    body = bound.read_text().split(f"module {module}_Verification_Assert();", 1)[1].rsplit("endmodule", 1)[0]
    body = re.sub(r"^\s*`.*$", "", body, flags=re.M)
    body = re.sub(r"if \(`\w+\)\s*", "", body)
    body = re.sub(r'\$error\("[^"]*"\);', "assert (0);", body)
    body = re.sub(r"\$fatal;", "", body)
    # Its own wires may go by names of the block's.
    for name in re.findall(r"^\s*(?:wire|reg)\s+(?:\[[^]]*\]\s*)*(\w+)", body, flags=re.M):
        body = re.sub(rf"(?<![.\w]){name}\b", f"asserted_{name}", body)
    body = body.replace(f"{module}.", "")
    if "assert (0);" not in body:
        fail(f"expected assertions in {bound}, found none")
    return text.replace("endmodule", body + "\nendmodule", 1)


def graph(proof: dict[str, Any], rtl: Path, out: Path, yosys: str, goal: bool) -> Path:
    """The and-inverter graph of a proof; one output per assertion."""
    work = out / proof["name"]
    work.mkdir(parents=True, exist_ok=True)
    blocks = work / "blocks.sv"
    # The queues in them assert that there was a place.
    whole = [*proof["blocks"], *sorted(f.stem for f in rtl.glob("SureFifo*.sv"))]
    assertions = set() if goal else set(whole)
    files = [f for f in sorted(rtl.glob("*.sv")) if f.stem not in whole]
    texts = []
    for block in whole:
        text = with_assertions(rtl, block) if block in assertions else (rtl / f"{block}.sv").read_text()
        for old, new in proof.get("patches", {}).get(block, []):
            if old not in text:
                fail(f"expected '{old}' in {block}.sv, found none: {proof['name']} reduces the block by it")
            text = text.replace(old, new)
        texts.append(text)
    blocks.write_text("\n".join(texts))
    name = "goal" if goal else "proof"
    read = " ".join(shlex.quote(os.path.relpath(f, work)) for f in files)
    # After flattening the goal has the name of its instance before its own.
    only_goal = "delete t:$assert c:goal c:*.goal %u %d\n" if goal else ""
    top = proof.get("goal_top", proof["top"]) if goal else proof["top"]
    # The harness's outputs are deleted: ABC takes every output for something that must not be.
    defined = f"-D LANES_{json.loads((rtl / 'preset.json').read_text())['lanes']} {'-D GOAL ' if goal else ''}"
    (work / f"{name}.ys").write_text(
        f"read_verilog -sv -formal {read} blocks.sv\n"
        f"read_verilog -sv -formal {defined}{os.path.relpath(HERE / proof['harness'], work)}\n"
        f"hierarchy -check -top {top}\nproc\nflatten\ndelete -port o:*\nopt_clean\n{only_goal}"
        "memory -nomap\nopt_clean\nsetundef -undriven -anyseq\nopt_expr\nmemory_map\nsetundef -init -zero\nopt -full\n"
        "async2sync\nformalff -clk2ff\nopt -full\npmuxtree\ntechmap\nsimplemap\nopt -fast\n"
        "dffunmap\nsimplemap\nsetundef -anyseq\nsetundef -undriven -anyseq\naigmap\nopt_clean\n"
        f"write_aiger -zinit {name}.aig\n"
    )
    run_script(yosys, f"{name}.ys", work, 900)
    aig = work / f"{name}.aig"
    expected, found = 1 if goal else proof["assertions"], count_assertions(aig)
    if found != expected:
        fail(f"expected {expected} assertions in the {name} of {proof['name']} (proofs.json), found {found}")
    return aig


def count_assertions(aig: Path) -> int:
    """How many there are in an and-inverter graph: B, what must not be, in its first line `aig M I L O A B`."""
    with aig.open("rb") as file:
        return int(file.readline().split()[6])


def abc(program: str, aig: Path, commands: str, timeout: int) -> str:
    """What ABC says, to where it came: it does not look at its own limit within one call of its solver."""
    with (aig.parent / f"{aig.stem}.abc.log").open("w+", errors="replace") as log:
        child = subprocess.Popen(
            ["stdbuf", "-oL", program, "-c", f"read_aiger {aig.name}; {commands}"],
            cwd=aig.parent, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            child.wait(timeout + 60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        log.seek(0)
        if child.returncode in (126, 127):  # stdbuf's own
            fail(f"expected ABC in '{program}', found none (Debian: yosys-abc comes with yosys): {log.read().strip()}")
        return re.sub(r"\x1b\[[0-9;]*m", "", log.read())


def bounded(program: str, aig: Path, depth: int, seconds: int) -> tuple[int | None, int]:
    """(frame of a counterexample, frames without one)."""
    said = abc(program, aig, f"orpos; lcorr; scorr; print_stats; bmc3 -F {depth} -T {seconds} -v", seconds)
    if m := re.search(r"was asserted in frame (\d+)", said):
        return int(m.group(1)), int(m.group(1))
    m = re.search(r"No output (?:was )?asserted in (\d+) frames", said)
    frames = [int(f) for f in re.findall(r"^\s*(\d+) [+-] :", said, flags=re.M)]
    return None, int(m.group(1)) if m else max(frames, default=0)


def prove(proof: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    preset = proof.get("preset", "sim-small")
    rtl = arguments.rtl / preset
    result: dict[str, Any] = {"name": proof["name"], "blocks": proof["blocks"], "preset": preset,
                              "proves": proof["proves"]}  # fmt: skip
    seconds = arguments.seconds or proof["seconds"]
    if "goal_of" not in proof:
        goal = graph(proof, rtl, arguments.out, arguments.yosys, True)
        frame, _ = bounded(arguments.abc, goal, proof["goal_depth"], seconds)
        if frame is None:
            return result | {"verdict": "goal not reached", "wrong": True}
        result["goal_frame"] = frame
    aig = graph(proof, rtl, arguments.out, arguments.yosys, False)
    if proof["expect"] == "inductive":
        said = abc(arguments.abc, aig, f"orpos; scorr; pdr -T {seconds}", seconds)
        if re.search(r"Property proved", said) or "already proved" in said or "Networks are equivalent" in said:
            return result | {"verdict": "inductive", "wrong": False, "seconds": round(time.monotonic() - began)}
        if re.search(r"asserted in frame (\d+)", said):
            result["verdict"] = "counterexample in frame " + re.search(r"asserted in frame (\d+)", said).group(1)
            return result | {"wrong": True, "seconds": round(time.monotonic() - began)}
        return result | {"verdict": "no proof in time", "wrong": True, "seconds": round(time.monotonic() - began)}
    frame, depth = bounded(arguments.abc, aig, proof["depth"], seconds)
    verdict = f"bounded({depth})" if frame is None else f"counterexample in frame {frame}"
    wrong = frame is not None or depth < proof["depth"]
    return result | {"verdict": verdict, "wrong": wrong, "seconds": round(time.monotonic() - began)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="proofs (all)")
    parser.add_argument("--yosys", default="yosys")
    parser.add_argument("--abc", default="yosys-abc")
    parser.add_argument("--rtl", type=Path, required=True, help="folder of the presets' SystemVerilog")
    parser.add_argument("--out", type=Path, default=Path("build/formal"))
    parser.add_argument("--seconds", type=count, default=0, help="limit of each run of ABC instead of the listed one")
    arguments = parser.parse_args()
    arguments.rtl = arguments.rtl.resolve()
    proofs = json.loads((HERE / "proofs.json").read_text())
    unknown = set(arguments.names) - {p["name"] for p in proofs}
    if unknown:
        fail(f"expected names of {', '.join(p['name'] for p in proofs)}, found {', '.join(sorted(unknown))}")
    results = []
    for proof in proofs:
        if arguments.names and proof["name"] not in arguments.names:
            continue
        try:
            r = prove(proof, arguments)
        except YosysError as error:
            fail(str(error))
        results.append(r)
        goal = f", goal in frame {r['goal_frame']}" if "goal_frame" in r else ""
        print(
            f"{'WRONG ' if r['wrong'] else ''}{r['name']} ({r['preset']}): {r['verdict']}{goal}, "
            f"{r.get('seconds', 0)} s",
            flush=True,
        )
    (arguments.out / "report.json").write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(r["wrong"] for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
