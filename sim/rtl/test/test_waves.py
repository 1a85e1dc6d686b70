# SPDX-License-Identifier: Apache-2.0
"""Waveforms that can be written, and those that cannot: Verilator's own file would end the process, and with it every
window that it serves."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from test_gate_model import MODEL, command, verilate

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waves")
    main = MODEL / "waves" / "main.cc"
    home = verilate(folder, "--trace", "--top-module", "Top", "--exe", MODEL / "gates" / "Top.sv", main)
    words = ["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0", "CXX=ccache clang++", "LOADLIBES=-latomic"]
    words += [f"CXXFLAGS=-std=c++20 -I{ROOT} -I{ROOT}/sw/libmerapi/include"]
    words += ["VK_PCH_I_FAST=-include $(VK_PCH_H)", "VK_PCH_I_SLOW=-include $(VK_PCH_H)"]
    command("make", "-j2", "-C", folder, "-f", "VTop.mk", *words, VERILATOR_ROOT=home)
    return folder / "VTop"


def run(program, file, cycles, *before):
    return subprocess.run([*before, program, file, str(cycles)], capture_output=True, text=True, timeout=120)


def test_a_waveform_is_its_owners(program, tmp_path):
    """It has lines of somebody's heap in it."""
    file = tmp_path / "waves.vcd"
    done = run(program, file, 100)
    assert done.returncode == 0 and done.stderr == "", done
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "$enddefinitions" in text and "\n#199\n" in text


def test_a_waveform_that_cannot_be_written_ends_the_simulation_and_nothing_else(program, tmp_path):
    done = run(program, "/dev/full", 100000)
    assert done.returncode == 7, done
    assert done.stderr == "told: cannot write the waveform to /dev/full: No space left on device\n"
    assert done.stdout == ""
    file = tmp_path / "waves.vcd"
    done = run(program, file, 100000, "prlimit", "--fsize=65536", "env", "--ignore-signal=XFSZ")
    assert done.returncode == 7 and f"{file}: File too large" in done.stderr, done
    assert file.stat().st_size == 65536
    for missing, why in (("no/folder/w.vcd", "No such file or directory"), (".", "Is a directory")):
        done = run(program, tmp_path / missing, 10)
        assert done.returncode == 7 and f"cannot write the waveform to {tmp_path / missing}: {why}" in done.stderr, done
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run(program, pipe, 10)
    assert done.returncode == 7 and "No such device or address" in done.stderr, done


def test_the_rest_that_cannot_be_written_is_told(program):
    """A short waveform is written when the simulation ends."""
    done = run(program, "/dev/full", 3)
    assert done.returncode == 0 and "simulated to the end" in done.stdout, done
    assert done.stderr == "cannot write the waveform to /dev/full: No space left on device\n"
