# SPDX-License-Identifier: Apache-2.0
"""What the log of a program whose window was saved says about marking on the CPU."""

from windows import saved_marking

LOG = """[1ns][gc,marking  ] GC(5) Concurrent Mark From Roots 10.758ms
[2ns][gc,merapi   ] Marking the saved cycle on the CPU took 28.740 ms with 1 threads
[3ns][gc,marking  ] GC(7) Concurrent Mark From Roots 208.722ms
[4ns][gc,marking  ] GC(9) Concurrent Mark From Roots 8.541ms
"""


def test_time_and_cycle_of_the_saved_marking(tmp_path):
    (tmp_path / "log").write_text(LOG)
    assert saved_marking(tmp_path / "log") == {"ms": 28.74, "gc_id": 7}
    (tmp_path / "log").write_text(LOG.replace("saved", "other"))
    assert saved_marking(tmp_path / "log") is None
