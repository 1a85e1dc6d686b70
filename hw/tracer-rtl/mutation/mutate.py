#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutants of the tracer, chosen by Yosys over the whole design: made, then hunted with the regression.

    mutate.py make --yosys CMD --rtl build/rtl/sim-small --out build/mutation/design
    mutate.py hunt --test build/mutation/sim/test/rtl_test --list build/mutation/design/mutants.txt

`make` writes one Verilog file that holds every mutant, selected by the input `mutant` (0: none). `hunt` runs tests of
the regression over each until one kills it: a test fails, an assertion of the design stops the simulation, or the run
takes several times what it takes without a mutant (a tracer that hangs). After the quickest come all with what leaves
the tracer's ports compared with the record (port_record.cc): a mutant with which nothing is different there meets only
the seeds that are not recorded, one with which something is meets every test for its own checks. When those see nothing
it is killed by the record alone, which the report counts apart: that says that something has changed, not that it is
wrong. Of several runs first come those that are known to kill mutants of the same module, for their time; then those
that kill others; the cheapest first when nothing is known.
Of other presets than sim-small it is not recorded what leaves the ports; every test is run for its own checks there.
Verdicts go to a file that a later hunt continues and learns from; what killed a mutant is run over it again when the
tests are others. A run that somebody else ends is no verdict: the hunt stops. It fails when fewer than `--least` are
killed, or when a survivor is not explained in survivors.json.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from mutants import fail, label, make, mutants

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools"))
from common import above_zero, count, write_whole  # noqa: E402
from regression import environment  # noqa: E402
from yosys import YosysError  # noqa: E402

# All mutants meet these first: a second for all of them together. The rest is run test by test.
QUICK = "RtlFault.NoneAndIdle:RtlTrace.EveryCounter:RtlWide.LargestHeap"
# At the end of the name of a run in which what leaves the ports is compared with the record.
PORTS = " ports"
# Seeds of a random case that are recorded (record-rtl-work).
RECORDED_SEEDS = 3
# The preset whose record is in the tree.
USUAL = "sim-small"
# Tests with random seeds: each is run with seed 2 alone, and then with four more.
RANDOM = re.compile(r"Rtl((Trace|Errors|Scattered|Border|AnyHost)\.|Wide\.(LargestHeap|ManyRegions)$)")
# What a run without a mutant needs of the processor, times this: more is a hang.
PATIENCE = 3
LEAST_PATIENCE = 3  # seconds
# A tracer that goes wrong may take the simulation with it.
CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}


class Interrupted(Exception):
    """A run ended, but not by what the mutant does."""


class Run(NamedTuple):
    """Tests of the regression, seeds of each random one, the first of them."""

    filter: str
    seeds: int
    first: int
    ports: bool = False  # compared with the record as well

    def __str__(self) -> str:
        return f"{self.filter} {self.seeds} {self.first}" + (PORTS if self.ports else "")


class Program(NamedTuple):
    """The regression over the mutated tracer of a preset."""

    path: Path
    preset: str


def runs(program: Program) -> list[Run]:
    test = program.path
    said = subprocess.run([str(test), "--gtest_list_tests"], capture_output=True, text=True, timeout=60, check=True)
    names, suite = [], ""
    for line in said.stdout.splitlines():
        if re.match(r"\w+\.$", line):
            suite = line
        elif m := re.match(r"  (\w+)$", line):
            names.append(suite + m.group(1))
    if not names:
        fail(f"expected {test} to list its tests, found none")
    few = [Run(n, 1, 2 if RANDOM.match(n) else 1) for n in names]
    functions = [Run(QUICK, 1, 1), *few, *(Run(n, 4, 3) for n in names if RANDOM.match(n))]
    if program.preset != USUAL:
        return functions
    # Seeds that are recorded (record-rtl-work).
    compared = [
        Run(n, RECORDED_SEEDS if RANDOM.match(n) else 1, 1, ports=True)
        for n in names
        if not n.startswith("RtlContexts.")
    ]
    return [*functions, Run(QUICK, 1, 1, ports=True), *compared]


def once(program: Program, mutant: int, what: Run, seconds: int | None) -> tuple[str, str, float]:
    """(verdict, first words about it, seconds) of one run. Seconds are the processor's: others may use the machine."""
    said = environment(
        MERAPI_MUTANT=str(mutant), MERAPI_SEEDS=str(what.seeds), MERAPI_FIRST_SEED=str(what.first),
        MERAPI_PRESET=program.preset, MERAPI_PORTS=str(int(what.ports)),
    )  # fmt: skip
    limit = (lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))) if seconds else None
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(
            [str(program.path), f"--gtest_filter={what.filter}", "--gtest_brief=1", "--gtest_fail_fast"],
            env=said, stdout=output, stderr=subprocess.STDOUT, preexec_fn=limit,
        )  # fmt: skip
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        words = output.read()
    spent = usage.ru_utime + usage.ru_stime
    if child.returncode == 0:
        return "survives", "", spent
    if seconds and child.returncode in (-signal.SIGKILL, -signal.SIGXCPU) and spent >= seconds - 1:
        return "hangs", "", spent
    if child.returncode == 1 or -child.returncode in CRASHES:
        for pattern in (r"Assertion failed: .*", r"\[  FAILED  \] (\S+)", r"ports: what left them in \S+"):
            if m := re.search(pattern, words):
                return "killed", m.group(0)[:120], spent
    if -child.returncode in CRASHES:
        return "killed", signal.Signals(-child.returncode).name, spent
    last = words.strip().splitlines()[-1:] or ["nothing"]
    raise Interrupted(f"expected {what} over mutant {mutant} to pass or fail, found exit code {child.returncode}; "
                      f"its last words: {last[0][:200]}")  # fmt: skip


def next_runs(every: list[Run], passed: list[str], differs: bool) -> list[Run]:
    """Of the runs that a mutant has not passed, those that come next; none: it is judged."""
    differs = differs or not any(r.ports for r in every)
    left = [r for r in every if str(r) not in passed]
    for some in (
        [r for r in left if r.filter == QUICK and not r.ports],
        [r for r in left if r.ports and not differs],
        [r for r in left if not r.ports and (differs or r.seeds > RECORDED_SEEDS)],
    ):
        if some:
            return some
    return []


class Order:
    """Which run is worth most against a mutant of a module: kills of the module's mutants and, for less, of others',
    for the time that the run takes."""

    def __init__(self, times: dict[Run, float]) -> None:
        self.times = times
        self.of_module: Counter[tuple[str, Run]] = Counter()
        self.of_all: Counter[Run] = Counter()

    def learn(self, module: str, killer: Run) -> None:
        self.of_module[module, killer] += 1
        self.of_all[killer] += 1

    def first(self, module: str, left: list[Run]) -> Run:
        def worth(r: Run) -> float:
            kills = self.of_module[module, r] + 0.1 * self.of_all[r] + 0.05
            return kills / (self.times[r] + 0.1)  # a process takes its time as well

        quick = [r for r in left if r.filter == QUICK]
        return quick[0] if quick else max(left, key=worth)


class Verdicts:
    """What is known already, in a file that a later hunt continues. A verdict, and how long the tracer without a
    mutant takes, holds for one design and one build of the regression, or, when tests were only `added` since, for the
    tests that there were; a survival that is explained for all builds. Of a kill with another build it is known what to
    try first (`before`). Which test killed a mutant of which module is worth knowing whatever the design was."""

    def __init__(self, path: Path, design: str, program: str, explained: set[str], added: bool) -> None:
        self.path, self.design, self.program = path, design, program
        self.known: dict[str, dict[str, Any]] = {}
        self.before: dict[str, dict[str, Any]] = {}
        self.kills: list[tuple[str, str]] = []
        for entry in self.read():
            if "killer" in entry:
                self.kills.append((entry["module"], entry["killer"]))
            if entry["design"] != design:
                continue
            lasting = "module" in entry and entry["verdict"] == "survives" and label(entry) in explained
            if lasting or added or entry["program"] == program:
                self.known[entry["key"]] = entry
            elif "killer" in entry:
                self.before[entry["key"]] = entry

    def read(self) -> list[dict[str, Any]]:
        """All but a line at the end that was cut off while it was written: that one goes, so that the next one does not
        go on with it."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        if whole != lines:
            print(f"mutate: the last verdict in {self.path} is half a line; it is found anew", flush=True)
            write_whole(self.path, b"".join(whole))
        try:
            return [json.loads(line) for line in whole]
        except ValueError as error:
            fail(f"expected a verdict in each line of {self.path}, found {error}; without the file a hunt begins anew")

    def add(self, key: str, entry: dict[str, Any]) -> dict[str, Any]:
        entry = {"key": key, "design": self.design, "program": self.program} | entry
        self.known[key] = entry
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as out:
            out.write(json.dumps(entry) + "\n")
        return entry


def digest(*paths: Path) -> str:
    together = hashlib.sha256()
    for path in paths:
        together.update(path.read_bytes())
    return together.hexdigest()[:16]


def design_files(folder: Path) -> list[Path]:
    """What a mutant is part of: the logic, the memories beside it, the assertions that are bound to it."""
    memories = [Path(line) for line in (folder / "memories.f").read_text().split()]
    bound = memories[0].parent / "verification" / "assert" if memories else folder
    return [folder / "mutated.v", *memories, *sorted(bound.glob("*.sv"))]


def baseline(verdicts: Verdicts, program: Program, every: list[Run], jobs: int) -> dict[Run, float]:
    """Seconds of the processor that each run takes without a mutant."""

    def one(r: Run) -> float:
        key = f"without {r}"
        if key not in verdicts.known:
            verdict, why, seconds = once(program, 0, r, None)
            if verdict != "survives":
                fail(f"expected the tracer without a mutant to pass {r.filter}, found: {why}")
            verdicts.add(key, {"verdict": verdict, "seconds": round(seconds, 2)})
        return float(verdicts.known[key]["seconds"])

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        times = dict(zip(every, pool.map(one, every), strict=True))
    print(f"without a mutant: {len(every)} runs, {sum(times.values()):.0f} s together", flush=True)
    return times


def hunt(arguments: argparse.Namespace) -> int:
    made = mutants(arguments.list)
    chosen = json.loads((arguments.list.parent / "chosen.json").read_text())
    unknown = set(arguments.only or []) - set(made)
    if unknown:
        fail(f"expected numbers of mutants in {arguments.list}, found {sorted(unknown)}")
    explained = set(explanations(arguments))
    program = Program(arguments.test, arguments.preset)
    verdicts = Verdicts(
        arguments.verdicts, digest(*design_files(arguments.list.parent)), digest(arguments.test), explained,
        arguments.tests_added,
    )  # fmt: skip
    every = runs(program)
    times = baseline(verdicts, program, every, arguments.jobs)
    order = Order(times)
    by_name = {str(r): r for r in every}
    for module, killer in verdicts.kills:
        if killer in by_name:
            order.learn(module, by_name[killer])
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    stopped = threading.Event()

    def patience(r: Run) -> int:
        return max(LEAST_PATIENCE, math.ceil(PATIENCE * times[r]))

    def once_more(number: int, before: dict[str, Any]) -> dict[str, Any] | None:
        """A mutant that other tests killed, under the test that did; None: that no longer does."""
        killer = by_name.get(before["killer"])
        if killer is None:
            return None
        verdict, why, _ = once(program, number, killer, patience(killer))
        by_record = why.startswith("ports:")
        if verdict == "survives" or by_record != before["why"].startswith("ports:"):
            return None
        kept = {k: v for k, v in before.items() if k not in ("key", "design", "program")}
        return verdicts.add(str(number), kept | {"verdict": verdict, "why": why})

    def one(number: int) -> dict[str, Any] | None:
        known = verdicts.known.get(str(number), {})
        if known and (known["verdict"] != "survives" or label(known) in explained):
            return known
        if not known and str(number) in verdicts.before and (again := once_more(number, verdicts.before[str(number)])):
            return again
        entry: dict[str, Any] = {"number": number, "seconds": 0.0, "passed": [], **made[number]}
        entry |= {k: known[k] for k in ("seconds", "passed") if k in known}
        differs: dict[str, str] = known.get("differs", {})
        if not next_runs(every, entry["passed"], bool(differs)):
            return known
        while left := next_runs(every, entry["passed"], bool(differs)):
            if stopped.is_set() or (end is not None and time.monotonic() > end):
                if entry["passed"]:
                    verdicts.add(str(number), entry | {"verdict": "survives", "why": "", "differs": differs})
                return None
            r = order.first(entry["module"], left)
            verdict, why, seconds = once(program, number, r, patience(r))
            entry["seconds"] = round(entry["seconds"] + seconds, 1)
            if why.startswith("ports:"):
                differs = {"verdict": verdict, "why": why, "killer": str(r)}
                continue
            if verdict != "survives":
                order.learn(entry["module"], r)
                entry |= {"verdict": verdict, "why": why, "killer": str(r)}
                break
            entry["passed"] = [*entry["passed"], str(r)]
        else:
            entry |= differs or {"verdict": "survives", "why": ""}
        verdicts.add(str(number), entry)
        print(f"{number:4} {entry['verdict']:8} {entry['seconds']:5.1f} s {label(entry)} {entry['why']}", flush=True)
        return entry

    def unless_stopped(number: int) -> dict[str, Any] | None:
        try:
            return None if stopped.is_set() else one(number)
        except Interrupted:
            stopped.set()
            raise

    numbers = arguments.only or chosen
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = [r for r in pool.map(unless_stopped, numbers) if r is not None]
    left = len(numbers) - len(results)
    if left:
        print(f"mutate: {left} of {len(numbers)} mutants left; run it again to go on")
        return 3
    return judge(results, arguments)


def explanations(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Of survivors, by their labels. Presets have different mutants, and each its file, if any was explained."""
    default = HERE / ("survivors.json" if arguments.preset == USUAL else f"survivors-{arguments.preset}.json")
    path: Path = arguments.survivors or default
    if not path.exists() and not arguments.survivors:
        return {}
    return {e["mutant"]: e for e in json.loads(path.read_text())}


def judge(results: list[dict[str, Any]], arguments: argparse.Namespace) -> int:
    """Of mutants that change nothing that anyone can see (survivors.json says why) no regression kills one: the share
    that must be killed is counted without them, and the report has both."""
    explained = explanations(arguments)
    count = Counter(r["verdict"] for r in results)
    survivors = [r for r in results if r["verdict"] == "survives"]
    unexplained = [r for r in survivors if label(r) not in explained]
    equivalent = [r for r in survivors if explained.get(label(r), {}).get("equivalent")]
    killed = len(results) - len(survivors)
    of_all = killed / len(results)
    rate = killed / (len(results) - len(equivalent)) if len(results) > len(equivalent) else 1.0
    by_record = sum(r["why"].startswith("ports:") for r in results)
    report = {"mutants": len(results), "equivalent": len(equivalent), "killed": rate, "killed_of_all": of_all,
              "by_record": by_record, "verdicts": count, "results": results}  # fmt: skip
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{len(results)} mutants, {len(survivors)} survive, {len(equivalent)} of them equivalent: "
          f"{rate:.1%} of the others killed, {of_all:.1%} of all ({count['hangs']} hang; {by_record} killed by nothing "
          "but the record of what leaves the ports)")  # fmt: skip
    for r in survivors:
        known = explained.get(label(r))
        print(f"  survivor {r['number']}: {label(r)}: {known['why'] if known else 'NOT EXPLAINED'}")
    for one in sorted(explained.keys() - {label(r) for r in survivors}):
        print(f"  explained, but no survivor: {one}")
    print(f"report: {arguments.report}")
    return 1 if unexplained or rate < arguments.least else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    m = commands.add_parser("make")
    m.add_argument("--yosys", default="yosys")
    m.add_argument("--rtl", type=Path, required=True)
    m.add_argument("--out", type=Path, required=True)
    m.add_argument("--count", type=count, default=120)
    m.add_argument("--seed", type=int, default=1)
    m.set_defaults(run=make)
    h = commands.add_parser("hunt")
    h.add_argument("--test", type=Path, required=True, help="the regression over the mutated tracer")
    h.add_argument("--list", type=Path, required=True)
    h.add_argument("--preset", default=USUAL, help=f"that the mutants are of ({USUAL})")
    h.add_argument("--survivors", type=Path, help="those that are explained (survivors.json)")
    h.add_argument("--report", type=Path, default=Path("build/mutation/report.json"))
    h.add_argument("--least", type=above_zero, default=0.95)
    h.add_argument("--jobs", type=count, default=1)
    h.add_argument("--verdicts", type=Path, default=Path("build/mutation/verdicts.jsonl"),
                   help="what is known already; continued")  # fmt: skip
    h.add_argument("--minutes", type=above_zero, help="stop after about this long, to be continued (status 3)")
    h.add_argument("--tests-added", action="store_true",
                   help="nothing but new tests since the last hunt: what was survived stays so")  # fmt: skip
    h.add_argument("--only", type=int, nargs="*", help="numbers of mutants")
    h.set_defaults(run=hunt)
    arguments = parser.parse_args()
    try:
        return arguments.run(arguments)
    except (Interrupted, YosysError) as error:
        fail(str(error))


if __name__ == "__main__":
    sys.exit(main())
