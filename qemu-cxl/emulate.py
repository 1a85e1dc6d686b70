#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a real Java program in a Debian guest whose CXL expander is traced from outside.

QEMU boots a stock kernel with a CXL expander, the guest makes it /dev/dax0.0, the
patched JDK puts its heap there, and merapi-device, a process on this machine that
maps the same memory, marks it; the guest sees it as a PCI function. With --shell: a shell in such a guest instead.

The report is build/qemu/report.json; console.log, qemu.log, device.log and
out/jvm.log lie beside it. Status: 0 success, 1 the program or a check
failed, 2 wrong use, 130 stopped.
"""

import argparse
import json
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "sim/run")]

import accelerator as accelerators  # noqa: E402
import jvm_log  # noqa: E402
import prepare  # noqa: E402
import report  # noqa: E402
import run as host_run  # noqa: E402
from common import BUILD, count, exclusive  # noqa: E402
from device import DEVICES, DeviceError  # noqa: E402
from machine import CLOCKS, GuestError, Machine, check_room  # noqa: E402
from topology import MIB, TOPOLOGIES  # noqa: E402

OUT = BUILD / "qemu"
NATIVE = BUILD / "native/bin"
DEVICE_PROGRAM = NATIVE / "merapi-device"
EXPANDER_BYTES = 1024 * MIB
# Character device of the tracer's driver in the guest, and its PCI function there.
TRACER, TRACER_FOLDER = "/dev/merapi0", "/sys/class/misc/merapi0/device"
# A register of a PCI function that does not answer.
NO_ANSWER = 0xFFFFFFFF
# Elsewhere the bytes of the dax device are not those of one expander's file, so nothing outside could trace them.
TRACED = ("one", "two", "pmem")
# An emulated processor is some twenty times slower: fewer packages and rounds than `make run`; fewer still where the
# tracer is simulated clock by clock.
PACKAGES, ROUNDS, LEAST_CYCLES = {"model": 8000, "rtl": 3000}, 3, 3
HEAP = ["-Xms448m", "-Xmx448m", "-XX:InitiatingHeapOccupancyPercent=25", "-XX:+ExplicitGCInvokesConcurrent"]
# What emulation makes slow is compiling, not running: the first tier alone gets through start-up sooner.
EMULATED = ["-XX:TieredStopAtLevel=1", "-Xshare:auto"]


def fail(message, status=1):
    print(f"qemu: {message}", file=sys.stderr)
    sys.exit(status)


def some_packages(out, count):
    """The first `count` entries of the machine's package index, in the folder shared with the guest."""
    host_run.OUT.mkdir(parents=True, exist_ok=True)
    with open(host_run.package_index(), encoding="utf-8") as file:
        stanzas = file.read().split("\n\n", count)[:count]
    (out / "packages.txt").write_text("\n\n".join(stanzas) + "\n", encoding="utf-8")


def java_command(window, log, program):
    """java's command line in the guest, as a list; the heap goes into `window` (dax:/dev/daxN.0)."""
    flags = ["-XX:+UseG1GC", f"-XX:MerapiWindow={window}", "-XX:+MerapiVerify", jvm_log.log_flag(log)]
    return ["/merapi/jdk/image/bin/java", *flags, *EMULATED, *program]


def default_program(rounds):
    index = "/merapi/out/packages.txt"
    return [*HEAP, "-cp", "/merapi/apps/classes:/merapi/apps/lib/*", "merapi.apps.PackageRank", index, str(rounds)]


def run_java(machine, command, log, seconds):
    """Run java in the guest, showing its output and its traces. Returns (status, log). OSError when its output cannot
    be printed any more."""
    console, ended = host_run.Console(), threading.Event()

    def show(line):
        console.say(f"  | {line}")
        if console.lost:
            raise console.lost

    watcher = host_run.Watcher(log, console)

    def watch():
        while not ended.wait(0.2):
            watcher.poll()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        status, _ = machine.run(shlex.join(command), seconds, show)
    finally:
        ended.set()
        thread.join()
        watcher.end()
    return status, watcher.log


def shares(out):
    # The folder around the JDK: a JDK that is built anew meanwhile is another folder of the same name.
    return {"jdk": BUILD / "jdk", "apps": BUILD / "apps", "native": NATIVE, "out": out}


def check_inputs(args):
    for path, target in ((BUILD / "jdk/image/bin/java", "jdk"), (BUILD / "apps/classes", "apps")):
        if not path.exists():
            fail(f"expected {path}, found nothing; run 'make {target}'")
    if not args.device_program.exists():
        fail(f"expected the device process at {args.device_program}, found nothing; run 'make native'")


def accelerator_of(args):
    # Only TCG counts instructions.
    only = "tcg" if args.clock == "instructions" and args.accelerator == "auto" else args.accelerator
    return accelerators.choose(only, NATIVE)


def machine_of(args, out, accelerator, **more):
    """The guest, with the tracer as a PCI function beside the first expander."""
    tracer = {"program": args.device_program, "name": args.device, "options": args.device_options}
    how = {"clock": args.clock, "accelerator": accelerator, "tracer": tracer}
    return Machine(args.topology, args.folder, shares(out), EXPANDER_BYTES, **how, **more)


def tracer_window(machine, found):
    """Name of the window behind the tracer's driver, which is bounded to it."""
    machine.check(f"modprobe merapi_tracer; test -c {TRACER}")
    machine.merapi(f"provision {found['device']}")
    return f"pci:{TRACER},{found['device']}"


def function_answers(machine):
    """Does the guest read what can be in a register of the tracer's PCI function?"""
    status, engines = machine.run(f"cat {TRACER_FOLDER}/engines")
    return status == 0 and int(engines) != NO_ANSWER


def lost_function(front, answers, folder):
    """What became of the tracer's PCI function, as sentences; to be asked while QEMU runs, which leaves at its end.
    QEMU may find only by another access that it cannot use an answer that came too late: `answers` is asked first."""
    if not front.alive():
        return [f"the PCI function's process ended during the run; see {folder / 'device.log'}"]
    if front.left() or not answers:
        return [f"QEMU gave up the PCI function during the run; see {folder / 'qemu.log'}"]
    return []


def run(args, out):
    begin = time.monotonic()
    (args.folder / "report.json").unlink(missing_ok=True)
    (out / "jvm.log").unlink(missing_ok=True)
    taken = prepare.ready()
    some_packages(out, args.packages)
    accelerator = accelerator_of(args)
    print(f"starting a guest with the topology '{args.topology}' under {accelerator.upper()}", flush=True)
    with machine_of(args, out, accelerator) as machine:
        first = machine.provision()[0]
        ready_s, ready_cpu_s = machine.seconds(), machine.cpu_seconds()
        print(f"{first['device']} of {first['bytes'] >> 20} MiB is ready {ready_s:.1f} s after launch", flush=True)
        window = tracer_window(machine, first)
        command = java_command(window, "/merapi/out/jvm.log", default_program(args.rounds))
        print(f"device: {args.device} behind {window}\nprogram: {shlex.join(command)}", flush=True)
        java_begin = time.monotonic()
        status, read = run_java(machine, command, out / "jvm.log", args.seconds)
        java_s, cpu_s = time.monotonic() - java_begin, machine.cpu_seconds()
        interrupts = int(machine.check(f"cat {TRACER_FOLDER}/interrupts"))
        lost = lost_function(machine.front, function_answers(machine), args.folder)
        simulated = machine.front.simulated()
    result = report.build(read, args.device, command, status, simulated)
    result["emulation"] = {
        "topology": args.topology,
        "accelerator": accelerator,
        "clock": machine.clock,
        "qemu": taken["host"]["qemu-system-x86"],
        "kernel": next(name for name in taken["kernel"] if name.startswith("linux-image-")),
        "window": {"name": window, **first},
        "interrupts": interrupts,
        "launch_to_agent_s": round(machine.ready_s, 2),
        "launch_to_dax_s": round(ready_s, 2),
        "launch_to_dax_cpu_s": round(ready_cpu_s, 2),
        "qemu_cpu_s": round(cpu_s, 2),
        "java_s": round(java_s, 2),
        "total_s": round(time.monotonic() - begin, 2),
        "packages": args.packages,
        "says_nothing_about": "speed of hardware: processor, expander and link are emulated",
    }
    (args.folder / "report.json").write_text(json.dumps(result, indent=1) + "\n")
    print()
    for line in report.table(result):
        print(line)
    print(f"\nreport: {args.folder / 'report.json'} (times are those of an emulated processor)")
    found = report.problems(result, LEAST_CYCLES) + lost
    for problem in found:
        print(f"qemu: {problem}", file=sys.stderr)
    return 1 if found else 0


def shell(args, out):
    prepare.ready()
    some_packages(out, args.packages)
    accelerator = accelerator_of(args)
    print(f"starting a guest with the topology '{args.topology}' under {accelerator.upper()}", flush=True)
    print("Ctrl-A x ends it at any time; Ctrl-C and all else goes to the guest (Ctrl-A twice: one Ctrl-A)", flush=True)
    with machine_of(args, out, accelerator, shell=True) as machine:
        first = machine.provision()[0]
        window = tracer_window(machine, first)
        command = java_command(window, "/merapi/out/jvm.log", default_program(args.rounds))
        print(f"{first['device']} is ready and traced from outside. Try:\n  {shlex.join(command)}\n")
        print("'merapi list', 'cxl list' and 'lspci' show the devices; 'exit' or Ctrl-A x ends the guest.", flush=True)
        machine.check("touch /run/merapi-shell")
        machine.process.wait()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--topology", default="one", help="expanders: " + ", ".join(TRACED))
    parser.add_argument("--device", default="model", help="what traces: " + ", ".join(sorted(DEVICES)))
    parser.add_argument("--check", action="store_true", help="only check --topology, --device, --preset and --memory")
    parser.add_argument("--shell", action="store_true", help="a shell in the guest, everything set up")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default=CLOCKS[0],
        help="what the guest's time follows: the time of day, or its instructions (for very busy machines)",
    )
    parser.add_argument(
        "--accelerator", choices=accelerators.CHOICES, default="auto", help="auto: KVM if a guest boots with it, or TCG"
    )
    parser.add_argument("--preset", default="", help="with --device rtl: which tracer (ddr4-1ch)")
    parser.add_argument("--memory", default="", help="with --device rtl: memory time (what suits the preset)")
    parser.add_argument("--packages", type=count, help="entries of the package index to load")
    parser.add_argument("--rounds", type=count, default=ROUNDS, help="rounds of the program")
    parser.add_argument("--seconds", type=count, default=900, help="longest time the program may take")
    parser.add_argument("--device-program", type=Path, default=DEVICE_PROGRAM)
    parser.add_argument("--folder", type=Path, default=OUT, help="where the report and the logs go (build/qemu)")
    args = parser.parse_args()
    if args.device not in DEVICES:
        fail(f"DEVICE: expected one of {', '.join(sorted(DEVICES))}, found '{args.device}'", 2)
    if args.topology not in TRACED:
        fail(f"TOPOLOGY: expected one of {', '.join(TRACED)} to run a program, found '{args.topology}'", 2)
    try:
        args.device_options = host_run.device_options(args)
    except DeviceError as error:
        fail(str(error), 2)
    if args.shell and not sys.stdin.isatty():
        fail("expected a terminal for a shell in the guest, found none; 'make qemu' runs a program without one", 2)
    if args.check:
        # Before anything is fetched or compiled.
        try:
            check_room(TOPOLOGIES[args.topology].expanders * EXPANDER_BYTES)
        except GuestError as error:
            fail(str(error))
        return 0
    args.packages = args.packages or PACKAGES[args.device]
    check_inputs(args)
    host_run.print_anything()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, host_run.stop_on_signal)
    out = args.folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    try:
        with exclusive("qemu"):
            return shell(args, out) if args.shell else run(args, out)
    except (DeviceError, GuestError) as error:
        fail(str(error))
    except OSError as error:
        return host_run.status_of_lost_output(error)
    except KeyboardInterrupt:
        print("qemu: stopped; the guest and its device were ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
