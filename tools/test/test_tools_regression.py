# SPDX-License-Identifier: Apache-2.0
"""What the regression is started with, and Yosys."""

import subprocess
import sys

import pytest
from common import ROOT
from regression import environment
from yosys import YosysError, run_script

REGRESSION = ROOT / "tools" / "regression.py"


def start(*words):
    return subprocess.run([sys.executable, REGRESSION, *words], capture_output=True, text=True, timeout=60)


def test_choices_are_those_that_are_said(monkeypatch):
    for name in ("MERAPI_SEED", "MERAPI_MUTANT", "MERAPI_WAVES_FROM", "GTEST_FILTER", "MERAPI_FULL"):
        monkeypatch.setenv(name, "1")
    said = environment(MERAPI_SEEDS="3")
    assert {n: v for n, v in said.items() if n.startswith(("MERAPI_SEED", "MERAPI_MU", "MERAPI_WA", "GTEST"))} == {
        "MERAPI_SEEDS": "3"
    }
    assert said["MERAPI_FULL"] == "1"
    done = start(
        "MERAPI_SEEDS=3", "GTEST_OUTPUT=a=b", "--", "sh", "-c", 'echo "$MERAPI_SEED,$MERAPI_SEEDS,$GTEST_OUTPUT"'
    )
    assert (done.returncode, done.stdout) == (0, ",3,a=b\n")
    assert start("--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["MERAPI_SEEDS=3"], "expected '--' and a program"),
        (["SEEDS=3", "--", "true"], "expected NAME=VALUE of what the regression takes, found 'SEEDS=3'"),
        (["MERAPI_SEEDS", "--", "true"], "expected NAME=VALUE of what the regression takes"),
        (["--", "/nowhere/rtl_test"], "expected a program that can be run, found /nowhere/rtl_test"),
    ],
)
def test_what_is_not_said_rightly_is_told(words, said):
    done = start(*words)
    assert done.returncode == 2 and said in done.stderr


@pytest.mark.parametrize(
    ("yosys", "said"),
    [
        ("/nowhere/yosys -x", r"expected Yosys in '/nowhere/yosys -x', found No such file"),
        ("sh -c 'sleep 20'", r"expected Yosys to be done with .*/a\.ys in 1 s"),
        ("sh -c 'echo ERROR: no such module >&2; exit 1'", r"Yosys failed on .*/a\.ys: ERROR: no such module"),
        ("sh -c 'echo Killed; exit 137'", r"Yosys failed on .*/a\.ys: Killed"),
    ],
)
def test_what_yosys_cannot_do_is_told(yosys, said, tmp_path):
    with pytest.raises(YosysError, match=said):
        run_script(yosys, "a.ys", tmp_path, 1)


def test_yosys_runs_in_its_folder(tmp_path):
    run_script("sh -c 'echo \"$*\" > said' yosys", "a.ys", tmp_path, 60)
    assert (tmp_path / "said").read_text() == "-q -l a.log a.ys\n"
