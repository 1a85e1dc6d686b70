# SPDX-License-Identifier: Apache-2.0
"""The GoogleTest programs of sim/, one pytest case for each of their suites."""

import subprocess

import pytest
from device_processes import BINARIES, binary

PROGRAMS = ["model_test", "faults_test", "pause_test", "patience_test", "memory_guard_test", "trace_test"]


def suites(program):
    path = BINARIES / program
    if not path.exists():
        return ["*"]
    out = subprocess.run([path, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    return [line.split(".")[0].strip() for line in out.splitlines() if line and not line.startswith((" ", "Running"))]


@pytest.mark.parametrize("program,suite", [(p, s) for p in PROGRAMS for s in suites(p)])
def test_native(program, suite):
    run = subprocess.run([binary(program), f"--gtest_filter={suite}.*"], capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "[  PASSED  ] 0 tests" not in run.stdout, "the filter matched nothing"
