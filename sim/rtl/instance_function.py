# SPDX-License-Identifier: Apache-2.0
"""A function that evaluates one instance of a module, written for all of them at once: of values it makes vectors, of
conditions masks (vector_instances.py, instance_vectors.h)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from verilated_cpp import (
    Assign,
    Binary,
    Call,
    Cast,
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
    blocks,
    expressions,
    paths,
    variables,
    within,
)

LINE = 16  # words
# A branch of so many parts is worth asking whether it is due anywhere: fewer are executed as quickly.
WORTH_A_BRANCH = 30
PARITY = re.compile(r"VL_REDXOR_(2|4|8|16|32)")
SHIFT = re.compile(r"VL_SHIFT(?P<way>[LR])_(?P<kinds>III|QQI|QQQ)")


def lines_of(words: int) -> int:
    """How many lines of sixteen words a wide variable has; the last may have unused words, if it has few."""
    whole, rest = divmod(words, LINE)
    return whole + (rest >= 5)


def room_of(words: int) -> int:
    return max(words, LINE * lines_of(words))


def slot(word: int, words: int) -> int:
    """Where a word of a wide variable is (instance_vectors.h)."""
    line, rest = divmod(word, LINE)
    return LINE * line + 4 * (rest % 4) + rest // 4 if line < lines_of(words) else word


def elements_of(memory: Variable) -> int:
    """An index is a number of bits: there is an element for each."""
    return 1 << (memory.depth - 1).bit_length()


def is_constant(expression: Expression, value: int) -> bool:
    return isinstance(expression, Number) and not expression.text.startswith('"') and expression.value == value


class Module(NamedTuple):
    """A class with several instances; `same` are its ports that the root gives all of them alike."""

    owner: str
    instances: tuple[str, ...]
    variables: dict[str, Variable]
    same: frozenset[str] = frozenset()

    @property
    def state(self) -> str:
        return f"{self.owner}__state"

    @property
    def memories(self) -> str:
        return f"{self.owner}__memories"

    @property
    def count(self) -> int:
        return len(self.instances)


class Value(NamedTuple):
    """An expression of C++: `form` is 'constant', 'vector' or 'mask'; `bits` 32 or 64."""

    code: str
    form: str
    bits: int


class Run(NamedTuple):
    """Words of one wide thing that are copied to another, `first` to before `end`."""

    to: Name
    source: Name
    first: int
    end: int


class FunctionOfAll:
    """Writes a function of one instance as one of all."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.locals = variables(function.declared)
        self.statements = Reader(function.body).statements()
        self.masks = 0
        # A value that is only read where a flag says that it was written need not be kept where it was not.
        self.flagged = {name for name in self.locals if self._is_flagged(name)}

    def lines(self) -> list[str]:
        found = []
        for name, kind in self.locals.items():
            if kind.depth:
                raise NotUnderstoodError(f"memory {name} of a function")
            if kind.words:
                zero = "" if name in self.flagged else " = {}"
                found.append(f"  alignas(64) uint32_t {name}[{room_of(kind.words)}][kCount]{zero};")
            else:
                vector = "Quads" if kind.bits == 64 else "Words"
                found.append(f"  {vector} {name}{'' if name in self.flagged else ' = {}'};")
        found += self._block(self.statements, None, "  ")
        return found

    # What is named.

    def _own(self, name: Name) -> str | None:
        """A variable of the instance; None: one of the function."""
        match name.path:
            case ("vlSelfRef", variable) if variable in self.module.variables:
                return variable
            case (variable,) if variable in self.locals:
                return None
        raise NotUnderstoodError(f"{'.'.join(name.path)}, which is not the instance's")

    def _kind(self, name: Name) -> Variable:
        own = self._own(name)
        return self.locals[name.path[0]] if own is None else self.module.variables[own]

    def _is_same(self, name: Name) -> bool:
        return self._own(name) in self.module.same

    def _base(self, name: Name) -> str:
        own = self._own(name)
        return name.path[0] if own is None else f"state.{own}"

    def _word(self, name: Name, word: int) -> str:
        """Where a word of a wide variable is."""
        kind = self._kind(name)
        if word >= kind.words:
            raise NotUnderstoodError(f"word {word} of {name.path[-1]}")
        return f"{self._base(name)}[{word if self._is_same(name) else slot(word, kind.words)}]"

    def _row(self, name: Name) -> str:
        """A memory and an index, which may be any number where the element is not used."""
        last = elements_of(self._kind(name)) - 1
        return f"memories.{self._own(name)}, ({self._vector(self._value(name.index[0]), 32)} & {last}U)"

    # Values.

    @staticmethod
    def _vector(value: Value, bits: int) -> str:
        match value.form:
            case "constant":
                return f"{'all_quads' if bits == 64 else 'all'}({value.code})"
            case "mask":
                if bits == value.bits:
                    return f"ones({value.code})"
                return f"ones({'wide' if bits == 64 else 'narrow'}({value.code}))"
        if bits == value.bits:
            return value.code
        return f"{'wide' if bits == 64 else 'low'}({value.code})"

    @staticmethod
    def _mask(value: Value, bits: int = 32) -> str:
        if value.form == "constant":
            raise NotUnderstoodError(f"condition {value.code}")
        code = f"({value.code} != {'0ULL' if value.bits == 64 else '0U'})" if value.form == "vector" else value.code
        if bits == value.bits:
            return code
        return f"{'wide' if bits == 64 else 'narrow'}({code})"

    def _operand(self, value: Value, bits: int) -> str:
        """Beside a vector a constant may stand as it is."""
        return value.code if value.form == "constant" else self._vector(value, bits)

    def _value(self, expression: Expression) -> Value:
        match expression:
            case Number(text):
                if text.startswith('"'):
                    raise NotUnderstoodError(text)
                return Value(text, "constant", expression.bits)
            case Name():
                return self._named(expression)
            case Cast(kind, inner):
                return self._cast(kind, self._value(inner))
            case Unary(operator, inner):
                value = self._value(inner)
                if operator == "!":
                    return Value(f"(~{self._mask(value)})", "mask", 32)
                if operator == "&":
                    raise NotUnderstoodError("an address")
                if value.form == "constant":
                    return Value(f"({operator}{value.code})", "constant", value.bits)
                return Value(f"({operator}{self._vector(value, value.bits)})", "vector", value.bits)
            case Choice(condition, yes, no):
                one, other = self._value(yes), self._value(no)
                bits = max(one.bits, other.bits)
                mask = self._mask(self._value(condition), bits)
                if one.form == other.form == "mask":
                    return Value(f"({mask} ? {self._mask(one, bits)} : {self._mask(other, bits)})", "mask", bits)
                return Value(f"({mask} ? {self._vector(one, bits)} : {self._vector(other, bits)})", "vector", bits)
            case Binary(operator, left, right):
                return self._binary(operator, left, right)
            case Call(function, arguments):
                return self._call(function, arguments)
        raise NotUnderstoodError(repr(expression))

    def _call(self, function: str, arguments: tuple[Expression, ...]) -> Value:
        if PARITY.fullmatch(function) and len(arguments) == 1:
            return Value(f"parity({self._vector(self._value(arguments[0]), 32)})", "vector", 32)
        found = SHIFT.fullmatch(function)
        if not found or len(arguments) != 5 or not isinstance(arguments[0], Number):
            raise NotUnderstoodError(f"{function}(...)")
        bits = 64 if found["kinds"][0] == "Q" else 32
        shifted, by = (self._vector(self._value(x), bits) for x in arguments[3:])
        code = f"shift_{'left' if found['way'] == 'L' else 'right'}({shifted}, {by})"
        # Verilator's own cuts off what is above the result's bits for these alone.
        if found["kinds"] == "QQQ" and found["way"] == "L":
            code = f"({code} & {(1 << arguments[0].value) - 1:#x}ULL)"
        return Value(code, "vector", bits)

    def _cast(self, kind: str, value: Value) -> Value:
        bits = 64 if kind == "QData" else 32
        if value.form == "constant":
            return Value(f"(({kind}){value.code})", "constant", bits)
        if value.form == "mask":
            return Value(self._mask(value, bits), "mask", bits)
        code = self._vector(value, bits)
        if kind in ("CData", "SData"):
            code = f"({code} & {'0xffU' if kind == 'CData' else '0xffffU'})"
        return Value(code, "vector", bits)

    def _binary(self, operator: str, left: Expression, right: Expression) -> Value:
        one, other = self._value(left), self._value(right)
        bits = max(one.bits, other.bits)
        if one.form == other.form == "constant":
            bits = one.bits if operator in ("<<", ">>") else bits
            return Value(f"({one.code} {operator} {other.code})", "constant", bits)
        if operator in ("&&", "||"):  # nothing that is asked has an effect
            return Value(f"({self._mask(one)} {operator[0]} {self._mask(other)})", "mask", 32)
        if operator in ("<<", ">>"):
            by = self._operand(other, one.bits)
            return Value(f"({self._vector(one, one.bits)} {operator} {by})", "vector", one.bits)
        if operator in ("==", "!=", "<", ">", "<=", ">="):
            return Value(f"({self._operand(one, bits)} {operator} {self._operand(other, bits)})", "mask", bits)
        if operator in ("&", "|", "^") and one.form == other.form == "mask":
            bits = min(one.bits, other.bits)
            return Value(f"({self._mask(one, bits)} {operator} {self._mask(other, bits)})", "mask", bits)
        if operator == "&" and is_constant(left, 1) and other.form == "mask":
            return other
        if operator == "&" and is_constant(right, 1) and one.form == "mask":
            return one
        return Value(f"({self._operand(one, bits)} {operator} {self._operand(other, bits)})", "vector", bits)

    def _named(self, name: Name) -> Value:
        kind = self._kind(name)
        if kind.depth:
            if kind.words:
                if len(name.index) != 2 or not isinstance(name.index[1], Number):
                    raise NotUnderstoodError(f"an element of {name.path[-1]}")
                return Value(f"fetch_word({self._row(name)}, {name.index[1].value})", "vector", 32)
            vector = "Quads" if kind.bits == 64 else "Words"
            return Value(f"fetch<{vector}>({self._row(name)})", "vector", max(kind.bits, 32))
        if kind.words:
            if len(name.index) != 1 or not isinstance(name.index[0], Number):
                raise NotUnderstoodError(f"a word of {name.path[-1]} by a number that changes")
            place = self._word(name, name.index[0].value)
            return Value(f"all({place})" if self._is_same(name) else f"words({place})", "vector", 32)
        bits = max(kind.bits, 32)
        if name.index:
            raise NotUnderstoodError(f"an element of {name.path[-1]}")
        if self._own(name) is None:
            return Value(name.path[0], "vector", bits)
        if self._is_same(name):
            return Value(f"{'all_quads' if bits == 64 else 'all'}({self._base(name)})", "vector", bits)
        return Value(f"{'quads' if bits == 64 else 'words'}({self._base(name)})", "vector", bits)

    # Statements.

    def _block(self, statements: tuple[Placed, ...], mask: str | None, indent: str) -> list[str]:
        found = []
        at = 0
        while at < len(statements):
            run = self._run(statements, at)
            if run:
                found += [indent + line for line in self._copy(run, mask)]
                at += run.end - run.first
                continue
            match statements[at].it:
                case Assign(place, value):
                    found.append(indent + self._assign(place, value, mask))
                case If(condition, yes, no):
                    found += self._if(condition, yes, no, mask, indent)
                case Call("VL_ZERO_W", (_, Name((variable,), ()))) if variable in self.locals and mask is None:
                    found.append(f"{indent}__builtin_memset({variable}, 0, sizeof {variable});")
                case other:
                    raise NotUnderstoodError(repr(other))
            at += 1
        return found

    def _if(self, condition: Expression, yes: tuple, no: tuple, mask: str | None, indent: str) -> list[str]:
        number = self.masks
        self.masks += 1
        # Before either side is executed: they may change what is asked.
        found = [f"{indent}const Mask asked{number} = {self._mask(self._value(condition))};"]
        sides = []
        for body, side, is_due in ((yes, f"yes{number}", f"asked{number}"), (no, f"no{number}", f"~asked{number}")):
            if body:
                found.append(f"{indent}const Mask {side} = {f'{mask} & ' if mask else ''}{is_due};")
                sides.append((body, side))
        for body, side in sides:
            opening = f"if (any({side})) {{" if cost(body) > WORTH_A_BRANCH else "{"
            found += [indent + opening, *self._block(body, side, indent + "  "), indent + "}"]
        return found

    def _assign(self, place: Name, value: Expression, mask: str | None) -> str:
        kind = self._kind(place)
        if self._is_same(place):
            raise NotUnderstoodError(f"a port {place.path[-1]} that is written from both sides")
        if kind.depth:
            if kind.words or len(place.index) != 1:
                raise NotUnderstoodError(f"an element of {place.path[-1]}")
            code = self._vector(self._value(value), max(kind.bits, 32))
            return f"store({self._row(place)}, {code}, {mask or 'Mask(-1)'});"
        given = self._value(value)
        code = self._vector(given, max(kind.bits, 32))
        if kind.bits < 32 and given.form != "mask":
            code = f"({code} & {'0xffU' if kind.bits == 8 else '0xffffU'})"
        old = self._named(place)
        if mask and not self._is_flagged_here(place):
            due = f"wide({mask})" if old.bits == 64 else mask
            code = f"({due} ? {code} : {old.code})"
        if self._own(place) is None and not kind.words:
            return f"{old.code} = {code};"
        to = self._word(place, place.index[0].value) if kind.words else self._base(place)
        return f"put({to}, {code});"

    def _run(self, statements: tuple[Placed, ...], at: int) -> Run | None:
        """Consecutive words of one wide thing that are copied to another, from `at` on: what lines are for."""

        def copied(placed: Placed) -> tuple[Name, Name, int] | None:
            """Both things, and the number of the word, which is the same in both."""
            match placed.it:
                case Assign(Name(_, (*_, Number() as one)) as to, Name(_, (*_, Number() as other)) as source) if (
                    one.value == other.value and self._kind(to).words and self._kind(source).words
                ):
                    things = (to._replace(index=to.index[:-1]), source._replace(index=source.index[:-1]))
                    if all(len(thing.index) == (self._kind(thing).depth > 0) for thing in things):
                        return *things, one.value
            return None

        begun = copied(statements[at])
        if not begun:
            return None
        to, source, first = begun
        end = first
        while at + end - first < len(statements) and copied(statements[at + end - first]) == (to, source, end):
            end += 1
        if end - first == 1 and not self._kind(to).depth:
            return None
        return Run(to, source, first, end)

    def _copy(self, run: Run, mask: str | None) -> Iterator[str]:
        to, source = self._kind(run.to), self._kind(run.source)
        if self._is_same(run.to) or (to.depth and source.depth):
            raise NotUnderstoodError(f"{run.to.path[-1]} is given {run.source.path[-1]}")
        kept = f", {mask}" if mask and not self._is_flagged_here(run.to) else ""
        word = run.first
        while word < run.end:
            # Words behind the last one of both are nobody's.
            whole = run.end >= word + LINE or run.end == to.words == source.words
            if word % LINE == 0 and whole and word // LINE < min(lines_of(to.words), lines_of(source.words)):
                line = f"&{self._base(run.to)}[{word}][0]"
                if source.depth:
                    yield f"fetch_line<{word}>({line}, {self._row(run.source)}{kept});"
                elif self._is_same(run.source):
                    yield from self._spread(run, word, line, mask, kept)
                else:
                    given = f"&{self._base(run.source)}[{word}][0]"
                    if to.depth:
                        yield f"store_line<{word}>({self._row(run.to)}, {given}, {mask or 'Mask(-1)'});"
                    else:
                        yield f"copy_line({line}, {given}{kept});"
                word += LINE
                continue
            given = self._named(run.source._replace(index=(*run.source.index, Number(str(word))))).code
            if to.depth:
                yield f"store_word({self._row(run.to)}, {word}, {given}, {mask or 'Mask(-1)'});"
            else:
                place = self._word(run.to, word)
                yield f"put({place}, {f'{mask} ? {given} : words({place})' if kept else given});"
            word += 1

    def _spread(self, run: Run, word: int, line: str, mask: str | None, kept: str) -> Iterator[str]:
        """A line that is the same for all."""
        given = f"&{self._base(run.source)}[{word}]"
        if not self._kind(run.to).depth and not kept:
            yield f"spread_line({line}, {given});"
            return
        yield "{"
        yield "  alignas(64) uint32_t spread[16 * kCount];"
        yield f"  spread_line(spread, {given});"
        if self._kind(run.to).depth:
            yield f"  store_line<{word}>({self._row(run.to)}, spread, {mask or 'Mask(-1)'});"
        else:
            yield f"  copy_line({line}, spread{kept});"
        yield "}"

    # Values with a flag.

    def _is_flagged_here(self, place: Name) -> bool:
        return self._own(place) is None and place.path[0] in self.flagged

    def _is_flagged(self, name: str) -> bool:
        """Whether a local is written in one branch only, together with a flag, and read elsewhere only where the flag
        is asked: what a memory is given, and where (Verilator keeps it until all has been read)."""
        written = [block for block in blocks(self.statements) if any(assigns(s, name) for s in block)]
        if len(written) != 1 or written[0] is self.statements:
            return False
        flags = {
            s.it.place.path[0]
            for s in written[0]
            if isinstance(s.it, Assign) and len(s.it.place.path) == 1 and is_constant(s.it.value, 1)
        }
        return any(self._is_flag(flag, written[0]) and self._read_under(flag, name, written[0]) for flag in flags)

    def _is_flag(self, flag: str, block: tuple[Placed, ...]) -> bool:
        """Whether a local is 0 first, and 1 from that block only."""
        for other in blocks(self.statements):
            for s in other:
                if assigns(s, flag):
                    if other is block and is_constant(s.it.value, 1):
                        continue
                    if other is self.statements and is_constant(s.it.value, 0) and s.begin < block[0].begin:
                        continue
                    return False
        return True

    def _read_under(self, flag: str, name: str, block: tuple[Placed, ...]) -> bool:
        """Whether a local is read in its block or where the flag is asked, and nowhere else."""

        def free(statements: tuple[Placed, ...]) -> Iterator[Placed]:
            for s in statements:
                if isinstance(s.it, If):
                    yield Placed(Call("", (s.it.condition,)), s.begin, s.end)
                    asked = isinstance(s.it.condition, Name) and s.it.condition.path == (flag,)
                    if not asked and s.it.yes is not block:
                        yield from free(s.it.yes)
                    if s.it.no is not block:
                        yield from free(s.it.no)
                else:
                    yield s

        return not any(name in local_names(s) for s in free(self.statements))


def assigns(placed: Placed, name: str) -> bool:
    return isinstance(placed.it, Assign) and placed.it.place.path == (name,)


def local_names(placed: Placed) -> set[str]:
    return {path[0] for path in paths(*expressions(placed)) if len(path) == 1}


def cost(statements: tuple[Placed, ...]) -> int:
    return sum(1 for block in blocks(statements) for s in block for e in expressions(s) for _ in within(e))
