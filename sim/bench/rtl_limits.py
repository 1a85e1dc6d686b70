# SPDX-License-Identifier: Apache-2.0
"""The limits that the tracer's RTL is held to, and their comparison with what was measured on saved windows."""

import math
import statistics

from limits import verdict

CLOCK_HZ = 250e6
LINE = 64
# Peak bytes per second of one port's memory: DDR4-2400 with 64 bits; HBM2 with 128 bits at 2 Gbit/s each.
PEAK = {"ddr4-2400": 19.2e9, "hbm2": 32e9}
# Least ratio to one thread of G1 by kind of window, for the preset with one channel of DDR4.
RATIOS = {"aged": 5.0, "graph": 20.0, "hashmap": 8.0, "list": 1.5}


def mean(values):
    """Geometric mean; None of nothing or when one is missing."""
    if not values or any(not v for v in values):
        return None
    return math.exp(sum(math.log(v) for v in values) / len(values))


def row(window, replayed, ports):
    """One line of the result: what a replay's report (merapi-replay --json --lines) means at 250 MHz."""
    counters, lines = replayed["counters"], replayed["lines_needed"]
    cycles = counters["cycles"]
    seconds = cycles / CLOCK_HZ
    moved = counters["bytes_read"] + counters["bytes_written"]
    needed = LINE * (lines["heap"] + 2 * lines["bitmap"])
    peak = PEAK.get(replayed["memory"])
    g1 = window["g1_ms"] / 1e3
    return {
        "window": window["name"],
        "kind": window["kind"],
        "preset": replayed["rtl_preset"],
        "memory": replayed["memory"],
        "objects": counters["objects_scanned"],
        "cycles": cycles,
        "objects_per_cycle": counters["objects_scanned"] / cycles,
        "milliseconds": seconds * 1e3,
        "bytes_moved": moved,
        "bytes_needed": needed,
        "bandwidth_gb_s": moved / seconds / 1e9,
        # The share of the physical limit: the time that the least possible traffic takes at the memory's peak.
        "share_of_limit": needed / (peak * ports) / seconds if peak else None,
        "g1_ms": window["g1_ms"],
        "ratio": g1 / seconds if g1 else None,
        "simulated_khz": replayed["khz"],
        # Lane cycles by cause, over all lanes; cycles for the completion ring.
        "stalls": {name[6:]: value for name, value in counters.items() if name.startswith("stall_")},
        "pause_cycles": counters["pause_max"],
        "counters": counters,
    }


def judge(rows):
    """All verdicts on the rows of a run; what was not measured has none."""
    found = []
    for preset in sorted({r["preset"] for r in rows}):
        mine = [r for r in rows if r["preset"] == preset and r["memory"] != "ideal"]
        real = [r for r in mine if r["kind"] == "real"]
        if preset == "ddr4-1ch":
            found += one_channel(mine, real)
        elif preset in ("ddr4-4ch", "hbm2") and real:
            found.append(ratio(preset, "real windows", [r["ratio"] for r in real], 25.0))
    found += speeds(rows)
    return found


def ratio(preset, name, values, least):
    return verdict(f"{preset}: {name}, G1 over tracer, geometric mean", mean(values), least, "", least=True)


def one_channel(mine, real):
    found = []
    if real:
        found.append(ratio("ddr4-1ch", "real windows", [r["ratio"] for r in real], 10.0))
        # None where nobody knows the memory's peak.
        shares = [r["share_of_limit"] for r in real]
        if None not in shares:
            share = statistics.fmean(shares)
            found.append(
                verdict("ddr4-1ch: real windows, share of the physical limit, mean", share, 0.5, "", least=True)
            )
    for kind, least in RATIOS.items():
        values = [r["ratio"] for r in mine if r["kind"] == kind]
        if values:
            found.append(ratio("ddr4-1ch", f"{kind} windows", values, least))
    # From when the tracer sees the request: it looks again 64 cycles after a look has ended.
    pauses = [r["pause_cycles"] for r in mine if r["pause_cycles"]]
    if pauses:
        worst = max(pauses) / CLOCK_HZ * 1e6
        count = sum(r["counters"].get("pauses", 0) for r in mine)
        found.append(verdict(f"ddr4-1ch: pause acknowledged once it was seen, worst of {count}", worst, 5.0, " us"))
    return found


def speeds(rows):
    """Simulation speed, one thread; the median, since the machine does other things too."""
    found = []
    goals = {("ddr4-1ch", False): 200, ("ddr4-1ch", True): 400, ("sim-small", True): 1000}
    for (preset, ideal), least in goals.items():
        values = [r["simulated_khz"] for r in rows if r["preset"] == preset and (r["memory"] == "ideal") == ideal]
        if values:
            name = f"{preset}, {'ideal memory' if ideal else 'DRAMsim3'}: simulated cycles, median"
            found.append(verdict(name, statistics.median(values), least, " kHz", least=True))
    return found
