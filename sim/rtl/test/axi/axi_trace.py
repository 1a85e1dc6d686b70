# SPDX-License-Identifier: Apache-2.0
"""One trace of the tracer over cocotbext-axi's memory; run by run_axi.py through cocotb."""

import itertools
import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiRam

LEFT = 200_000  # cycles that a trace may take
LOOK = 200  # cycles between two looks at the window


def stalls(seed, percent):
    """When a channel of the memory stands still."""
    generator = random.Random(seed)
    return (generator.randrange(100) < percent for _ in itertools.repeat(None))


def word(ram, address, size=8):
    return int.from_bytes(ram.read(address, size), "little")


async def until(dut, what, name):
    for _ in range(LEFT // LOOK):
        if what():
            return
        await ClockCycles(dut.clock, LOOK)
    raise AssertionError(f"expected {name} within {LEFT} cycles")


@cocotb.test()
async def trace(dut):
    folder = Path(os.environ["MERAPI_AXI_WINDOW"])
    at = json.loads((folder / "window.json").read_text())
    dut.wrong.value = int(os.environ.get("MERAPI_AXI_WRONG", "0"))
    dut.checks.value = int(os.environ.get("MERAPI_AXI_CHECKS", "1"))
    dut.window_bytes.value = at["bytes"]
    dut.reset.value = 1
    ram = AxiRam(AxiBus.from_prefix(dut, "axi"), dut.clock, dut.reset, size=at["bytes"])
    ram.write(0, (folder / "window.bin").read_bytes())
    percent = int(os.environ["MERAPI_AXI_STALLS"])
    channels = (
        ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel, ram.read_if.ar_channel,
        ram.read_if.r_channel,
    )  # fmt: skip
    for i, channel in enumerate(channels):
        if percent:
            channel.set_pause_generator(stalls(i, percent))
    cocotb.start_soon(Clock(dut.clock, 4, "ns").start())
    await ClockCycles(dut.clock, 5)
    dut.reset.value = 0

    device, host, idle = at["device_index"], at["host_index"], at["idle_record"]
    await until(dut, lambda: word(ram, device) == at["generation"], "the handshake")
    ram.write(host + 8, at["produced"].to_bytes(8, "little"))
    ram.write(host + 24, (1).to_bytes(4, "little"))  # doorbell

    def ended():
        assert word(ram, at["fault_record"], 4) == 0, f"fault {word(ram, at['fault_record'], 4)}"
        # Completions are taken at once.
        ram.write(host + 16, ram.read(device + 16, 8))
        return (
            word(ram, idle, 4) == at["cycle"]
            and word(ram, idle + 4, 4) == 1
            and word(ram, idle + 8) == at["produced"]
            and word(ram, idle + 16) == word(ram, device + 16)
        )

    await until(dut, ended, "the end of the trace")
    want = (folder / "expected.bin").read_bytes()
    have = ram.read(at["bitmap"], len(want))
    wrong = sum((a ^ b).bit_count() for a, b in zip(want, have, strict=True))
    assert wrong == 0, f"expected {at['marked']} marks, found {wrong} of them different"
    assert at["newly"] > 0, "expected a heap in which something is to be marked"
    dut._log.info("%d objects marked, %d of them by the tracer", at["marked"], at["newly"])
