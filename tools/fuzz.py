#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run libmerapi's libFuzzer targets, each for a while, with address and undefined-behaviour sanitizers.

Targets are the programs merapi_fuzz_* that the library's build makes; one of them,
merapi_fuzz_seeds, writes the seeds of the others. The corpus is kept in
build/fuzz/corpus and what was found in build/fuzz/found, a folder for each
target. Status 1 when a target found something.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from common import BUILD, ROOT, exclusive, fail, say

SOURCE = ROOT / "sw/libmerapi"
OUT = BUILD / "fuzz"
CONFIGURE = [
    "-G",
    "Ninja",
    "-DMERAPI_FUZZERS=ON",
    "-DCMAKE_C_COMPILER=clang",
    "-DCMAKE_CXX_COMPILER=clang++",
    f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={OUT / 'bin'}",
]


def build(jobs):
    """Configure and build; returns the targets' paths."""
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "build.log"
    with open(log, "w") as file:
        for command in (
            ["cmake", "-S", SOURCE, "-B", OUT / "tree", *CONFIGURE],
            ["cmake", "--build", OUT / "tree", "--parallel", str(jobs)],
        ):
            if subprocess.run(command, stdout=file, stderr=file).returncode:
                tail = "\n".join(log.read_text().splitlines()[-20:])
                fail(f"the fuzz targets do not build; see {log}\n{tail}")
    seeds = OUT / "bin/merapi_fuzz_seeds"
    targets = sorted(path for path in (OUT / "bin").glob("merapi_fuzz_*") if path.is_file() and path != seeds)
    if not targets:
        fail(f"expected programs merapi_fuzz_* in {OUT / 'bin'}, found none; does {SOURCE}/CMakeLists.txt build them?")
    (OUT / "seeds").mkdir(exist_ok=True)
    if subprocess.run([seeds, OUT / "seeds"]).returncode:
        fail(f"expected seeds of {seeds}, found an error; see above")
    return targets


def fuzz(target, seconds):
    """Run one target. Returns (name, what went wrong or None, executions)."""
    corpus, found = OUT / "corpus" / target.name, OUT / "found" / target.name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = OUT / "seeds" / target.name.removeprefix("merapi_fuzz_")
    log = OUT / f"{target.name}.log"
    command = [
        target,
        "-print_final_stats=1",
        f"-max_total_time={seconds}",
        "-max_len=65536",
        "-timeout=20",
        "-rss_limit_mb=2500",
    ]
    with open(log, "w") as file:
        status = subprocess.run(
            [*command, f"-artifact_prefix={found}/", corpus, *([seeds] if seeds.is_dir() else [])],
            stdout=file,
            stderr=file,
        ).returncode
    lines = log.read_text(errors="replace").splitlines()
    runs = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
    if status:
        shown = [line for line in lines if "ERROR" in line or "runtime error" in line or "SUMMARY" in line][:3]
        return target.name, f"status {status}; {' / '.join(shown)}; see {log} and {found}", runs
    return target.name, None, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="time for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("targets", nargs="*", help="names of targets; all by default")
    args = parser.parse_args()
    with exclusive("fuzz"):
        targets = [t for t in build(args.jobs) if not args.targets or t.name in args.targets]
        if not targets:
            names = ", ".join(path.name for path in (OUT / "bin").iterdir())
            fail(f"expected targets of {names}, found {', '.join(args.targets)}")
        say(f"{len(targets)} target(s), {args.seconds} s each")
        with ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(lambda target: fuzz(target, args.seconds), targets))
    for name, problem, runs in results:
        print(f"{name}: {problem or 'nothing found'}, {runs[0] if runs else 'no'} executions")
    return 1 if any(problem for _, problem, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
