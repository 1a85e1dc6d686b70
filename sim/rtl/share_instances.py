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

from verilated_cpp import Assign, Call, Expression, If, Name, NotUnderstoodError, Placed, Reader, functions, within

# Verilator's functions of words are inline functions of values; those of more than 64 bits (W) have places for results.
VALUE_ONLY = re.compile(r"VL_(?!\w*W)[A-Z]\w*")


class Statement(NamedTuple):
    """One of C++: what makes it equal to another, its branches, what it may read and write."""

    key: str
    branches: tuple[tuple[Statement, ...], ...]
    named: frozenset[str]
    written: frozenset[str]

    def may_pass(self, other: Statement) -> bool:
        return not (self.written & other.named or other.written & self.named)


def names(*expressions: Expression) -> frozenset[str]:
    return frozenset(x.path[-1] for e in expressions for x in within(e) if isinstance(x, Name))


def only_values(*expressions: Expression) -> bool:
    """Whether nothing of it gives anything back but its value."""
    return all(VALUE_ONLY.fullmatch(x.function) for e in expressions for x in within(e) if isinstance(x, Call))


def statement(placed: Placed) -> Statement:
    """An `if` is equal to another when its branches have the same statements in whatever order."""
    match placed.it:
        case Assign(place, value):
            named = names(place, value)
            written = frozenset(place.path[-1:]) if only_values(place, value) else named
            return Statement(repr(placed.it), (), named, written)
        case If(condition, yes, no):
            branches = tuple(tuple(map(statement, branch)) for branch in (yes, no))
            inner = [s for branch in branches for s in branch]
            asked = names(condition)
            keys = " else ".join("{" + "; ".join(sorted(s.key for s in branch)) + "}" for branch in branches)
            return Statement(
                f"if {condition!r} {keys}",
                branches,
                asked.union(*(s.named for s in inner)),
                (frozenset() if only_values(condition) else asked).union(*(s.written for s in inner)),
            )
    named = names(placed.it)
    return Statement(repr(placed.it), (), named, named)


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


class Body(NamedTuple):
    """A function's: `declared` are its variables, sorted."""

    name: str
    declared: tuple[str, ...]
    statements: tuple[Statement, ...]


def share(folder: Path) -> dict[str, str]:
    """Rewrites the C++ of `folder`; gives which function stands for which."""
    files = {file: file.read_text() for file in sorted(folder.glob("*.cpp"))}
    kept = defaultdict(list)
    instead = {}
    for file, text in files.items():
        for function in functions(text):
            if function.owner.endswith("___024root"):
                continue
            try:
                statements = tuple(map(statement, Reader(function.body).statements()))
            except NotUnderstoodError:
                continue
            body = Body(function.name, tuple(sorted(" ".join(function.declared.split()).split(";"))), statements)
            alike = kept[function.owner, body.declared, tuple(sorted(s.key for s in statements))]
            for other in alike:
                if same_effect(other.statements, statements):
                    instead[body.name] = other.name
                    files[file] = files[file].replace(function.text, "")
                    break
            else:
                alike.append(body)
    if instead:
        replaced = re.compile("|".join(rf"\b{name}\b" for name in sorted(instead)))
        for file, text in files.items():
            changed = replaced.sub(lambda name: instead[name[0]], text)
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
