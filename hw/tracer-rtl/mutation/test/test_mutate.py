# SPDX-License-Identifier: Apache-2.0
"""The hunt of mutants over a program that stands for the regression: what is a verdict, what is kept, what is tried
again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MUTATE = Path(__file__).resolve().parents[1] / "mutate.py"
sys.path.insert(0, str(MUTATE.parent))

import mutants  # noqa: E402

MUTANTS = """\
mutate -ctrl mutant 2 1 -mode inv -module A -cell $procmux$A.sv:7$35 -port \\Y -portbit 3 -src A.sv:7.1
mutate -ctrl mutant 2 2 -mode cnot0 -module A -cell $procmux$A.sv:7$36 -port \\Y -portbit 3 -ctrlbit 1 -src A.sv:7.1
mutate -ctrl mutant 2 3 -mode cnot0 -module A -cell $procmux$A.sv:7$36 -port \\Y -portbit 3 -ctrlbit 2 -src A.sv:7.1
"""
# What the regression does with a mutant is in a file per mutant: a shell command.
PROGRAM = """#!/bin/sh
[ "$1" = --gtest_list_tests ] && { printf 'RtlTrace.\\n  Plain\\n'; exit 0; }
echo "$MERAPI_MUTANT $1" >> {folder}/ran
. {folder}/does.$MERAPI_MUTANT
"""
PASSES, FAILS = "exit 0", "echo '[  FAILED  ] RtlTrace.Plain'; exit 1"


class Hunt:
    def __init__(self, folder):
        self.folder = folder
        (folder / "mutants.txt").write_text(MUTANTS)
        (folder / "chosen.json").write_text("[1, 2, 3]")
        (folder / "memories.f").write_text("")
        (folder / "mutated.v").write_text("module A; endmodule\n")
        (folder / "survivors.json").write_text("[]")
        self.build("first")
        self.does(PASSES, FAILS, FAILS, FAILS)

    def build(self, what):
        """Another build of the regression."""
        program = self.folder / "rtl_test"
        program.write_text(PROGRAM.replace("{folder}", str(self.folder)) + f"# {what}\n")
        program.chmod(0o755)

    def does(self, *commands):
        for number, command in enumerate(commands):
            (self.folder / f"does.{number}").write_text(command + "\n")

    def run(self, *arguments):
        (self.folder / "ran").write_text("")
        command = [sys.executable, MUTATE, "hunt", "--test", self.folder / "rtl_test"]
        command += ["--list", self.folder / "mutants.txt", "--survivors", self.folder / "survivors.json"]
        command += ["--report", self.folder / "report.json", "--verdicts", self.folder / "verdicts.jsonl"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def verdicts(self):
        path = self.folder / "verdicts.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return {int(e["key"]): e["verdict"] for e in entries if e["key"].isdigit()}

    def ran(self):
        return {int(line.split()[0]) for line in (self.folder / "ran").read_text().splitlines()}


@pytest.fixture
def hunt(tmp_path):
    return Hunt(tmp_path)


def test_kills_are_reported(hunt):
    status, said = hunt.run()
    assert status == 0 and "3 mutants, 0 survive" in said
    assert hunt.verdicts() == {1: "killed", 2: "killed", 3: "killed"}


def test_a_survivor_needs_an_explanation(hunt):
    hunt.does(PASSES, FAILS, PASSES, FAILS)
    status, said = hunt.run("--least", "0.5")
    assert status == 1 and "survivor 2: cnot0 A procmux$36.Y[3] by 1 A.sv:7.1: NOT EXPLAINED" in said
    why = [{"mutant": "cnot0 A procmux$36.Y[3] by 1 A.sv:7.1", "why": "nobody reads it", "equivalent": True}]
    (hunt.folder / "survivors.json").write_text(json.dumps([*why, {"mutant": "inv B", "why": "gone"}]))
    status, said = hunt.run("--least", "0.5")
    assert status == 0 and "nobody reads it" in said and "explained, but no survivor: inv B" in said


@pytest.mark.parametrize("end", ["kill -KILL $$", "kill -TERM $$", "exit 127", "exit 1"])
def test_a_run_that_somebody_else_ends_is_no_verdict(end, hunt):
    hunt.does(PASSES, FAILS, end, FAILS)
    status, said = hunt.run()
    assert status == 2 and said.startswith("without a mutant") and "Traceback" not in said
    assert "over mutant 2 to pass or fail, found exit code" in said
    assert 2 not in hunt.verdicts()
    hunt.does(PASSES, FAILS, FAILS, FAILS)
    assert hunt.run()[0] == 0 and hunt.verdicts()[2] == "killed"


def test_seeds_are_those_of_the_run_whatever_the_caller_has(hunt, monkeypatch):
    """MERAPI_SEED would be the only one, and a mutant that another seed kills would survive."""
    for name in ("MERAPI_SEED", "GTEST_SHARD_INDEX", "MERAPI_RECORD_PORTS"):
        monkeypatch.setenv(name, "2")
    hunt.does(PASSES, *3 * ['[ -z "$MERAPI_SEED$GTEST_SHARD_INDEX$MERAPI_RECORD_PORTS" ] || exit 0; ' + FAILS])
    assert hunt.run()[0] == 0
    assert hunt.verdicts() == {1: "killed", 2: "killed", 3: "killed"}


def test_a_verdict_that_was_cut_off_is_found_anew(hunt):
    assert hunt.run()[0] == 0
    path = hunt.folder / "verdicts.jsonl"
    path.write_text(path.read_text()[:-20])
    status, said = hunt.run()
    assert status == 0 and "half a line" in said and len(hunt.ran()) == 1
    assert hunt.verdicts() == {1: "killed", 2: "killed", 3: "killed"}
    path.write_text("{\n" + path.read_text())
    status, said = hunt.run()
    assert status == 2 and "expected a verdict in each line" in said


def test_some_are_hunted(hunt):
    assert hunt.run("--only", "2")[0] == 0 and hunt.verdicts() == {2: "killed"}
    status, said = hunt.run("--only", "2", "9")
    assert status == 2 and "expected numbers of mutants in" in said and "[9]" in said
    hunt.does(PASSES, FAILS, FAILS, PASSES)
    why = {"mutant": "cnot0 A procmux$36.Y[3] by 2 A.sv:7.1", "why": "nobody reads it", "equivalent": True}
    (hunt.folder / "survivors.json").write_text(json.dumps([why]))
    status, said = hunt.run("--only", "3")
    assert status == 0 and "1 of them equivalent" in said


def test_of_another_preset_no_record_is_asked(hunt):
    """It has none. A mutant that no test's own checks see meets the further seeds as well."""
    own = '[ "$MERAPI_PRESET $MERAPI_PORTS" = "sim-ports 0" ] || exit 9; '
    hunt.does(own + PASSES, own + FAILS, own + FAILS, own + '[ "$MERAPI_SEEDS" = 1 ] && exit 0; ' + FAILS)
    status, said = hunt.run("--preset", "sim-ports")
    assert status == 0 and "0 killed by nothing" in said, said
    assert hunt.verdicts() == {1: "killed", 2: "killed", 3: "killed"}


def test_a_crash_is_a_kill(hunt):
    hunt.does(PASSES, "kill -ABRT $$", FAILS, FAILS)
    assert hunt.run()[0] == 0 and hunt.verdicts()[1] == "killed"


def test_what_killed_is_tried_again_by_other_tests(hunt):
    assert hunt.run()[0] == 0
    assert hunt.run()[0] == 0 and hunt.ran() == set()
    hunt.build("second")
    hunt.does(PASSES, FAILS, PASSES, FAILS)
    status, said = hunt.run("--least", "0.5")
    assert status == 1 and "survivor 2" in said and hunt.ran() == {0, 1, 2, 3}
    assert hunt.verdicts() == {1: "killed", 2: "survives", 3: "killed"}


def test_another_design_is_another_hunt(hunt):
    assert hunt.run()[0] == 0
    (hunt.folder / "mutated.v").write_text("module A; wire b; endmodule\n")
    assert hunt.run()[0] == 0 and hunt.ran() == {0, 1, 2, 3}


def test_each_mutant_has_its_own_label(hunt):
    found = mutants.mutants(hunt.folder / "mutants.txt")
    assert len({mutants.label(entry) for entry in found.values()}) == 3
