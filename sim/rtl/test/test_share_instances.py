# SPDX-License-Identifier: Apache-2.0
"""What share_instances.py makes one function of, in C++ of the kind that Verilator writes."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "sim" / "rtl" / "share_instances.py"
MODEL = Path(__file__).resolve().parent / "instances"
sys.path.insert(0, str(SCRIPT.parent))
import share_instances  # noqa: E402

NAME = "Vtop_Lane___nba_sequent__TOP__Tracer__DOT__lane_{}__0"
LOCALS = """    CData/*0:0*/ __Vdly__set;
    __Vdly__set = 0;
    VlWide<4>/*127:0*/ __Vtemp_wide;
    VL_ZERO_W(128, __Vtemp_wide);
"""


def function(instance, body, declared=LOCALS):
    name = NAME.format(instance)
    return (
        f"void {name}(Vtop_Lane* vlSelf) {{\n"
        f'    VL_DEBUG_IF(VL_DBG_MSGF("+    {name}\\n"); );\n'
        "    Vtop__Syms* const __restrict vlSymsp VL_ATTR_UNUSED = vlSelf->vlSymsp;\n"
        "    auto& vlSelfRef = std::ref(*vlSelf).get();\n"
        f"    // Locals\n{declared}    // Body\n{body}}}\n\n"
    )


def written(folder, *functions):
    """A model whose root calls a function for each of its instances."""
    (folder / "Vtop_Lane__0.cpp").write_text('#include "Vtop__pch.h"\n\n' + "".join(functions))
    calls = "".join(f"        {NAME.format(i)}((&vlSymsp->TOP__lane_{i}));\n" for i in range(len(functions)))
    (folder / "Vtop___024root__0.cpp").write_text(
        f"void Vtop___024root___eval_nba(Vtop___024root* vlSelf) {{\n{calls}}}\n"
    )
    return folder


def shared(folder, one, other):
    """Whether functions of these bodies become one; what is called and what there is go together then."""
    found = share_instances.share(written(folder, function(0, one), function(1, other)))
    lanes = (folder / "Vtop_Lane__0.cpp").read_text()
    calls = (folder / "Vtop___024root__0.cpp").read_text()
    assert found in ({}, {NAME.format(1): NAME.format(0)})
    assert lanes.count("void Vtop_Lane___nba") == (1 if found else 2)
    assert calls.count(NAME.format(1)) == (0 if found else 1)
    assert calls.count("TOP__lane_0") == calls.count("TOP__lane_1") == 1
    return bool(found)


A = "    vlSelfRef.__PVT__a = (1U & (IData)(vlSelfRef.__PVT__x));\n"
B = """    vlSelfRef.__PVT__b[(3U & (IData)(vlSelfRef.__PVT__y))]
        = VL_SHIFTR_QQI(62,62,6, vlSelfRef.__PVT__z, 0x00000012U);
"""
READS_A = "    vlSelfRef.__PVT__c = ((IData)(vlSelfRef.__PVT__a) ^ 1U);\n"
WRITES_A = "    vlSelfRef.__PVT__a = 0U;\n"
INDEX_OF_A = "    vlSelfRef.__PVT__d[vlSelfRef.__PVT__a] = 1U;\n"
WIDE = "    VL_ASSIGN_W(128, __Vtemp_wide, vlSelfRef.__PVT__line);\n"
LINE = "    vlSelfRef.__PVT__line[0U] = (IData)(vlSelfRef.__PVT__z);\n"
OF_ANOTHER = "    vlSelfRef.__PVT__e = vlSymsp->TOP__lane_1.__PVT__a;\n"


def when(condition, *branches):
    blocks = " else ".join("{\n" + "".join("    " + line for line in b.splitlines(True)) + "    }" for b in branches)
    return f"    if (({condition})) {blocks}\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A + B, B + A),
        (A + READS_A + B, B + A + READS_A),
        (when("vlSelfRef.reset", A + B), when("vlSelfRef.reset", B + A)),
        (when("vlSelfRef.reset", A, B + LINE), when("vlSelfRef.reset", A, LINE + B)),
        (A + A + B, A + B + A),
        (
            when("vlSelfRef.reset", when("vlSelfRef.__PVT__w", A + B)),
            when("vlSelfRef.reset", when("vlSelfRef.__PVT__w", B + A)),
        ),
    ],
)
def test_another_order_that_changes_nothing_is_the_same_function(one, other, tmp_path):
    assert shared(tmp_path, one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A + B, A),
        (A + B, A + B.replace("12U", "13U")),
        (A + B, A + B.replace("__PVT__z", "__PVT__w")),
        (A + READS_A, READS_A + A),
        (A + WRITES_A, WRITES_A + A),
        (A + INDEX_OF_A, INDEX_OF_A + A),
        (WIDE + LINE, LINE + WIDE),
        (A + OF_ANOTHER, OF_ANOTHER + A),
        (when("vlSelfRef.reset", A, B), when("vlSelfRef.reset", B, A)),
        (when("vlSelfRef.reset", A) + READS_A, READS_A + when("vlSelfRef.reset", A)),
        (when("vlSelfRef.__PVT__a", B) + WRITES_A, WRITES_A + when("vlSelfRef.__PVT__a", B)),
        (when("vlSelfRef.reset", A + READS_A), when("vlSelfRef.reset", READS_A + A)),
        ("    for (int i = 0; i < 2; ++i) {\n    }\n" + A + B, "    for (int i = 0; i < 2; ++i) {\n    }\n" + B + A),
    ],
)
def test_what_does_something_else_stays(one, other, tmp_path):
    assert not shared(tmp_path, one, other)


def test_other_locals_are_another_function(tmp_path):
    declared = LOCALS.replace("CData/*0:0*/", "QData/*38:0*/")
    assert not share_instances.share(written(tmp_path, function(0, A + B), function(1, B + A, declared)))


def test_functions_of_the_root_are_left_alone(tmp_path):
    text = "".join(
        f"void Vtop___024root___nba_sequent__TOP__{i}(Vtop___024root* vlSelf) {{\n    // Body\n{A}}}\n"
        for i in range(2)
    )
    (tmp_path / "Vtop___024root__0.cpp").write_text(text)
    assert not share_instances.share(tmp_path)
    assert (tmp_path / "Vtop___024root__0.cpp").read_text() == text


def test_declarations_and_longer_names_follow(tmp_path):
    folder = written(tmp_path, function(0, A + B), function(1, B + A))
    root = folder / "Vtop___024root__0.cpp"
    root.write_text(
        f"void {NAME.format(1)}(Vtop_Lane* vlSelf);\nvoid {NAME.format(1)}2(Vtop_Lane* vlSelf);\n" + root.read_text()
    )
    share_instances.share(folder)
    declared = [f"void {NAME.format(0)}(Vtop_Lane* vlSelf);", f"void {NAME.format(1)}2(Vtop_Lane* vlSelf);"]
    assert root.read_text().splitlines()[:2] == declared


def executed(body, state):
    """The state after assignments of sums, executed in the order in which they stand."""
    state = dict(state)
    for place, terms in re.findall(r"__PVT__(\w+) = \((.*?)\);", body):
        state[place] = (1 + sum(3 * state[name] for name in re.findall(r"__PVT__(\w+)", terms))) % 1009
    return state


def test_random_orders_do_the_same_where_they_are_shared(tmp_path):
    """Some of the orders are shared, some are not; those that are do what the first one does."""
    chance = random.Random(1)
    names = [f"v{i}" for i in range(9)]
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        lines = [
            f"    vlSelfRef.__PVT__{chance.choice(names)} = "
            f"({' + '.join(['1U', *(f'vlSelfRef.__PVT__{n}' for n in chance.sample(names, chance.randint(0, 2)))])});\n"
            for _ in range(5)
        ]
        other = lines[:]
        i, j = sorted(chance.sample(range(5), 2))
        other.insert(j, other.pop(i))
        found = shared(tmp_path, "".join(lines), "".join(other))
        outcomes[found] += 1
        if found:
            for _ in range(5):
                state = {name: chance.randrange(1009) for name in names}
                assert executed("".join(lines), state) == executed("".join(other), state), (lines, other)
    assert min(outcomes.values()) > 30, outcomes


def test_a_folder_without_a_model_is_told(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "expected C++ of Verilator" in done.stderr


def simulated(folder, *options, share=False):
    """What Top.sv gives in Verilator, made with these options, and what was shared."""
    python = ROOT / "build" / "venv-rtl" / "bin" / "python"
    assert python.exists(), f"expected {python}, found nothing; run: make rtl"
    where = [python, "-c", "import os, verilator; print(os.path.dirname(verilator.__file__))"]
    home = subprocess.run(where, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    environment = os.environ | {"VERILATOR_ROOT": home}
    common = ["--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "--exe", "--top-module", "Top"]
    verilate = [
        "perl",
        f"{home}/bin/verilator",
        *common,
        "--Mdir",
        folder,
        *options,
        MODEL / "Top.sv",
        MODEL / "main.cc",
    ]
    build = ["make", "-C", folder, "-f", "VTop.mk", "OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0"]

    def run(*command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(*verilate)
    found = share_instances.share(folder) if share else {}
    run(*build)
    return run(folder / "VTop"), found


def test_a_model_of_verilators_does_the_same(tmp_path):
    """With Verilator's own search for equal functions turned off, so that there is something to share for certain."""
    apart = [ROOT / "sim" / "rtl" / "instances.vlt", "-fno-dfg-scoped", "-fno-table", "-fno-reorder", "-fno-combine"]
    expected, _ = simulated(tmp_path / "inlined")
    got, found = simulated(tmp_path / "shared", *apart, share=True)
    of_lanes = [name for name in found if "VTop_ScanLane___nba" in name]
    of_banks = [name for name in found if "VTop_MarkBank___nba" in name]
    assert len(of_lanes) >= 3 and len(of_banks) >= 3, found
    assert got == expected
