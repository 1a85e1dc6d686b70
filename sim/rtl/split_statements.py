# SPDX-License-Identifier: Apache-2.0
"""One statement for several variables as statements for some of them each.

Verilator puts what many registers hold under one condition, a reset above all: executed whole, it is executed whenever
anything changes that any of them follows from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from unit_order import topological
from verilated_cpp import Assign, Call, Expression, If, Name, Placed, within

# What a place belongs to; the same for all places of one variable. None: a table, which is only read.
Key = str | tuple[int, str]
KeyOf = Callable[[Name], Key | None]


def leaf(statement: Placed) -> tuple[Name, tuple[Expression, ...]]:
    """The place that a statement which is no branch writes, and what it reads."""
    match statement.it:
        case Assign(place, value):
            return place, (value, *place.index)
        case Call(_, (_, Name() as place, *others)):
            return place, (*others, *place.index)
    raise AssertionError(statement)


def restricted(statement: Placed, kept: Iterable[Key], key: KeyOf) -> Placed | None:
    """What a statement does to `kept`, if anything."""
    match statement.it:
        case If(condition, yes, no):
            sides = [tuple(r for s in side if (r := restricted(s, kept, key))) for side in (yes, no)]
            return statement._replace(it=If(condition, *sides)) if any(sides) else None
    return statement if key(leaf(statement)[0]) in kept else None


def groups(statement: Placed, key: KeyOf) -> list[frozenset[Key]]:
    """Sets of the variables that a statement writes: restricted() to one after the other it does what it does whole.

    Variables stay together if no order of them is right: one is read for another both before and after it is written,
    or each must come before the next of a ring of them.
    """
    written: dict[Key, list[int]] = defaultdict(list)  # when
    read: dict[Key, dict[Key, list[int]]] = defaultdict(lambda: defaultdict(list))  # for what, what, when
    now = 0

    def go(s: Placed, conditions: tuple[tuple[Key, int], ...]) -> None:
        nonlocal now
        now += 1
        here = now

        def names(*given: Expression) -> tuple[tuple[Key, int], ...]:
            found = {key(part) for e in given for part in within(e) if isinstance(part, Name)}
            return tuple((name, here) for name in found if name is not None)

        if isinstance(s.it, If):
            above = conditions + names(s.it.condition)
            for inner in s.it.yes + s.it.no:
                go(inner, above)
            return
        place, values = leaf(s)
        it = key(place)
        for name, when in conditions + names(*values):
            read[it][name].append(when)
        written[it].append(here)

    go(statement, ())
    number = {name: n for n, name in enumerate(written)}
    after: list[set[int]] = [set() for _ in written]
    for name, others in read.items():
        for other in others.keys() & written.keys() - {name}:
            a, b = number[name], number[other]
            if min(others[other]) <= max(written[other]):
                after[a].add(b)
            if max(others[other]) > min(written[other]):
                after[b].add(a)
    reach = [set(a) for a in after]
    for k in range(len(reach)):
        for those in reach:
            if k in those:
                those |= reach[k]
    home = [min([n, *(m for m in reach[n] if n in reach[m])]) for n in range(len(reach))]
    follows = [{home[m] for n in range(len(home)) if home[n] == k for m in after[n]} - {k} for k in range(len(home))]
    order = topological(sorted(set(home)), follows)
    return [frozenset(name for name, n in number.items() if home[n] == k) for k in order]


def text_of(body: str, statement: Placed, write: Callable[[Placed], str]) -> str:
    """A statement's text, where `write` gives that of each that is no branch."""
    if not isinstance(statement.it, If):
        return write(statement)
    first = body.index("(", statement.begin)
    depth, end = 0, first
    while depth or end == first:
        depth += (body[end] == "(") - (body[end] == ")")
        end += 1
    yes, no = ("".join(text_of(body, s, write) for s in side) for side in (statement.it.yes, statement.it.no))
    return f"if {body[first:end]} {{{yes}}}" + (f" else {{{no}}}" if no else "")
