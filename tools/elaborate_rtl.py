#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SystemVerilog of a preset of the tracer, in FOLDER: made by COMMAND, to which the preset and a folder are added, or
taken from the cache, where it is kept under the digest of its sources.

  elaborate_rtl.py PRESET FOLDER --sources FILE... --version TEXT -- COMMAND...
"""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

from common import exclusive, fail, say
from kept import DIGESTS, Kept, key_of_sources

CACHED = 24  # presets in the cache; each is 2 MB
# firtool's warnings (a value that is cut to fit, say) are errors where the source is ours; Chisel's own arbiter of one
# has some.
WARNING = re.compile(r"^hw/.*: warning:.*\n(?:.*\n){0,2}", re.MULTILINE)


def key(preset, sources, version):
    """Digest of all that decides what is made. `version`: of what makes it, as far as no source says it."""
    return key_of_sources((preset, version), sources)


def elaborate(preset, folder, command, log):
    """Run the elaboration; what it says goes to `log`."""
    with open(log, "w") as file:
        done = subprocess.run([*command, preset, str(folder)], stdout=file, stderr=subprocess.STDOUT)
    text = log.read_text(errors="replace")
    if done.returncode:
        fail(f"elaborating {preset} failed; see {log}\n{text.rstrip()}")
    if warnings := WARNING.findall(text):
        fail(f"expected no warning from elaborating {preset}, found these\n{''.join(warnings).rstrip()}")
    if not (folder / "filelist.f").is_file():
        fail(f"expected filelist.f from elaborating {preset}, found none; see {log}")


def put(made, folder):
    """Replace what an elaboration made in `folder`, and nothing else there. filelist.f, which make looks at, comes
    last."""
    for old in (folder / "filelist.f", *folder.glob("*.sv")):
        old.unlink(missing_ok=True)
    shutil.rmtree(folder / "verification", ignore_errors=True)
    files = [path for path in made.rglob("*") if path.is_file() and path.name != DIGESTS]
    for path in sorted(files, key=lambda path: path.name == "filelist.f"):
        to = folder / path.relative_to(made)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sources", nargs="+", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    kept, log = Kept("rtl", CACHED), args.folder.with_suffix(".log")
    with exclusive("elaborate"):
        wanted = key(args.preset, args.sources, args.version)
        if (found := kept.find(wanted)) is None:
            say(f"rtl: elaborating {args.preset}")
            args.folder.mkdir(parents=True, exist_ok=True)
            with kept.made(wanted) as part:
                elaborate(args.preset, part, args.command, log)
                if wanted != key(args.preset, args.sources, args.version):
                    fail("expected sources that stay as they are during elaboration, found them edited; start again")
            found = kept.folder / wanted
        put(found, args.folder)


if __name__ == "__main__":
    main()
