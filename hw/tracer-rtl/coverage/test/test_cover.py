# SPDX-License-Identifier: Apache-2.0
"""What cover.py makes of sources and counts that are small enough to be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

COVERAGE = Path(__file__).resolve().parents[1]
SOURCES = COVERAGE.parents[2] / "hw" / "tracer-rtl" / "src" / "main" / "scala" / "merapi"
sys.path.insert(0, str(COVERAGE))
import cover  # noqa: E402

CONTROL = """
class Control(p: TracerParameters) extends Module {
  object State extends ChiselEnum { val Look, Check = Value }
}
"""
VERDICT = """
object Verdict extends ChiselEnum {
  /** What is to be done {with an entry}. */
  val Bad, Good = Value
}
"""
CONTROL_SV = """
module Control(
  input clock);
  reg state, verdict, pending, mayGo;
endmodule
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, COVERAGE / "cover.py", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "Control.scala").write_text(CONTROL)
    (tmp_path / "CommandCheck.scala").write_text(VERDICT)
    (tmp_path / "Control.sv").write_text(CONTROL_SV)
    return tmp_path


def states(folder):
    return run("states", "--scala", folder, "--rtl", folder, "--out", folder / "states.sv")


@pytest.mark.parametrize("indent", ["", "  ", "      "])
def test_an_enumeration_has_points_wherever_it_stands(sources, indent):
    (sources / "CommandCheck.scala").write_text(VERDICT.replace("\n", f"\n{indent}"))
    done = states(sources)
    assert done.returncode == 0, done.stderr
    made = (sources / "states.sv").read_text()
    assert "Look: cover property (@(posedge clock) holds & value == 1'd0);" in made
    assert "Good: cover property (@(posedge clock) holds & value == 1'd1);" in made
    assert ".holds(state == 1 & ~pending & mayGo), .value(verdict)" in made


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("object Mood extends ChiselEnum { val Good, Bad = Value }", "expected an enumeration called"),
        ("object State extends chisel3.ChiselEnum { val A = Value }", "expected every enumeration"),
        ("object State extends ChiselEnum { val A, B = Value }", "found it before all"),
        ("class C {\n  object State extends ChiselEnum {\n    val A = Value(3.U)\n  }\n}", "expected lines"),
    ],
)
def test_an_enumeration_that_would_have_no_points_is_refused(sources, wrong, said):
    (sources / "Other.scala").write_text(wrong + "\n")
    done = states(sources)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_signal_that_is_not_in_the_design_is_refused(sources):
    (sources / "Control.sv").write_text(CONTROL_SV.replace(", mayGo", ""))
    done = states(sources)
    assert done.returncode == 2
    assert "expected mayGo in Control.sv" in done.stderr


def test_every_enumeration_of_the_tracer_has_points():
    written = sum(len(re.findall(r"extends ChiselEnum", path.read_text())) for path in SOURCES.glob("*.scala"))
    found = cover.machines(SOURCES)
    assert len(found) == written - len(cover.AROUND)
    assert {"Header", "Size", "References", "Extension"} in [set(m.values) for m in found]
