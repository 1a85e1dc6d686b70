#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the patched JVM against the unpatched one, side by side in one run.

Both JVMs are built from the same sources with the same flags. Runs of the two
alternate, so that whatever else the machine does hits both. Figures are medians
over the runs; build/bench/jvm.json holds them with the single values, the
limits they are compared with, and how each was obtained. Status 1 when a limit
is missed (with --report-only: 0).
"""

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sim/run"), str(ROOT / "tools")]

import limits  # noqa: E402
import measured_jvm  # noqa: E402
from common import count, exclusive, expect_built, fail, say  # noqa: E402
from device import NICE, Device, DeviceError, realtime_permitted  # noqa: E402
from measured_jvm import BenchError, printed  # noqa: E402

BUILD = ROOT / "build"
OUT = BUILD / "bench"
SHAPES = ("hashmap", "graph", "list")
HEAP_BYTES = 2 << 30
MARK_FLAGS = ["-XX:+UseG1GC", "-XX:ConcGCThreads=1", "-XX:+ExplicitGCInvokesConcurrent"]
# A small young generation: many collections, some of them in every marking.
CHURN_FLAGS = ["-XX:+UseG1GC", "-Xms1200m", "-Xmx1200m", "-Xmn16m", "-XX:ConcGCThreads=1"]
CHURN_FLAGS += ["-XX:InitiatingHeapOccupancyPercent=15"]
# Hardware does not wait for a processor of the host. Where the delay of its answers is measured, the model does not
# either, if this user may have it so; where speed is measured, it competes like everybody.
REALTIME = ["--realtime"]
CYCLES = 5


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def percentile(values, share):
    """Nearest-rank percentile; None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


class Bench:
    """The two JVMs and what is run on them."""

    def __init__(self, args):
        self.args = args
        self.java = {"stock": args.stock_jdk / "bin/java", "merapi": args.jdk / "bin/java"}
        classes = BUILD / "apps/classes"
        expect_built({self.java["merapi"]: "jdk", self.java["stock"]: "jdk-stock", classes: "apps"})
        expect_built({args.device_program: "native"})
        self.classes = ["-cp", str(classes)]
        self.fallbacks = []  # of all runs; their cycles are left out, and their number is a verdict of its own

    def measure(self, variant, arguments, flag_on, device_options=(), **options):
        """One run. flag_on: with the heap in a window of a device of its own. Returns (measured, device facts)."""
        log = OUT / f"{variant}.log"
        if not flag_on:
            return measured_jvm.run(self.java[variant], arguments, log, **options), {}
        with Device(self.args.device_program, "model", OUT, device_options) as device:
            flags = [f"-XX:MerapiWindow=device:{device.socket}"]
            measured = measured_jvm.run(self.java[variant], [*flags, *arguments], log, **options)
            facts = {"cpu_ms": device.cpu_ms(), "private_bytes": private_bytes(device.process.pid)}
        self.fallbacks += [f"{f.get('reason')}: {f.get('detail')}" for f in measured.log.fallbacks]
        if not measured.log.offloaded():
            raise BenchError(f"expected cycles marked by the device, found {self.fallbacks or 'none'}; see {log}")
        return measured, facts

    def alternate(self, runs):
        """(run, variant) pairs, the order of the variants turning over from run to run."""
        for run in range(runs):
            for variant in ("stock", "merapi") if run % 2 == 0 else ("merapi", "stock"):
                yield run, variant

    def marking(self):
        """Concurrent marking of three heaps: wall time, host CPU time, remark."""
        result = {}
        for shape in SHAPES:
            rows = {"stock": [], "merapi": []}
            device_private, window_bytes = [], []
            heap = [f"-Xms{HEAP_BYTES}", f"-Xmx{HEAP_BYTES}"]
            arguments = [*MARK_FLAGS, *heap, *self.classes, "merapi.apps.MarkBench", shape, str(CYCLES)]
            for run, variant in self.alternate(self.args.runs):
                say(f"marking {shape}: {variant}, run {run + 1} of {self.args.runs}")
                measured, facts = self.measure(
                    variant, arguments, variant == "merapi", sample=measured_jvm.MARKING_THREADS
                )
                # The first cycle also meets the program's start; it is left out for both.
                cycles = [c for c in measured.log.cycles.values() if c.mark_ms is not None][1:]
                for cycle in [c for c in cycles if variant == "stock" or c in measured.log.offloaded()]:
                    rows[variant].append(
                        {
                            "mark_ms": cycle.mark_ms,
                            "marking_threads_cpu_ms": measured.marking_cpu_ms.get(cycle.gc_id),
                            "remark_ms": cycle.remark_ms,
                            "trace": cycle.trace,
                        }
                    )
                if facts:
                    device_private.append(facts["private_bytes"])
                    window_bytes.append(measured.log.window_bytes)
            self.expect_cycles(shape, rows)
            result[shape] = self.marking_of(rows)
            result[shape] |= {"device_private_bytes": max(device_private), "window_bytes": max(window_bytes)}
        return result

    @staticmethod
    def expect_cycles(shape, rows):
        for variant, cycles in rows.items():
            if not cycles:
                traced = " that the device traced" if variant == "merapi" else ""
                raise BenchError(
                    f"{shape}: expected cycles of {variant} behind the first one of a run, found none{traced}"
                )

    @staticmethod
    def marking_of(rows):
        stock, merapi = rows["stock"], rows["merapi"]
        traces = [r["trace"] for r in merapi]
        stock_mark, model_mark = median([r["mark_ms"] for r in stock]), median([r["mark_ms"] for r in merapi])
        stock_cpu = median([r["marking_threads_cpu_ms"] for r in stock])
        handed = median([t["deferred"] + t["satb"] for t in traces])
        return {
            "stock_mark_ms": stock_mark,
            "model_mark_ms": model_mark,
            "ratio": stock_mark / model_mark,
            "stock_mark_cpu_ms": stock_cpu,
            "host_cpu_ms": median([t["host_cpu_ms"] for t in traces]),
            "host_cpu_ms_by_threads": median([r["marking_threads_cpu_ms"] for r in merapi]),
            "host_cpu_limit_ms": 0.03 * stock_cpu + 0.0003 * handed if stock_cpu is not None else None,
            "deferred_and_satb": handed,
            "device_cpu_ms": median([t["device_cpu_ms"] for t in traces]),
            "objects": median([t["objects"] for t in traces]),
            "stock_remark_ms": median([r["remark_ms"] for r in stock]),
            "model_remark_ms": median([r["remark_ms"] for r in merapi]),
            "rows": rows,
        }

    def churn(self):
        """Young pauses, time to safepoint and the device's pauses under allocation."""
        young = {"stock": [], "merapi": []}
        marking = {"stock": [], "merapi": []}
        reaching = {"stock": [], "merapi": []}
        remark = {"stock": [], "merapi": []}
        acknowledged, worst = [], []
        first = REALTIME if realtime_permitted() else []
        arguments = [*CHURN_FLAGS, *self.classes, "merapi.apps.ChurnBench", "200000", str(self.args.replacements)]
        for run, variant in self.alternate(self.args.runs):
            say(f"young collections: {variant}, run {run + 1} of {self.args.runs}")
            # The unpatched JVM has no such tag and refuses to start with it.
            more_log = ("gc+merapi=debug",) if variant == "merapi" else ()
            measured, _ = self.measure(variant, arguments, variant == "merapi", first, more_log=more_log)
            log = measured.log
            young[variant] += [ms for kind, ms, inside in log.young_ms if kind == "Normal" and not inside]
            marking[variant] += [ms for kind, ms, inside in log.young_ms if kind == "Normal" and inside]
            reaching[variant] += [ns / 1e3 for ns in log.reaching_ns]
            remark[variant] += [c.remark_ms for c in log.cycles.values() if c.remark_ms is not None]
            acknowledged += log.device_pauses_us
            worst += [c.trace["pause_us_max"] for c in log.offloaded() if c.trace["pauses"]]
        return {
            # What is judged. Marking on the CPU lasts longer, so that nearly all of stock's collections fall into it:
            # the two below are not of the same collections.
            "young_ms": {v: summary(young[v] + marking[v]) for v in young},
            "young_outside_marking_ms": {v: summary(young[v]) for v in young},
            "young_during_marking_ms": {v: summary(marking[v]) for v in marking},
            "reaching_safepoint_us": {v: summary(reaching[v]) for v in reaching},
            "remark_ms": {v: summary(remark[v]) for v in remark},
            "device_scheduling": "SCHED_RR" if first else "ordinary",
            "device_pause_us": summary(acknowledged) | {"p99": percentile(acknowledged, 0.99)},
            "device_pause_worst_of_cycle_us": summary(worst),
        }

    def flag_off(self):
        """The patched JVM without the flag: throughput and start-up."""
        work = {"stock": [], "merapi": []}
        work_cpu = {"stock": [], "merapi": []}
        start = {"stock": [], "merapi": []}
        start_cpu = {"stock": [], "merapi": []}
        arguments = [*CHURN_FLAGS, *self.classes, "merapi.apps.ChurnBench", "200000", str(self.args.replacements // 2)]
        runs = 4 * self.args.runs
        for run, variant in self.alternate(runs):
            say(f"throughput without the flag: {variant}, run {run + 1} of {runs}")
            measured, _ = self.measure(variant, arguments, False)
            work[variant].append(printed(measured, "work_ms"))
            work_cpu[variant].append(measured.cpu_ms)
        say(f"start-up: {self.args.starts} runs of each")
        hello = ["-XX:+UseG1GC", "-Xmx256m", *self.classes, "merapi.apps.Hello"]
        for _, variant in self.alternate(self.args.starts):
            measured = measured_jvm.run(self.java[variant], hello)
            start[variant].append(measured.wall_ms)
            start_cpu[variant].append(measured.cpu_ms)
        pairs = {"work_ms": work, "work_cpu_ms": work_cpu, "start_ms": start, "start_cpu_ms": start_cpu}
        return {
            name: {
                **{variant: summary(values[variant]) for variant in values},
                **limits.paired_ratio(values["merapi"], values["stock"]),
            }
            for name, values in pairs.items()
        }


def summary(values):
    mean = statistics.fmean(values) if values else None
    return {
        "count": len(values),
        "median": median(values),
        "mean": mean,
        "p90": percentile(values, 0.9),
        "values": values[:200],
    }


def private_bytes(pid):
    """Memory of a process that is neither a file nor shared: RssAnon of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def machine():
    model = [x.partition(":")[2].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x]
    return {
        "processor": model[0] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load_at_begin": os.getloadavg()[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=count, default=3, help="runs of each JVM and heap (default 3)")
    parser.add_argument("--starts", type=count, default=40, help="starts of each JVM (default 40)")
    parser.add_argument("--replacements", type=count, default=1_000_000, help="work of the allocating program")
    parser.add_argument("--only", choices=["marking", "churn", "flag-off"], action="append", help="parts (all)")
    parser.add_argument("--report-only", action="store_true", help="status 0 even when a limit is missed")
    parser.add_argument("--jdk", type=Path, default=BUILD / "jdk/image")
    parser.add_argument("--stock-jdk", type=Path, default=BUILD / "jdk/stock-image")
    parser.add_argument("--device-program", type=Path, default=BUILD / "native/bin/merapi-device")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    # Like the device, which goes before others: whatever else the machine does must not hit one side more.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    parts = args.only or ["marking", "churn", "flag-off"]
    try:
        with exclusive("bench"):
            result = {"machine": machine(), "heap_bytes": HEAP_BYTES, "runs": args.runs}
            bench = Bench(args)
            for part in parts:
                result[part.replace("-", "_")] = getattr(bench, part.replace("-", "_"))()
            result["fallbacks"] = bench.fallbacks
    except (BenchError, DeviceError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("stopped")
    verdicts = limits.judge(result)
    result["limits"] = verdicts
    (OUT / "jvm.json").write_text(json.dumps(result, indent=1) + "\n")
    print()
    for verdict in verdicts:
        print(f"{'ok  ' if verdict['ok'] else 'MISS'}  {verdict['text']}")
    print(f"\nfigures: {OUT / 'jvm.json'}")
    return 0 if args.report_only or all(v["ok"] for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
