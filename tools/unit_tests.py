#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unit tests of the tracer's blocks: compiled by MILL, or taken from the cache where the same sources have been
compiled before, and run by ScalaTest. UNIT is a class, or a package as 'lane.*'; without it all run. With MERAPI_ONCE=1
those that passed before, compiled from the same sources, do not run again.

  unit_tests.py [--unit UNIT] --sources FILE... --version TEXT -- MILL...
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kept_runs
from children import die_with_parent
from common import ROOT, exclusive, fail, say
from kept import Kept, key_of, key_of_sources

CACHED = 8  # compilations in the cache; each is 5 MB
PACKAGE = "merapi"
LIBRARIES = "libraries"  # a file with the paths of those that the classes need
NO_TEST = "No tests were executed"
NOT_AGAIN = "unit tests: not run again"


def compile_with(mill, folder):
    """Fill `folder`: its classes, of the tracer and of the tests, apart, and where its libraries are."""
    show = [*mill, "show", "tracer.test.runClasspath"]
    with exclusive("mill"):  # elaborate_rtl.py starts it in the same folder
        done = subprocess.run(show, capture_output=True, text=True, errors="replace", cwd=ROOT)
    if done.returncode:
        fail(f"compiling the unit tests failed\n{done.stderr.rstrip()}")
    jars = []
    for path in (Path(entry.split(":")[-1]) for entry in json.loads(done.stdout)):
        if path.suffix == ".jar":
            jars.append(path)
        elif path.is_dir():
            of_tests = path.parts[-3:] == ("test", "compile.dest", "classes")
            shutil.copytree(path, folder / ("test" if of_tests else "tracer"), dirs_exist_ok=True)
    if not (folder / "test").is_dir():
        fail(f"expected classes of tests from {' '.join(mill)}, found {done.stdout.strip()}")
    (folder / LIBRARIES).write_text("".join(f"{path}\n" for path in jars))


def libraries(folder):
    return [Path(line) for line in (folder / LIBRARIES).read_text().splitlines()]


def compiled(sources, version, mill):
    """The folder of what was compiled from these sources, whose libraries are there; its name is their key."""
    kept = Kept("units", CACHED)
    said = ("unit tests", version)
    wanted = key_of_sources(said, sources)
    found = kept.find(wanted)
    if found is None or not all(path.is_file() for path in libraries(found)):
        say("rtl: compiling the unit tests")
        with kept.made(wanted) as part:
            compile_with(mill, part)
            if wanted != key_of_sources(said, sources):
                fail("expected sources that stay as they are while being compiled, found them edited; start again")
    return kept.folder / wanted


def of_unit(unit):
    """ScalaTest's arguments for those of `unit`."""
    if not unit:
        return []
    if package := re.fullmatch(r"(\w+(?:\.\w+)*)\.\*", unit):
        return ["-w", f"{PACKAGE}.{package[1]}"]
    if not re.fullmatch(r"\w+(\.\w+)*", unit):
        fail(f"UNIT: expected a class (LimitsTest) or a package (lane.*), found '{unit}'")
    return ["-q", f".{unit}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--unit", default="")
    parser.add_argument("--sources", nargs="+", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("mill", nargs="+")
    args = parser.parse_args()
    wanted = of_unit(args.unit)
    folder = compiled(args.sources, args.version, args.mill)
    path = ":".join(map(str, (folder / "test", folder / "tracer", *libraries(folder))))
    command = ["java", "-cp", path, "org.scalatest.tools.Runner", "-R", folder / "test", "-oDW", *wanted]

    def run(left):
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, errors="replace", cwd=ROOT, preexec_fn=die_with_parent
        )
        lines = []
        for line in running.stdout:
            lines.append(line)
            print(line, end="", flush=True)
        status = running.wait()
        if any(NO_TEST in line for line in lines):
            said = f" of UNIT={args.unit}" if args.unit else ""
            fail(f"expected unit tests, found none{said}; they are in hw/tracer-rtl/src/test")
        if status:
            sys.exit(status)
        (left / "stdout").write_text("".join(lines))

    # What compiles and runs the simulations; CCACHE_NAMESPACE is the processor's kind.
    given = [(name, os.environ.get(name, "")) for name in ("MERAPI_SEED", "MERAPI_FULL", "CCACHE_NAMESPACE")]
    for tool in (["java", "-version"], ["g++", "--version"]):
        said = subprocess.run(tool, capture_output=True, text=True, errors="replace", check=False)
        given.append((*tool, said.stdout, said.stderr))
    files = [(name, ROOT / "hw/tracer-rtl" / name) for name in ("rtl.mk", "objcache.sh")]
    found, taken = kept_runs.once(lambda: key_of(("unit tests", folder.name, wanted, given), files), run)
    if taken:
        print(found["stdout"], end="")
        say(f"{NOT_AGAIN}, since the same passed before; MERAPI_ONCE=0 runs them")


if __name__ == "__main__":
    main()
