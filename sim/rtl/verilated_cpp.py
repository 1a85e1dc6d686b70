# SPDX-License-Identifier: Apache-2.0
"""The C++ that Verilator writes, read: functions, declarations, statements, expressions.

Only what Verilator makes of a clocked design without delays; whatever else is met is a NotUnderstoodError, and who
reads leaves such a function as it is (share_instances.py, vector_instances.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class NotUnderstoodError(Exception):
    """Text that is not of the kind that Verilator writes."""


class Number(NamedTuple):
    text: str

    @property
    def value(self) -> int:
        return int(self.text.rstrip("UL"), 0)

    @property
    def bits(self) -> int:
        return 64 if self.text.endswith("LL") else 32


class Name(NamedTuple):
    """A variable, by its path through objects, or an element of it."""

    path: tuple[str, ...]
    index: tuple[Expression, ...]


class Unary(NamedTuple):
    operator: str
    value: Expression


class Binary(NamedTuple):
    operator: str
    left: Expression
    right: Expression


class Choice(NamedTuple):
    condition: Expression
    yes: Expression
    no: Expression


class Cast(NamedTuple):
    type: str
    value: Expression


class Call(NamedTuple):
    function: str
    arguments: tuple[Expression, ...]


Expression = Number | Name | Unary | Binary | Choice | Cast | Call


class Assign(NamedTuple):
    place: Name
    value: Expression


class If(NamedTuple):
    condition: Expression
    yes: tuple[Placed, ...]
    no: tuple[Placed, ...]


class Placed(NamedTuple):
    """A statement, and where it stands: the text from `begin` to before `end`."""

    it: Assign | If | Call
    begin: int
    end: int


def parts(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is directly made of."""
    match expression:
        case Name(_, index):
            return index
        case Unary(_, value) | Cast(_, value):
            return (value,)
        case Binary(_, left, right):
            return (left, right)
        case Choice():
            return tuple(expression)
        case Call(_, arguments):
            return arguments
    return ()


def within(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    yield expression
    for part in parts(expression):
        yield from within(part)


def blocks(statements: tuple[Placed, ...]) -> Iterator[tuple[Placed, ...]]:
    """A block and all that are within it."""
    yield statements
    for s in statements:
        if isinstance(s.it, If):
            yield from blocks(s.it.yes)
            yield from blocks(s.it.no)


def expressions(placed: Placed) -> Iterable[Expression]:
    match placed.it:
        case Assign(place, value):
            return (place, value)
        case If(condition):
            return (condition,)
    return (placed.it,)


def paths(*given: Expression) -> set[tuple[str, ...]]:
    return {x.path for e in given for x in within(e) if isinstance(x, Name)}


TOKEN = re.compile(
    r"(?:\s+|//[^\n]*|/\*.*?\*/)*"
    r"(?P<token>0x[0-9a-fA-F]+U?L*|\d+U?L*|(?:::)?[A-Za-z_]\w*(?:::\w+)*|\"(?:[^\"\\]|\\.)*\""
    r"|->|&&|\|\||<<|>>|==|!=|<=|>=|[-+*/%&|^~!<>=?:;,(){}\[\].]|$)",
    re.DOTALL,
)
# From what binds least to what binds most.
OPERATORS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*",),
)
TYPES = ("CData", "SData", "IData", "QData")
OTHER_STATEMENTS = ("for", "while", "do", "switch", "const", "return", "auto", *TYPES)


class Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, int, int]] = []  # with their places
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                raise NotUnderstoodError(text[at : at + 40])
            self.tokens.append((found["token"], found.start("token"), found.end()))
            at = found.end()
        self.tokens += [("", at, at)] * 3
        self.at = 0

    def next(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][0]

    def take(self, expected: str | None = None) -> str:
        token = self.next()
        if token == "" or (expected is not None and token != expected):
            raise NotUnderstoodError(f"expected {expected or 'something'}, found {token or 'the end'}")
        self.at += 1
        return token

    def listed(self, closing: str) -> tuple[Expression, ...]:
        found = []
        while self.next() != closing:
            found.append(self.expression())
            if self.next() != closing:
                self.take(",")
        self.take(closing)
        return tuple(found)

    def expression(self) -> Expression:
        condition = self.binary(0)
        if self.next() != "?":
            return condition
        self.take()
        yes = self.expression()
        self.take(":")
        return Choice(condition, yes, self.expression())

    def binary(self, level: int) -> Expression:
        if level == len(OPERATORS):
            return self.unary()
        left = self.binary(level + 1)
        while self.next() in OPERATORS[level]:
            operator = self.take()
            left = Binary(operator, left, self.binary(level + 1))
        return left

    def unary(self) -> Expression:
        if self.next() in ("~", "!", "-", "&"):
            return Unary(self.take(), self.unary())
        if self.next() == "(":
            if self.next(1) in TYPES and self.next(2) == ")":
                self.take()
                kind = self.take()
                self.take(")")
                return Cast(kind, self.unary())
            self.take()
            inner = self.expression()
            self.take(")")
            return inner
        token = self.take()
        if token[0].isdigit() or token[0] == '"':
            return Number(token)
        if not (token[0].isalpha() or token[0] in "_:"):
            raise NotUnderstoodError(f"expected a name, found {token}")
        if self.next() == "(":
            self.take()
            return Call(token, self.listed(")"))
        path = [token]
        while self.next() in (".", "->"):
            self.take()
            path.append(self.take())
        index = []
        while self.next() == "[":
            self.take()
            index.append(self.expression())
            self.take("]")
        if self.next() in (".", "->", "("):
            raise NotUnderstoodError(f"expected no {self.next()} behind {'.'.join(path)}")
        return Name(tuple(path), tuple(index))

    def block(self) -> tuple[Placed, ...]:
        self.take("{")
        found = []
        while self.next() != "}":
            found.append(self.statement())
        self.take()
        return tuple(found)

    def statement(self) -> Placed:
        begin = self.tokens[self.at][1]
        if self.next() in OTHER_STATEMENTS:
            raise NotUnderstoodError(f"expected an assignment, a call or an if, found {self.next()}")
        if self.next() == "if":
            self.take()
            self.take("(")
            condition = self.expression()
            self.take(")")
            yes, no = self.block(), ()
            if self.next() == "else":
                self.take()
                no = (self.statement(),) if self.next() == "if" else self.block()
            it: Assign | If | Call = If(condition, yes, no)
        else:
            place = self.unary()
            if isinstance(place, Name):
                self.take("=")
                it = Assign(place, self.expression())
            elif isinstance(place, Call):
                it = place
            else:
                raise NotUnderstoodError("expected an assignment or a call")
            self.take(";")
        return Placed(it, begin, self.tokens[self.at - 1][2])

    def statements(self) -> tuple[Placed, ...]:
        found = []
        while self.next() != "":
            found.append(self.statement())
        return tuple(found)


class Function(NamedTuple):
    """A function of a class of the model: what it declares, its body, and where the body stands in the file."""

    name: str
    owner: str
    text: str
    declared: str
    body: str
    body_begin: int


FUNCTION = re.compile(
    r"^(?:VL_INLINE_OPT )?void (?P<name>(?P<owner>\w+?)___(?:ico|nba|eval_nba|eval_ico)\w*)"
    r"\((?P=owner)\* vlSelf\) \{\n(?P<inner>.*?)^\}\n",
    re.MULTILINE | re.DOTALL,
)
# It would make every function another one.
NAMES_ITSELF = re.compile(r"^ *VL_DEBUG_IF\(.*\n", re.MULTILINE)


def functions(text: str) -> Iterator[Function]:
    """Those that evaluate, of a file."""
    for found in FUNCTION.finditer(text):
        declared, mark, body = found["inner"].partition("    // Body\n")
        begin = found.start("inner") + len(declared) + len(mark)
        yield Function(found["name"], found["owner"], found[0], NAMES_ITSELF.sub("", declared), body, begin)


class Variable(NamedTuple):
    """`element`: one of TYPES, or None for what is of several words; `depth`: elements of a memory, else 0."""

    element: str | None
    words: int
    depth: int

    @property
    def bits(self) -> int:
        return {"CData": 8, "SData": 16, "IData": 32, "QData": 64, None: 32}[self.element]


VARIABLE = re.compile(
    r"^\s*(?:VlUnpacked<)?(?:(?P<element>[CSIQ]Data)|VlWide<(?P<words>\d+)>)(?:/\*[^*]*\*/)?(?:, (?P<depth>\d+)>)?"
    r" (?P<name>\w+);",
    re.MULTILINE,
)


def variables(text: str) -> dict[str, Variable]:
    """What a class or a function declares."""
    return {
        found["name"]: Variable(found["element"], int(found["words"] or 0), int(found["depth"] or 0))
        for found in VARIABLE.finditer(text)
    }
