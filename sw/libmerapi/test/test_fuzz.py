# SPDX-License-Identifier: Apache-2.0
"""A short run of each fuzz target, always the same one; `make fuzz` is the long one. And what tools/fuzz.py refuses."""

import subprocess
import sys
from pathlib import Path

import fuzz
import pytest

TOOL = Path(fuzz.__file__)


@pytest.fixture(scope="module")
def programs():
    return fuzz.build(2)


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_a_short_run_finds_nothing(name, programs, tmp_path):
    _, problem, runs = fuzz.fuzz(programs[name], "-runs=3000", "-seed=1", folder=tmp_path)
    assert problem is None
    assert int(runs[0]) >= 3000


@pytest.mark.parametrize(
    "arguments, found",
    [
        (["--seconds", "0"], "'0'"),
        (["--seconds", "-1"], "'-1'"),
        (["--seconds", "soon"], "'soon'"),
        (["--jobs", "0"], "'0'"),
        (["merapi_fuzz_rings", "merapi_fuzz_ring"], "found merapi_fuzz_ring;"),
        (["merapi_fuzz_seeds"], "found merapi_fuzz_seeds;"),
    ],
)
def test_wrong_arguments_are_refused(arguments, found):
    done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "expected" in done.stderr and found in done.stderr, done.stderr
    if "targets of" in done.stderr:
        listed = done.stderr.split("targets of ")[1].split(", found")[0].split(", ")
        assert listed == ["merapi_fuzz_image", "merapi_fuzz_rings", "merapi_fuzz_shapes", "merapi_fuzz_window"]
