#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run libmerapi's libFuzzer targets, each for a while, with address and undefined-behaviour sanitizers.

Targets are the programs merapi_fuzz_NAME, one of each sw/libmerapi/fuzz/fuzz_NAME.cc.
The corpus is kept in build/fuzz/corpus and what was found in build/fuzz/found, a
folder for each target. Status 1 when a target found something, 2 when the arguments are wrong.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from common import BUILD, ROOT, count, exclusive, fail, say

SOURCE = ROOT / "sw/libmerapi"
TARGETS = sorted(f"merapi_{path.stem}" for path in (SOURCE / "fuzz").glob("fuzz_*.cc"))
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
    """Configure and build all targets, write their seeds; returns the programs by name."""
    with exclusive("fuzz-build"):
        OUT.mkdir(parents=True, exist_ok=True)
        log = OUT / "build.log"
        with open(log, "w") as file:
            for command in (
                ["cmake", "-S", SOURCE, "-B", OUT / "tree", *CONFIGURE],
                ["cmake", "--build", OUT / "tree", "--target", "merapi_fuzz", "--parallel", str(jobs)],
            ):
                if subprocess.run(command, stdout=file, stderr=file).returncode:
                    tail = "\n".join(log.read_text().splitlines()[-20:])
                    fail(f"the fuzz targets do not build; see {log}\n{tail}")
        programs = {name: OUT / "bin" / name for name in TARGETS}
        for name, path in programs.items():
            if not path.is_file():
                fail(f"expected {path}, found nothing; does {SOURCE}/fuzz/CMakeLists.txt build {name}?")
        (OUT / "seeds").mkdir(exist_ok=True)
        if subprocess.run([OUT / "bin/merapi_fuzz_seeds", OUT / "seeds"]).returncode:
            fail(f"expected seeds of {OUT / 'bin/merapi_fuzz_seeds'}, found an error; see above")
    return programs


def fuzz(program, *limits, folder=OUT):
    """Run one program, within limits as libFuzzer's flags say them; what it leaves is in folder.

    Returns (name, what went wrong or None, executions).
    """
    corpus, found = folder / "corpus" / program.name, folder / "found" / program.name
    for each in (corpus, found):
        each.mkdir(parents=True, exist_ok=True)
    seeds = OUT / "seeds" / program.name.removeprefix("merapi_fuzz_")
    log = folder / f"{program.name}.log"
    command = [program, "-print_final_stats=1", *limits, "-max_len=65536", "-timeout=20", "-rss_limit_mb=2500"]
    with open(log, "w") as file:
        status = subprocess.run(
            [*command, f"-artifact_prefix={found}/", corpus, *([seeds] if seeds.is_dir() else [])],
            stdout=file,
            stderr=file,
        ).returncode
    lines = log.read_text(errors="replace").splitlines()
    runs = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
    if status:
        signs = (": expected ", "ERROR", "runtime error", "SUMMARY")
        shown = [line for line in lines if any(sign in line for sign in signs)][:3]
        return program.name, f"status {status}; {' / '.join(shown)}; see {log} and {found}", runs
    return program.name, None, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=count, default=60, help="time for each target (make fuzz: FUZZ_SECONDS=)")
    parser.add_argument("--jobs", type=count, default=1, help="targets at a time")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all by default")
    args = parser.parse_args()
    if unknown := [name for name in args.targets if name not in TARGETS]:
        parser.error(f"expected targets of {', '.join(TARGETS)}, found {', '.join(unknown)}; leave out what is not one")
    names = [name for name in TARGETS if not args.targets or name in args.targets]
    with exclusive("fuzz"):
        programs = build(args.jobs)
        say(f"{len(names)} target(s), {args.seconds} s each")
        with ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(lambda name: fuzz(programs[name], f"-max_total_time={args.seconds}"), names))
    for name, problem, runs in results:
        print(f"{name}: {problem or 'nothing found'}, {runs[0] if runs else 'no'} executions")
    return 1 if any(problem for _, problem, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
