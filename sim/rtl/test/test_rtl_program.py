# SPDX-License-Identifier: Apache-2.0
"""What the regression's program says and leaves: records, commands that replay, whether a run is made again."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import kept
import pytest
import regression_runs
from regression_runs import ENDING, PROGRAM, RECORDS, ROOT, TAKEN, presets, run, start


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


def test_invariants_are_in_the_program():
    """They are modules that something must bind to the design: compiling them is not enough."""
    assert PROGRAM.read_bytes().count(b"Assertion failed") >= 10


@pytest.mark.parametrize("name", ["sim-small", "sim-small-ports"])
def test_there_is_a_record(name):
    record = RECORDS / f"{name}.json"
    assert record.exists(), f"expected {record}; `make record-rtl-work`"
    assert json.loads(record.read_text()) != {}


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
    monkeypatch.setattr(regression_runs, "RECORDS", records)
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
