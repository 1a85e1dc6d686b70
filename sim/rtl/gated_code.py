# SPDX-License-Identifier: Apache-2.0
"""C++ of a model in which a part is executed when something that it reads has changed, and not otherwise.

Each part has a flag. A variable that some part reads tells its readers' flags when it is written and changes: a reader
behind the writer is due in the same cycle, one before it (which reads what a register held) in the next. A part that is
not due would write what is there. What changes seldom is not compared at each write but in lines of 64 bytes, which are
looked at before the first of their readers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from model_units import Model, Piece, Unit, Variable_, element, in_order, writes_of
from split_statements import text_of
from unit_clusters import Part, label
from unit_order import topological
from verilated_cpp import Assign, Call, If, NotUnderstoodError, Placed

LINE = 64  # bytes
# What an accumulator or a line costs beside the comparisons, in instructions.
TELLING = 4
LOOKING = 7
DECLARED = r"^\s*(?P<type>(?:VlUnpacked<)?(?:[CSIQ]Data|VlWide<\d+>)(?:/\*[^*]*\*/)?(?:, \d+>)?) (?P<name>{})\;\n"
NAME = re.compile(r"(?<![\w.>])[A-Za-z_]\w*")
# Begins as what its register holds, which is what it held itself when the cycle before ended.
DELAYED = re.compile(r"__Vdly__")


class Block(NamedTuple):
    """Units that stand together: a part, or (None) what is always executed."""

    part: int | None
    units: tuple[int, ...]


class Line(NamedTuple):
    """Variables that are looked at together, and the parts that are due if any of them has changed."""

    readers: int
    variables: tuple[Variable_, ...]


def bits(mask: int) -> Iterator[int]:
    while mask:
        least = mask & -mask
        yield least.bit_length() - 1
        mask ^= least


def order_of(after: list[set[int]], parts: list[Part]) -> list[Block]:
    """As few blocks as an order that is allowed lets there be, by trying what is always executed first."""
    home = {i: n for n, part in enumerate(parts) for i in part.units}
    count = len(parts)
    node = [home.get(i, count + i) for i in range(len(after))]
    nodes = sorted(set(node))
    follows: list[set[int]] = [set() for _ in range(count + len(after))]
    for i, those in enumerate(after):
        follows[node[i]] |= {node[j] for j in those} - {node[i]}
    found: list[Block] = []
    run: list[int] = []
    for n in topological(nodes, follows, late=range(count)):
        if n >= count:
            run.append(n - count)
            continue
        if run:
            found.append(Block(None, tuple(run)))
            run = []
        mine = sorted(parts[n].units)
        within = [those & parts[n].units for those in after]
        found.append(Block(n, tuple(topological(mine, within))))
    if run:
        found.append(Block(None, tuple(run)))
    if sum(len(b.units) for b in found) != len(after):
        raise AssertionError("parts that have to come before each other")
    return found


class Code:
    """Writes a model anew. `rates`: how often a variable changes, by label(); `recording`: nothing is left out, and
    each cycle's changes are written to a file."""

    def __init__(
        self,
        model: Model,
        units: list[Unit],
        after: list[set[int]],
        parts: list[Part],
        rates: dict[str, float],
        recording: bool = False,
    ) -> None:
        self.model, self.units, self.parts, self.rates, self.recording = model, units, parts, rates, recording
        self.blocks = order_of(after, parts)
        self.outside = set(model.given_outside())
        self.writers: dict[Variable_, list[int]] = defaultdict(list)
        self.readers: dict[Variable_, list[int]] = defaultdict(list)
        for i, unit in enumerate(units):
            for variable in unit.reads:
                self.readers[variable].append(i)
            for variable in unit.written:
                self.writers[variable].append(i)
        self.names = sorted(self.writers.keys() | self.readers.keys(), key=label)
        self.number = {variable: n for n, variable in enumerate(self.names)}
        places = ((n, i) for n, block in enumerate(self.blocks) for i in block.units)
        self.place = {i: (block, position) for position, (block, i) in enumerate(places)}
        self.told = {variable: self._told(variable) for variable in self.names}
        self.member = {v for v in self.names if not isinstance(v, str) and self._is_kept(v)}
        self.declared = {
            (k, found["name"]): found["type"]
            for k, function in enumerate(model.functions)
            for found in re.finditer(DECLARED.format(r"\w+"), function.declared, re.MULTILINE)
        }
        self.lines: list[Line] = []
        self.in_line: set[Variable_] = set()
        self.sums: dict[int, str] = {}  # accumulators of the block at hand, by the readers
        self.wider: dict[int, int] = {}

    # What tells whom.

    def _told(self, variable: Variable_) -> int:
        """The parts to which a change of it matters."""
        found = 0
        for reader in self.readers[variable]:
            block, position = self.place[reader]
            part = self.blocks[block].part
            if part is not None and (
                variable in self.outside
                or any(self.place[w][0] != block or self.place[w][1] >= position for w in self.writers[variable])
            ):
                found |= 1 << part
        return found

    def _is_kept(self, variable: tuple[int, str]) -> bool:
        """Has a function's variable to last from one block to another, or to the next cycle?"""
        blocks = {self.place[i][0] for i in self.writers[variable] + self.readers[variable]}
        return self.recording or len(blocks) > 1 or self.told[variable] != 0

    def _name(self, variable: Variable_) -> str:
        if isinstance(variable, str):
            return f"vlSelfRef.{variable}"
        k, name = variable
        return f"vlSelfRef.gate_{k}_{name}" if variable in self.member else f"own_{k}_{name}"

    def _sum(self, variable: Variable_) -> str | None:
        """Where a change of it is to be noted, if anywhere."""
        if self.recording:
            return f"vlSelfRef.gate_changes[{self.number[variable]}]"
        if self.told[variable] == 0 or variable in self.in_line:
            return None
        told = self.wider.get(self.told[variable], self.told[variable])
        return self.sums.setdefault(told, f"change{len(self.sums)}")

    def _in_vain(self, readers: int, wider: int, rate: float) -> float:
        """What is executed in vain if all of `wider` are told what only `readers` need to know."""
        return min(rate, 1.0) * sum(self.parts[n].cost for n in bits(wider & ~readers))

    def _rate(self, variables: Iterable[Variable_]) -> float:
        return sum(self.rates.get(label(v), 0.0) for v in variables)

    def _joined(
        self, given: list[tuple[int, list[Variable_]]], spared: float, fit: Callable[[list[Variable_]], bool]
    ) -> list[tuple[int, list[Variable_]]]:
        """Sets of variables with their readers, those joined of which a common telling spares more than it costs."""
        sets = [(readers, variables, self._rate(variables)) for readers, variables in given]
        while True:
            best = None
            for x, (a, mine, rate) in enumerate(sets):
                for y, (b, others, other) in enumerate(sets[:x]):
                    price = self._in_vain(a, a | b, rate) + self._in_vain(b, a | b, other) - spared
                    if price < 0 and (best is None or price < best[0]) and fit(mine + others):
                        best = (price, x, y)
            if best is None:
                return [(readers, variables) for readers, variables, _ in sets]
            _, x, y = best
            a, mine, rate = sets.pop(x)
            b, others, other = sets[y]
            sets[y] = (a | b, others + mine, other + rate)

    def _bytes(self, variable: Variable_) -> int:
        """Its size in a line; more than a line: it cannot be in one."""
        if variable in self.model.ports or variable in self.outside:
            return LINE + 1
        if not isinstance(variable, str) and variable not in self.member:
            return LINE + 1
        kind = self.model.kind(variable)
        if kind.depth:
            return LINE + 1
        return (kind.words or 1) * kind.bits // 8

    def _size(self, variables: list[Variable_]) -> int:
        return sum(map(self._bytes, variables))

    def _make_lines(self, number: int) -> list[int]:
        """Of what a block that is always executed writes."""
        sets = defaultdict(list)
        for variable in sorted({v for i in self.blocks[number].units for v in self.units[i].written}, key=label):
            here = all(self.place[w][0] == number for w in self.writers[variable])
            if self.told[variable] and here and self._bytes(variable) <= LINE:
                sets[self.told[variable]].append(variable)
        given = []
        for readers, variables in sets.items():
            some: list[Variable_] = []
            for variable in sorted(variables, key=self._bytes, reverse=True):
                if self._size([*some, variable]) > LINE:
                    given.append((readers, some))
                    some = []
                some.append(variable)
            given.append((readers, some))
        made = []
        for readers, variables in self._joined(given, LOOKING, lambda those: self._size(those) <= LINE):
            if len(variables) < 2 and self._bytes(variables[0]) < 16:
                continue  # as cheap to compare at its write
            # The widest first: there is no room between them.
            alignment = {v: next(n for n in (8, 4, 2, 1) if self._bytes(v) % n == 0) for v in variables}
            alignment |= {v: 4 for v in variables if self.model.kind(v).words}
            line = Line(readers, tuple(sorted(variables, key=lambda v: (-alignment[v], label(v)))))
            self.in_line |= set(variables)
            made.append(len(self.lines))
            self.lines.append(line)
        return made

    def _choose_sums(self, block: Block, often: float) -> None:
        """Accumulators of a block that is executed in so many of the cycles."""
        self.sums = {}
        sets = defaultdict(list)
        for variable in sorted({v for i in block.units for v in self.units[i].written}, key=label):
            if self.told[variable] and variable not in self.in_line:
                sets[self.told[variable]].append(variable)
        joined = self._joined(sorted(sets.items()), TELLING * often, lambda _: True)
        self.wider = {self.told[v]: readers for readers, variables in joined for v in variables}

    # Text.

    def _rename(self, function: int, text: str) -> str:
        mine = self.model.locals[function]
        return NAME.sub(lambda name: self._name((function, name[0])) if name[0] in mine else name[0], text)

    def _statement(self, function: int, statement: Placed, held: set[Variable_]) -> str:
        body = self.model.functions[function].body

        def write(s: Placed) -> str:
            text = body[s.begin : s.end]
            if isinstance(s.it, Assign):
                variable = self.model.variable(function, s.it.place)
                if variable not in held and (noted := self._sum(variable)):
                    to, value = halves(text)
                    return f"merapi::gates::put({noted}, {to}, {value});"
            return text

        return self._rename(function, text_of(body, statement, write))

    def _piece(self, piece: Piece, held: set[Variable_]) -> str:
        function, statement, zeroed, _ = piece
        if statement is not None:
            return self._statement(function, statement, held)
        variable = (function, zeroed)
        kind, name = self.model.kind(variable), self._name(variable)
        return f"VL_ZERO_W({32 * kind.words}, {name});" if kind.words else f"{name} = 0;"

    def _units(self, units: tuple[int, ...]) -> list[str]:
        """What is executed for units that nothing else comes between."""
        pieces = in_order(self.model, (piece for i in units for piece in self.units[i].pieces))
        # In an order that is the same each time: accumulators get their names by it.
        again = sorted({v for i in units for v in self._written_again(self.units[i])}, key=label)
        held = [v for v in again if self._sum(v)]
        names = {v: f"was{n}" for n, v in enumerate(held)}
        before, behind = defaultdict(list), defaultdict(list)
        for v, name in names.items():
            at = [n for n, piece in enumerate(pieces) if v in self._writes(piece)]
            before[at[0]].append(f"const auto {name} = {self._name(v)};")
            behind[at[-1]].append(f"{self._sum(v)} |= merapi::gates::difference({name}, {self._name(v)});")
        return [line for n, p in enumerate(pieces) for line in (*before[n], self._piece(p, set(held)), *behind[n])]

    def _writes(self, piece: Piece) -> set[Variable_]:
        if piece.statement is None:
            return {(piece.function, piece.zeroed)}
        return {self.model.variable(piece.function, place) for place, _ in writes_of([piece.statement])}

    def _written_again(self, unit: Unit) -> set[Variable_]:
        """Variables that a unit may write more than once, of which the last value counts, or by a call."""

        def most(function: int, statements: Iterable[Placed]) -> Counter:
            count: Counter = Counter()
            for s in statements:
                match s.it:
                    case If(_, yes, no):
                        count += most(function, yes) | most(function, no)
                    case Assign(place, _):
                        count[self.model.variable(function, place), element(place)] += 1
            return count

        writes: Counter = Counter()
        called: set[Variable_] = set()
        for function, statement, zeroed, _ in unit.pieces:
            if statement is None:
                writes[(function, zeroed), ()] += 1
                continue
            writes += most(function, [statement])
            calls = (place for place, s in writes_of([statement]) if isinstance(s.it, Call))
            called |= {self.model.variable(function, place) for place in calls}
        elements = Counter(variable for variable, _ in writes)
        again = {v for (v, where), count in writes.items() if count > 1 or (where == () and elements[v] > 1)}
        delayed = {v for v in again if DELAYED.match(v if isinstance(v, str) else v[1])}
        return again - delayed | called

    @staticmethod
    def _due(readers: int, condition: str) -> str:
        return f"due |= {condition} ? {readers:#x}ULL : 0ULL;"

    def _summed(self, body: list[str]) -> list[str]:
        """A block's statements between its accumulators and what they tell."""
        if self.recording:
            return body
        told = [self._due(readers, f"{name} != 0") for readers, name in self.sums.items()]
        return [*(f"uint64_t {name} = 0;" for name in self.sums.values()), *body, *told]

    def _look(self, line: int) -> str:
        first = self._name(self.lines[line].variables[0])
        return self._due(self.lines[line].readers, f"merapi::gates::moved(&{first}, vlSelfRef.gate_lines[{line}])")

    def _block(self, block: Block, name: str) -> list[str]:
        often = 1.0 if block.part is None else self.parts[block.part].rate
        self._choose_sums(block, often)
        body = self._units(block.units)
        mine = {v for i in block.units for v in self.units[i].written | self.units[i].reads}
        own = sorted((v for v in mine if not isinstance(v, str) and v not in self.member), key=label)
        declared = [f"{self.declared[v]} {self._name(v)};" for v in own]
        return [
            f"uint64_t {name}({self.model.owner}* vlSelf) {{",
            "auto& vlSelfRef = *vlSelf;",
            "uint64_t due = 0;",
            *declared,
            *self._summed(body),
            "return due;",
            "}",
            "",
        ]

    def _inputs(self) -> list[str]:
        """What is given from outside is compared with what it was in the last cycle."""
        self.sums, self.wider = {}, {}
        body = [
            f"merapi::gates::put({noted}, vlSelfRef.gate_was_{v}, vlSelfRef.{v});"
            for v in self._watched()
            if (noted := self._sum(v))
        ]
        return self._summed(body)

    def _watched(self) -> list[str]:
        return sorted(v for v in self.outside if v in self.number and (self.recording or self.told[v]))

    def functions(self) -> list[list[str]]:
        """All blocks, each of which returns what is due because of it, and last what a rising clock calls."""
        owner = self.model.owner
        found, calls = [], self._inputs()
        waiting: list[int] = []

        def look(readers: int) -> None:
            for line in [n for n in waiting if self.lines[n].readers & readers]:
                calls.append(self._look(line))
                waiting.remove(line)

        for n, block in enumerate(self.blocks):
            name = f"{owner}___{'always' if block.part is None else 'due'}_{n}"
            if block.part is None:
                if not self.recording:
                    waiting += self._make_lines(n)
                calls.append(f"due |= {name}(vlSelf);")
            else:
                bit = 1 << block.part
                look(bit)
                rate = self.parts[block.part].rate
                asked = f"(due & {bit:#x}ULL) != 0"
                if rate < 0.1 or rate > 0.9:
                    asked = f"__builtin_expect({asked}, {int(rate > 0.5)})"
                calls.append(f"if ({asked}) due = (due & ~{bit:#x}ULL) | {name}(vlSelf);  // {rate:.3f}")
            found.append(self._block(block, name))
        look(-1)
        calls = [
            "auto& vlSelfRef = *vlSelf;",
            "uint64_t due = vlSelfRef.gate_due;",
            *calls,
            "vlSelfRef.gate_due = due;",
        ]
        if self.recording:
            calls.append(f"{owner}___record(vlSelf);")
        found.append([f"void {owner}___eval_nba({owner}* vlSelf) {{", *calls, "}", ""])
        return found

    def members(self) -> tuple[list[str], set[str]]:
        """What is added to the class, after functions(); which of its own variables are declared there anew."""
        header = self.model.header.read_text()
        moved: set[str] = set()
        found = []
        for line in self.lines:
            found.append(f"struct alignas({LINE}) {{")
            for v in line.variables:
                if isinstance(v, str):
                    declared = re.search(DECLARED.format(re.escape(v)), header, re.MULTILINE)
                    if declared is None:
                        raise NotUnderstoodError(f"no declaration of {v}")
                    found.append(f"  {declared['type']} {v};")
                    moved.add(v)
                else:
                    found.append(f"  {self.declared[v]} gate_{v[0]}_{v[1]};")
            found.append("};")
        found += [
            f"{self.declared[v]} gate_{v[0]}_{v[1]};" for v in sorted(self.member, key=label) if v not in self.in_line
        ]
        found += [f"decltype({v}) gate_was_{v};" for v in self._watched()]
        if self.lines:
            found.append(f"alignas({LINE}) uint8_t gate_lines[{len(self.lines)}][{LINE}];")
        if self.recording:
            found.append(f"uint64_t gate_changes[{len(self.names)}];")
        found.append("uint64_t gate_due = ~0ULL;")
        return found, moved


def halves(assignment: str) -> tuple[str, str]:
    depth = 0
    for i, c in enumerate(assignment):
        depth += (c == "[") - (c == "]")
        if c == "=" and depth == 0:
            return assignment[:i].strip(), assignment[i + 1 :].rstrip().removesuffix(";").strip()
    raise NotUnderstoodError(assignment)
