# SPDX-License-Identifier: Apache-2.0
"""The tracer's AXI port against a third party's memory (cocotbext-axi); `make axi-rtl` builds the simulation."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "rtl"
RUN = ROOT / "sim" / "rtl" / "test" / "axi" / "run_axi.py"
# What TracerAxi.sv breaks, by number, and what is said about it.
WRONG = {
    1: "an offered read address changed",
    2: "a read id is used twice",
    3: "an offered read address was withdrawn",
    4: "an offered write address changed",
    5: "a write id is used twice",
    6: "an offered write address was withdrawn",
    7: "a write of something else than one line",
    8: "offered write data changed",
    9: "a read of something else than one line",
}
# Without TracerAxi's checks: what the memory itself asserts. A burst beyond 4 KiB, a last beat that is not marked.
MODELS = {9: "0x1000", 10: "last == (n == length-1)"}


def trace(folder, *options):
    python = ROOT / "build" / "venv-rtl" / "bin" / "python"
    assert (BUILD / "axi" / "obj" / "TracerAxi").exists(), (
        "expected build/rtl/axi/obj/TracerAxi; `make axi-rtl` builds it"
    )
    return subprocess.run(
        [python, RUN, "trace", "--build", BUILD / "axi" / "obj", "--windows", BUILD / "sim" / "test" / "axi_window",
         "--out", folder, *options],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("seed", "stalls"), [(1, 0), (2, 30), (3, 70)])
def test_protocol_and_marks(tmp_path, seed, stalls):
    done = trace(tmp_path, f"--seed={seed}", f"--stalls={stalls}")
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_broken_rule_is_noticed(tmp_path, wrong):
    done = trace(tmp_path, f"--wrong={wrong}", "--stalls=30")
    assert done.returncode == 1
    assert WRONG[wrong] in done.stderr


@pytest.mark.parametrize("wrong", MODELS)
def test_the_models_notice(tmp_path, wrong):
    done = trace(tmp_path, f"--wrong={wrong}", "--models-only")
    assert done.returncode == 1
    assert MODELS[wrong] in done.stderr
