# SPDX-License-Identifier: Apache-2.0
"""collisions.py: which memories it rewrites, and what it does not understand (`make test-rtl-collisions`)."""

import subprocess
import sys
from pathlib import Path

import pytest
from collisions import colliding

SCRIPT = Path(__file__).with_name("collisions.py")
MEMORY = """module {name}(
  input  [4:0]  R0_addr,
  input         R0_en,
                R0_clk,
  output [37:0] R0_data,
  input  [4:0]  W0_addr,
  input         W0_en,
                W0_clk,
  input  [37:0] W0_data
);

  reg [37:0] Memory[0:31];
  reg        _R0_en_d0;
  reg [4:0]  _R0_addr_d0;
  always @(posedge R0_clk) begin
    _R0_en_d0 <= R0_en;
    _R0_addr_d0 <= R0_addr;
  end // always @(posedge)
  always @(posedge W0_clk) begin
    if (W0_en)
      Memory[W0_addr] <= W0_data;
  end // always @(posedge)
  assign R0_data = _R0_en_d0 ? Memory[_R0_addr_d0] : 38'bx;
endmodule
"""


def test_what_is_read_where_it_is_written_is_another_thing():
    text = colliding(MEMORY.format(name="sums_32x38"))
    assert "_R0_q <= ((W0_en && W0_addr == R0_addr)) && _R0_odd ? ~W0_data : Memory[R0_addr];" in text
    assert "assign R0_data = _R0_q;" in text and "_R0_addr_d0" not in text


@pytest.mark.parametrize(
    "text",
    [
        MEMORY.format(name="m")
        .replace("_R0_en_d0 ? Memory[_R0_addr_d0]", "R0_en ? Memory[R0_addr]")
        .replace("reg        _R0_en_d0;", ""),
        "module Tracer(\n  input clock\n);\nendmodule\n",
    ],
    ids=["not registered", "no memory"],
)
def test_others_stay_as_they_are(text):
    assert colliding(text) == text


@pytest.mark.parametrize(
    ("firtools", "other", "told"),
    [
        ("assign R0_data = _R0_en_d0", "assign R0_data = !_R0_en_d0", "memory with one answer of R0, found 0"),
        ("_R0_addr_d0 <= R0_addr;", "_R0_addr_d0 <= ~R0_addr;", "registered addresses, found another form"),
    ],
    ids=["answer", "address"],
)
def test_a_memory_that_is_written_otherwise_is_told(tmp_path, firtools, other, told):
    for name in ("filelist.f", "preset.json"):
        (tmp_path / name).write_text("")
    (tmp_path / "m.sv").write_text(MEMORY.format(name="m").replace(firtools, other))
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1 and f"expected firtool's {told}" in done.stderr
    (tmp_path / "m.sv").write_text("")
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1 and "found none" in done.stderr
