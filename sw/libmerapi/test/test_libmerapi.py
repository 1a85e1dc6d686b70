# SPDX-License-Identifier: Apache-2.0
"""The library's GoogleTest program, one pytest case for each of its suites."""

import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "build/native/bin/merapi_test"


def suites():
    if not PROGRAM.exists():
        return ["missing"]
    out = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0].rstrip(".") for line in out.splitlines() if line and not line.startswith((" ", "Running"))]


@pytest.mark.parametrize("suite", suites())
def test_libmerapi(suite):
    assert PROGRAM.exists(), f"expected {PROGRAM}, found nothing; run 'make native'"
    command = [PROGRAM, f"--gtest_filter={suite}.*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "[  PASSED  ] 0 tests" not in done.stdout, "the filter matched nothing"
