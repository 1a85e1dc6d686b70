#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenJDK's own GC tests (jtreg) on the patched JDK with the offload on, compared with the unpatched JDK.

Every JVM of a test, those that the tests start themselves included, gets its
flags by JAVA_TOOL_OPTIONS; the unpatched JDK gets a property the same way, so
that the line which the JVM prints about it is there in both. Tests that fail on
the patched JDK alone run once more, by themselves, before they count.

Results: build/jtreg/results.json and jtreg's own reports beside it. Status 1
when a test passes on the unpatched JDK and not on the patched one.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from common import BUILD, ROOT, count, exclusive, fail, inputs, say
from jdk_source import Tree

sys.path.insert(0, str(ROOT / "sim/run"))

from device import Device, DeviceError  # noqa: E402

OUT = BUILD / "jtreg"
JTREG = "/usr/share/jtreg/bin/jtreg"
TESTS = [
    ":tier1_gc_1",
    "gc/class_unloading",
    "gc/stress/gcbasher/TestGCBasherWithG1.java",
    "gc/stress/gcold/TestGCOldWithG1.java",
    "gc/stress/systemgc/TestSystemGCWithG1.java",
    "gc/TestReferenceClearDuringMarking.java",
    "gc/TestReferenceClearDuringReferenceProcessing.java",
    "gc/TestReferenceRefersTo.java",
    "gc/TestReferenceRefersToDuringConcMark.java",
]
# Half a minute: concurrent marking itself, humongous objects, class unloading, references. Not TestReferenceRefersTo,
# which waits a minute for what must not come, nor TestGreyReclaimedHumongousObjects, which goes on for 90 seconds.
FAST = [
    "gc/g1/TestConcurrentSystemGC.java",
    "gc/g1/TestEagerReclaimHumongousRegionsWithRefs.java",
    "gc/g1/TestHumongousCodeCacheRoots.java",
    "gc/class_unloading/TestG1ClassUnloadingHWM.java",
    "gc/TestReferenceClearDuringMarking.java",
    "gc/TestReferenceRefersToDuringConcMark.java",
]
# Differences that are meant, and why; they are reported and do not count as failures.
KNOWN = {}
RESULT = re.compile(r"^(\S+?)(?:#(\S+))?\s+(Passed|Failed|Error|Not run)\.", re.M)


def tests_folder():
    """The hotspot tests of a source tree that is there (no patch changes them), else of the unpatched one, unpacked."""
    there = [tree for tree in (Tree("stock"), Tree("merapi")) if (tree.src / "configure").exists()]
    tree = there[0] if there else Tree("stock")
    if not there:
        with exclusive("jdk-stock"):
            tree.unpack()
    return tree.src / "test/hotspot/jtreg"


def jtreg(name, jdk, tests, options, jobs):
    """Run tests. Returns {test: Passed|Failed|Error}."""
    work = OUT / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    folder = tests_folder()
    selected = [f"{folder}{test}" if test.startswith(":") else str(folder / test) for test in tests]
    command = [
        JTREG,
        f"-jdk:{jdk}",
        f"-w:{work / 'work'}",
        f"-r:{work / 'report'}",
        f"-concurrency:{jobs}",
        "-timeoutFactor:4",
        "-verbose:summary",
        "-automatic",
        "-ignore:quiet",
        f"-exclude:{folder / 'ProblemList.txt'}",
        f"-e:JAVA_TOOL_OPTIONS={options}",
    ]
    environment = {**os.environ, "JTREG_JAVA": str(jdk / "bin/java")}
    done = 0
    with open(work / "jtreg.log", "w") as log:
        process = subprocess.Popen(
            [*command, *selected], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for line in process.stdout:
            log.write(line)
            log.flush()
            if re.match(r"(Passed|FAILED|Error): +\S+\.java", line):
                done += 1
                if not line.startswith("Passed") or done % 10 == 0:
                    say(f"{name}: {done} test(s); {line.strip()}")
        process.wait()
    summary = work / "report/text/summary.txt"
    if not summary.exists():
        tail = "\n".join((work / "jtreg.log").read_text().splitlines()[-20:])
        fail(f"jtreg on the {name} JDK left no summary (status {process.returncode}); see {work / 'jtreg.log'}\n{tail}")
    found = {}
    for test, part, status in RESULT.findall(summary.read_text()):
        if status != "Not run":
            found[f"{test}#{part}" if part else test] = status
    if not found:
        fail(f"jtreg on the {name} JDK ran no test; see {work / 'jtreg.log'}")
    return found


def patched(name, args, tests):
    """Tests on the patched JDK with all heaps in windows of one device process."""
    with Device(args.device_program, "model", OUT / "device") as device:
        options = f"-XX:MerapiWindow=device:{device.socket}"
        if args.verify:
            options += " -XX:+MerapiVerify"
        found = jtreg(name, args.jdk, tests, options, args.jobs)
        if not device.alive():
            fail(f"the device process ended during the tests; see {OUT / 'device/device.log'}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "tests", nargs="*", help="tests or groups (:NAME) of test/hotspot/jtreg; a set for G1 by default"
    )
    parser.add_argument("--fast", action="store_true", help="the fast set, on the patched JDK only: all must pass")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="without -XX:+MerapiVerify")
    parser.add_argument("--jobs", type=count, default=max(1, (os.cpu_count() or 2) // 2), help="tests at a time")
    parser.add_argument("--jdk", type=Path, default=BUILD / "jdk/image")
    parser.add_argument("--stock-jdk", type=Path, default=BUILD / "jdk/stock-image")
    parser.add_argument("--device-program", type=Path, default=BUILD / "native/bin/merapi-device")
    args = parser.parse_args()
    tests = args.tests or (FAST if args.fast else TESTS)
    if not Path(JTREG).exists():
        fail(f"expected jtreg at {JTREG}, found nothing; run 'make setup'")
    OUT.mkdir(parents=True, exist_ok=True)
    with exclusive("jtreg"):
        try:
            if args.fast:
                stock, merapi = None, patched("patched-fast", args, tests)
            else:
                stock = jtreg("stock", args.stock_jdk, tests, "-Dmerapi.variant=stock", args.jobs)
                merapi = patched("patched", args, tests)
            worse = sorted(t for t, s in merapi.items() if s != "Passed" and (not stock or stock.get(t) == "Passed"))
            again = patched("patched-again", argparse.Namespace(**{**vars(args), "jobs": 1}), worse) if worse else {}
        except DeviceError as error:
            fail(str(error))
    different = [test for test in worse if again.get(test) != "Passed"]
    failed = [test for test in different if test not in KNOWN]
    result = {
        "jdk": inputs()["jdk"]["version"],
        "stock": dict(Counter((stock or {}).values())),
        "patched": dict(Counter(merapi.values())),
        "passed_only_when_alone": [test for test in worse if test not in different],
        "known_differences": {test: KNOWN[test] for test in different if test in KNOWN},
        "worse_than_stock": failed,
        "better_than_stock": sorted(
            t for t, s in merapi.items() if s == "Passed" and stock and stock.get(t) != "Passed"
        ),
        "not_run_on_patched": sorted(set(stock or {}) - set(merapi)),
        "tests": {
            t: {"stock": (stock or {}).get(t), "patched": merapi.get(t)} for t in sorted({*(stock or {}), *merapi})
        },
    }
    (OUT / ("fast.json" if args.fast else "results.json")).write_text(json.dumps(result, indent=1) + "\n")
    shown = ("stock", "patched", "passed_only_when_alone", "known_differences", "worse_than_stock", "better_than_stock")
    for name in shown:
        print(f"{name.replace('_', ' ')}: {result[name] or 'none'}")
    return 1 if failed or result["not_run_on_patched"] else 0


if __name__ == "__main__":
    sys.exit(main())
