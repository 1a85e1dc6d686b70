# SPDX-License-Identifier: Apache-2.0
"""A model of Verilator's as units: what it executes in a clock cycle, in pieces that are executed whole or not at all,
and which of them must come before which."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from split_statements import groups, restricted
from unit_order import Order, topological
from verilated_cpp import (
    Assign,
    Binary,
    Call,
    Choice,
    Expression,
    Function,
    If,
    Name,
    NotUnderstoodError,
    Number,
    Placed,
    Reader,
    Unary,
    Variable,
    functions,
    variables,
    within,
)

PORT = re.compile(r"^\s*VL_(?P<way>IN|OUT)(?:8|16|64|W)?\(&?(?P<name>\w+),", re.MULTILINE)
# They write their second argument, whole, and read what comes behind it.
WRITERS = tuple(f"VL_{name}_W" for name in ("ZERO", "ASSIGN", "ADD", "SUB", "AND", "OR", "XOR", "NOT"))
# Of what is within a branch alone so much is taken to be executed.
WITHIN_A_BRANCH = 0.4

# One of the model by its name, or of a function by the function's number and its name.
Variable_ = str | tuple[int, str]  # split_statements.Key


class Model:
    """The C++ in a folder: its class, and the functions of a rising clock in their order."""

    def __init__(self, folder: Path) -> None:
        headers = list(folder.glob("V*___024root.h"))
        if len(headers) != 1:
            raise NotUnderstoodError(f"{len(headers)} classes of a root in {folder}")
        self.folder = folder
        self.header = headers[0]
        self.owner = self.header.stem
        text = self.header.read_text()
        self.members = variables(text)
        self.ports = {found["name"]: found["way"] for found in PORT.finditer(text)}
        self.files = {
            path: path.read_text()
            for path in sorted(folder.glob(f"{self.owner}__[0-9]*.cpp"))
            if "Slow" not in path.name
        }
        found = {f.name: f for text in self.files.values() for f in functions(text)}
        evaluates = found.get(f"{self.owner}___eval_nba")
        if evaluates is None:
            raise NotUnderstoodError(f"no {self.owner}___eval_nba")
        calls = [s.it for s in Reader(evaluates.body).statements()]
        match calls:
            case [If(_, inner, ())] if all(isinstance(s.it, Call) for s in inner):
                called = [s.it.function for s in inner]
            case _:
                raise NotUnderstoodError("expected calls under the clock's condition")
        if others := [name for name in called if name not in found]:
            raise NotUnderstoodError(f"no {others[0]}")
        self.functions: list[Function] = [found[name] for name in called]
        self.settles = found.get(f"{self.owner}___ico_sequent__TOP__0")
        if any(name.startswith(f"{self.owner}___ico_sequent") and not name.endswith("TOP__0") for name in found):
            raise NotUnderstoodError("several functions of what follows from inputs")
        self.locals = [variables(f.declared) for f in self.functions]
        self.zeroed = [
            set(re.findall(r"^\s+(\w+) = 0;", f.declared, re.MULTILINE))
            | set(re.findall(r"VL_ZERO_W\(\d+, (\w+)\)", f.declared))
            for f in self.functions
        ]

    def kind(self, variable: Variable_) -> Variable:
        return self.members[variable] if isinstance(variable, str) else self.locals[variable[0]][variable[1]]

    def variable(self, function: int, name: Name) -> Variable_ | None:
        """None: a constant table."""
        match name.path:
            case ("vlSelfRef", member):
                return member
            case (local,) if local in self.locals[function]:
                return function, local
            case (table,) if "__ConstPool__" in table:
                return None
        raise NotUnderstoodError(".".join(name.path))

    def given_outside(self) -> list[str]:
        """Variables that change other than by the clock: inputs, and what follows from them."""
        found = {name for name, way in self.ports.items() if way == "IN"}
        if self.settles is not None:
            for place, _ in writes_of(Reader(self.settles.body).statements()):
                if place.path[0] == "vlSelfRef":
                    found.add(place.path[1])
        return sorted(found)


def writes_of(statements: Iterable[Placed]) -> Iterator[tuple[Name, Placed]]:
    """Places that are written, within branches, too."""
    for s in statements:
        match s.it:
            case Assign(place, _):
                yield place, s
            case If(_, yes, no):
                yield from writes_of(yes + no)
            case Call(function, (_, Name() as place, *_)) if function in WRITERS:
                yield place, s
            case Call(function):
                raise NotUnderstoodError(f"a call of {function}")


def reads_of(statement: Placed) -> Iterator[Name]:
    def names(*given: Expression) -> Iterator[Name]:
        for expression in given:
            for part in within(expression):
                if isinstance(part, Name):
                    yield part
                elif isinstance(part, Call) and not part.function.startswith("VL_"):
                    raise NotUnderstoodError(f"a call of {part.function}")

    match statement.it:
        case Assign(place, value):
            yield from names(value, *place.index)
        case If(condition, yes, no):
            yield from names(condition)
            for s in yes + no:
                yield from reads_of(s)
        case Call(_, (_, Name() as place, *others)):
            yield from names(*others, *place.index)


def operations(expression: Expression) -> float:
    """About how many instructions it takes."""
    count = 0.0
    for part in within(expression):
        match part:
            case Binary() | Unary():
                count += 1
            case Choice():
                count += 2
            case Call(function):
                count += 16 if re.search(r"_\w*W", function) else 3
            case Name():
                count += 0.5
    return count


def cost(statement: Placed) -> float:
    match statement.it:
        case Assign(_, value):
            return operations(value) + 1
        case If(condition, yes, no):
            sides = sum(map(cost, yes)), sum(map(cost, no))
            return operations(condition) + 1 + (max(sides) if yes and no else WITHIN_A_BRANCH * sum(sides))
    return 16


def element(place: Name) -> tuple[int | None, ...]:
    """Which element is written: () the whole, None one that is not known before."""
    return tuple(i.value if isinstance(i, Number) else None for i in place.index)


def overlap(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> bool:
    return a == b or () in (a, b) or None in a or None in b


class Piece(NamedTuple):
    """A statement of a function, or of `whole` what it does to some variables, or the zero that one of the function's
    variables has at its begin."""

    function: int
    statement: Placed | None
    zeroed: str = ""
    whole: Placed | None = None


class Unit:
    """Pieces that are executed one after the other: what a statement does to a variable, or all that write one.

    `reads`: variables that are read. `writes`: variables and elements that are written. `cost`: instructions, about.
    """

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.reads: set[Variable_] = set()
        self.writes: set[tuple[Variable_, tuple[int | None, ...]]] = set()
        self.cost = 0.0

    def add(self, other: Unit) -> None:
        self.pieces += other.pieces
        self.reads |= other.reads
        self.writes |= other.writes
        self.cost += other.cost

    @property
    def written(self) -> set[Variable_]:
        return {variable for variable, _ in self.writes}


def read_before_written(model: Model, function: int, statements: Iterable[Placed]) -> set[str]:
    """Variables of a function that may be read before they are written in it: they begin as zero."""
    mine = model.locals[function]
    found: set[str] = set()

    def go(block: Iterable[Placed], done: set[str]) -> set[str]:
        def need(expression: Expression) -> None:
            for part in within(expression):
                if isinstance(part, Name) and len(part.path) == 1 and part.path[0] in mine.keys() - done:
                    found.add(part.path[0])

        for s in block:
            match s.it:
                case Assign(place, value):
                    for e in (value, *place.index):
                        need(e)
                    done = done | {place.path[0]} if len(place.path) == 1 else done
                case If(condition, yes, no):
                    need(condition)
                    done = go(yes, done) & go(no, done)
                case Call(_, arguments):
                    for e in arguments[2:]:
                        need(e)
                    done = done | {arguments[1].path[0]}
        return done

    go(statements, set())
    return found


def units_of(model: Model) -> list[Unit]:
    """In the order in which the model executes them."""
    found = []
    for k, function in enumerate(model.functions):
        statements = Reader(function.body).statements()
        for name in sorted(read_before_written(model, k, statements) & model.zeroed[k]):
            unit = Unit([Piece(k, None, name)])
            unit.writes = {((k, name), ())}
            unit.cost = 1.0
            found.append(unit)
        for s in statements:
            for place, _ in writes_of([s]):
                if model.variable(k, place) is None:
                    raise NotUnderstoodError(f"a write to the table {place.path[0]}")
            found += [unit_of(model, k, piece, s) for piece in split(model, k, s)]
    return found


def split(model: Model, function: int, statement: Placed) -> Iterator[Placed]:
    """What it does to one variable, or to some that belong together, after the other."""
    if not isinstance(statement.it, If):
        yield statement
        return
    key = partial(model.variable, function)
    for kept in groups(statement, key):
        if piece := restricted(statement, kept, key):
            yield piece


def unit_of(model: Model, function: int, statement: Placed, whole: Placed) -> Unit:
    unit = Unit([Piece(function, statement, whole=whole)])
    unit.reads = {v for name in reads_of(statement) if (v := model.variable(function, name)) is not None}
    unit.writes = {(model.variable(function, place), element(place)) for place, _ in writes_of([statement])}
    unit.cost = cost(statement)
    return unit


def in_order(model: Model, pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces as their functions have them, what is of one statement as one."""
    key = [partial(model.variable, function) for function in range(len(model.functions))]
    found: dict[tuple[int, int, str], list[Piece]] = defaultdict(list)
    for piece in pieces:
        place = -1 if piece.whole is None else piece.whole.begin
        found[piece.function, place, piece.zeroed].append(piece)
    joined = []
    for _, (first, *others) in sorted(found.items()):
        if others:
            statements = [p.statement for p in (first, *others) if p.statement]
            kept = {key[first.function](place) for place, _ in writes_of(statements)}
            first = first._replace(statement=restricted(first.whole, kept, key[first.function]))
        joined.append(first)
    return joined


def followers(units: list[Unit]) -> list[set[int]]:
    """Of each unit, those that must come after it, but for those that follow from others."""
    found: list[set[int]] = [set() for _ in units]
    writers: dict[Variable_, list[tuple[tuple[int | None, ...], int]]] = defaultdict(list)
    readers: dict[Variable_, list[int]] = defaultdict(list)
    for i, unit in enumerate(units):
        before = {w for variable in unit.reads for _, w in writers[variable]}
        for variable, where in unit.writes:
            before |= set(readers[variable])
            before |= {w for other, w in writers[variable] if overlap(other, where)}
        for w in before - {i}:
            found[w].add(i)
        for variable, where in unit.writes:
            if where == ():
                writers[variable], readers[variable] = [], []
            else:
                writers[variable] = [(o, w) for o, w in writers[variable] if o != where]
            writers[variable].append((where, i))
        for variable in unit.reads:
            readers[variable].append(i)
    return found


def whole_units(model: Model) -> tuple[list[Unit], list[set[int]]]:
    """Units such that each element of a variable is written by one of them alone, and what must come after each.

    Else one that is not executed would leave what another one wrote.
    """
    single = units_of(model)
    order = Order(followers(single))
    home = list(range(len(single)))

    def unit(i: int) -> int:
        while home[i] != i:
            i = home[i]
        return i

    writers: dict[Variable_, list[tuple[tuple[int | None, ...], int]]] = defaultdict(list)
    for i, u in enumerate(single):
        for variable, where in sorted(u.writes, key=str):
            for other, j in writers[variable]:
                a, b = unit(i), unit(j)
                if a != b and overlap(where, other):
                    if not order.can_join(b, a):
                        raise NotUnderstoodError(f"what is written to {variable} cannot be brought together")
                    order.join(b, a)
                    home[a] = b
            writers[variable].append((where, i))
    parts: dict[int, list[int]] = defaultdict(list)
    for i in range(len(single)):
        parts[unit(i)].append(i)
    number = {root: n for n, root in enumerate(topological(parts.keys(), order.after))}
    found = []
    for root in number:
        first, *rest = sorted(parts[root])
        whole = single[first]
        for i in rest:
            whole.add(single[i])
        found.append(whole)
    return found, [{number[k] for k in order.after[root]} for root in number]
