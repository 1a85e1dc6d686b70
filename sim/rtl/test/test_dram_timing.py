# SPDX-License-Identifier: Apache-2.0
"""The memory's time of the simulations: what DRAMsim3's channels take for streams of lines."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl"))
TESTS = BUILD / "sim" / "test"
PROGRAM = TESTS / "dram_timing_test"


def test_memory_takes_its_time():
    assert PROGRAM.exists(), f"expected {PROGRAM}; `make rtl` builds it"
    done = subprocess.run([PROGRAM, "--gtest_brief=1"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "[  PASSED  ] 16 tests" in done.stdout, done.stdout + done.stderr


def test_changed_dramsim3_ends_accesses_when_the_original_does(tmp_path):
    def stream(kind):
        # The original writes its statistics to the folder that it is started in.
        done = subprocess.run([TESTS / f"stream_{kind}"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    ours = stream("dramsim3")
    assert len(ours) == len(set(ours)) == 14
    assert ours == stream("dramsim3_pristine")
