# SPDX-License-Identifier: Apache-2.0
"""The regression of the tracer's RTL as pytest cases: one for each preset and kind of run.

`make rtl` builds the program, in build/rtl or MERAPI_RTL_BUILD. MERAPI_SEEDS: random seeds per case (20 on sim-small, 4
on others, which are slower to simulate; MERAPI_FULL=1: 200)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl"))
PROGRAM = BUILD / "sim" / "test" / "rtl_test"
CASES = ["Plain", "EveryCounter", "Pauses", "PausesWithReclaim", "RegionsFall", "Aborts", "Drops", "SlowHost"]
# Cases that run on one preset alone, with so many times the usual seeds: more where a seed is short.
SOME_SEEDS = {
    "RtlBorder.Plain": 0.5,
    "RtlBorder.Pauses": 0.5,
    "RtlBorder.Replaced": 1.5,
    "RtlBorder.Faults": 1.5,
    "RtlAnyHost.DoesAnything": 1,
}
# Of those cases of RtlContexts that have seeds.
CONTEXT_SEEDS = os.environ.get("MERAPI_SEEDS", "50" if os.environ.get("MERAPI_FULL") else "2")


def presets():
    built = [json.loads(p.read_text()) for p in BUILD.glob("*/preset.json") if (p.parent / "obj").exists()]
    return sorted(p["name"] for p in built if p.get("contexts", 1) == 1) or ["sim-small"]


def seeds(preset):
    usual = "200" if os.environ.get("MERAPI_FULL") else "20" if preset == "sim-small" else "4"
    return os.environ.get("MERAPI_SEEDS", usual)


def run(filter_, preset, count=None, ports=False):
    assert PROGRAM.exists(), f"expected {PROGRAM}; `make rtl` builds it"
    environment = dict(
        os.environ, MERAPI_PRESET=preset, MERAPI_SEEDS=count or seeds(preset), MERAPI_PORTS=str(int(ports))
    )
    done = subprocess.run(
        [PROGRAM, f"--gtest_filter={filter_}"],
        capture_output=True,
        text=True,
        timeout=3600,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "[  PASSED  ] 0 tests" not in done.stdout, "the filter matched nothing"
    return done.stdout


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("case", CASES)
def test_traces_as_the_closure(case, preset):
    run(f"RtlTrace.{case}", preset)


def test_invariants_are_in_the_program():
    """They are modules that something must bind to the design: compiling them is not enough."""
    assert PROGRAM.read_bytes().count(b"Assertion failed") >= 10


def test_faults():
    run("RtlFault.*:RtlFaultNarrowKlass.*:RtlFaultWideKlass.*:RtlFaultHeapAtZero.*:RtlHighFault.*", "sim-small")
    run("MemoryErrors.*:AbortErrors.*:RtlErrors.*:RtlConfig.*", "sim-small")


@pytest.mark.parametrize("case", SOME_SEEDS)
def test_borders_of_the_contract(case):
    run(case, "sim-small", str(max(1, round(SOME_SEEDS[case] * int(seeds("sim-small"))))))


@pytest.mark.parametrize("preset", presets())
def test_every_address_bit(preset):
    run("RtlWide.*:RtlScattered.*", preset)


@pytest.mark.parametrize("preset", presets())
def test_host(preset):
    run("RtlHost.*:RtlHostMemory.*:RtlHostCounts.*:RtlAnswers.*:RtlReplaced.*", preset)


@pytest.mark.parametrize("preset", presets())
def test_directed(preset):
    run(
        "RtlDirected.*:RtlDirectedList.*:RtlGrey.*:RtlBits.*:RtlEpochs.*:RtlManyObjects.*:RtlShapes.*:"
        "RtlShapeNarrowBlocks.*:RtlShapeWideBlocks.*",
        preset,
    )


@pytest.mark.parametrize("preset", presets())
def test_what_changes_in_a_pause(preset):
    run("RtlPauseTwins.*:RtlPauseFullRing.*:RtlPauseCompletions.*", preset)
    run("RtlPauseExtensions.*:RtlPauseSweep.*:RtlPauseKlasses.*", preset)


# Of presets that have a record: others are not simulated often enough to keep one.
RECORDED = [p for p in presets() if (ROOT / "sim" / "rtl" / "test" / "records" / f"{p}.json").exists()]


@pytest.mark.parametrize("preset", RECORDED)
def test_work_is_as_recorded(preset):
    run("RtlWork.*:RtlWorkSmallSpill.*:RtlWorkRandom.*", preset)


def test_ports_are_as_recorded():
    """All that leaves the tracer's ports in every case, cycle by cycle: what no case's own checks can see."""
    run("-RtlContexts.*", "sim-small", os.environ.get("MERAPI_SEEDS", "1"), ports=True)


def test_contexts():
    """Two tracers at work on random heaps take four times as long as one."""
    said = run("RtlContexts.*", "sim-small", CONTEXT_SEEDS)
    assert "[  SKIPPED ]" not in said, "expected a build with the preset sim-pair; `make rtl` makes it"


def test_every_case_is_run():
    """A suite that no filter above names would never run."""
    listed = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, timeout=60, check=True)
    suites = {line.rstrip(".") for line in listed.stdout.splitlines() if line.endswith(".") and line[0] != " "}
    assert suites
    filters = Path(__file__).read_text()
    assert {s for s in suites if f"{s}." not in filters} == set()
    cases = {line.strip() for line in listed.stdout.split("RtlTrace.\n")[1].splitlines() if line[0] == " "}
    assert cases >= set(CASES)


def test_replay_commands_are_made_in_one_place():
    said = [p.name for p in Path(__file__).parent.glob("*.cc") if "--gtest_filter=" in p.read_text()]
    assert said == ["seeds.cc"]


def test_units():
    """Single blocks under ChiselSim."""
    done = subprocess.run(
        ["make", "test-rtl-units"], cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
