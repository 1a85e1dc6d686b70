# SPDX-License-Identifier: Apache-2.0
"""What a run's log says, as text for people and as data for programs."""

import signal
from collections import Counter

HOW = {
    "cycles": "concurrent marking cycles that the device finished, from the JVM's log",
    "objects_marked": "objects whose mark the device set, sum over the cycles, counted by the device",
    "references": "reference slots the device read, sum over the cycles, counted by the device",
    "live_bytes": "bytes of the objects marked by the device in the last cycle, counted by the device",
    "deferred": "objects handed to the host for scanning, sum over the cycles",
    "fallbacks": "cycles that were taken from the device and marked on the CPU",
    "verify": "sums of what -XX:+MerapiVerify found at remark; null where it was off",
    "concurrent_mark_ms": "wall time of 'Concurrent Mark From Roots', sum over the cycles, from the JVM's log",
    "host_mark_cpu_ms": "CPU time of the JVM's marking thread between hand-over and hand-back, sum over the cycles",
    "remark_ms": "remark pauses without verification, sum over the cycles; with it in remark_with_verify_ms",
    "device_cycles": "clock cycles of the tracer in these cycles, sum, counted by it; 0 for the model",
    "device_ms_at_250_mhz": "these cycles as time of a tracer at 250 MHz; its memory's time is that of `memory`",
    "simulated_khz": "device cycles per millisecond of wall time between hand-over and hand-back",
    "rtl_preset": "which tracer was simulated (hw/tracer-rtl); null for the model",
    "memory": "what answered it and when: DRAMsim3 with this configuration, or ideal (100 ns); null for the model",
    "device_cpu_ms": "CPU time of the device process in these cycles, sum, counted by it; 0 for the simulated RTL",
    "largest_cycle_objects": "objects_marked of the largest cycle",
}


def verify_sum(cycles):
    """Sums of the verification's findings, or None when nothing was verified."""
    found = [c.verify for c in cycles if c.verify]
    if not found:
        return None
    names = ("missed", "incomplete", "floating", "live_mismatch")
    return {"cycles": len(found), **{name: sum(v.get(name, 0) for v in found) for name in names}}


def remark_only(cycle):
    """Remark in ms without the time that verification took inside it."""
    if cycle.remark_ms is None:
        return 0.0
    return max(0.0, cycle.remark_ms - (cycle.verify or {}).get("ms", 0.0))


def build(log, device, command, status, simulated=(None, None)):
    """The report of a run as a dictionary (build/run/report.json)."""
    cycles = log.offloaded()
    traces = [c.trace for c in cycles]

    def total(name):
        return sum(t.get(name) or 0 for t in traces)

    cycles_of_device, concurrent = total("device_cycles"), total("concurrent_ms")
    return {
        "device": device,
        "rtl_preset": simulated[0],
        "memory": simulated[1],
        "command": command,
        "status": status,
        "cycles": len(cycles),
        "objects_marked": total("objects"),
        "references": total("references"),
        "live_bytes": traces[-1].get("live_bytes", 0) if traces else 0,
        "deferred": total("deferred"),
        "fallbacks": len(log.fallbacks),
        "verify": verify_sum(cycles),
        "concurrent_mark_ms": round(sum(c.mark_ms or 0 for c in cycles), 3),
        "host_mark_cpu_ms": round(total("host_cpu_ms"), 3),
        "remark_ms": round(sum(remark_only(c) for c in cycles), 3),
        "remark_with_verify_ms": round(sum(c.remark_ms or 0 for c in cycles), 3),
        "device_cycles": cycles_of_device,
        "device_ms_at_250_mhz": round(cycles_of_device / 250e3, 3),
        "simulated_khz": round(cycles_of_device / concurrent, 1) if cycles_of_device and concurrent else None,
        "device_cpu_ms": round(total("device_cpu_ms"), 3),
        "largest_cycle_objects": max((t.get("objects", 0) for t in traces), default=0),
        "fallback_list": log.fallbacks,
        "full_collections": log.full_gcs,
        "per_cycle": [
            {
                "gc_id": c.gc_id,
                "trace": c.trace,
                "verify": c.verify,
                "mark_ms": c.mark_ms,
                "remark_ms": round(remark_only(c), 3),
            }
            for c in cycles
        ],
        "how": HOW,
    }


def device_text(trace):
    """What the device needed: its own cycles where it has a clock."""
    if trace.get("device_cycles"):
        return f"device {trace['device_cycles']:,} cycles"
    return f"device {trace['device_ms']:,.1f} ms"


def trace_line(number, cycle):
    """One line that is printed while the program runs."""
    t = cycle.trace
    text = (
        f"trace {number}: {t['objects']:,} objects, {t['references']:,} references, {t['live_bytes'] / 1e6:,.1f} MB, "
        f"{t['deferred']:,} deferred, {t['pauses']} pauses; {device_text(t)}, "
        f"host CPU {t['host_cpu_ms']:,.2f} ms"
    )
    if t.get("fallback"):
        return f"{text}; given up: {t['fallback']}"
    return f"{text}; {verify_text(cycle.verify)}"


def verify_text(verify):
    if not verify:
        return "not verified"
    bad = {k: verify[k] for k in ("missed", "incomplete", "live_mismatch") if verify.get(k)}
    if bad:
        return "VERIFICATION FAILED: " + ", ".join(f"{v:,} {k}" for k, v in bad.items())
    return f"verified, {verify.get('floating', 0):,} floating"


def table(report):
    """The closing table as lines."""
    head = ["cycle", "objects", "references", "MB", "deferred", "pauses", "mark ms", "host CPU ms", "remark ms"]
    head.append("verify")
    rows = [head]
    for number, entry in enumerate(report["per_cycle"], 1):
        t = entry["trace"]
        rows.append(
            [
                str(number),
                f"{t['objects']:,}",
                f"{t['references']:,}",
                f"{t['live_bytes'] / 1e6:,.1f}",
                f"{t['deferred']:,}",
                str(t["pauses"]),
                f"{entry['mark_ms'] or 0:,.1f}",
                f"{t['host_cpu_ms']:,.2f}",
                f"{entry['remark_ms']:,.2f}",
                verify_text(entry["verify"]).replace("verified, ", "ok, "),
            ]
        )
    rows.append(
        [
            "all",
            f"{report['objects_marked']:,}",
            f"{report['references']:,}",
            "",
            f"{report['deferred']:,}",
            str(sum(e["trace"]["pauses"] for e in report["per_cycle"])),
            f"{report['concurrent_mark_ms']:,.1f}",
            f"{report['host_mark_cpu_ms']:,.2f}",
            f"{report['remark_ms']:,.2f}",
            verify_text(report["verify"]).replace("verified, ", "ok, "),
        ]
    )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def not_traced(log, path):
    """Why this log of a program that ended well cannot tell of marking, as a sentence; None when it can."""
    if log.window_bytes is not None:
        return None
    if log.collector is None:
        return (
            f"expected the JVM's log in {path}, found no start of a JVM in it, so that nothing was checked; do the "
            "program's flags turn logging off (-Xlog:disable, -Xlog:all=off)?"
        )
    if log.collector != "G1":
        return (
            f"expected a JVM that uses G1 with its heap in a window, found the collector {log.collector}, so that "
            "nothing was traced; leave it out of the program's flags"
        )
    return "expected a JVM that uses G1 with its heap in a window, found no window; the JVM's warning above says why"


def fallbacks(report):
    """The cycles that the device did not finish, as a sentence; None when there is none."""
    reasons = Counter(f.get("reason") or "no reason given" for f in report["fallback_list"])
    if not reasons:
        return None
    why = ", ".join(f"{reason} ({times})" if len(reasons) > 1 else reason for reason, times in reasons.most_common())
    cycles = "1 cycle" if report["fallbacks"] == 1 else f"{report['fallbacks']} cycles"
    return f"{cycles} fell back to the CPU: {why}; 'fallback_list' of the report has the details"


def no_cycles(log):
    """Why the device has finished no cycle in a run in which nothing went wrong, as a sentence."""
    if log.fallbacks:
        return "the device has finished no marking cycle"
    if any(c.mark_begin_ns is not None for c in log.cycles.values()):
        return (
            "the program ended while its first marking cycle was under way (one that runs longer, or holds fewer "
            "objects, lets the device finish; a simulated tracer is thousands of times slower than one in hardware)"
        )
    return (
        "the program never reached a marking cycle (a smaller -Xmx makes some, and so does System.gc() with "
        "-XX:+ExplicitGCInvokesConcurrent)"
    )


def ended(status):
    """How a process ended, for its status as subprocess tells it."""
    if status >= 0:
        return f"with status {status}"
    return f"by {signal.Signals(-status).name}" if -status in set(signal.Signals) else f"by signal {-status}"


def problems(report, least_cycles):
    """Why the run is not a success, as sentences; empty when it is."""
    found = []
    if report["status"]:
        found.append(f"the program ended {ended(report['status'])}")
    verify = report["verify"]
    if verify and (verify["missed"] or verify["incomplete"] or verify["live_mismatch"]):
        found.append(
            f"verification: expected nothing missed, incomplete or mismatched, found {verify['missed']} missed, "
            f"{verify['incomplete']} incomplete, {verify['live_mismatch']} live words mismatched"
        )
    if report["cycles"] < least_cycles:
        found.append(f"expected at least {least_cycles} cycles marked by the device, found {report['cycles']}")
    if least_cycles and (not verify or verify["cycles"] < least_cycles):
        found.append(f"expected at least {least_cycles} verified cycles, found {verify['cycles'] if verify else 0}")
    return found
