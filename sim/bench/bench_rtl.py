#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the tracer's RTL on windows saved from running programs.

Each window (a hash map, a random graph, a list; an H2 database, a JGraphT graph,
javac's trees of H2's sources, an XML document; the last four also aged) is traced
by the simulated tracer with DRAMsim3's memory time. Its cycles at 250 MHz stand
beside the time that one thread of stock G1 took to mark the same heap on this
machine when it was saved (median of five runs). The graph and the real programs are traced once more with
100 pauses. build/bench/rtl.json holds everything; a limit that is missed makes
status 1 (with --report-only: 0).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sim/run"), str(ROOT / "tools")]

import rtl_limits  # noqa: E402
import windows  # noqa: E402
from children import die_with_parent  # noqa: E402
from common import BUILD, above_zero, count, exclusive, expect_built, fail, say, write_whole  # noqa: E402
from device import DeviceError  # noqa: E402
from measured_jvm import BenchError  # noqa: E402
from run import part_of_index  # noqa: E402

OUT = BUILD / "bench"
# A device without news for so long is asked for a sign of life by a pause, which empties the tracer's caches. In a
# simulation seconds are a few hundred microseconds of the tracer's: none is asked in a trace that is measured.
PATIENCE_US = 3_600_000_000
# Pauses are measured in a trace of their own, which they make longer: so many, evenly over the time of the one without.
PAUSES = 100
PAUSED = ("graph", "real")
HEAD = ["window", "objects", "cycles", "obj/cycle", "ms", "GB/s", "of limit", "G1 ms", "ratio", "kHz"]


def replay(args, window, preset, pause_every_us=0):
    command = [args.replay_program, windows.FOLDER / window["image"], "--rtl", "--preset", preset, "--json", "--lines"]
    command += ["--pause-every-us", str(pause_every_us), "--patience-us", str(PATIENCE_US)]
    if args.memory:
        command += ["--memory", args.memory]
    if args.check:
        command.append("--check")
    before = os.times()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, preexec_fn=die_with_parent)
    after = os.times()
    if done.returncode:
        raise BenchError(f"{command} ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    report = json.loads(done.stdout.splitlines()[-1])
    # Cycles over the simulating process's own processor time: what one thread does, whatever else the machine does.
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    report["khz"] = report["counters"]["cycles"] / min(spent, report["seconds"]) / 1e3
    return report


def ports_of(preset):
    return json.loads((BUILD / f"rtl/{preset}/preset.json").read_text())["ports"]


def text(row):
    share = "" if row["share_of_limit"] is None else f"{row['share_of_limit']:.0%}"
    return [
        row["window"],
        f"{row['objects']:,}",
        f"{row['cycles']:,}",
        f"{row['objects_per_cycle']:.2f}",
        f"{row['milliseconds']:.1f}",
        f"{row['bandwidth_gb_s']:.1f}",
        share,
        f"{row['g1_ms']:.0f}",
        f"{row['ratio']:.1f}",
        f"{row['simulated_khz']:.0f}",
    ]


def parts(args):
    """What is measured and what measures, and the target of make that makes it."""
    found = {args.jdk / "bin/java": "jdk", args.jdk / "lib/server/libjvm.so": "jdk"}
    found |= dict.fromkeys([BUILD / "apps/classes", windows.CLASSES, windows.SOURCES], "apps")
    found |= dict.fromkeys([args.device_program, args.replay_program, args.age_program], "native")
    for preset in args.preset:
        found[simulation(preset)] = f"rtl-simulations RTL_SIMULATIONS={preset}:fast"
    return found


def measure(args, rows):
    """Append a row to `rows` for each trace: those before one that fails are not lost."""
    index = part_of_index(args.packages)
    windows.FOLDER.mkdir(parents=True, exist_ok=True)
    java = args.jdk / "bin/java"
    saved = []
    for name, (kind, megabytes, arguments) in windows.programs(args.scale, index).items():
        if args.only and name not in args.only:
            continue
        tag = f"{args.scale:g}" if kind != "real" else f"{args.packages}"
        saved.append(windows.capture(name, kind, megabytes, arguments, tag, java, args.device_program))
    if not args.no_aged:
        saved += [windows.aged(w, args.age_program) for w in saved if w["kind"] == "real"]
    for preset in args.preset:
        say("  ".join(cell.rjust(14) for cell in [preset, *HEAD[1:]]))
        for window in saved:
            report = replay(args, window, preset)
            traced = [(window, report)]
            if window["kind"] in PAUSED and not args.no_paused:
                often = int(report["seconds"] * 1e6 / PAUSES)
                again = {**window, "name": f"{window['name']}, paused", "kind": "paused"}
                traced.append((again, replay(args, window, preset, often)))
            for which, report in traced:
                row = rtl_limits.row(which, report, ports_of(preset))
                rows.append(row)
                say("  ".join(cell.rjust(14) for cell in text(row)))


def commit():
    """Which sources these figures are of; -dirty: with changes. None outside a repository."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(git, capture_output=True, text=True)
    return done.stdout.strip() or None


def simulation(preset):
    return BUILD / f"rtl/lib/merapi-rtl-{preset}.so"


def simulations(presets):
    """By preset: digest of the simulated tracer."""
    return {p: windows.digest(simulation(p)) for p in sorted(presets)}


def figures(args, rows, verdicts):
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    machine["load_at_end"] = os.getloadavg()[0]
    result = {"machine": machine, "commit": commit(), "simulations": simulations({r["preset"] for r in rows})}
    result |= {"scale": args.scale, "packages": args.packages, "rows": rows, "limits": verdicts}
    return (json.dumps(result, indent=1) + "\n").encode()


def unfinished(args, rows):
    """Keep the rows of a bench that did not come to its end, and say where: limits are judged of a whole one alone."""
    if not rows:
        return ""
    part = OUT / "rtl-unfinished.json"
    write_whole(part, figures(args, rows, []))
    return f"\n{len(rows)} traces that had ended are in {part}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", action="append", help="tracers to simulate (default ddr4-1ch; repeatable)")
    parser.add_argument("--memory", default="", help="memory time (default: what suits the preset)")
    parser.add_argument(
        "--scale", type=above_zero, default=0.1, help="hash map, graph and list: share of full size (0.1)"
    )
    parser.add_argument("--packages", type=count, default=15_000, help="size of the real programs' input (15000)")
    parser.add_argument("--only", choices=windows.NAMES, action="append", help="these programs alone (repeatable)")
    parser.add_argument("--no-aged", action="store_true", help="leave the aged windows out")
    parser.add_argument("--no-paused", action="store_true", help="leave the traces with pauses out")
    parser.add_argument("--check", action="store_true", help="compare each result with the naive closure")
    parser.add_argument("--report-only", action="store_true", help="status 0 even when a limit is missed")
    parser.add_argument("--jdk", type=Path, default=BUILD / "jdk/image")
    for name in ("device", "replay", "age"):
        default = BUILD / f"native/bin/merapi-{name}"
        parser.add_argument(f"--{name}-program", type=Path, default=default)
    args = parser.parse_args()
    args.preset = args.preset or ["ddr4-1ch"]
    expect_built(parts(args))
    (OUT / "windows").mkdir(parents=True, exist_ok=True)
    rows = []
    try:
        with exclusive("bench"):
            measure(args, rows)
    except (BenchError, DeviceError) as error:
        fail(f"{error}{unfinished(args, rows)}")
    except KeyboardInterrupt:
        fail(f"stopped{unfinished(args, rows)}")
    if not rows:
        fail(f"expected a window that was traced, found none; {OUT / 'rtl.json'} stays as it was")
    verdicts = rtl_limits.judge(rows)
    write_whole(OUT / "rtl.json", figures(args, rows, verdicts))
    print()
    for one in verdicts:
        print(f"{'ok  ' if one['ok'] else 'MISS'}  {one['text']}")
    print(f"\nfigures: {OUT / 'rtl.json'}")
    return 0 if args.report_only or all(v["ok"] for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
