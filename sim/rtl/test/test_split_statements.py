# SPDX-License-Identifier: Apache-2.0
"""Statements that gate_model.py splits: for one variable after the other they do what they do whole."""

import json
import random
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / "build" / "venv-rtl" / "bin" / "python"
SPLIT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from split_statements import groups, restricted, text_of
from verilated_cpp import Reader

def key(name):
    return name.path[-1]

found = []
for body in json.load(sys.stdin):
    (statement,) = Reader(body).statements()
    found.append([
        [sorted(kept), text_of(body, restricted(statement, kept, key), lambda s: body[s.begin : s.end])]
        for kept in groups(statement, key)
    ])
print(json.dumps(found))
"""


def split(*bodies):
    """Of each statement the variables that stay together, in order, and what is executed for them."""
    assert PYTHON.exists(), f"expected {PYTHON}, found nothing; run: make rtl"
    words = [PYTHON, "-c", SPLIT, ROOT / "sim" / "rtl"]
    return json.loads(
        subprocess.run(words, input=json.dumps(bodies), capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if (r) { a = 1; b = 2; } else { a = x; b = y; }", [["a"], ["b"]]),
        ("if (c) { b = a; a = x; }", [["b"], ["a"]]),  # b is given what a was
        ("if (c) { a = x; b = a; }", [["a"], ["b"]]),  # and what it has become
        ("if (c) { t = a; a = b; b = t; }", [["t"], ["a"], ["b"]]),
        ("if (c) { t = a; a = b; b = t; t = 0; }", [["a", "b", "t"]]),  # none can be first
        ("if (c) { t = a; a = x; } else { b = t; }", [["t"], ["a"], ["b"]]),
        ("if (a) { a = 0; b = 1; }", [["b"], ["a"]]),  # the condition is what it was
        ("if (c) { if (a) { b = 1; } a = 0; if (a) { b = 2; } }", [["a", "b"]]),
        ("if (c) { m[a] = x; a = y; }", [["m"], ["a"]]),
        ("if (c) { w[0U] = x; v = w[1U]; w[1U] = y; }", [["v", "w"]]),  # of a wide variable nothing is known apart
        ("if (c) { VL_ADD_W(3, w, u, u); u[0U] = x; }", [["w"], ["u"]]),
        ("if (c) { i = x; VL_ASSIGN_W(96, m[i], u); }", [["i"], ["m"]]),
        ("if (c) { VL_ASSIGN_W(96, m[i], u); i = x; VL_ASSIGN_W(96, m[i], v); }", [["i", "m"]]),
    ],
)
def test_which_stay_together(body, expected):
    ((*found,),) = split(body)
    assert [kept for kept, _ in found] == expected


def test_branches_in_which_nothing_is_left():
    body = "if ((a & (b))) { if (c) { x = 1; } else { y = 2; } } else if (d) { y = 3; } else { x = 4; }"
    ((one, other),) = split(body)
    assert one[1] == "if ((a & (b))) {if (c) {x = 1;}} else {if (d) {} else {x = 4;}}"
    assert other[1] == "if ((a & (b))) {if (c) {} else {y = 2;}} else {if (d) {y = 3;}}"


def by_chance(chance, depth=0):
    """Some assignments to few variables, under conditions."""
    found = []
    for _ in range(chance.randrange(1, 4)):
        names = [chance.choice("abcdef") for _ in range(3)]
        if depth < 3 and chance.random() < 0.5:
            found.append(f"if (({names[0]} & 1U)) {{ {by_chance(chance, depth + 1)} }}")
            if chance.random() < 0.6:
                found[-1] += f" else {{ {by_chance(chance, depth + 1)} }}"
        else:
            found.append(f"{names[0]} = ({names[1]} + {names[2]});")
    return " ".join(found)


def executed(text, values):
    """What is left of `values` by C++ of this kind, read as Python."""
    lines, depth = [], 0
    for word in text.replace("{", "{\n").replace("}", "\n}\n").replace(";", ";\n").split("\n"):
        line = word.strip().rstrip(";")
        if line == "}":
            lines.append("    " * depth + "pass")
            depth -= 1
        elif line:
            lines.append("    " * depth + line.replace("{", ":").replace("1U", "1"))
            depth += line.endswith("{")
    values = dict(values)
    exec("\n".join(lines), {}, values)  # noqa: S102
    return values


def test_one_after_the_other_does_what_the_whole_does():
    chance = random.Random(1)
    bodies = [f"if ((a & 1U)) {{ {by_chance(chance)} }} else {{ {by_chance(chance)} }}" for _ in range(800)]
    several = 0
    for body, found in zip(bodies, split(*bodies), strict=True):
        several += len(found) > 1
        for _ in range(8):
            values = {name: chance.randrange(16) for name in "abcdef"}
            assert executed(" ".join(text for _, text in found), values) == executed(body, values), body
    assert several > 100
