# SPDX-License-Identifier: Apache-2.0
"""What vector_instances.py makes of models that Verilator has written: all instances at once, and the same results."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "sim" / "rtl"
SCRIPT = SOURCES / "vector_instances.py"
MODEL = Path(__file__).resolve().parent / "instances"
sys.path.insert(0, str(SOURCES))
import share_instances  # noqa: E402
import vector_instances  # noqa: E402
from instance_function import FunctionOfAll, Module  # noqa: E402
from verilated_cpp import Function, NotUnderstoodError, variables  # noqa: E402

APART = [SOURCES / "instances.vlt", SOURCES / "vectors.vlt"]
APART += ["-fno-dfg-scoped", "-fno-table", "-fno-reorder", "-fno-dedup"]


def command(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def model(folder, top, *options):
    """Verilator's C++ of a top."""
    python = ROOT / "build" / "venv-rtl" / "bin" / "python"
    assert python.exists(), f"expected {python}, found nothing; run: make rtl"
    home = command(python, "-c", "import os, verilator; print(os.path.dirname(verilator.__file__))").strip()
    words = ["--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "-Wno-fatal", "-Wno-lint", "--exe"]
    words += [
        "--top-module",
        "Top",
        "--Mdir",
        folder,
        "--output-split",
        "20000",
        *options,
        MODEL / top,
        MODEL / "main.cc",
    ]
    command("perl", f"{home}/bin/verilator", *words, VERILATOR_ROOT=home)
    return home


def printed(folder, home):
    words = [
        "OPT_FAST=-O1 -march=native",
        "OPT_SLOW=-O0",
        "OPT_GLOBAL=-O0",
        "CXXFLAGS=-std=c++20",
        "CXX=ccache clang++",
        "LOADLIBES=-latomic",
    ]
    words += ["VK_PCH_I_FAST=-include $(VK_PCH_H)", "VK_PCH_I_SLOW=-include $(VK_PCH_H)"]
    command("make", "-j2", "-C", folder, "-f", "VTop.mk", *words, VERILATOR_ROOT=home)
    return command(folder / "VTop")


@pytest.mark.parametrize(
    ("top", "lanes", "at_once"),
    [
        ("Top.sv", 4, {"ScanLane", "MarkBank"}),
        ("Wide.sv", 4, {"ScanLane", "LiveMerge"}),
        ("Wide.sv", 2, {"ScanLane", "LiveMerge"}),
        ("Wide.sv", 8, {"ScanLane", "LiveMerge"}),
        ("Wide.sv", 16, {"ScanLane", "LiveMerge"}),
    ],
)
def test_all_at_once_do_what_each_does(top, lanes, at_once, tmp_path):
    define = f"+define+LANES={lanes}"
    expected = printed(tmp_path / "each", model(tmp_path / "each", top, define))
    folder = tmp_path / "all"
    home = model(folder, top, define, *APART)
    share_instances.share(folder)
    outcome = vector_instances.vectorize(folder)
    assert {name.removeprefix("VTop_") for name, what in outcome.items() if what.endswith("at once")} == at_once, (
        outcome
    )
    calls = "".join(f.read_text() for f in folder.glob("VTop___024root__*.cpp") if "Slow" not in f.name)
    assert len(re.findall(r"\w+__all\(vlSymsp->", calls)) >= len(at_once)
    assert printed(folder, home) == expected


def test_done_twice_is_done_once(tmp_path):
    """Verilator leaves files that need not change."""
    model(tmp_path, "Top.sv", *APART)
    share_instances.share(tmp_path)
    first = command(sys.executable, SCRIPT, tmp_path)
    assert first.count("4 instances at once") == 2
    files = {f: f.read_bytes() for f in tmp_path.iterdir()}
    assert "everything stays as it is" in command(sys.executable, SCRIPT, tmp_path)
    assert files == {f: f.read_bytes() for f in tmp_path.iterdir()}


def test_a_folder_without_a_model_is_told(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "expected C++ of Verilator" in done.stderr


LANE = Module(
    "Vtop_Lane",
    ("TOP__lane_0", "TOP__lane_1"),
    variables(
        "CData/*0:0*/ a;\nCData/*4:0*/ b;\nIData/*31:0*/ w;\nQData/*40:0*/ q;\nVlWide<16>/*511:0*/ line;\n"
        "VlUnpacked<CData/*4:0*/, 32> memory;\n"
    ),
)
FLAGGED = "CData/*4:0*/ value;\nCData/*0:0*/ flag;\n"


def lines(body, declared=""):
    return FunctionOfAll(LANE, Function("f", "Vtop_Lane", "", declared, body, 0)).lines()


@pytest.mark.parametrize(
    "body",
    [
        "vlSelfRef.line[vlSelfRef.b] = 1U;",
        "vlSelfRef.w = vlSelfRef.line[(7U & vlSelfRef.w)];",
        "vlSelfRef.w = vlSymsp->TOP__lane_1.w;",
        "vlSelfRef.w = VL_COUNTONES_I(vlSelfRef.w);",
        "VL_ADD_W(16, vlSelfRef.line, vlSelfRef.line, vlSelfRef.line);",
        "for (int i = 0; i < 2; ++i) {}",
        "vlSelfRef.line[16U] = 1U;",
        "vlSelfRef.other = 1U;",
        'VL_WRITEF_NX("x",0);',
    ],
)
def test_what_is_not_understood(body):
    with pytest.raises(NotUnderstoodError):
        lines(body)


def test_words_are_cleared_for_all_or_not_at_all():
    wide = "VlWide<16>/*511:0*/ wide;\n"
    assert any("memset(wide" in line for line in lines("VL_ZERO_W(512, wide);", wide))
    with pytest.raises(NotUnderstoodError):
        lines("if (vlSelfRef.a) { VL_ZERO_W(512, wide); }", wide)


def kept(body):
    """Whether what was in `value` is kept where the branch is not due."""
    return any(re.match(r" *value = \(yes\d+ \?", line) for line in lines(body, FLAGGED))


GIVEN = "flag = 0U; if (vlSelfRef.a) { value = vlSelfRef.b; flag = 1U; } "
USED = "vlSelfRef.memory[0U] = value;"


def test_a_value_with_a_flag_is_not_kept():
    assert not kept(f"{GIVEN} if (flag) {{ {USED} }}")


@pytest.mark.parametrize(
    "body",
    [
        f"{GIVEN} {USED}",
        f"{GIVEN} if (flag) {{ {USED} }} vlSelfRef.w = value;",
        f"{GIVEN} if (flag) {{ vlSelfRef.w = 1U; }} else {{ {USED} }}",
        f"{GIVEN} if ((flag & value)) {{ {USED} }}",
        f"{GIVEN} if (vlSelfRef.b) {{ flag = 1U; }} if (flag) {{ {USED} }}",
        f"{GIVEN} if (vlSelfRef.b) {{ value = 3U; }} if (flag) {{ {USED} }}",
        f"flag = 1U; {GIVEN.removeprefix('flag = 0U;')} if (flag) {{ {USED} }}",
        f"{GIVEN} flag = 0U; if (flag) {{ {USED} }}",
    ],
)
def test_a_value_that_may_be_read_is_kept(body):
    assert kept(body)


def rewritten(body, names=("a", "w", "q", "line")):
    """The root's function of this body, and which ports are given to all alike."""
    text = f"void Vtop___024root___nba_sequent__TOP__0(Vtop___024root* vlSelf) {{\n    // Body\n{body}\n}}\n"
    root = vector_instances.Root({Path("f"): text}, [LANE])
    files, (lane,) = vector_instances.rewrite_root(root, [LANE], {})
    return " ".join(files[Path("f")].partition("// Body")[2].split()), lane.same


def give(port, one, other=None, between=""):
    return f"vlSymsp->TOP__lane_0.{port} = {one}; {between} vlSymsp->TOP__lane_1.{port} = {other or one};"


def test_what_all_are_given_alike_is_kept_once():
    text, same = rewritten(give("w", "vlSelfRef.x") + "vlSelfRef.z = vlSymsp->TOP__lane_1.w;")
    assert same == {"w"}
    assert text == "vlSymsp->Vtop_Lane__state.w = vlSelfRef.x;vlSelfRef.z = vlSymsp->Vtop_Lane__state.w; }"


@pytest.mark.parametrize(
    "body",
    [
        give("w", "vlSelfRef.x", "vlSelfRef.y"),
        give("w", "vlSelfRef.x", between="vlSelfRef.x = 3U;"),
        give("w", "vlSelfRef.x", between="vlSelfRef.z = vlSymsp->TOP__lane_1.w;"),
        give("w", "vlSelfRef.x", between="f(vlSelf);"),
        give("w", "vlSelfRef.x", between="if (vlSelfRef.y) { vlSelfRef.x = 3U; }"),
        give("w", "vlSelfRef.x") + give("w", "vlSelfRef.x", "vlSelfRef.y"),
        give("w", "vlSelfRef.x") + "if (vlSelfRef.y) { vlSymsp->TOP__lane_0.w = 3U; }",
        "vlSymsp->TOP__lane_0.w = vlSelfRef.x;",
        give("w", "vlSymsp->TOP__lane_0.w"),
    ],
)
def test_what_may_not_be_alike_stays_apart(body):
    text, same = rewritten(body)
    assert not same
    assert "state.w[0]" in text and text.count("=") == body.count("=")


def test_words_of_a_line_that_is_alike():
    text, same = rewritten(
        "".join(give("line", f"vlSelfRef.x[{w}U]").replace("line =", f"line[{w}U] =") for w in (0, 1))
    )
    assert same == {"line"} and "state.line[1] = vlSelfRef.x[1U];" in text


def call(name, lane=None):
    return f"        {name}((&vlSymsp->TOP__{'other' if lane is None else f'lane_{lane}'}));\n"


ALL = "        f__all(vlSymsp->Vtop_Lane__state, vlSymsp->Vtop_Lane__memories);\n"


def test_calls_of_what_keeps_to_itself_are_one():
    of_all = {"f": LANE, "g": LANE}
    text = call("f", 0) + call("g", 0) + call("x") + call("f", 1) + call("g", 1)
    one = vector_instances.calls_of_all(text, of_all, {"f", "g", "x"})
    assert one == ALL + ALL.replace("f__", "g__") + call("x")


@pytest.mark.parametrize("text", [call("f", 0) + call("x") + call("f", 1), call("f", 0), call("f", 0) + call("g", 1)])
def test_calls_that_are_not_together_stay(text):
    with pytest.raises(NotUnderstoodError, match="f for some instances alone"):
        vector_instances.calls_of_all(text, {"f": LANE}, {"f", "g"})


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        ("vlSelfRef.w = (vlSelfRef.q >> 3U); value = 1U;", True),
        ("if (vlSelfRef.a) { vlSelfRef.w = vlSymsp->TOP__lane_1.w; }", False),
        ("if (vlSymsp->TOP.x) { vlSelfRef.w = 1U; }", False),
        ("vlSelfRef.w = VTop__ConstPool__CONST_1;", False),
        ("for (;;) {}", False),
    ],
)
def test_what_keeps_to_itself(body, apart):
    assert vector_instances.keeps_to_itself(Function("f", "Vtop_Lane", "", FLAGGED, body, 0)) == apart
