# SPDX-License-Identifier: Apache-2.0
"""What gate_model.py makes of models that Verilator has written: parts that are executed when they are due, whatever
the parts, and the same results."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "sim" / "rtl"
PYTHON = ROOT / "build" / "venv-rtl" / "bin" / "python"
MODEL = Path(__file__).resolve().parent
# What simulations.mk goes on without.
REFUSED = 3


def command(*words, check=True, at=None, **environment):
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment, cwd=at
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def gate(*words, **how):
    assert PYTHON.exists(), f"expected {PYTHON}, found nothing; run: make rtl"
    return command(PYTHON, SOURCES / "gate_model.py", *words, **how)


def verilate(folder, *words, at=None):
    """Verilator's C++ of what `words` name; gives Verilator's folder."""
    home = command(PYTHON, "-c", "import os, verilator; print(os.path.dirname(verilator.__file__))").stdout.strip()
    usual = ["--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "-Wno-fatal", "-Wno-lint", "--noassert"]
    usual += ["--prefix", "VTop", "--Mdir", folder, "--output-split", "20000", "--no-timing"]
    command("perl", f"{home}/bin/verilator", *usual, *words, at=at, VERILATOR_ROOT=home)
    return home


def verilated(folder, top=MODEL / "gates" / "Top.sv"):
    """A top, and a main program that prints what leaves it."""
    return verilate(folder, "--top-module", "Top", "--exe", top, MODEL / "instances" / "main.cc")


def printed(folder, home, **environment):
    words = ["OPT_FAST=-O1 -march=native", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0", "CXXFLAGS=-std=c++20"]
    words += ["CXX=ccache clang++", "LOADLIBES=-latomic"]
    words += ["VK_PCH_I_FAST=-include $(VK_PCH_H)", "VK_PCH_I_SLOW=-include $(VK_PCH_H)"]
    command("make", "-j2", "-C", folder, "-f", "VTop.mk", *words, VERILATOR_ROOT=home)
    return command(folder / "VTop", **environment).stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What the model prints, and what it records of itself."""
    folder = tmp_path_factory.mktemp("recorded")
    home = verilated(folder / "plain")
    expected = printed(folder / "plain", home)
    verilated(folder / "recording")
    gate("record", folder / "recording")
    assert printed(folder / "recording", home, MERAPI_ACTIVITY=str(folder / "activity")) == expected
    (folder / "recording" / "activity.names").rename(folder / "activity.names")
    return folder, expected


def gated(recorded, folder):
    home = verilated(folder)
    for name in ("activity", "activity.names"):
        (folder / name).write_bytes((recorded[0] / name).read_bytes())
    return home, gate("gate", folder, "--question=0", "--surprise=0").stdout  # as many parts as there can be


def test_a_record_has_what_changes(recorded):
    folder, _ = recorded
    names = (folder / "activity.names").read_text().splitlines()
    size = (len(names) + 7) // 8
    rows = (folder / "activity").read_bytes()
    cycles = [rows[i : i + size] for i in range(0, len(rows), size)]
    assert len(rows) % size == 0 and len(cycles) > 64

    def rate(name):
        at = names.index(name)
        return sum(row[at // 8] >> at % 8 & 1 for row in cycles) / len(cycles)

    assert 0.1 < rate("Top__DOT__sum") < 0.4  # with valid[2], a quarter of the time
    assert rate("Top__DOT__seldom") < 0.1
    assert rate("Top__DOT__rare") > 0.9


def test_does_what_the_model_does(recorded, tmp_path):
    home, said = gated(recorded, tmp_path / "gated")
    found = re.match(r"(\d+) units of (\d+) instructions, (\d+) parts, (\d+) executed in a cycle\n", said)
    assert found and int(found[3]) > 0, said
    assert printed(tmp_path / "gated", home) == recorded[1]
    text = "".join(f.read_text() for f in (tmp_path / "gated").glob("VTop___024root__*.cpp"))
    assert text.count("___due_") > 0


def by_chance(recorded, folder, seed):
    """A record in which anything changes at any time."""
    chance = random.Random(seed)
    names = (recorded[0] / "activity.names").read_text().splitlines()
    rates = [chance.choice((0, 0, 0.02, 0.2, 0.9)) for _ in names]
    rows = b""
    for _ in range(256):
        bits = sum((chance.random() < rate) << i for i, rate in enumerate(rates))
        rows += bits.to_bytes((len(names) + 7) // 8, "little")
    folder.mkdir()
    (folder / "activity").write_bytes(rows)
    (folder / "activity.names").write_bytes((recorded[0] / "activity.names").read_bytes())
    return folder, recorded[1]


@pytest.mark.parametrize("seed", range(6))
def test_any_record_gives_the_same_results(recorded, tmp_path, seed):
    """Parts that are chosen by chance: what is due is found in the model, not in the record."""
    home, said = gated(by_chance(recorded, tmp_path / "record", seed), tmp_path / "gated")
    assert int(re.search(r", (\d+) parts,", said)[1]) > 0, said
    assert printed(tmp_path / "gated", home) == recorded[1]


def test_a_part_that_is_never_told_would_be_seen(recorded, tmp_path):
    """The comparison above can fail: a line that nobody looks at."""
    home, _ = gated(recorded, tmp_path / "gated")
    told = re.compile(r"^due \|= (?!\w+___).*$", re.MULTILINE)
    files = [f for f in (tmp_path / "gated").glob("VTop___024root__*.cpp") if told.search(f.read_text())]
    assert files
    for file in files:
        file.write_text(told.sub("", file.read_text()))
    assert printed(tmp_path / "gated", home) != recorded[1]


def test_the_same_record_gives_the_same_code(tmp_path):
    """Whatever order Python has for sets: what one clone has compiled is found by another. Of a tracer: the small model
    has no statements in which accumulators of several readers meet."""
    sources = Path(os.environ.get("MERAPI_RTL_BUILD", ROOT / "build" / "rtl")) / "sim-small"
    plain = tmp_path / "plain"
    verilate(plain, "--top-module", "Tracer", f"-I{sources}", *(sources / "filelist.f").read_text().split(), at=sources)
    shutil.copytree(plain, tmp_path / "recording")
    gate("record", tmp_path / "recording")
    record = by_chance((tmp_path / "recording", ""), tmp_path / "record", 1)[0]

    def code(hashes):
        folder = shutil.copytree(plain, tmp_path / hashes)
        shutil.copytree(record, folder, dirs_exist_ok=True)
        gate("gate", folder, PYTHONHASHSEED=hashes)
        return {file.name: file.read_text() for file in folder.iterdir() if file.suffix in (".cpp", ".h")}

    assert code("1") == code("2")


@pytest.mark.parametrize("bytes_", [0, 63])
def test_a_record_that_is_too_short_is_told(recorded, tmp_path, bytes_):
    folder = tmp_path / "gated"
    verilated(folder)
    (folder / "activity.names").write_bytes((recorded[0] / "activity.names").read_bytes())
    (folder / "activity").write_bytes(bytes(bytes_))
    files = {f: f.read_bytes() for f in folder.iterdir()}
    done = gate("gate", folder, check=False)
    assert done.returncode == 1 and "expected a record of 64 cycles at least" in done.stderr
    assert files == {f: f.read_bytes() for f in folder.iterdir()}


def test_a_check_writes_nothing(tmp_path):
    folder = tmp_path / "model"
    verilated(folder)
    files = {f: f.read_bytes() for f in folder.iterdir()}
    assert "variables" in gate("check", folder).stdout
    assert files == {f: f.read_bytes() for f in folder.iterdir()}


def test_a_record_that_finds_no_room_ends_the_program(recorded, tmp_path):
    """A part of it was one, too, and was kept."""
    model = recorded[0] / "recording" / "VTop"
    done = command(model, check=False, MERAPI_ACTIVITY="/dev/full")
    assert done.returncode == 1 and "what changes is not recorded: No space left on device" in done.stderr


def test_what_is_refused_late_stays_as_it_was(recorded, tmp_path):
    """Another file than the first that is written is not what was expected."""
    folder = tmp_path / "gated"
    verilated(folder)
    for name in ("activity", "activity.names"):
        (folder / name).write_bytes((recorded[0] / name).read_bytes())
    for source in folder.glob("VTop___024root__*.cpp"):
        source.write_text(source.read_text().replace('#include "VTop__pch.h"', "#include <cstring>"))
    files = {f: f.read_bytes() for f in folder.iterdir()}
    done = gate("gate", folder, check=False)
    assert done.returncode == REFUSED and "gate_model: expected #include" in done.stderr
    assert files == {f: f.read_bytes() for f in folder.iterdir()}


@pytest.mark.parametrize("how", ["check", "record", "gate"])
def test_a_folder_without_a_model_is_told(tmp_path, how):
    done = gate(how, tmp_path, check=False)
    assert done.returncode == REFUSED and "gate_model: 0 classes of a root in" in done.stderr


def test_statements_that_are_not_known_leave_the_model_as_it_is(tmp_path):
    """Two clocks are evaluated under two conditions."""
    top = tmp_path / "Top.sv"
    top.write_text(
        "module Top(input clock, reset, input [3:0] valid, input [15:0] in, output reg [15:0] out, output reg ready);\n"
        "always @(posedge clock) out <= in;\nalways @(posedge reset) ready <= !ready;\nendmodule\n"
    )
    folder = tmp_path / "model"
    verilated(folder, top)
    files = {f: f.read_bytes() for f in folder.iterdir()}
    for how in ("check", "record"):
        done = gate(how, folder, check=False)
        assert done.returncode == REFUSED and done.stderr.startswith("gate_model: ")
    assert files == {f: f.read_bytes() for f in folder.iterdir()}
    done = command(PYTHON, SOURCES / "plain_evaluation.py", folder, check=False)
    assert done.returncode == 1 and "expected a clock that rises to be all that triggers" in done.stderr
    assert files == {f: f.read_bytes() for f in folder.iterdir()}


def test_an_evaluation_of_inputs_and_one_of_the_clock(recorded, tmp_path):
    folder = tmp_path / "model"
    home = verilated(folder)
    command(PYTHON, SOURCES / "plain_evaluation.py", folder)
    assert printed(folder, home) == recorded[1]
