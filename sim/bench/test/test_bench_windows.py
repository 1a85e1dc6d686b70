# SPDX-License-Identifier: Apache-2.0
"""What the log of a program whose window was saved says about marking on the CPU."""

from types import SimpleNamespace

import pytest
import windows
from measured_jvm import BenchError
from windows import saved_marking

LOG = """[1ns][gc,marking  ] GC(5) Concurrent Mark From Roots 10.758ms
[2ns][gc,merapi   ] Marking the saved cycle on the CPU took 28.740 ms with 1 threads
[3ns][gc,marking  ] GC(7) Concurrent Mark From Roots 208.722ms
[4ns][gc,marking  ] GC(9) Concurrent Mark From Roots 8.541ms
"""


def test_the_names_are_those_of_the_programs(monkeypatch):
    monkeypatch.setattr(windows, "sources", lambda: "sources")
    assert tuple(windows.programs(1.0, "index")) == windows.NAMES


def test_time_and_cycle_of_the_saved_marking(tmp_path):
    (tmp_path / "log").write_text(LOG)
    assert saved_marking(tmp_path / "log") == {"ms": 28.74, "gc_id": 7}
    (tmp_path / "log").write_text(LOG.replace("saved", "other"))
    assert saved_marking(tmp_path / "log") is None


def test_g1_s_time_is_a_median_of_what_marking_itself_took():
    samples = [{"wall_ms": w, "cpu_ms": c} for w, c in ((50, 42), (41, None), (40, 43), (90, 38), (39, 90))]
    assert windows.g1_ms(samples) == 40


def test_the_same_cycle_of_a_run_without_a_window():
    cycles = {n: SimpleNamespace(gc_id=n, mark_ms=ms) for n, ms in ((9, 30.0), (4, None), (3, 10.0), (7, 20.0))}
    measured = SimpleNamespace(log=SimpleNamespace(cycles=cycles), marking_cpu_ms={7: 19.0})
    assert windows.stock_marking(measured, "h2", "log") == {"wall_ms": 20.0, "cpu_ms": 19.0}
    del cycles[7], cycles[9]
    with pytest.raises(BenchError, match="expected 2 marking cycles of h2, found 1"):
        windows.stock_marking(measured, "h2", "log")
