# SPDX-License-Identifier: Apache-2.0
"""Whether the harnesses of the proofs (hw/tracer-rtl/formal) fit the blocks as they are: `make formal` takes too long
to be run after each change, and a harness that no longer fits proves nothing."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RTL = ROOT / "build" / "rtl"
FORMAL = ROOT / "hw" / "tracer-rtl" / "formal"
PROOFS = json.loads((FORMAL / "proofs.json").read_text())
# Of one lane; `make formal` elaborates more, for the same harnesses.
PRESETS = ("sim-small", "proof")
# (preset, harness, top): those of one harness differ in their goals alone.
HARNESSES = sorted({(p.get("preset", "sim-small"), p["harness"], p["top"]) for p in PROOFS})
HARNESSES = [harness for harness in HARNESSES if harness[0] in PRESETS]
# Inputs that a harness leaves open, so that anything may come there.
ANYTHING = {
    "host_look.sv": r"io_unread",
    "memory_ports.sv": r"io_(reads|writes|grants)_\d+_.*",  # the other clients, and what they may write
    "reporter.sv": r"io_control_bits_(count|flags|payload_\d+)",  # what the control unit's entries say
}


def inputs_of(block):
    """A SystemVerilog module's inputs: firtool says a direction once for the ports that follow."""
    found = set()
    direction = ""
    for port in re.search(r"^module \w+\((.*?)\);", block.read_text(), flags=re.M | re.S).group(1).split(","):
        words = re.sub(r"//.*", "", port).split()
        direction = words[0] if words[0] in ("input", "output", "inout") else direction
        if direction == "input":
            found.add(words[-1])
    return found


def misfits(preset, harness, top):
    """What Verilator finds wrong between harness and blocks: ports that are not there, of another width, or open."""
    python = ROOT / "build" / "venv-rtl" / "bin" / "python"
    root = subprocess.run([python, "-c", "import os, verilator; print(os.path.dirname(verilator.__file__))"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    folder = RTL / preset
    assert (folder / "filelist.f").exists(), f"expected {folder}/filelist.f; `make {folder}/filelist.f` elaborates it"
    said = subprocess.run(
        ["perl", f"{root}/bin/verilator", "--lint-only", "--top-module", top, "-Wno-fatal", "--no-timing",
         "--error-limit", "1000", "-f", "filelist.f", harness],
        cwd=folder, env=os.environ | {"VERILATOR_ROOT": root}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    found = [line for line in said.stderr.splitlines() if line.startswith("%Error") or "port connection" in line]
    assert said.returncode == 0 or found, said.stderr[-2000:]
    lines = harness.read_text().splitlines()
    open_inputs = set()
    for line, pin in re.findall(
        rf"PINMISSING: {re.escape(str(harness))}:(\d+):\d+: Instance has missing pin: '(\w+)'", said.stderr
    ):
        block = folder / f"{lines[int(line) - 1].split()[0]}.sv"
        if block.exists() and pin in inputs_of(block):
            open_inputs.add(pin)
    free = ANYTHING.get(harness.name, "(?!)")
    return found + sorted(f"open: {name}" for name in open_inputs if not re.fullmatch(free, name))


@pytest.mark.parametrize(("preset", "harness", "top"), HARNESSES)
def test_fits(preset, harness, top):
    assert misfits(preset, FORMAL / harness, top) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (".io_read_request_ready(", ".io_read_asked_ready(", "io_read_asked_ready"),
        ("(read_ready)", "({read_ready, read_ready})", "io_read_request_ready"),
        (".io_read_request_ready(read_ready),", "", "open: io_read_request_ready"),
    ],
)
def test_a_misfit_is_noticed(tmp_path, old, new, said):
    text = (FORMAL / "host_look.sv").read_text()
    assert old in text
    (tmp_path / "host_look.sv").write_text(text.replace(old, new))
    assert any(said in line for line in misfits("sim-small", tmp_path / "host_look.sv", "host_look"))
