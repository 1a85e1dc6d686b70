# SPDX-License-Identifier: Apache-2.0
"""Programs to which something happens while they run, and what their logs must say of it then."""

import jvm_harness

MIB = 1 << 20
# A list in random order: no tracer is done with it in less than some tens of milliseconds, time enough to hit one.
LONG = ["-Xms224m", "-Xmx224m"]
LONG_PROGRAM = ["GraphRewiring", "ballast=1200000", "count=300", "cycles=100000"]
SHORT = ["-Xms128m", "-Xmx128m"]
SHORT_PROGRAM = ["GraphRewiring", "count=1000", "cycles=5"]


def on_the_cpu(result, cycles=1):
    """Nothing was offloaded and nothing was missing."""
    jvm_harness.check_ok(result)
    assert not result.log.traces, result.describe("expected no trace without a device")
    remarks = [kind for kind, _ in result.log.events if kind == "remark"]
    assert len(remarks) >= cycles, result.describe(f"expected {cycles} cycles marked on the CPU, found {len(remarks)}")
    assert not result.log.problems, result.describe("the log complains")


def said(result, *words):
    """The log tells why, in one line that holds all the words."""
    lines = result.log.text("gc,merapi").splitlines()
    found = any(all(word in line for word in words) for line in lines)
    assert found, result.describe(f"expected a line under gc,merapi with {words}")
