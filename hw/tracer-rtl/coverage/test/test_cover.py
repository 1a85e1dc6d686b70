# SPDX-License-Identifier: Apache-2.0
"""What cover.py makes of sources and counts that are small enough to be read."""

import hashlib
import json
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
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "CommandCheck.scala").write_text(VERDICT)
    (tmp_path / "Control.sv").write_text(CONTROL_SV)
    return tmp_path


def states(folder):
    return run("states", "--scala", folder, "--rtl", folder, "--out", folder / "states.sv")


@pytest.mark.parametrize("indent", ["", "  ", "      "])
def test_an_enumeration_has_points_wherever_it_stands(sources, indent):
    (sources / "control" / "CommandCheck.scala").write_text(VERDICT.replace("\n", f"\n{indent}"))
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
    written = sum(len(re.findall(r"extends ChiselEnum", path.read_text())) for path in SOURCES.rglob("*.scala"))
    found = cover.machines(SOURCES)
    assert len(found) == written - len(cover.AROUND)
    assert {"Header", "Size", "References", "Extension"} in [set(m.values) for m in found]


def point(page, name, where, count):
    fields = {"f": "Counters.sv", "page": f"v_{page}", "o": name, "h": f"TOP.Tracer.{where}"}
    return f"C '{''.join(f'{chr(1)}{k}{chr(2)}{v}' for k, v in fields.items())}' {count}\n"


@pytest.fixture
def counted(tmp_path):
    """A run that has reached all that there is; `report` with further points, as Verilator writes them."""
    (tmp_path / "rtl_test").write_text("a program")
    digest = hashlib.sha256(b"a program").hexdigest()
    (tmp_path / "counts.0.program").write_text(f"{digest}  -\n")
    names = {f"{kind} {value}" for kind, values in cover.contract_names().items() for value in values}
    (tmp_path / "reached.txt").write_text("\n".join(names) + "\n")
    (tmp_path / "constant.json").write_text(json.dumps({"counters.zero": {"0": 0}}))
    (tmp_path / "explained.json").write_text("[]")

    def report(*further, kinds=tuple(cover.LEAST)):
        state = point("user/Control_state_covered", "cover_Look", "control", 1)
        rest = [point(f"{kind}/Counters", "some:0->1", "counters", 1) for kind in kinds]
        (tmp_path / "counts.0.dat").write_text("".join([state, *rest, *further]))
        return run(
            "report", "--program", tmp_path / "rtl_test", "--data", tmp_path / "counts.0.dat",
            "--reached", tmp_path / "reached.txt", "--constant", tmp_path / "constant.json",
            "--explained", tmp_path / "explained.json", "--report", tmp_path / "report.json",
        )  # fmt: skip

    report.folder = tmp_path
    return report


def test_all_is_reached(counted):
    done = counted()
    assert done.returncode == 0, done.stderr
    assert "states: 1 of 1" in done.stdout


def explain(counted, *exceptions):
    (counted.folder / "explained.json").write_text(json.dumps(exceptions))


def test_what_was_not_reached_is_explained(counted):
    waits = point("user/Control_waits_covered", "cover_io_in", "control.waits_covered", 0)
    done = counted(waits)
    assert done.returncode == 1
    assert "not reached: control io_in waits" in done.stderr
    explain(counted, {"point": "control io_in waits", "why": "it is always ready"})
    done = counted(waits)
    assert done.returncode == 0, done.stderr
    assert "handshakes that wait: 0 of 1" in done.stdout
    explain(counted, {"point": "control io_out waits", "why": "it has another name"})
    done = counted()
    assert done.returncode == 1
    assert "explained, and no point: control io_out waits" in done.stderr


def test_what_must_never_be_is_not_counted_and_fails_when_it_is_met(counted):
    explain(counted, {"point": "control io_in waits", "never": True, "why": "it is offered when it is taken"})
    done = counted(point("user/Control_waits_covered", "cover_io_in", "control.waits_covered", 0))
    assert done.returncode == 0, done.stderr
    assert "handshakes that wait: 0 of 0" in done.stdout
    assert "what must never be met: 1, met: 0" in done.stdout
    done = counted(point("user/Control_waits_covered", "cover_io_in", "control.waits_covered", 3))
    assert done.returncode == 1
    assert "must never be, but reached: control io_in waits" in done.stderr


@pytest.mark.parametrize("kind", cover.LEAST)
def test_counts_without_points_of_a_kind_are_too_few(counted, kind):
    done = counted(kinds=[k for k in cover.LEAST if k != kind])
    assert done.returncode == 1
    assert f"of the points of {kind}" in done.stderr


def test_counts_of_another_program_are_refused(counted):
    (counted.folder / "rtl_test").write_text("another one")
    done = counted()
    assert done.returncode == 2
    assert "that of another design or other tests; make cover-rtl COVER_PIECE=0" in done.stderr


def test_counts_of_a_run_that_failed_are_refused(counted):
    (counted.folder / "counts.0.program").unlink()
    done = counted()
    assert done.returncode == 2
    assert "expected counts.0.dat of a run that has passed" in done.stderr


@pytest.mark.parametrize(
    ("bit", "said"),
    [
        ("zero", "constant to Yosys, and toggles: counters.zero[0]"),
        ("values_3[24]", "not counted (sums of events from bit 24 on), and toggles: counters.values_3[24]"),
        ("values_11[38]", "not counted (live words from bit 38 on), and toggles: counters.values_11[38]"),
        ("values_28[30]", "not counted (bytes from bit 30 on), and toggles: counters.values_28[30]"),
    ],
)
def test_a_bit_that_is_not_counted_does_not_toggle(counted, bit, said):
    done = counted(point("toggle/Counters", f"{bit}:0->1", "counters", 0))
    assert done.returncode == 0, done.stderr
    assert "toggle: 1 points not counted" in done.stdout
    done = counted(point("toggle/Counters", f"{bit}:0->1", "counters", 1))
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize("bit", ["values_3[23]", "values_11[24]", "values_11[37]", "values_27[29]", "values_28[24]"])
def test_bits_that_sums_reach_are_counted(counted, bit):
    done = counted(point("toggle/Counters", f"{bit}:1->0", "counters", 1))
    assert done.returncode == 0, done.stderr
    assert "toggle: 2 of 2" in done.stdout
