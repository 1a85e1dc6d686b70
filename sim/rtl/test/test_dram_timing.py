# SPDX-License-Identifier: Apache-2.0
"""The memory's time of the simulations: what DRAMsim3's channels take for streams of lines."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl"))
PROGRAM = BUILD / "sim" / "test" / "dram_timing_test"


def test_memory_takes_its_time():
    assert PROGRAM.exists(), f"expected {PROGRAM}; `make rtl` builds it"
    done = subprocess.run([PROGRAM, "--gtest_brief=1"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "[  PASSED  ] 16 tests" in done.stdout, done.stdout + done.stderr
