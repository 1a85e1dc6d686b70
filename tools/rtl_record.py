#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a simulated tracer records of itself while it traces a window, for the same tracer made faster; put into FOLDER.
COMMAND builds the one that records. Or it is taken from the cache, where it is kept under the digest of FOLDER's C++,
of SOURCES and of the compiler.

  rtl_record.py activity|profile PRESET FOLDER --sources FILE... --window FILE.xz --replay PROGRAM --recorder FOLDER
    --compiler PROGRAM -- COMMAND...

activity: which variables change in which cycles, and their names, which the recorder's folder has, for
sim/rtl/gate_model.py. profile: how often what is executed, for clang; one that has not what this takes is told, with
status 3 (rtl_refused of sim/rtl/simulations.mk).
"""

import argparse
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import exclusive, fail, say
from kept import Kept, key_of

CACHED = 8  # records of each kind in the cache; each is 2 MB at most
ACTIVITY, NAMES, PROFILE = "activity", "activity.names", "profile.profdata"
REFUSED = 3


def trace(args, **environment):
    """Let the tracer in the recorder's folder trace the window."""
    with tempfile.TemporaryDirectory(prefix="merapi-") as scratch:
        window = Path(scratch) / "window.img"
        with lzma.open(args.window) as packed, open(window, "wb") as file:
            shutil.copyfileobj(packed, file)
        done = subprocess.run(
            [args.replay, window, "--rtl", "--rtl-folder", args.recorder, "--preset", args.preset, "--memory", "ideal",
             "--check"],
            env={**os.environ, **environment}, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        fail(f"expected a trace of {args.window} by {args.preset} to be recorded, found\n{done.stdout}{done.stderr}")


def said_by(*command):
    """What it writes; a command that is not there or fails ends this one with a message."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")
    if done.returncode:
        fail(f"{' '.join(map(str, command))} failed: {done.stderr}")
    return done.stdout


def profdata(compiler):
    return said_by(compiler, "-print-prog-name=llvm-profdata").strip()


def expect_profiles(compiler):
    """What clang's profiles take is looked at before the tracer that records one is built."""
    command = [compiler, "-fprofile-instr-generate", "-###", "-x", "c++", os.devnull]
    plan = subprocess.run(command, capture_output=True, text=True).stderr
    needed = [profdata(compiler), *re.findall(r'"([^"]*/libclang_rt\.profile[^"]*)"', plan)]
    if missing := [name for name in needed if not (shutil.which(name) or Path(name).exists())]:
        say(f"expected {missing[0]}, which a profile by {compiler} takes, found nothing; install it")
        sys.exit(REFUSED)


def record_activity(args, folder):
    trace(args, MERAPI_ACTIVITY=str(folder / ACTIVITY))
    if not (folder / ACTIVITY).exists():
        fail(f"expected a record of what changes in {args.preset}, found none after a trace; start again")
    shutil.copyfile(args.recorder / f"{args.preset}.{NAMES}", folder / NAMES)


def record_profile(args, folder):
    counts = folder / "counts"
    trace(args, LLVM_PROFILE_FILE=str(counts))
    said_by(profdata(args.compiler), "merge", "-o", folder / PROFILE, counts)
    counts.unlink()


RECORDS = {"activity": record_activity, "profile": record_profile}
SAID = {"activity": "what changes", "profile": "a profile"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=RECORDS)
    parser.add_argument("preset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sources", nargs="*", type=Path, default=[])
    parser.add_argument("--window", type=Path, required=True)
    parser.add_argument("--replay", type=Path, required=True)
    parser.add_argument("--recorder", type=Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    kept = Kept(args.what, CACHED)
    with exclusive(args.what):
        model = [*args.folder.glob("*.cpp"), *args.folder.glob("*.h")]
        if not model:
            fail(f"expected C++ of Verilator in {args.folder}, found none")
        said = [args.preset, said_by(args.compiler, "--version")]
        wanted = key_of(said, [(path.name, path) for path in (*model, *args.sources, args.window)])
        if (found := kept.find(wanted)) is None:
            if args.what == "profile":
                expect_profiles(args.compiler)
            say(f"recording {SAID[args.what]} in {args.preset} during a trace")
            if subprocess.run(args.command).returncode:
                fail(f"building the {args.preset} that records failed: {' '.join(args.command)}")
            with kept.made(wanted) as part:
                RECORDS[args.what](args, part)
            found = kept.folder / wanted
        for path in found.iterdir():
            if path.name in (ACTIVITY, NAMES, PROFILE):
                shutil.copyfile(path, args.folder / path.name)


if __name__ == "__main__":
    main()
