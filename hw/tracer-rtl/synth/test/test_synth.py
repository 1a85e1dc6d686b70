# SPDX-License-Identifier: Apache-2.0
"""The synthesis estimate on a design small enough to be counted by hand."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SYNTH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(SYNTH))
import paths  # noqa: E402
import synth  # noqa: E402

MEMORY = """
module words_{depth}x{width}(input [{a}:0] R0_addr, input R0_en, R0_clk, output [{w}:0] R0_data,
                   input [{a}:0] W0_addr, input W0_en, W0_clk, input [{w}:0] W0_data);
  reg [{w}:0] Memory[0:{last}];
  reg _R0_en_d0;
  reg [{a}:0] _R0_addr_d0;
  always @(posedge R0_clk) begin
    _R0_en_d0 <= R0_en;
    _R0_addr_d0 <= R0_addr;
  end
  always @(posedge W0_clk) if (W0_en) Memory[W0_addr] <= W0_data;
  assign R0_data = _R0_en_d0 ? Memory[_R0_addr_d0] : {width}'bx;
endmodule
"""

DESIGN = """
module Leaf(input clock, input [31:0] a, input [31:0] b, output reg [31:0] sum);
  always @(posedge clock) sum <= a + b;
endmodule
module Deep(input clock, input [63:0] x, output reg y);
  reg [63:0] r;
  always @(posedge clock) begin
    r <= x;
    y <= ((r[31:0] * r[63:32]) ^ (r[31:0] * r[47:16])) > r;
  end
endmodule
module Tracer(input clock, input [63:0] x, input [8:0] at, output [63:0] sums, output y, output [71:0] word);
  Leaf one(.clock(clock), .a(x[31:0]), .b(x[63:32]), .sum(sums[31:0]));
  Leaf two(.clock(clock), .a(sums[31:0]), .b(x[31:0]), .sum(sums[63:32]));
  Deep deep(.clock(clock), .x(x), .y(y));
  words_512x72 memory(.R0_addr(at), .R0_en(1'b1), .R0_clk(clock), .R0_data(word),
                      .W0_addr(x[8:0]), .W0_en(y), .W0_clk(clock), .W0_data({8'b0, x}));
endmodule
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synth")
    rtl = folder / "tiny"
    rtl.mkdir()
    (rtl / "Tracer.sv").write_text(DESIGN)
    (rtl / "words.sv").write_text(MEMORY.format(depth=512, width=72, a=8, w=71, last=511))
    assert shutil.which("yosys"), "expected Debian's yosys (make setup)"
    run = subprocess.run(
        [sys.executable, SYNTH / "synth.py", "--rtl", rtl, "--work", folder / "work",
         "--report", folder / "report.json"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    return run, report["presets"][0], folder


def block(result, name):
    return next(b for b in result[1]["blocks"] if b["block"] == name)


def test_area_of_blocks_is_counted_per_instance(result):
    leaf = block(result, "Leaf")
    assert leaf["instances"] == 2
    assert leaf["ff"] == 32
    assert 32 <= leaf["lut"] <= 40
    total = result[1]["total"]
    assert total["ff"] == sum(b["ff"] * b["instances"] for b in result[1]["blocks"])
    assert total["lut"] == sum(b["lut"] * b["instances"] for b in result[1]["blocks"])


def test_a_memory_with_a_registered_address_is_one_block_ram(result):
    assert result[1]["total"]["bram36"] == 1
    assert block(result, "Tracer")["bram36"] == 1, "a memory belongs to the block that holds it"


def test_a_path_that_is_too_long_is_a_miss_and_the_exit_code_says_so(result):
    run, preset, _ = result
    assert run.returncode == 1
    assert not block(result, "Deep")["path"]["meets"]
    assert block(result, "Deep")["path"]["start_block"] == "Deep"
    assert block(result, "Leaf")["path"]["meets"]
    assert any("Deep misses" in m for m in preset["misses"])
    assert not any("Leaf" in m for m in preset["misses"])
    assert "MISS" in run.stdout


def test_limits_of_a_preset_are_judged():
    devices = json.loads((SYNTH / "devices.json").read_text())
    total = {"lut": 100001, "ff": 1, "bram36": 1000, "uram": 0}
    wrong = synth.judge({"preset": "ddr4-1ch", "total": total, "blocks": []}, devices)
    assert any("100000 LUT" in w for w in wrong)
    assert any("bram36" in w for w in wrong), "1000 of 2688 is more than a quarter"
    total = {"lut": 100000, "ff": 1, "bram36": 672, "uram": 320}
    assert synth.judge({"preset": "ddr4-1ch", "total": total, "blocks": []}, devices) == []


def cell(kind, **pins):
    return {
        "type": kind,
        "port_directions": {p: "output" if p in ("O", "Q", "DOA") else "input" for p in pins},
        "connections": {p: [w] for p, w in pins.items()},
    }


def test_a_path_costs_what_its_cells_cost():
    module = {"cells": {
        "from": cell("FDRE", C=1, D=9, Q=2),
        "a": cell("LUT6", I0=2, I1=2, O=3),
        "b": cell("LUT2", I0=3, I1=2, O=4),
        "to": cell("FDRE", C=1, D=4, Q=5),
    }}  # fmt: skip
    found = paths.Netlist(module).paths()
    assert [p.end for p in found] == ["to"]
    assert found[0].luts == 2
    assert found[0].start == "from"
    want = paths.CLOCK_TO_Q["FD"] + 2 * paths.LUT_NS + paths.LAST_NET_NS + paths.SETUP_NS["FD"]
    assert found[0].ns == pytest.approx(want)


def test_what_follows_from_quasi_static_registers_alone_is_on_no_path():
    module = {"cells": {
        "constant": cell("FDRE", C=1, D=9, Q=2),
        "from": cell("FDRE", C=1, D=9, Q=3),
        "a": cell("LUT1", I0=2, O=4),
        "b": cell("LUT1", I0=4, O=5),
        "c": cell("LUT2", I0=5, I1=3, O=6),
        "to": cell("FDRE", C=1, D=6, Q=7),
        "still": cell("FDRE", C=1, D=5, Q=8),
    }}  # fmt: skip
    found = paths.Netlist(module).paths(lambda name: name == "constant")
    assert [(p.start, p.end, p.luts) for p in found] == [("from", "to", 1)]


def test_a_write_address_is_on_no_path_through_a_memory():
    module = {"cells": {
        "reads": cell("FDRE", C=1, D=9, Q=2),
        "writes": cell("FDRE", C=1, D=9, Q=3),
        "quick": cell("LUT1", I0=2, O=10),
        "slow": cell("LUT1", I0=3, O=4),
        "slower": cell("LUT1", I0=4, O=11),
        "memory": cell("RAM32M16", ADDRA=10, ADDRH=11, DIA=2, DOA=5, WCLK=1),
        "to": cell("FDRE", C=1, D=5, Q=6),
    }}  # fmt: skip
    found = {p.end: p.start for p in paths.Netlist(module).paths()}
    assert found["to"] == "reads"
    assert found["memory"] == "writes"


def test_a_loop_is_an_error():
    def lut(i, o):
        return {"type": "LUT1", "port_directions": {"I0": "input", "O": "output"}, "connections": {"I0": [i], "O": [o]}}

    with pytest.raises(ValueError, match="combinational loop"):
        paths.Netlist({"cells": {"a": lut(1, 2), "b": lut(2, 1)}}).paths()
