#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All instances of a module evaluated at once, one in each element of a vector.

    vector_instances.py build/rtl/ddr4-1ch/fast

What share_instances.py has left with one function for all instances of a module becomes a function of vectors
(instance_vectors.h): one addition adds for four lanes. This goes through the C++ that Verilator has written into a
folder:

- Variables of the module's instances become arrays of all instances: `<class>__state`, and `<class>__memories` for what
  has elements. The classes that were there hold the same until the model has settled for the first time, with the code
  that Verilator wrote for it; then it is moved over, once.
- A function that evaluates an instance has a sibling for all. Values are vectors, conditions are masks: of a branch
  both sides are executed, each where it is due, and left out where it is due nowhere.
- The root, where a module's ports are variables, names elements of the arrays instead. What it assigns to all instances
  of a port alike is kept once; what it copies from port to port is copied for all at once.

A module stays as it is when one of its functions has statements that are not understood, names anything beside its own
variables, or is not called for all instances together; everything does when the rest has something of that kind.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from instance_function import FunctionOfAll, Module, elements_of, room_of, slot
from verilated_cpp import (
    Assign,
    Cast,
    Expression,
    Function,
    If,
    Name,
    NotUnderstoodError,
    Number,
    Placed,
    Reader,
    blocks,
    expressions,
    functions,
    paths,
    variables,
)

HEADER = Path(__file__).resolve().parent / "instance_vectors.h"

# The root.

# Calls for instances, one after the other.
CALLS = re.compile(r"(?: *\w+\(\(&vlSymsp->TOP__\w+\)\);\n)+")
CALL = re.compile(r" *(\w+)\(\(&vlSymsp->(TOP__\w+)\)\);\n")


class Port(NamedTuple):
    """What the root assigns to a port of all instances, in a block: statements, in the order of the instances."""

    module: Module
    name: str
    word: tuple[Expression, ...]
    statements: tuple[Placed, ...]


def named_paths(s: Placed) -> set[tuple[str, ...]]:
    return set().union(*(paths(*expressions(x)) for block in blocks((s,)) for x in block))


def written_paths(s: Placed) -> set[tuple[str, ...]] | None:
    """None: whatever it may be."""
    found = set()
    for block in blocks((s,)):
        for x in block:
            if not isinstance(x.it, If):
                if not isinstance(x.it, Assign):
                    return None
                found.add(x.it.place.path)
    return found


def is_another_word(s: Placed, port: Port, written: set[tuple[str, ...]]) -> bool:
    """Whether a statement gives another word of the same port something."""
    match s.it:
        case Assign(Name(path, (Number(),) as word), value):
            return path in written and word != port.word and not paths(value) & written
    return False


def undisturbed(block: tuple[Placed, ...], port: Port) -> bool:
    """Whether the statements may stand where the last of them does: between them nobody writes what they read, names
    what they write, or calls anything."""
    written = {s.it.place.path for s in port.statements}
    read = set().union(*(paths(s.it.value) for s in port.statements))
    places = [block.index(s) for s in port.statements]
    for s in block[min(places) : max(places)]:
        if s in port.statements or is_another_word(s, port, written):
            continue
        changed = written_paths(s)
        if changed is None or changed & read or named_paths(s) & written:
            return False
    return not written & read


class Root:
    """The functions of the root that evaluate, in all files."""

    def __init__(self, files: dict[Path, str], modules: list[Module]) -> None:
        self.files = files
        self.of_instance = {name: (m, i) for m in modules for i, name in enumerate(m.instances)}
        self.blocks: list[tuple[Path, int, tuple[Placed, ...]]] = []  # with their file, and where the body begins
        self.unread = ""
        for file, text in files.items():
            for function in functions(text):
                if not function.owner.endswith("___024root"):
                    continue
                try:
                    found = Reader(function.body).statements()
                except NotUnderstoodError:
                    self.unread += function.body
                    continue
                self.blocks += [(file, function.body_begin, block) for block in blocks(found)]

    def _given(self, s: Placed) -> tuple[Module, str, tuple[Expression, ...], int] | None:
        """The port that a statement assigns: module, name, word, number of the instance."""
        match s.it:
            case Assign(Name(("vlSymsp", instance, port), word)) if instance in self.of_instance:
                module, number = self.of_instance[instance]
                return module, port, word, number
        return None

    def ports(self) -> tuple[list[tuple[Path, int, Port]], dict[str, set[str]]]:
        """What is assigned to all instances together; and by class the ports of which that cannot be said."""
        found, others = [], defaultdict(set)
        for file, begin, block in self.blocks:
            groups = defaultdict(dict)
            for s in block:
                given = self._given(s)
                if given:
                    module, name, word, number = given
                    if number in groups[module.owner, name, word]:
                        others[module.owner].add(name)
                    groups[module.owner, name, word][number] = (module, s)
            for (owner, name, word), by_number in groups.items():
                module = next(iter(by_number.values()))[0]
                port = Port(module, name, word, tuple(by_number[i][1] for i in sorted(by_number)))
                if len(by_number) == module.count and undisturbed(block, port):
                    found.append((file, begin, port))
                else:
                    others[owner].add(name)
        for name, (module, _) in self.of_instance.items():
            for unread in re.findall(rf"vlSymsp->{name}\s*\.\s*(\w+)", self.unread):
                others[module.owner].add(unread)
        return found, others


def is_alike(port: Port) -> bool:
    return len({s.it.value for s in port.statements}) == 1


def copied_from(port: Port, root: Root) -> tuple[Module, str] | None:
    """The port of another module's instances that this one's are given, each from the one of its own number."""
    found = set()
    for number, s in enumerate(port.statements):
        value = s.it.value.value if isinstance(s.it.value, Cast) else s.it.value
        match value:
            case Name(("vlSymsp", instance, name), ()) if instance in root.of_instance:
                module, of = root.of_instance[instance]
                if of != number or module.count != port.module.count:
                    return None
                found.add((module.owner, name))
            case _:
                return None
    if len(found) != 1 or port.word:
        return None
    owner, name = next(iter(found))
    source = next(m for m, _ in root.of_instance.values() if m.owner == owner)
    if source.variables[name].bits != port.module.variables[port.name].bits or source.variables[name].words:
        return None
    return source, name


def without(text: str, edits: list[tuple[int, int, str]]) -> str:
    for begin, end, instead in sorted(edits, reverse=True):
        text = text[:begin] + instead + text[end:]
    return text


def rewrite_root(root: Root, modules: list[Module], own: dict[str, set[str]]) -> tuple[dict[Path, str], list[Module]]:
    """The root's files with arrays instead of instances, and the modules with what they are given alike; `own` is what
    each writes itself."""
    ports, others = root.ports()
    for owner, names in own.items():
        others[owner] |= names
    same = defaultdict(set)
    for _, _, port in ports:
        if port.name not in others[port.module.owner]:
            (same if is_alike(port) else others)[port.module.owner].add(port.name)
    modules = [m._replace(same=frozenset(same[m.owner] - others[m.owner])) for m in modules]
    now = {m.owner: m for m in modules}
    edits = defaultdict(list)
    for file, begin, port in ports:
        in_order = sorted(port.statements, key=lambda s: s.begin)
        source = copied_from(port, root)
        if port.name in now[port.module.owner].same:
            removed, instead = in_order[:-1], None
        elif source and source[1] not in now[source[0].owner].same:
            removed = in_order[:-1]
            places = [f"vlSymsp->{m.state}.{name}[i]" for m, name in ((port.module, port.name), source)]
            instead = f"for (int i = 0; i < {port.module.count}; ++i) {places[0]} = {places[1]};"
        else:
            continue
        edits[file] += [(begin + s.begin, begin + s.end, "") for s in removed]
        if instead:
            edits[file].append((begin + in_order[-1].begin, begin + in_order[-1].end, instead))
    files = {file: without(text, edits[file]) for file, text in root.files.items()}

    def element(found: re.Match[str]) -> str:
        module, number = root.of_instance[found["instance"]]
        kind = now[module.owner].variables[found["port"]]
        is_same = found["port"] in now[module.owner].same
        where = f"vlSymsp->{module.state}.{found['port']}"
        if kind.words:
            if found["word"] is None:
                raise NotUnderstoodError(f"{found['port']} as a whole, or a word of it by a number that changes")
            word = int(found["word"].rstrip("U"), 0)
            return f"{where}[{word}]" if is_same else f"{where}[{slot(word, kind.words)}][{number}]"
        return where + ("" if is_same else f"[{number}]")

    names = "|".join(sorted(root.of_instance, key=len, reverse=True))
    port_of = re.compile(
        rf"vlSymsp->(?P<instance>{names})\s*\.\s*(?P<port>\w+)\b(?:\s*\[(?P<word>\d+U|0x[0-9a-f]+U)\])?(?!\s*\[)"
    )
    for file, text in files.items():
        files[file] = port_of.sub(element, text)
    return files, modules


def keeps_to_itself(function: Function) -> bool:
    """Whether a function names nothing but variables of its instance and its own."""
    try:
        statements = Reader(function.body).statements()
    except NotUnderstoodError:
        return False
    own = variables(function.declared)
    named = set().union(*(named_paths(s) for s in statements))
    return all(path[0] in own if len(path) == 1 else path[0] == "vlSelfRef" for path in named)


def calls_of_all(text: str, of_all: dict[str, Module], apart: set[str]) -> str:
    """One call for all instances where there was one for each. Calls of functions that keep to themselves (`apart`) may
    change places, others not."""

    def together(calls: list[tuple[str, str]]) -> Iterator[str]:
        order: dict[str, list[str]] = {}
        for function, instance in calls:
            order.setdefault(function, []).append(instance)
        for function, instances in order.items():
            module = of_all.get(function)
            if module is None:
                for instance in instances:
                    yield f"        {function}((&vlSymsp->{instance}));\n"
            elif sorted(instances) == sorted(module.instances):
                yield f"        {function}__all(vlSymsp->{module.state}, vlSymsp->{module.memories});\n"
            else:
                raise NotUnderstoodError(f"{function} for some instances alone")

    def instead(found: re.Match[str]) -> str:
        lines, run = [], []
        for function, instance in CALL.findall(found[0]):
            if function in apart:
                run.append((function, instance))
            else:
                lines += [*together(run), f"        {function}((&vlSymsp->{instance}));\n"]
                run = []
        return "".join([*lines, *together(run)])

    return CALLS.sub(instead, text)


# A class of the model.


def structures(module: Module) -> str:
    """What all instances hold, as C++."""
    types = {"CData": "uint8_t", "SData": "uint16_t", "IData": "uint32_t", "QData": "uint64_t", None: "uint32_t"}
    state, memories = [], []
    for name, kind in module.variables.items():
        plain = types[kind.element]
        if kind.depth:
            words = f"[{room_of(kind.words)}]" if kind.words else ""
            memories.append(f"  alignas(64) {plain} {name}[{module.count}][{elements_of(kind)}]{words};")
        elif kind.words and name in module.same:
            state.append(f"  alignas(64) uint32_t {name}[{room_of(kind.words)}];")
        elif kind.words:
            state.append(f"  alignas(64) uint32_t {name}[{room_of(kind.words)}][{module.count}];")
        else:
            cell = f"merapi::instances::Cell<{plain}>" if kind.bits < 32 else plain
            size = module.count * (8 if kind.bits == 64 else 4)
            align = min(1 << (size - 1).bit_length(), 64)
            state.append(
                f"  {cell} {name};" if name in module.same else f"  alignas({align}) {cell} {name}[{module.count}];"
            )
    return "\n".join(
        [
            f"struct alignas(64) {module.state} {{",
            *state,
            "};",
            f"struct alignas(64) {module.memories} {{",
            *memories,
            "};",
            "",
        ]
    )


def mover_signature(module: Module) -> str:
    given = f"{module.state}& state, {module.memories}& memories, const {module.owner}& one, int i"
    return f"void {module.owner}__move({given})"


def mover(module: Module) -> str:
    """A function that moves an instance's variables over."""
    lines = [f"{mover_signature(module)} {{"]
    for name, kind in module.variables.items():
        element = f"  for (int at = 0; at < {kind.depth}; ++at) "
        word = f"for (int w = 0; w < {kind.words}; ++w) "
        if kind.depth and kind.words:
            lines.append(f"{element}{word}memories.{name}[i][at][w] = one.{name}[at][w];")
        elif kind.depth:
            lines.append(f"{element}memories.{name}[i][at] = one.{name}[at];")
        elif kind.words and name in module.same:
            lines.append(f"  {word}state.{name}[w] = one.{name}[w];")
        elif kind.words:
            lines += [f"  state.{name}[{slot(w, kind.words)}][i] = one.{name}[{w}];" for w in range(kind.words)]
        else:
            lines.append(f"  state.{name}{'' if name in module.same else '[i]'} = one.{name};")
    return "\n".join([*lines, "}", ""])


def several(symbols: str, folder: Path) -> list[Module]:
    """The classes of which the model has several instances."""
    found = defaultdict(list)
    for owner, instance in re.findall(r"^ +(\w+) +(TOP__\w+);$", symbols, re.MULTILINE):
        found[owner].append(instance)
    return [
        Module(owner, tuple(instances), variables((folder / f"{owner}.h").read_text()))
        for owner, instances in found.items()
        if len(instances) > 1
    ]


def evaluating(files: dict[Path, str], module: Module) -> Iterator[tuple[Path, Function]]:
    for file, text in files.items():
        for function in functions(text):
            if function.owner == module.owner:
                yield file, function


def vectorize(folder: Path) -> dict[str, str]:
    """Rewrites the C++ of `folder`; gives what became of each class with several instances. Nothing is written when
    there is something that is not understood."""
    (symbols_file,) = folder.glob("V*__Syms.h")
    prefix = symbols_file.name.removesuffix("__Syms.h")
    symbols = symbols_file.read_text()
    if HEADER.name in symbols:
        raise NotUnderstoodError("this has been done before")
    fast = {f: f.read_text() for f in sorted(folder.glob("*.cpp")) if not f.stem.endswith("Slow")}
    apart = {function.name for text in fast.values() for function in functions(text) if keeps_to_itself(function)}
    outcome, modules, bodies = {}, [], {}
    for module in several(symbols, folder):
        own = list(evaluating(fast, module))
        try:
            for _, function in own:
                FunctionOfAll(module, function).lines()
            calls_of_all("\n".join(fast.values()), {function.name: module for _, function in own}, apart)
        except NotUnderstoodError as why:
            outcome[module.owner] = f"{module.count} instances, one after the other: {why}"
            continue
        modules.append(module)
        bodies[module.owner] = own
        outcome[module.owner] = f"{module.count} instances at once"
    if not modules:
        return outcome
    root = Root({f: text for f, text in fast.items() if "___024root" in f.name}, modules)
    new, modules = rewrite_root(root, modules, {owner: given_by(own) for owner, own in bodies.items()})
    of_all = {function.name: m for m in modules for _, function in bodies[m.owner]}
    new = {file: calls_of_all(text, of_all, apart) for file, text in new.items()}
    left = re.search(rf"\b({'|'.join(root.of_instance)})\b[^;]*", "".join({**fast, **new}.values()))
    if left:
        raise NotUnderstoodError(f"an instance is named: {left[0]}")
    for module in modules:
        for file in {at for at, _ in bodies[module.owner]}:
            own = [function for at, function in bodies[module.owner] if at == file]
            included = f'#define MERAPI_INSTANCES {module.count}\n#include "{HEADER.name}"\n'
            new[file] = fast[file] + included + "".join(function_of_all(module, function) for function in own)
        slow = folder / f"{module.owner}__Slow.cpp"
        new[slow] = f'{slow.read_text()}\n#include "{symbols_file.name}"\n{mover(module)}'
    scopes = "    // SCOPE NAMES\n"
    members = "".join(f"    {kind} {kind};\n" for m in modules for kind in (m.state, m.memories))
    declared = "".join(f"{signature(m, name)};\n" for name, m in of_all.items())
    above = "// SYMS CLASS"
    new[symbols_file] = once(symbols, {scopes: members + scopes, above: f"{types(modules)}{declared}\n{above}"})
    top = folder / f"{prefix}.cpp"
    settled = "        vlSymsp->__Vm_didInit = true;\n"
    moves = "".join(
        f"        {m.owner}__move(vlSymsp->{m.state}, vlSymsp->{m.memories}, vlSymsp->{instance}, {i});\n"
        for m in modules
        for i, instance in enumerate(m.instances)
    )
    new[top] = once(top.read_text(), {settled: moves + settled})
    for file, text in new.items():
        file.write_text(text)
    shutil.copy(HEADER, folder)
    return outcome


def signature(module: Module, function: str) -> str:
    return f"void {function}__all({module.state}& __restrict state, {module.memories}& __restrict memories)"


def function_of_all(module: Module, function: Function) -> str:
    lines = [f"\n{signature(module, function.name)} {{", "  using namespace merapi::instances;"]
    return "\n".join([*lines, *FunctionOfAll(module, function).lines(), "}", ""])


def given_by(own: list[tuple[Path, Function]]) -> set[str]:
    """The variables that a module's functions write."""
    found = set()
    for _, function in own:
        for block in blocks(Reader(function.body).statements()):
            found |= {s.it.place.path[-1] for s in block if isinstance(s.it, Assign)}
    return found


def types(modules: list[Module]) -> str:
    moves = "".join(f"{mover_signature(m)};\n" for m in modules)
    return f'#include "{HEADER.name}"\n\n' + "\n".join(map(structures, modules)) + moves


def once(text: str, changes: dict[str, str]) -> str:
    """A text in which each of some places, which are there once, is another."""
    for old, new in changes.items():
        if text.count(old) != 1:
            raise NotUnderstoodError(f"expected {old.strip()} once, found it {text.count(old)} times")
        text = text.replace(old, new)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what Verilator has written and share_instances.py has gone through")
    given = parser.parse_args()
    if not any(given.folder.glob("V*__Syms.h")):
        print(f"vector_instances: expected C++ of Verilator in {given.folder}, found none", file=sys.stderr)
        return 1
    try:
        outcomes = vectorize(given.folder)
    except NotUnderstoodError as why:
        print(f"everything stays as it is: {why}")
        return 0
    for owner, outcome in outcomes.items():
        print(f"{owner}: {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
