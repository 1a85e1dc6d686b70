# SPDX-License-Identifier: Apache-2.0
"""The regression of the tracer's RTL as pytest cases: one for each preset and kind of run.

`make rtl` builds the program, in build/rtl or MERAPI_RTL_BUILD. MERAPI_SEEDS: random seeds per case (12 on
sim-small, 2 on others, which are slower to simulate; MERAPI_FULL=1: 200)."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import kept
import kept_runs
import pytest
from regression import environment
from unit_tests import NOT_AGAIN

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl"))
PROGRAM = BUILD / "sim" / "test" / "rtl_test"
# The same cases on tracers as device processes have them: not the model that Verilator wrote (gate_model.py,
# vector_instances.py).
FAST = BUILD / "sim" / "test" / "rtl_test_fast"
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
# Cases that end the program, and what their replay command sets before the program's name.
ENDING = {
    "RtlReplay.DISABLED_AnAssertionNamesItsSeed": "MERAPI_SEED=3 ",
    "RtlReplay.DISABLED_AnAssertionNamesItsTest": "",
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
RECORDS = ROOT / "sim" / "rtl" / "test" / "records"
RECORDED_SEEDS = 3  # of each random case (record-rtl-work)
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
# Of those cases of RtlContexts that have seeds.
CONTEXT_SEEDS = os.environ.get("MERAPI_SEEDS", "50" if os.environ.get("MERAPI_FULL") == "1" else "2")


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


def test_presets_are_those_of_the_program(tmp_path):
    for name, contexts in (("kept", 1), ("asked", 1), ("also", 1), ("pair", 2)):
        (tmp_path / name / "obj").mkdir(parents=True)
        (tmp_path / name / "preset.json").write_text(json.dumps({"name": name, "contexts": contexts}))
    assert presets(tmp_path) == ["sim-small"]
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "CMakeCache.txt").write_text(
        "A:BOOL=ON\nMERAPI_RTL_PRESETS:UNINITIALIZED=asked;pair;also\nB:PATH=/b\n"
    )
    assert presets(tmp_path) == ["also", "asked"]


def seeds(preset):
    usual = "200" if os.environ.get("MERAPI_FULL") == "1" else "12" if preset == "sim-small" else "2"
    return os.environ.get("MERAPI_SEEDS", usual)


def half(preset):
    """Of the usual seeds: where a seed is long."""
    return str(max(1, int(seeds(preset)) // 2))


def first_seed(preset, number, count):
    """Of a preset that has few seeds: each case, by its number, has its own, and so its own heaps. sim-small's first
    are recorded."""
    return "1" if preset == "sim-small" else str(1 + number * int(count))


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


@pytest.fixture(autouse=True)
def taken_are_told(record_property):
    """To conftest.py, which says how many they are."""
    TAKEN.clear()
    yield
    if TAKEN:
        record_property("kept runs", len(TAKEN))


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


def test_invariants_are_in_the_program():
    """They are modules that something must bind to the design: compiling them is not enough."""
    assert PROGRAM.read_bytes().count(b"Assertion failed") >= 10


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


@pytest.mark.parametrize("name", ["sim-small", "sim-small-ports"])
def test_there_is_a_record(name):
    record = RECORDS / f"{name}.json"
    assert record.exists(), f"expected {record}; `make record-rtl-work`"
    assert json.loads(record.read_text()) != {}


def test_what_is_recorded_is_run():
    """A record without a case says nothing, and nothing says that the case is gone. All seeds are recorded."""
    record = json.loads((RECORDS / "sim-small-ports.json").read_text())
    run_here = {f"{suite}.{case}" for suite, cases in listed().items() for case in cases}
    assert set(record) == {case for case in run_here if not case.startswith(NOT_RECORDED)}
    every = {str(seed) for seed in range(1, RECORDED_SEEDS + 1)}
    for case, digests in record.items():
        own = {"1"} if case == "RtlWide.OneTracerForAll" else {"0"}
        assert set(digests) in (own, every), case


@pytest.mark.parametrize(
    ("record", "seed", "missing"),
    [(None, "1", "a record in"), ({}, "1", "RtlTrace.Plain in"), (..., "77", "seed 77 of RtlTrace.Plain in")],
)
def test_ports_that_are_not_recorded_fail_when_asked_for(tmp_path, record, seed, missing):
    if record is not None:
        text = (RECORDS / "sim-small-ports.json").read_text() if record is ... else json.dumps(record)
        (tmp_path / "sim-small-ports.json").write_text(text)
    said = {"MERAPI_PRESET": "sim-small", "MERAPI_SEED": seed, "MERAPI_RECORDS": str(tmp_path)}
    done = start("RtlTrace.Plain", **said, MERAPI_PORTS="1")
    assert done.returncode != 0
    assert f"ports: expected {missing}" in done.stdout
    assert "make record-rtl-work" in done.stdout
    assert (start("RtlTrace.Plain", **said).returncode == 0) == (record != {}), "a case without a record never passes"


def test_a_difference_says_how_to_replay_it(tmp_path):
    """The command that is printed fails in the same way."""
    record = json.loads((RECORDS / "sim-small-ports.json").read_text())
    record["RtlTrace.Plain"]["2"] = "0" * 16
    (tmp_path / "sim-small-ports.json").write_text(json.dumps(record))
    done = start("RtlTrace.Plain", MERAPI_SEEDS="2", MERAPI_RECORDS=str(tmp_path))
    assert done.returncode != 0
    command = re.search(r"replay: (MERAPI_PRESET=sim-small .*)", done.stdout).group(1)
    assert f" {os.path.relpath(PROGRAM, ROOT)} " in command or f" {PROGRAM} " in command
    again = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env={**os.environ, "MERAPI_RECORDS": str(tmp_path)},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert again.returncode != 0
    assert "ports: what left them in RtlTrace.Plain, seed 2, is not what was recorded" in again.stdout


@pytest.mark.parametrize("name", ENDING)
def test_an_assertion_says_how_to_replay_it(name):
    """It ends the program, so no case says anything after it."""
    ways = {"MERAPI_PRESET": "sim-small", "MERAPI_SEEDS": "3", "GTEST_ALSO_RUN_DISABLED_TESTS": "1"}
    done = start(name, **ways)
    assert done.returncode == -signal.SIGABRT
    assert re.fullmatch(
        rf"replay: MERAPI_PRESET=sim-small {ENDING[name]}\S+ --gtest_filter={name}", done.stderr.splitlines()[-1]
    )


def test_waveforms_are_of_a_program_of_their_own(tmp_path):
    """rtl_test_waves; what the others say shows that each simulation is asked for one."""
    said = {"MERAPI_PRESET": "sim-small", "MERAPI_WAVES": str(tmp_path / "case.vcd")}
    for name in ("RtlFault.NoneAndIdle", "RtlHost.SleepsWhenNothingIsLeft"):
        done = start(name, **said)
        assert done.returncode == 1 and "expected a simulation built with waveforms (make rtl-waves)" in done.stdout
    done = start("RtlFault.NoneAndIdle", **said, MERAPI_WAVES_FROM="2e3")
    assert "expected a number of cycles in MERAPI_WAVES_FROM, found '2e3'" in done.stdout


def test_replay_commands_are_made_in_one_place():
    said = [p.name for p in Path(__file__).parent.glob("*.cc") if "--gtest_filter=" in p.read_text()]
    assert said == ["seeds.cc"]


RECORDER = """#!/bin/sh
env | grep -E '^(MERAPI_(SEED|FIRST_SEED|SEEDS|PRESET)|GTEST_.*)=' | sort >> {folder}/said
[ "$MERAPI_RECORD_PORTS" = 1 ] || {{ echo new > "$MERAPI_RECORDS/sim-small.json"; exit 0; }}
echo new > "$MERAPI_RECORDS/sim-small-ports.json"
exit {status}
"""


@pytest.mark.parametrize("status", [0, 1])
def test_records_are_put_in_place_when_all_are_made(tmp_path, status):
    (tmp_path / "sim" / "test").mkdir(parents=True)
    program = tmp_path / "sim" / "test" / "rtl_test"
    program.write_text(RECORDER.format(folder=tmp_path, status=status))
    program.chmod(0o755)
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("sim-small.json", "sim-small-ports.json"):
        (kept / name).write_text("old\n")
    done = subprocess.run(
        ["make", "-o", "rtl", "record-rtl-work", f"RTL_BUILD={tmp_path}", f"RTL_RECORDS={kept}",
         "RTL_PRESETS=sim-small"],
        cwd=ROOT, env={**os.environ, "MERAPI_SEED": "77", "GTEST_SHARD_INDEX": "1", "GTEST_TOTAL_SHARDS": "2",
                       "GTEST_FILTER": "None.*", "MERAPI_FIRST_SEED": "9"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (status == 0), done.stdout + done.stderr
    assert {p.read_text() for p in kept.iterdir()} == {"old\n" if status else "new\n"}
    said = (tmp_path / "said").read_text().split()
    assert said == ["MERAPI_PRESET=sim-small", "MERAPI_PRESET=sim-small", "MERAPI_SEEDS=3"]


def test_a_record_that_cannot_be_written_is_told(tmp_path):
    """A case that records and cannot is no case that has passed."""
    said = {"MERAPI_PRESET": "sim-small", "MERAPI_RECORDS": str(tmp_path / "gone"), "MERAPI_RECORD_WORK": "1"}
    done = start("RtlWork.List", **said)
    assert done.returncode != 0 and f"expected to write {tmp_path}/gone/sim-small.json" in done.stdout


def test_nothing_is_recorded_unless_asked_for(tmp_path):
    (tmp_path / "sim-small.json").write_text("{}")
    said = {"MERAPI_PRESET": "sim-small", "MERAPI_RECORDS": str(tmp_path), "MERAPI_RECORD_WORK": "0"}
    done = start("RtlWork.List", **said)
    assert done.returncode != 0 and "expected List in" in done.stdout
    assert (tmp_path / "sim-small.json").read_text() == "{}"


def digests(program, preset, filter_, count):
    """What leaves the ports of a preset in each cycle, by case and seed."""
    return run_once(filter_, program, f"{preset}-ports", MERAPI_PRESET=preset, MERAPI_SEEDS=count)[1]


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


def test_a_run_that_passed_is_made_again_when_anything_is_another(tmp_path, monkeypatch):
    """Seed, program or record."""
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("MERAPI_ONCE", "1")

    def taken(program=PROGRAM, seed="1"):
        TAKEN.clear()
        run("RtlTrace.Plain", "sim-small", "1", program, MERAPI_FIRST_SEED=seed)
        return len(TAKEN)

    other = tmp_path / "rtl_test"
    (tmp_path / "bytes").write_text("of no use")
    subprocess.run(["objcopy", "--add-section", f".other={tmp_path}/bytes", PROGRAM, other], check=True)
    records = tmp_path / "records"
    shutil.copytree(RECORDS, records)
    monkeypatch.setattr(sys.modules[__name__], "RECORDS", records)
    try:
        assert [taken(), taken()] == [0, 1]
        assert [taken(seed="2"), taken(seed="2"), taken()] == [0, 1, 1]
        assert [taken(other), taken(other)] == [0, 1]
        record = json.loads((records / "sim-small-ports.json").read_text())
        record["RtlTrace.Plain"]["1"] = "0" * 16
        (records / "sim-small-ports.json").write_text(json.dumps(record))
        for _ in range(2):
            with pytest.raises(AssertionError, match="is not what was recorded"):
                taken()
            with pytest.raises(AssertionError, match="matched nothing"):
                run("RtlTrace.None", "sim-small", "1")
    finally:
        TAKEN.clear()


def test_contexts():
    """Two tracers at work on random heaps take four times as long as one. Their hosts are threads, so that no run is
    taken from before (kept_runs)."""
    done = start("RtlContexts.*", MERAPI_PRESET="sim-small", MERAPI_SEEDS=CONTEXT_SEEDS)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "[  PASSED  ] 0 tests" not in done.stdout, "the filter matched nothing"
    assert "[  SKIPPED ]" not in done.stdout, "expected a build with the preset sim-pair; `make rtl` makes it"


def listed():
    """The program's cases, by suite."""
    said = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, timeout=60, check=True)
    found = re.findall(r"^(\w+)\.\n((?:  \w+\n)+)", said.stdout, re.M)
    return {suite: cases.split() for suite, cases in found}


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
