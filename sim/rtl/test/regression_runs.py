# SPDX-License-Identifier: Apache-2.0
"""The regression's programs as tests start them: which there are, on which presets, and what a run has left."""

import json
import os
import re
import subprocess
from pathlib import Path

import kept
import kept_runs
from regression import environment

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl"))
PROGRAM = BUILD / "sim" / "test" / "rtl_test"
# The same cases on tracers as device processes have them: not the model that Verilator wrote (gate_model.py,
# vector_instances.py).
FAST = BUILD / "sim" / "test" / "rtl_test_fast"
RECORDS = ROOT / "sim" / "rtl" / "test" / "records"
# Cases that end the program, and what their replay command sets before the program's name.
ENDING = {
    "RtlReplay.DISABLED_AnAssertionNamesItsSeed": "MERAPI_SEED=3 ",
    "RtlReplay.DISABLED_AnAssertionNamesItsTest": "",
}


def configured(build, name):
    """A list that the programs were built with."""
    cache = build / "sim" / "CMakeCache.txt"
    found = re.search(rf"^{name}:\w+=(.*)$", cache.read_text() if cache.exists() else "", re.MULTILINE)
    return found[1].split(";") if found else []


def presets(build=BUILD):
    """Those of one tracer that the program was built with; `build` may have others, of an earlier `make rtl`."""
    files = [build / name / "preset.json" for name in configured(build, "MERAPI_RTL_PRESETS")]
    made = [json.loads(p.read_text()) for p in files if p.exists()]
    return sorted(p["name"] for p in made if p.get("contexts", 1) == 1) or ["sim-small"]


def seeds(preset):
    usual = "200" if os.environ.get("MERAPI_FULL") == "1" else "12" if preset == "sim-small" else "2"
    return os.environ.get("MERAPI_SEEDS", usual)


def start(filter_, program=PROGRAM, **said):
    assert program.exists(), f"expected {program}; `make rtl` builds it (rtl_test_fast with clang alone: RTL_FAST_CXX)"
    return subprocess.run(
        [program, f"--gtest_filter={filter_}"],
        capture_output=True,
        text=True,
        timeout=3600,
        env=environment(**said),
        cwd=ROOT,
        check=False,
    )


TAKEN = []  # runs of the present test that were not made again (kept_runs)


def run_once(filter_, program, recorded=None, **said):
    """What a run that passes has written and, with the name of a record, what it recorded. A program reads no other
    files than records; what it does with them and with what is said here is the same each time."""

    def make(folder):
        records = {"MERAPI_RECORDS": str(folder), "MERAPI_RECORD_PORTS": "1"} if recorded else {}
        done = start(filter_, program, **{"MERAPI_RECORDS": str(RECORDS)} | said | records)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        (folder / "stdout").write_text(done.stdout)

    def key():
        read = [] if recorded else [(path.name, path) for path in RECORDS.iterdir()]
        return kept.key_of((kept_runs.digest(program), filter_, recorded, sorted(said.items())), read)

    found, taken = kept_runs.once(key, make)
    if taken:
        TAKEN.append(filter_)
    return found["stdout"], json.loads(found[f"{recorded}.json"]) if recorded else {}


def run(filter_, preset, count=None, program=PROGRAM, **said):
    """Where the preset has a record of what leaves its ports, that is compared: what no case's own checks can see."""
    stdout, _ = run_once(filter_, program, MERAPI_PRESET=preset, MERAPI_SEEDS=count or seeds(preset), **said)
    assert "[  PASSED  ] 0 tests" not in stdout, "the filter matched nothing"
    return stdout


def digests(program, preset, filter_, count):
    """What leaves the ports of a preset in each cycle, by case and seed."""
    return run_once(filter_, program, f"{preset}-ports", MERAPI_PRESET=preset, MERAPI_SEEDS=count)[1]


def listed():
    """The program's cases, by suite."""
    said = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, timeout=60, check=True)
    found = re.findall(r"^(\w+)\.\n((?:  \w+\n)+)", said.stdout, re.M)
    return {suite: cases.split() for suite, cases in found}
