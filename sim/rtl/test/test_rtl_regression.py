# SPDX-License-Identifier: Apache-2.0
"""The regression of the tracer's RTL as pytest cases: one for each preset and kind of run.

`make rtl` builds the program, in build/rtl or MERAPI_RTL_BUILD. MERAPI_SEEDS: random seeds per case (12 on
sim-small, 2 on others, which are slower to simulate; MERAPI_FULL=1: 200)."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from regression import environment
from regression_runs import (
    BUILD,
    ENDING,
    FAST,
    PROGRAM,
    RECORDS,
    ROOT,
    TAKEN,
    configured,
    digests,
    listed,
    presets,
    run,
    seeds,
    start,
)
from unit_tests import NOT_AGAIN

# Their order gives them their seeds (first_seed).
CASES = [
    "Plain",
    "Drops",
    "EveryCounter",
    "Pauses",
    "PausesWithReclaim",
    "RegionsFall",
    "Aborts",
    "SlowHost",
    "Hasty",
    "Redefines",
    "Overwrites",
    "OverwritesWithDrops",
]
# Cases that run on one preset alone, with so many times the usual seeds: more where a seed is short.
SOME_SEEDS = {
    "RtlBorder.Plain": 0.5,
    "RtlBorder.Pauses": 0.5,
    "RtlBorder.Replaced": 1.5,
    "RtlBorder.Faults": 1.5,
    "RtlAnyHost.DoesAnything": 1,
    "RtlConfigRandom.AsTheModel": 0.5,
    "RtlCorruption.EndsAndServesAgain": 0.5,
}
# Suites with a bit of everything that end soon on ddr4-1ch.
SOON = (
    "RtlTrace",
    "RtlUneven",
    "RtlPauseFullRing",
    "RtlPauseSweep",
    "RtlFaultNarrowKlass",
    "RtlShapes",
    "RtlManyObjects",
    "RtlFarBlocks",
    "RtlBorder",
    "RtlAnyHost",
    "RtlReplaced",
)
# Several tracers share those ports; nothing leaves them; the programs that end by an assertion; what Verilator chooses
# for power-up.
NOT_RECORDED = (
    "RtlContexts.",
    "RtlHost.SleepsWhenNothingIsLeft",
    "RtlHostMemory.WhatIsReadWhereItIsGoneIsNotUsed",
    "RtlHostStatus.SumsOverAllCycles",
    "RtlPortRules.",
    "RtlReplay.",
    "RtlPowerUp.",
)
RECORDED_SEEDS = 3  # of each random case (record-rtl-work)
# Of those cases of RtlContexts that have seeds.
CONTEXT_SEEDS = os.environ.get("MERAPI_SEEDS", "50" if os.environ.get("MERAPI_FULL") == "1" else "2")


def half(preset):
    """Of the usual seeds: where a seed is long."""
    return str(max(1, int(seeds(preset)) // 2))


def first_seed(preset, number, count):
    """Of a preset that has few seeds: each case, by its number, has its own, and so its own heaps. sim-small's first
    are recorded."""
    return "1" if preset == "sim-small" else str(1 + number * int(count))


# What lanes, ports, slots and scan ports decide shows in random traces, errors aside; cases of one address or object
# after the other are a minute of each further preset. sim-lanes is for what overflows: it leaves hosts out, too.
MANY = [p for p in presets() if p != "sim-lanes" or os.environ.get("MERAPI_FULL") == "1"]
LONG = [p for p in MANY if p != "sim-ports" or os.environ.get("MERAPI_FULL") == "1"]
# With stores so small that everything overflows, and with invariants in all cases.
SMALL = [p for p in presets() if p.startswith("sim-")]


def sooner(preset):
    """For long cases: of ddr4-1ch the program without invariants, if there is one. sim-small has them in the same."""
    fast = preset == "ddr4-1ch" and preset in configured(BUILD, "MERAPI_RTL_FAST")
    return FAST if fast and os.environ.get("MERAPI_FULL") != "1" else PROGRAM


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("case", CASES)
def test_traces_as_the_closure(case, preset):
    # Hasty is a mixture that changes with the seed; not every heap makes several lanes drop something.
    more = preset != "sim-small" and case in ("Hasty", "Drops", "OverwritesWithDrops")
    count = str((2 if more else 1) * int(seeds(preset)))
    run(f"RtlTrace.{case}", preset, count, MERAPI_FIRST_SEED=first_seed(preset, CASES.index(case), count))


@pytest.mark.parametrize("preset", presets())
def test_power_up(preset):
    run("RtlPowerUp.*", preset, MERAPI_FIRST_SEED=first_seed(preset, 1, seeds(preset)))


@pytest.mark.parametrize("preset", presets())
def test_uneven_memory(preset):
    count = half(preset) if preset == "sim-small" else seeds(preset)
    run("RtlUneven.*", preset, count, MERAPI_FIRST_SEED=first_seed(preset, 1, count))


def test_what_a_port_is_held_to():
    run("RtlPortRules.*", "sim-small")


@pytest.mark.parametrize("preset", SMALL)
def test_faults(preset):
    """Who finds one is a lane or a filter of many."""
    run("RtlFault.*:RtlFaultNarrowKlass.*:RtlFaultWideKlass.*:RtlFaultHeapAtZero.*:RtlHighFault.*", preset)


@pytest.mark.parametrize("preset", SMALL if os.environ.get("MERAPI_FULL") == "1" else ["sim-small"])
def test_errors_of_the_memory_and_of_the_configuration(preset):
    run("MemoryErrors.*:AbortErrors.*:RtlConfig.*:RtlSmallConfig.*", preset)


def test_any_access_fails():
    run("RtlErrors.*", "sim-small", half("sim-small"))
    run("RtlRecordError.*", "sim-small")


@pytest.mark.parametrize("preset", [p for p in presets() if p != "sim-small"])
def test_many_accesses_fail_at_a_time(preset):
    """On both channels of answers, and at all ports of those that have several."""
    run("RtlErrors.ManyAtATime", preset)


@pytest.mark.parametrize("preset", presets())
def test_several_lanes_at_once(preset):
    """They find what is wrong in one cycle; they look for klasses that none of them can keep."""
    run("RtlFaultsAtOnce.*:RtlKlassesOfOneSet.*", preset)


@pytest.mark.parametrize("preset", [p for p in ("sim-lanes", "ddr4-1ch") if p in presets()])
def test_stores_overflow_under_invariants(preset):
    # All of the bounds of pauses run on sim-lanes anyway, of what changes in a pause this alone.
    more = "RtlPauseTwins.*" if preset == "sim-lanes" else "RtlPauseBound.BeforeIdle"
    run(f"RtlGrey.*:RtlBits.SpillAreasOfEverySize:{more}", preset)


def test_guard():
    """It skips itself where a netlist has no names left, which is so with mutants alone."""
    assert "[  SKIPPED ]" not in run("RtlGuard.*", "sim-small"), "expected the live table's addresses by their name"


@pytest.mark.parametrize("case", SOME_SEEDS)
def test_borders_of_the_contract(case):
    run(case, "sim-small", str(max(1, round(SOME_SEEDS[case] * int(seeds("sim-small"))))))


@pytest.mark.parametrize("preset", LONG)
def test_every_address_bit(preset):
    run("RtlWide.*:RtlScattered.*", preset, program=sooner(preset))


@pytest.mark.parametrize("preset", MANY)
def test_host(preset):
    run(
        "RtlHost.*:RtlHostMemory.*:RtlHostStatus.*:RtlHostCounts.*:RtlHostRevokes.*:RtlHostLeaves.*:RtlHostRestart.*:"
        "RtlAnswers.*:RtlReplaced.*",
        preset,
        program=sooner(preset),
    )


@pytest.mark.parametrize("preset", LONG)
def test_directed(preset):
    run(
        "RtlDirected.*:RtlDirectedList.*:RtlKlasses.*:RtlGrey.*:RtlBits.*:RtlEpochs.*:RtlLiveRows.*:RtlManyObjects.*:"
        "RtlShapes.*:RtlShapeTable.*:RtlShapeExtension.*:RtlShapeNarrowBlocks.*:RtlShapeWideBlocks.*:RtlNearBlocks.*:"
        "RtlFarBlocks.*",
        preset,
        program=sooner(preset),
    )


@pytest.mark.parametrize("preset", MANY)
def test_what_changes_in_a_pause(preset):
    run(
        "RtlPauseTwins.*:RtlPauseFullRing.*:RtlPauseCompletions.*:RtlPauseExtensions.*:RtlPauseSweep.*:"
        "RtlPauseKinds.*:RtlPauseKlasses.*:RtlPauseStalls.*:RtlPauseLong.*:RtlPauseTwice.*:"
        "RtlPauseWithdrawn.*",
        preset,
        program=sooner(preset),
    )


@pytest.mark.parametrize("preset", presets())
def test_a_pause_comes_in_time(preset):
    run("RtlPauseBound.*", preset, program=sooner(preset))


# Presets with a record: others are not simulated often enough to keep one. Without its record sim-small fails.
RECORDED = [p for p in presets() if p == "sim-small" or (RECORDS / f"{p}.json").exists()]


@pytest.mark.parametrize("preset", RECORDED)
def test_work_is_as_recorded(preset):
    run("RtlWork.*:RtlWorkSmallSpill.*:RtlWorkRandom.*", preset)


def test_what_is_recorded_is_run():
    """A record without a case says nothing, and nothing says that the case is gone. All seeds are recorded."""
    record = json.loads((RECORDS / "sim-small-ports.json").read_text())
    run_here = {f"{suite}.{case}" for suite, cases in listed().items() for case in cases}
    assert set(record) == {case for case in run_here if not case.startswith(NOT_RECORDED)}
    every = {str(seed) for seed in range(1, RECORDED_SEEDS + 1)}
    for case, by_seed in record.items():
        own = {"1"} if case == "RtlWide.OneTracerForAll" else {"0"}
        assert set(by_seed) in (own, every), case


def test_what_is_due_is_the_same_tracer():
    """A model that executes what has something to do: in every cycle of every case what was recorded of the one that
    Verilator wrote. One seed; MERAPI_FULL=1: all that are recorded."""
    outcome = (BUILD / "sim-small" / "fast" / "gates.log").read_text()
    found = re.search(
        r"^\d+ units of (\d+) instructions, (\d+) parts, (\d+) executed in a cycle$", outcome, re.MULTILINE
    )
    assert found, outcome
    whole, parts, executed = map(int, found.groups())
    assert parts > 20 and executed < whole / 2
    not_recorded = ":".join(f"{name}*" for name in ("RtlWork", *NOT_RECORDED))
    count = RECORDED_SEEDS if os.environ.get("MERAPI_FULL") == "1" else 1
    run(f"-{not_recorded}", "sim-small", str(count), FAST)


@pytest.mark.parametrize("preset", [preset for preset in ("sim-small", "ddr4-1ch") if preset in presets()])
def test_fast_models_are_compiled_by_their_profile(preset):
    """Of the very C++ that is compiled: else clang says of a file that functions are others."""
    said = (BUILD / preset / "fast" / "make.log").read_text()
    record = BUILD / preset / "fast" / "profile.log"
    if not record.exists():
        pytest.skip("not compiled by clang")
    assert "rtl_record" not in record.read_text(), record.read_text()
    assert "-fprofile-instr-use=profile.profdata" in said
    assert "profile-instr-out-of-date" not in said


@pytest.mark.parametrize("preset", [preset for preset in ("ddr4-1ch", "ddr4-4ch", "hbm2") if preset in presets()])
def test_all_instances_at_once_are_the_same_tracer(preset):
    """In every cycle of every case. MERAPI_FULL=1: all that have a digest; otherwise those that end soon."""
    outcome = (BUILD / preset / "fast" / "vectors.log").read_text()
    of_preset = re.escape(f"V{preset.replace('-', '_')}_")
    at_once = set(re.findall(rf"^{of_preset}(\w+): \d+ instances at once$", outcome, re.MULTILINE))
    assert at_once == {"ScanLane", "MarkBank", "GreyStore", "ReferenceFilter", "LiveMerge"}, outcome
    full = os.environ.get("MERAPI_FULL") == "1"
    cases = "*" if full else ":".join(f"{suite}.*" for suite in SOON)
    cases += "-RtlWork*:" + ":".join(f"{name}*" for name in NOT_RECORDED)
    count = "4" if full else "1"
    expected = digests(PROGRAM, preset, cases, count)
    assert len(expected) > 20
    assert digests(FAST, preset, cases, count) == expected


def test_contexts():
    """Two tracers at work on random heaps take four times as long as one. Their hosts are threads, so that no run is
    taken from before (kept_runs)."""
    done = start("RtlContexts.*", MERAPI_PRESET="sim-small", MERAPI_SEEDS=CONTEXT_SEEDS)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "[  PASSED  ] 0 tests" not in done.stdout, "the filter matched nothing"
    assert "[  SKIPPED ]" not in done.stdout, "expected a build with the preset sim-pair; `make rtl` makes it"


def test_every_case_is_run():
    """A suite that no filter above has whole is named case by case, and what is not named would never run."""
    whole = set(re.findall(r"\b(\w+)\.\*", Path(__file__).read_text()))
    single = {f"{suite}.{case}" for suite, cases in listed().items() if suite not in whole for case in cases}
    assert single == {f"RtlTrace.{case}" for case in CASES} | set(SOME_SEEDS) | set(ENDING)


def test_units():
    """Single blocks under ChiselSim."""
    own = {k: v for k, v in environment().items() if k not in ("UNIT", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}
    done = subprocess.run(
        ["make", "test-rtl-units"], cwd=ROOT, env=own, capture_output=True, text=True, timeout=3600, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    if NOT_AGAIN in done.stdout:
        TAKEN.append("units")
