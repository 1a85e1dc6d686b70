#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SystemVerilog of a preset of the tracer, in FOLDER: made by COMMAND, to which the preset and a folder are added, or
taken from the cache, where it is kept under the digest of its sources. When it is not there, the presets that are named
after --together are made in the same run, for the cache: the second preset takes half as long as the first, for which
COMMAND starts.

  elaborate_rtl.py PRESET FOLDER [--together PRESET]... --sources FILE... --version TEXT -- COMMAND...
"""

import argparse
import contextlib
import filecmp
import re
import shutil
import subprocess
from pathlib import Path

from common import exclusive, fail, say, write_whole
from kept import DIGESTS, Kept, key_of_sources

CACHED = 24  # presets in the cache; each is 2 MB
# firtool's warnings (a value that is cut to fit, say) are errors where the source is ours; Chisel's own arbiter of one
# has some.
WARNING = re.compile(r"^hw/.*: warning:.*\n(?:.*\n){0,2}", re.MULTILINE)


def key(preset, sources, version):
    """Digest of all that decides what is made. `version`: of what makes it, as far as no source says it."""
    return key_of_sources((preset, version), sources)


def elaborate(folders, command, log):
    """Run the elaboration of presets, each into its folder; what it says goes to `log`."""
    presets = ", ".join(folders)
    say(f"rtl: elaborating {presets}")
    with open(log, "w") as file:
        arguments = [str(argument) for pair in folders.items() for argument in pair]
        with exclusive("mill"):  # unit_tests.py starts it in the same folder
            done = subprocess.run([*command, *arguments], stdout=file, stderr=subprocess.STDOUT)
    text = log.read_text(errors="replace")
    if done.returncode:
        fail(f"elaborating {presets} failed; see {log}\n{text.rstrip()}")
    if warnings := WARNING.findall(text):
        fail(f"expected no warning from elaborating {presets}, found these\n{''.join(warnings).rstrip()}")
    for preset, folder in folders.items():
        if not (folder / "filelist.f").is_file():
            fail(f"expected filelist.f from elaborating {preset}, found none; see {log}")


def files_of(made):
    return [path.relative_to(made) for path in made.rglob("*") if path.is_file() and path.name != DIGESTS]


def is_current(made, folder, sources):
    """Whether `folder` has what was made, and filelist.f is no older than the sources: another make has put it there,
    and may be reading it."""
    listed, names = folder / "filelist.f", files_of(made)
    there = [path for path in (*folder.glob("*.sv"), *folder.glob("verification/**/*")) if path.is_file()]
    return (
        listed.is_file()
        and listed.stat().st_mtime_ns >= max(path.stat().st_mtime_ns for path in sources)
        and all(path.relative_to(folder) in names for path in there)
        and all((folder / name).is_file() and filecmp.cmp(made / name, folder / name, shallow=False) for name in names)
    )


def put(made, folder):
    """Replace what an elaboration made in `folder`, and nothing else there. filelist.f, which make looks at, comes
    last, and whole: make keeps what is there of it."""
    for old in (folder / "filelist.f", *folder.glob("*.sv")):
        old.unlink(missing_ok=True)
    shutil.rmtree(folder / "verification", ignore_errors=True)
    for name in files_of(made):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.name != "filelist.f":
            shutil.copyfile(made / name, folder / name)
    write_whole(folder / "filelist.f", (made / "filelist.f").read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--together", action="append", default=[], metavar="PRESET")
    parser.add_argument("--sources", nargs="+", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    kept, log = Kept("rtl", CACHED), args.folder.with_suffix(".log")

    def wanted(preset):
        return key(preset, args.sources, args.version)

    with exclusive("elaborate"):
        if (found := kept.find(wanted(args.preset))) is None:
            args.folder.mkdir(parents=True, exist_ok=True)
            others = dict.fromkeys(preset for preset in args.together if preset != args.preset)
            keys = {args.preset: wanted(args.preset)}
            keys |= {preset: wanted(preset) for preset in others if kept.find(wanted(preset)) is None}
            # Each is kept when all are made, and none when one is refused.
            with contextlib.ExitStack() as parts:
                folders = {preset: parts.enter_context(kept.made(digest)) for preset, digest in keys.items()}
                elaborate(folders, args.command, log)
                if any(digest != wanted(preset) for preset, digest in keys.items()):
                    fail("expected sources that stay as they are during elaboration, found them edited; start again")
            found = kept.folder / keys[args.preset]
        if not is_current(found, args.folder, [*args.sources, Path(__file__)]):
            put(found, args.folder)


if __name__ == "__main__":
    main()
