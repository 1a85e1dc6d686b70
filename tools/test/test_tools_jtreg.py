# SPDX-License-Identifier: Apache-2.0
"""A fast part of OpenJDK's own GC tests with every heap in a window; `make test-jdk` runs the whole set."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import run_jtreg

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def results():
    path = ROOT / "build/jtreg/fast.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, ROOT / "tools/run_jtreg.py", "--fast"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert path.exists(), done.stdout + done.stderr
    return json.loads(path.read_text())


@pytest.mark.timeout(1600)
@pytest.mark.parametrize("test", run_jtreg.FAST)
def test_jtreg(results, test):
    assert test in results["tests"], f"jtreg did not run {test}: {sorted(results['tests'])}"
    assert test not in results["worse_than_stock"], "see build/jtreg/patched-fast/report/html"
