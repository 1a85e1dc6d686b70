#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tracer's AXI port against cocotbext-axi's memory, one trace a run.

    run_axi.py parameters --rtl build/rtl/sim-small
    run_axi.py trace --build build/rtl/axi/obj --windows build/rtl/sim/test/axi_window --out DIR --seed 1 --stalls 30

`parameters` prints Verilator's options for the widths of a preset's port. `trace` runs TracerAxi over the window that
axi_window makes from the seed; the memory's channels stand still in that share of the cycles. Status 1 and the end of
the log when a mark, a rule of the protocol or the end of the trace is missing. Needs cocotb's Python.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PORTS = {"READ_ID": "io_axi_0_ar_bits_id", "WRITE_ID": "io_axi_0_aw_bits_id", "ADDRESS": "io_axi_0_ar_bits_addr"}


def width(text: str, port: str) -> int:
    """Bits of a port in firtool's module head; a width holds for the names that follow it."""
    bits = 1
    for line in text.splitlines():
        m = re.match(r"\s*(input|output)?\s*(?:\[(\d+):0\])?\s*(\w+),?$", line)
        if not m:
            continue
        if m.group(1) or m.group(2):
            bits = int(m.group(2) or 0) + 1
        if m.group(3) == port:
            return bits
    raise SystemExit(f"run_axi: expected a port {port} in Tracer.sv, found none")


def parameters(arguments: argparse.Namespace) -> int:
    head = (arguments.rtl / "Tracer.sv").read_text().split(");", 1)[0]
    print(" ".join(f"-G{name}={width(head, port)}" for name, port in PORTS.items()))
    return 0


def trace(arguments: argparse.Namespace) -> int:
    from cocotb_tools.runner import get_runner

    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([arguments.windows, str(arguments.seed), folder], check=True)
    log = folder / "run.log"
    status = 0
    try:
        get_runner("verilator").test(
            hdl_toplevel="TracerAxi",
            hdl_toplevel_lang="verilog",
            test_module="axi_trace",
            test_dir=folder,
            build_dir=arguments.build.resolve(),
            extra_env={
                "MERAPI_AXI_WINDOW": str(folder),
                "MERAPI_AXI_STALLS": str(arguments.stalls),
                "MERAPI_AXI_WRONG": str(arguments.wrong),
                "MERAPI_AXI_CHECKS": str(int(not arguments.models_only)),
                "PYTHONPATH": str(HERE),
                "COCOTB_LOG_LEVEL": "INFO",
            },
            log_file=log,
        )
    except (SystemExit, RuntimeError, subprocess.CalledProcessError) as e:
        status = 1 if str(e) != "0" else 0
    text = log.read_text(errors="replace") if log.exists() else ""
    if status or "FAIL=0" not in text or "PASS=1" not in text:
        print(f"run_axi: seed {arguments.seed} failed, see {log}; the end of it:\n{text[-3000:]}", file=sys.stderr)
        return 1
    marked = re.search(r"\d+ objects marked.*", text)
    print(f"axi: seed {arguments.seed}, channels still {arguments.stalls} %: {marked.group(0) if marked else ''}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("parameters")
    p.add_argument("--rtl", type=Path, required=True)
    p.set_defaults(run=parameters)
    t = commands.add_parser("trace")
    t.add_argument("--build", type=Path, required=True, help="folder with the program TracerAxi")
    t.add_argument("--windows", type=Path, required=True, help="the program axi_window")
    t.add_argument("--out", type=Path, required=True)
    t.add_argument("--seed", type=int, default=1)
    t.add_argument("--stalls", type=int, default=30, help="per cent of cycles in which a channel stands still")
    t.add_argument("--wrong", type=int, default=0, help="rule that TracerAxi breaks")
    t.add_argument("--models-only", action="store_true", help="without TracerAxi's own checks")
    t.set_defaults(run=trace)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
