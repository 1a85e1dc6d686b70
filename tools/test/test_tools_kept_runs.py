# SPDX-License-Identifier: Apache-2.0
"""A run that passed is not made again for whoever wants that, and whatever else is given is another run."""

import os
import subprocess
import sys

import kept
import kept_runs
import pytest
from common import ROOT


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "CACHE", tmp_path)
    monkeypatch.setenv("MERAPI_ONCE", "1")
    made = []

    def go(key, status=0):
        """(what the run has left, whether it was there, how many were made)."""

        def make(folder):
            made.append(key)
            if status:
                raise ValueError(key)
            (folder / "said").write_text(f"{key} {len(made)}")

        found, taken = kept_runs.once(lambda: key, make)
        return found["said"], taken, len(made)

    return go


def test_the_same_is_run_once(run):
    assert run("a") == ("a 1", False, 1)
    assert run("a") == ("a 1", True, 1)
    assert run("b") == ("b 2", False, 2)


@pytest.mark.parametrize("said", ["0", ""])
def test_whoever_does_not_ask_for_it_runs(run, monkeypatch, said):
    run("a")
    monkeypatch.setenv("MERAPI_ONCE", said)
    assert run("a") == ("a 2", False, 2)


def test_what_failed_runs_again(run):
    for _ in range(2):
        with pytest.raises(ValueError):
            run("a", status=1)
    assert run("a") == ("a 3", False, 3)


@pytest.mark.parametrize("once", ["0", "1"])
def test_what_failed_in_the_meantime_runs_again(run, monkeypatch, once):
    """A pass of before says nothing then."""
    run("a")
    monkeypatch.setenv("MERAPI_ONCE", "0")
    with pytest.raises(ValueError):
        run("a", status=1)
    monkeypatch.setenv("MERAPI_ONCE", once)
    assert run("a") == ("a 3", False, 3)


def test_what_changes_while_it_runs_is_not_kept(run):
    keys = iter(["a", "b"])
    with pytest.raises(SystemExit):
        kept_runs.once(lambda: next(keys), lambda folder: (folder / "said").write_text("passed"))
    assert run("a") == ("a 1", False, 1)
    assert run("b") == ("b 2", False, 2)


def test_what_another_process_makes_again_meanwhile_is_made(run, monkeypatch):
    run("a")
    found = kept.Kept.find

    def found_and_gone(store, key):
        folder = found(store, key)
        (folder / "said").unlink()
        return folder

    monkeypatch.setattr(kept.Kept, "find", found_and_gone)
    assert run("a") == ("a 2", False, 2)


def test_what_was_damaged_runs_again(run, tmp_path):
    run("a")
    (tmp_path / "runs/a/said").write_text("passed")
    assert run("a") == ("a 2", False, 2)


def test_a_program_that_was_compiled_again_is_another(tmp_path):
    program = tmp_path / "program"
    digests = []
    for text in ("one", "another"):
        program.write_text(text)
        digests.append(kept_runs.digest(program))
    assert digests[0] != digests[1]


def test_a_program_counts_by_what_it_executes(tmp_path):
    """Not by where it was compiled, which its debug information says."""
    digests = set()
    for folder, source in (("one", "0"), ("two", "0"), ("three", "1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.c").write_text(f"int main(void) {{ return {source}; }}\n")
        subprocess.run(
            ["gcc", "-g", "-Wl,--build-id=none", "-o", "program", "main.c"], cwd=tmp_path / folder, check=True
        )
        digests.add(kept_runs.digest(tmp_path / folder / "program"))
    programs = [(tmp_path / folder / "program").read_bytes() for folder in ("one", "two")]
    assert programs[0] != programs[1] and len(digests) == 2


TESTS = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_run(n, record_property):
    if n:
        record_property("kept runs", n)
"""


@pytest.mark.parametrize("beside", [[], ["-n", "2"]])
def test_how_many_were_not_made_is_said(tmp_path, beside):
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_runs.py").write_text(TESTS)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *beside, str(tmp_path)], capture_output=True, text=True, timeout=120,
        check=True, cwd=tmp_path, env=own,
    )  # fmt: skip
    assert "\n3 run(s) of the tracer's tests were not made again" in done.stdout
    assert done.stdout.splitlines()[-1].strip("= ").startswith("3 passed")
