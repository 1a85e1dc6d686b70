#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the emulation: boots, reads of the expander, doorbell to completion, a whole run of make qemu.

Emulated by TCG: the figures tell whether the emulation is usable, nothing of hardware.
The result is build/bench/qemu.json. Status: 0, 1 a limit was missed or something failed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import emulate
import prepare
from common import BUILD, count, exclusive
from device import DeviceError
from machine import GuestError, Machine
from topology import MIB

OUT = BUILD / "bench/qemu.json"
BOOTS, ROUND_TRIPS, READ_MIB = 5, 100_000, 128
READY_S, READ_SHARE, WHOLE_S = 8.0, 0.8, 240.0
HOW = {
    "boot": "seconds of the host's clock from QEMU's launch to the agent's first line and to /dev/dax0.0 made from the "
    "bare expander; cpu_s is what QEMU's process took of the processors until then",
    "read": "MB/s of 64-bit loads in sequence by a program in the guest, best of five passes, expander mapped through "
    "/dev/dax0.0 and ordinary memory mapped privately; median of the boots",
    "round_trips": "in the guest: a FENCE is submitted, the PCI function's doorbell is written through the driver, the "
    "program sleeps in the driver until the interrupt, and finds the completion; microseconds of the guest's clock "
    "from before the doorbell; lost: sleeps that ended by time though there was news; spurious: sleeps that ended "
    "without news; each sleep must have had one interrupt",
    "whole": "what `make qemu` does when everything is built, from its start to its report, by the host's clock",
}


def boot(folder, round_trips):
    """One guest from launch to end. Returns (boot, read, round trips or None)."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    load = os.getloadavg()[0]
    tracer = {"program": emulate.DEVICE_PROGRAM, "name": "model"}
    with Machine(
        "one", folder, {"native": emulate.NATIVE, "out": out}, emulate.EXPANDER_BYTES, tracer=tracer
    ) as machine:
        device = machine.provision()[0]["device"]
        times = {
            "agent_s": round(machine.ready_s, 2),
            "dax_s": round(machine.seconds(), 2),
            "cpu_s": round(machine.cpu_seconds(), 2),
            "load_before": round(load, 1),
        }
        speeds = machine.check(f"merapi-dax read {device} {READ_MIB * MIB}", 300).splitlines()[-1].split()
        read = {"expander_mb_s": float(speeds[0]), "ordinary_mb_s": float(speeds[1])}
        trips = None
        if round_trips:
            emulate.tracer_window(machine, machine.provision()[0])
            status, output = machine.run(f"merapi-ring /dev/merapi0 {device} {round_trips}", 900)
            try:
                trips = json.loads(output)
            except json.JSONDecodeError:
                raise GuestError(f"merapi-ring ended with status {status}\n{output}") from None
    return times, read, trips


def whole():
    """The emulation's part of the report of one run of qemu-cxl/emulate.py."""
    load = os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, emulate.__file__], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise GuestError(f"{emulate.__file__} ended with status {done.returncode}\n{done.stderr}")
    report = json.loads((emulate.OUT / "report.json").read_text())
    names = ("launch_to_dax_s", "java_s", "qemu_cpu_s", "total_s", "packages")
    run = {name: report["emulation"][name] for name in names}
    return {
        **run,
        "cycles": report["cycles"],
        "objects_marked": report["objects_marked"],
        "load_before": round(load, 1),
    }


def limits(boots, share, trips, run):
    """What was to be reached, as (name, value, limit, reached)."""
    ready = statistics.median(b["dax_s"] for b in boots)
    total = run["total_s"]
    return [
        {"name": "a whole run of make qemu, s", "value": total, "at_most": WHOLE_S, "ok": total <= WHOLE_S},
        {"name": "launch to /dev/dax0.0, s, median", "value": ready, "at_most": READY_S, "ok": ready <= READY_S},
        {"name": "reads, expander over ordinary", "value": share, "at_least": READ_SHARE, "ok": share >= READ_SHARE},
        {"name": "interrupts lost", "value": trips["lost"], "at_most": 0, "ok": trips["lost"] == 0},
        {
            "name": "wake-ups without cause",
            "value": trips["spurious"] + abs(trips["interrupts"] - trips["sleeps"]),
            "at_most": 0,
            "ok": trips["spurious"] == 0 and trips["interrupts"] == trips["sleeps"],
        },
    ]


def measure(args):
    taken = prepare.ready()
    boots, reads, trips = [], [], None
    for number in range(args.boots):
        with tempfile.TemporaryDirectory(prefix="merapi-bench-") as folder:
            times, read, trips = boot(Path(folder), args.round_trips if number == args.boots - 1 else 0)
        boots.append(times)
        reads.append(read)
        print(
            f"boot {number + 1}: /dev/dax0.0 after {times['dax_s']:.1f} s ({times['cpu_s']:.1f} s of a processor), "
            f"reads {read['expander_mb_s']:.0f} MB/s, ordinary memory {read['ordinary_mb_s']:.0f} MB/s",
            flush=True,
        )
    run = whole()
    print(
        f"make qemu: {run['total_s']:.0f} s ({run['qemu_cpu_s']:.0f} s of a processor), {run['cycles']} cycles of "
        f"{run['objects_marked']:,} objects",
        flush=True,
    )
    share = round(statistics.median(r["expander_mb_s"] / r["ordinary_mb_s"] for r in reads), 3)
    result = {
        "says_nothing_about": "speed of hardware: processor, expander and link are emulated (TCG)",
        "how": HOW,
        "qemu": taken["host"]["qemu-system-x86"],
        "processors": os.cpu_count(),
        "boot": boots,
        "read": {"runs": reads, "share": share},
        "round_trips": trips,
        "whole": run,
        "limits": limits(boots, share, trips, run),
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    us = trips["us"]
    print(
        f"{trips['round_trips']} round trips: median {us['p50']:.0f} us, 99 % below {us['p99']:.0f} us, longest "
        f"{us['max'] / 1000:.1f} ms; {trips['sleeps']} sleeps, {trips['lost']} lost, {trips['spurious']} without cause"
    )
    for limit in result["limits"]:
        bound = f"at most {limit['at_most']}" if "at_most" in limit else f"at least {limit['at_least']}"
        print(f"{'ok  ' if limit['ok'] else 'MISSED'} {limit['name']}: {limit['value']}, {bound}")
    print(f"report: {OUT}")
    return 0 if all(limit["ok"] for limit in result["limits"]) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--boots", type=count, default=BOOTS)
    parser.add_argument("--round-trips", type=count, default=ROUND_TRIPS)
    args = parser.parse_args()
    try:
        with exclusive("qemu-bench"):
            return measure(args)
    except (DeviceError, GuestError) as error:
        print(f"bench_qemu: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
