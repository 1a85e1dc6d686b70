# SPDX-License-Identifier: Apache-2.0
"""A cycle of a model with one clock takes two evaluations: what follows from the inputs while it is low, and its rise.

Verilator's own evaluation asks in loops what has triggered what, looks at the inputs in both, and ends with messages
and objects that a tracer has none of. So inputs are given while the clock is low.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from verilated_cpp import NotUnderstoodError

EVALUATE = """\
void {owner}___eval_ico({owner}* vlSelf);
void {owner}___eval_nba({owner}* vlSelf);
void {owner}___eval({owner}* vlSelf) {{
    CData& before = vlSelf->__Vtrigprevexpr___TOP__clock__0;
    const bool rises = vlSelf->clock && !before;
    before = vlSelf->clock;
    if (rises) {{
        vlSelf->__VnbaTriggered[0U] = 1ULL;
        {owner}___eval_nba(vlSelf);
    }} else if (!vlSelf->clock) {{
        vlSelf->__VicoTriggered[0U] = 1ULL;
        {owner}___eval_ico(vlSelf);
    }}
}}
"""
TRIGGERS = re.compile(r"^void \w+___eval_triggers_vec__act\([^)]*\) \{\n.*?^}\n", re.MULTILINE | re.DOTALL)
# Without white space.
RISES = (
    "vlSelfRef.__VactTriggered[0U]=(QData)((IData)("
    "((IData)(vlSelfRef.clock)&(~(IData)(vlSelfRef.__Vtrigprevexpr___TOP__clock__0)))));"
    "vlSelfRef.__Vtrigprevexpr___TOP__clock__0=vlSelfRef.clock;}"
)
ENDS = ("    vlSymsp->__Vm_deleter.deleteAll();\n", "    Verilated::endOfEval(vlSymsp->__Vm_evalMsgQp);\n")
SAYS = re.compile(r"\bVL_(F?WRITEF|STOP|FINISH|PRINTF)")


def simplify(folder: Path) -> None:
    """Rewrites the evaluation of the model in `folder`."""
    header = next(iter(folder.glob("V*___024root.h")), None)
    if header is None:
        raise NotUnderstoodError(f"no class of a root in {folder}")
    owner = header.stem
    texts = {path: path.read_text() for path in sorted(folder.glob("*.cpp"))}
    whole = re.compile(rf"^void {owner}___eval\([^)]*\) {{\n.*?^}}\n", re.MULTILINE | re.DOTALL)
    triggers = [found[0] for text in texts.values() for found in TRIGGERS.finditer(text)]
    places = [path for path, text in texts.items() if whole.search(text)]
    outer = folder / f"{owner.removesuffix('___024root')}.cpp"
    if len(triggers) != 1 or not "".join(triggers[0].split()).endswith(RISES) or len(places) != 1 or outer not in texts:
        raise NotUnderstoodError("expected a clock that rises to be all that triggers")
    texts[places[0]] = whole.sub(lambda _: EVALUATE.format(owner=owner), texts[places[0]])
    if not any(SAYS.search(text) for text in texts.values()):
        for end in ENDS:
            texts[outer] = texts[outer].replace(end, "")
    for path in (places[0], outer):
        path.write_text(texts[path])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what Verilator has written")
    given = parser.parse_args()
    try:
        simplify(given.folder)
    except NotUnderstoodError as error:
        print(f"plain_evaluation: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
