#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrites the C++ that Verilator made of a tracer, so that a cycle executes what has something to do and little else.

  gate_model.py check FOLDER    whether the model is one of which this can be made; nothing is written
  gate_model.py record FOLDER   the model writes to the file that MERAPI_ACTIVITY names what changes when; of what, says
                                FOLDER/activity.names
  gate_model.py gate FOLDER     parts are chosen by FOLDER/activity and FOLDER/activity.names

What the model does is the same in every cycle: a record decides how fast it is. A model that is not understood
stays as it is; the status is 3 then (rtl_refused of simulations.mk).
"""

import argparse
import re
import sys
from pathlib import Path

from gated_code import DECLARED, Code
from model_units import Model, whole_units
from unit_clusters import Costs, Record, label, parts_of
from verilated_cpp import NotUnderstoodError

ACTIVITY, NAMES = "activity", "activity.names"
REFUSED = 3
# Cycles of which one is recorded: a prime, since some things happen every so many cycles.
PERIOD = 211
RECORD = """\
#include <cstdio>
#include <cstdlib>
void {owner}___record({owner}* vlSelf) {{
  static std::FILE* const file = std::fopen(std::getenv("MERAPI_ACTIVITY"), "wb");
  static unsigned cycle = 0;
  if (file != nullptr && cycle++ % {period} == 0) {{
    uint8_t bits[{bytes}] = {{}};
    for (unsigned i = 0; i < {count}; i++) bits[i / 8] |= (vlSelf->gate_changes[i] != 0) << i % 8;
    if (std::fwrite(bits, 1, sizeof bits, file) != sizeof bits || std::fflush(file) != 0) {{
      std::perror("what changes is not recorded");
      std::_Exit(1);
    }}
  }}
  std::memset(vlSelf->gate_changes, 0, sizeof vlSelf->gate_changes);
}}
"""


def rewritten(model: Model, code: Code) -> dict[Path, str]:
    """The texts of the model's files; they are written when all of them are known."""
    owner = model.owner
    functions = code.functions()
    added, moved = code.members()
    header = model.header.read_text()
    for variable in moved:
        header = re.sub(DECLARED.format(re.escape(variable)), "", header, count=1, flags=re.MULTILINE)
    mark = "    // INTERNAL VARIABLES\n"
    if mark not in header:
        raise NotUnderstoodError(f"no internal variables in {model.header.name}")
    header = header.replace(mark, "".join(f"    {line}\n" for line in added) + mark, 1)

    texts = dict(model.files)
    for path, text in texts.items():
        for function in model.functions:
            text = text.replace(function.text, "", 1)
        texts[path] = re.sub(rf"^void {owner}___eval_nba\(.*?^}}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    declared = {line for text in texts.values() for line in re.findall(r"^extern const .*;$", text, re.MULTILINE)}
    declared |= {f[0].removesuffix(" {") + ";" for f in functions}
    declared.add(f"void {owner}___eval_nba({owner}* vlSelf);")
    pieces = ["\n".join(f) for f in functions]
    if code.recording:
        declared.add(f"void {owner}___record({owner}* vlSelf);")
        count = len(code.names)
        pieces.append(RECORD.format(owner=owner, period=PERIOD, bytes=(count + 7) // 8, count=count))
    first = f'#include "{owner.removesuffix("___024root")}__pch.h"\n'
    top = first + "\n".join(['#include "gates.h"', *sorted(declared), ""])
    if not all(first in text for text in texts.values()):
        raise NotUnderstoodError(f"expected {first.strip()} in each file")
    texts = {path: text.replace(first, top, 1) for path, text in texts.items()}
    for piece in pieces:
        texts[min(texts, key=lambda path: len(texts[path]))] += piece + "\n"
    texts[model.header] = header
    texts[model.folder / "gates.h"] = (Path(__file__).parent / "gates.h").read_text()
    return texts


def write(texts: dict[Path, str]) -> None:
    for path, text in texts.items():
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=("check", "record", "gate"))
    parser.add_argument("folder", type=Path, help="what Verilator has written")
    for name, value in Costs()._asdict().items():
        parser.add_argument(f"--{name}", type=float, default=value, help=f"of parts (unit_clusters.py), {value:g}")
    given = parser.parse_args()
    try:
        model = Model(given.folder)
        units, after = whole_units(model)
        total = sum(unit.cost for unit in units)
        if given.how != "gate":
            code = Code(model, units, after, [], {}, recording=True)
            texts = rewritten(model, code)
            if given.how == "record":
                write(texts)
                (given.folder / NAMES).write_text("".join(f"{label(v)}\n" for v in code.names))
            print(f"{len(units)} units, {len(code.names)} variables")
            return 0
        record = Record.read(given.folder / ACTIVITY, (given.folder / NAMES).read_text().splitlines())
        parts = parts_of(units, after, record, Costs(*(getattr(given, name) for name in Costs._fields)))
        code = Code(model, units, after, parts, record.rates)
        write(rewritten(model, code))
    except (NotUnderstoodError, ValueError, OSError) as error:
        print(f"gate_model: {error}", file=sys.stderr)
        return REFUSED if isinstance(error, NotUnderstoodError) else 1
    in_parts = sum(part.cost for part in parts)
    executed = total - in_parts + sum(part.cost * part.rate for part in parts)
    print(f"{len(units)} units of {total:.0f} instructions, {len(parts)} parts, {executed:.0f} executed in a cycle")
    for part in sorted(parts, key=lambda part: -part.cost):
        print(f"  {len(part.units)} units of {part.cost:.0f} instructions in {part.rate:.4f} of the cycles")
    return 0


if __name__ == "__main__":
    sys.exit(main())
