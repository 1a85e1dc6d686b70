#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One function for all instances of a module, where Verilator made one for each.

    share_instances.py build/rtl/ddr4-1ch/fast

A module that is kept apart (instances.vlt) becomes a class, and what its instances evaluate becomes functions of it.
Those that are equal Verilator makes one of, but it puts statements that do not depend on each other in any order, and
seldom in the same for two instances: four lanes are four times the code, more than a processor's caches for code have
room for (docs/simulation.md). This goes through the C++ that Verilator has written into a folder: a function that has
the same statements as another of its class, in another order that changes nothing, is taken away, and who called it
calls the other.

Two statements may change places when neither may write what the other names. Names are compared by their last part,
whichever object they are of; a call may write all that it names, unless it is of a function that is known to give
nothing back but its value. What is not understood stays as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict, deque
from pathlib import Path
from typing import NamedTuple

# Of a class that is no root: `void Vddr4_1ch_ScanLane___nba_sequent__TOP__Tracer__DOT__core__DOT__lane_0__0(...)`.
FUNCTION = re.compile(
    r"^(?:VL_INLINE_OPT )?void (?P<name>(?P<owner>\w+?)___(?:ico|nba)_(?:sequent|comb)__\w+)"
    r"\((?P=owner)\* vlSelf\) \{\n"
    r"(?P<body>.*?)^\}\n",
    re.MULTILINE | re.DOTALL,
)
# Its name would make every function another one.
NAMES_ITSELF = re.compile(r"^ *VL_DEBUG_IF\(.*\n", re.MULTILINE)
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:(?:\.|->)[A-Za-z_]\w*)*")
CALL = re.compile(r"(?:\b|::)([A-Za-z_]\w*)\(")
# Verilator's functions of words are inline functions of values; those of more than 64 bits (W) have places for results.
VALUE_ONLY = re.compile(r"VL_(?!\w*W)[A-Z]\w*|CData|SData|IData|QData")
ASSIGNED = re.compile(r"(?s)\s*(?P<place>[\w.\->]+)(?P<index>(?:\s*\[.*?\])*)\s*=(?!=)(?P<value>.*)")


class NotUnderstoodError(Exception):
    """Text that is not of the kind that Verilator writes."""


class Statement(NamedTuple):
    """One of C++: what makes it equal to another, its branches, what it may read and write."""

    key: str
    branches: tuple[tuple[Statement, ...], ...]
    named: frozenset[str]
    written: frozenset[str]

    def may_pass(self, other: Statement) -> bool:
        return not (self.written & other.named or other.written & self.named)


def last_parts(text: str) -> frozenset[str]:
    return frozenset(re.split(r"\.|->", name)[-1] for name in NAME.findall(text))


def simple(text: str) -> Statement:
    """A statement without branches."""
    named = last_parts(text)
    assignment = ASSIGNED.fullmatch(text)
    value_only = all(VALUE_ONLY.fullmatch(call) for call in CALL.findall(text))
    written = last_parts(assignment["place"]) if assignment and value_only else named
    return Statement(" ".join(text.split()), (), named, written)


def choice(condition: str, branches: list[tuple[Statement, ...]]) -> Statement:
    """An `if`. It is equal to another when its branches have the same statements in whatever order."""
    asked = simple(condition)
    written = frozenset() if all(VALUE_ONLY.fullmatch(c) for c in CALL.findall(condition)) else asked.named
    inner = [statement for branch in branches for statement in branch]
    key = f"if {asked.key} " + " else ".join("{" + "; ".join(sorted(s.key for s in b)) + "}" for b in branches)
    return Statement(
        key,
        tuple(branches),
        asked.named.union(*(s.named for s in inner)),
        written.union(*(s.written for s in inner)),
    )


class Reader:
    """Statements of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"//[^\n]*", "", text)
        self.at = 0

    def blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def has(self, word: str) -> bool:
        self.blank()
        return re.match(rf"{re.escape(word)}(?!\w)", self.text[self.at :][: len(word) + 1]) is not None

    def enclosed(self, opening: str, closing: str) -> str:
        """What is between a bracket and the one that ends it; reads both."""
        self.blank()
        if self.text[self.at : self.at + 1] != opening:
            raise NotUnderstoodError
        depth, begin = 0, self.at + 1
        for at in range(self.at, len(self.text)):
            depth += (self.text[at] == opening) - (self.text[at] == closing)
            if depth == 0:
                self.at = at + 1
                return self.text[begin:at]
        raise NotUnderstoodError

    def statement(self) -> Statement:
        if self.has("if"):
            self.at += len("if")
            condition = self.enclosed("(", ")")
            branches = [Reader(self.enclosed("{", "}")).statements()]
            if self.has("else"):
                self.at += len("else")
                nested = (self.statement(),) if self.has("if") else Reader(self.enclosed("{", "}")).statements()
                branches.append(nested)
            return choice(condition, branches)
        if self.has("for") or self.has("while") or self.has("do") or self.has("switch"):
            raise NotUnderstoodError
        if self.text[self.at] == "{":
            return simple("{" + self.enclosed("{", "}") + "}")
        depth, begin = 0, self.at
        for at in range(self.at, len(self.text)):
            depth += (self.text[at] in "([{") - (self.text[at] in ")]}")
            if depth == 0 and self.text[at] == ";":
                self.at = at + 1
                return simple(self.text[begin:at])
        raise NotUnderstoodError

    def statements(self) -> tuple[Statement, ...]:
        found = []
        self.blank()
        while self.at < len(self.text):
            found.append(self.statement())
            self.blank()
        return tuple(found)


def same_effect(one: tuple[Statement, ...], other: tuple[Statement, ...]) -> bool:
    """Whether two lists of equal statements (by their keys) do the same, whatever their order."""
    places = defaultdict(deque)
    for place, statement in enumerate(one):
        places[statement.key].append(place)
    order = [places[statement.key].popleft() for statement in other]
    for statement, place in zip(other, order, strict=True):
        if not all(same_effect(a, b) for a, b in zip(one[place].branches, statement.branches, strict=True)):
            return False
    # Only pairs that have changed places are looked at: few, since most of the order is the same.
    behind = sorted(range(len(order)), key=order.__getitem__)
    return all(
        one[order[late]].may_pass(one[order[early]])
        for rank, late in enumerate(behind)
        for early in behind[rank + 1 :]
        if early < late
    )


class Function(NamedTuple):
    name: str
    file: Path
    text: str
    locals: tuple[str, ...]  # declarations, sorted
    body: tuple[Statement, ...]


def read_function(file: Path, found: re.Match[str]) -> Function:
    declared, _, body = found["body"].partition("    // Body\n")
    own = tuple(sorted(s.key for s in Reader(NAMES_ITSELF.sub("", declared)).statements()))
    return Function(found["name"], file, found[0], own, Reader(body).statements())


def share(folder: Path) -> dict[str, str]:
    """Rewrites the C++ of `folder`; gives which function stands for which."""
    files = {file: file.read_text() for file in sorted(folder.glob("*.cpp"))}
    kept = defaultdict(list)
    instead = {}
    for file, text in files.items():
        for found in FUNCTION.finditer(text):
            if found["owner"].endswith("___024root"):
                continue
            try:
                function = read_function(file, found)
            except NotUnderstoodError:
                continue
            alike = kept[found["owner"], function.locals, tuple(sorted(s.key for s in function.body))]
            for other in alike:
                if same_effect(other.body, function.body):
                    instead[function.name] = other.name
                    files[file] = files[file].replace(function.text, "")
                    break
            else:
                alike.append(function)
    if instead:
        names = re.compile("|".join(rf"\b{name}\b" for name in sorted(instead)))
        for file, text in files.items():
            changed = names.sub(lambda name: instead[name[0]], text)
            if changed != file.read_text():
                file.write_text(changed)
    return instead


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what Verilator has written")
    given = parser.parse_args()
    if not any(given.folder.glob("*.cpp")):
        print(f"share_instances: expected C++ of Verilator in {given.folder}, found none", file=sys.stderr)
        return 1
    for function, other in share(given.folder).items():
        print(f"{function} -> {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
