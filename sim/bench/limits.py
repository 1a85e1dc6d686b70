# SPDX-License-Identifier: Apache-2.0
"""The limits that the patched JVM is held to, and their comparison with what was measured."""

import math
import statistics

# Young pauses and time to safepoint count as unchanged below this share (plus a floor in the figure's unit).
NOISE = 0.10


def verdict(name, value, limit, unit, least=False, note=""):
    """One comparison; `least`: the limit is the least allowed value instead of the greatest."""
    ok = value is not None and limit is not None and (value >= limit if least else value <= limit)
    shown = "none" if value is None else f"{value:.4g}"
    bound = "none" if limit is None else f"{limit:.4g}"
    text = f"{name}: {shown}{unit}, {'at least' if least else 'at most'} {bound}{unit}{note}"
    return {"name": name, "value": value, "limit": limit, "unit": unit.strip(), "ok": ok, "text": text}


def marking(part, heap_bytes):
    found = []
    for shape, row in part.items():
        least = 4.0 if shape == "graph" else 1.0
        found.append(verdict(f"{shape}: marking, stock over model", row["ratio"], least, "", least=True))
    ratios = [row["ratio"] for row in part.values()]
    mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
    found.append(verdict("marking, geometric mean", mean, 2.0, "", least=True))
    for shape, row in part.items():
        cpu, limit = row["host_cpu_ms"], row["host_cpu_limit_ms"]
        found.append(verdict(f"{shape}: host CPU between hand-over and hand-back", cpu, limit, " ms"))
    for shape, row in part.items():
        remark, limit = row["model_remark_ms"], row["stock_remark_ms"] + 0.5
        found.append(verdict(f"{shape}: remark", remark, limit, " ms"))
    # Both bitmaps are G1's own structures: a bit for each eight bytes of heap, twice.
    bitmaps = 2 * heap_bytes // 64
    for shape, row in part.items():
        extra = row["window_bytes"] - heap_bytes - bitmaps + row["device_private_bytes"]
        limit = 0.01 * heap_bytes + (8 << 20)
        found.append(verdict(f"{shape}: memory beyond heap and bitmaps", extra / 2**20, limit / 2**20, " MiB"))
    return found


def churn(part):
    found = [verdict("device pause acknowledged, 99th percentile", part["device_pause_us"]["p99"], 100, " us")]
    floors = [
        ("young_ms", "median", "young pause, median", 0.2, " ms"),
        ("young_ms", "mean", "young pause, mean", 0.2, " ms"),
        ("reaching_safepoint_us", "median", "time to safepoint, median", 10, " us"),
        ("remark_ms", "median", "remark under allocation, median", 0.5, " ms"),
    ]
    for key, figure, name, floor, unit in floors:
        stock, model = part[key]["stock"][figure], part[key]["merapi"][figure]
        share = 0.0 if key == "remark_ms" else NOISE
        limit = None if stock is None else stock * (1 + share) + floor
        note = "" if stock is None else f" (stock {stock:.4g}{unit})"
        found.append(verdict(name, model, limit, unit, note=note))
    return found


def flag_off(part):
    names = {
        "work_cpu_ms": "flag off: CPU time of fixed work, patched over stock",
        "work_ms": "flag off: wall time of fixed work, patched over stock",
        "start_cpu_ms": "flag off: CPU time of a start, patched over stock",
        "start_ms": "flag off: wall time of a start, patched over stock",
    }
    found = []
    for key, name in names.items():
        low, high = part[key]["interval"]
        one = verdict(name, part[key]["ratio"], 1.01, "", note=f" (95 %: {low:.3f} to {high:.3f})")
        # Runs of one build differ by several per cent: slower is what the whole interval shows to be slower.
        found.append(one | {"interval": [low, high], "ok": low <= 1.01})
    return found


def paired_ratio(values, of):
    """Median of the ratios of runs that were neighbours in time, with its interval of 95 % from the ratios' ranks."""
    ratios = sorted(a / b for a, b in zip(values, of, strict=True))
    n = len(ratios)
    # As many may be left out at each end as a coin shows heads in n throws with a probability of 2.5 %.
    out = next(k for k in range(n + 1) if sum(math.comb(n, i) for i in range(k + 1)) > 0.025 * 2**n)
    return {"ratio": statistics.median(ratios), "interval": [ratios[out - 1 if out else 0], ratios[n - max(out, 1)]]}


def judge(result):
    """All verdicts on a result of bench_jvm.py; parts that were not measured have none."""
    found = [verdict("fallbacks to the CPU", len(result["fallbacks"]), 0, "")] if "fallbacks" in result else []
    if "marking" in result:
        found += marking(result["marking"], result["heap_bytes"])
    if "churn" in result:
        found += churn(result["churn"])
    if "flag_off" in result:
        found += flag_off(result["flag_off"])
    return found
