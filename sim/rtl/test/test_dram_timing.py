# SPDX-License-Identifier: Apache-2.0
"""The memory's time of the simulations: what DRAMsim3's channels take for streams of lines."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl"))
TESTS = BUILD / "sim" / "test"
PROGRAM = TESTS / "dram_timing_test"
STREAMS = 7  # of dram_stream.cc
OWN = {
    "as it is": "output_level = 0",
    "queues by rank": "queue_structure = PER_RANK",
    "closed pages": "row_buf_policy = CLOSE_PAGE",
    "refreshed by bank": "refresh_policy = BANK_LEVEL_STAGGERED",
    "one queue": "unified_queue = True",
    "self-refresh": "enable_self_refresh = true\nsref_threshold = 1000",
    "more ranks": "channel_size = 65536",  # 128 queues
}


def test_memory_takes_its_time():
    assert PROGRAM.exists(), f"expected {PROGRAM}; `make rtl` builds it"
    done = subprocess.run([PROGRAM, "--gtest_brief=1"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "[  PASSED  ] 16 tests" in done.stdout, done.stdout + done.stderr


def digests(kind, accesses, memories, folder):
    # The original writes its statistics to the folder that it is started in.
    command = [TESTS / f"stream_{kind}", str(accesses), *memories]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("WARNING")]
    assert len(lines) == STREAMS * len(memories)
    return lines


def test_changed_dramsim3_ends_accesses_when_the_original_does(tmp_path):
    memories = [TESTS / "memory" / f"{name}.ini" for name in ("ddr4-2400", "hbm2")]
    ours = digests("dramsim3", 100_000, memories, tmp_path)
    assert len({line.split()[-1] for line in ours}) == len(ours)
    assert ours == digests("dramsim3_pristine", 100_000, memories, tmp_path)


@pytest.mark.parametrize("memory", ["ddr4-2400", "hbm2", "gddr6"])
def test_so_it_does_with_configurations_of_ones_own(memory, tmp_path):
    text = (TESTS / "memory" / f"{memory}.ini").read_text()
    text = re.sub(
        r"^(channels|output_level) = .*$", lambda m: f"{m[1]} = {'1' if m[1] == 'channels' else '0'}", text, flags=re.M
    )
    written = []
    for name, change in OWN.items():
        if name == "more ranks" and memory != "ddr4-2400":
            continue
        key = change.split(" = ")[0]
        own = tmp_path / f"{name}.ini"
        own.write_text(re.sub(rf"^{key} = .*\n", "", text, flags=re.M).replace("[system]", f"[system]\n{change}"))
        written.append(own)
    assert digests("dramsim3", 6_000, written, tmp_path) == digests("dramsim3_pristine", 6_000, written, tmp_path)
