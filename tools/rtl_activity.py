#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What changes in which cycles of a simulated tracer, for sim/rtl/gate_model.py: FOLDER/activity and, with the names of
what is recorded, FOLDER/activity.names. COMMAND builds a tracer that records it, which then traces a window. Or it is
taken from the cache, where it is kept under the digest of FOLDER's C++ and of SOURCES.

  rtl_activity.py PRESET FOLDER --sources FILE... --window FILE.xz --replay PROGRAM --recorder FOLDER -- COMMAND...
"""

import argparse
import lzma
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import exclusive, fail, say
from kept import Kept, key_of

CACHED = 8  # records in the cache; each is 2 MB
FILES = ("activity", "activity.names")


def record(args, folder):
    """Let the tracer in the recorder's folder trace the window, and what it records be in `folder`."""
    with tempfile.TemporaryDirectory(prefix="merapi-") as scratch:
        window = Path(scratch) / "window.img"
        with lzma.open(args.window) as packed, open(window, "wb") as file:
            shutil.copyfileobj(packed, file)
        done = subprocess.run(
            [args.replay, window, "--rtl", "--rtl-folder", args.recorder, "--preset", args.preset, "--memory", "ideal",
             "--check"],
            env={**os.environ, "MERAPI_ACTIVITY": str(folder / FILES[0])}, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        fail(f"expected a trace of {args.window} by {args.preset} to be recorded, found\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sources", nargs="+", type=Path, required=True)
    parser.add_argument("--window", type=Path, required=True)
    parser.add_argument("--replay", type=Path, required=True)
    parser.add_argument("--recorder", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    kept = Kept("activity", CACHED)
    with exclusive("activity"):
        model = [*args.folder.glob("*.cpp"), *args.folder.glob("*.h")]
        if not model:
            fail(f"expected C++ of Verilator in {args.folder}, found none")
        wanted = key_of([args.preset], [(path.name, path) for path in (*model, *args.sources, args.window)])
        if (found := kept.find(wanted)) is None:
            say(f"recording what changes in {args.preset} during a trace")
            if subprocess.run(args.command).returncode:
                fail(f"building the {args.preset} that records failed: {' '.join(args.command)}")
            with kept.made(wanted) as part:
                record(args, part)
                shutil.copyfile(args.recorder / f"{args.preset}.{FILES[1]}", part / FILES[1])
            found = kept.folder / wanted
        for name in FILES:
            shutil.copyfile(found / name, args.folder / name)


if __name__ == "__main__":
    main()
