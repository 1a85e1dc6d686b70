# SPDX-License-Identifier: Apache-2.0
"""The log reader: real lines of both JVMs, records, and lines that are not complete yet."""

import re

import jvm_log
import pytest
import report

TRACE = (
    '{"cycle":1,"gc_id":2,"device":"model","objects":10,"references":20,"live_bytes":160,"deferred":3,"shapes":4,'
    '"satb":5,"greys":6,"pauses":1,"pause_us_max":12.5,"device_ms":1.5,"device_cpu_ms":1.25,"concurrent_ms":2.0,'
    '"host_cpu_ms":0.25,"fallback":null}'
)
LINES = [
    "[50ns][gc] Using G1",
    "[100ns][gc,merapi       ] Window device:/s: 2181038080 bytes, heap at offset 33554432 mapped at 0x700000000",
    "[900ns][gc,start        ] GC(1) Pause Young (Concurrent Start) (System.gc())",
    "[1000ns][gc          ] GC(1) Pause Young (Concurrent Start) (System.gc()) 422M->417M(1024M) 0.500ms",
    "[2000ns][gc,marking     ] GC(2) Concurrent Mark From Roots",
    "[2500ns][gc,merapi      ] Pause acknowledged after 17.5 us",
    '[2600ns][safepoint   ] Safepoint "G1CollectForAllocation", Time since last: 4128278 ns, Reaching safepoint: 33530'
    " ns, Cleanup: 4667 ns, At safepoint: 4073135 ns, Total: 4111332 ns",
    "[2700ns][gc          ] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 1020M->1021M(1024M) 9.312ms",
    f"[3000ns][gc,merapi      ] GC(2) Trace {TRACE}",
    "[4000ns][gc,marking     ] GC(2) Concurrent Mark From Roots 2.250ms",
    '[4500ns][gc,merapi] GC(2) Verify {"gc_id":2,"missed":0,"incomplete":0,"floating":7,"live_mismatch":0,"ms":0.5}',
    "[5000ns][gc             ] GC(2) Pause Remark 20M->20M(100M) 1.200ms",
    "[6000ns][gc             ] GC(4) Pause Young (Normal) (G1 Evacuation Pause) 20M->10M(100M) 3.000ms",
]


def read(lines):
    log = jvm_log.JvmLog()
    events = [log.feed(line) for line in lines]
    return log, [e[0] for e in events if e]


def test_reads_a_cycle():
    log, events = read(LINES)
    assert events == ["trace", "verify", "remark"]
    (cycle,) = log.offloaded()
    assert (cycle.gc_id, cycle.mark_ms, cycle.remark_ms) == (2, 2.25, 1.2)
    assert (cycle.mark_begin_ns, cycle.mark_end_ns) == (2000, 4000)
    assert cycle.trace["objects"] == 10 and cycle.verify["floating"] == 7
    assert log.collector == "G1" and log.window_bytes == 2181038080
    assert log.device_pauses_us == [17.5]
    assert log.reaching_ns == [33530]


def test_reads_times_of_any_locale():
    """G1's own lines are in the locale of the JVM's user; records are not."""
    foreign = [re.sub(r"(\d)\.(\d{3}ms)$", r"\1,\2", line) for line in LINES]
    assert foreign != LINES
    assert read(foreign) == read(LINES)


def test_tells_pauses_inside_and_outside_marking():
    log, _ = read(LINES)
    assert log.young_ms == [("Concurrent Start", 0.5, False), ("Normal", 9.312, True), ("Normal", 3.0, False)]


def test_a_cycle_on_the_cpu_is_not_offloaded():
    lines = [line for line in LINES if "Trace" not in line]
    record = '{"reason":"device gone","detail":"socket closed","abandoned":true,"gc_id":2}'
    log, events = read([*lines, f"[5500ns][gc,merapi] GC(2) Fallback {record}"])
    assert log.offloaded() == [] and events[-1] == "fallback"
    assert log.fallbacks[0]["reason"] == "device gone"


@pytest.mark.parametrize(
    "line, name",
    [
        ("[3000000ns][gc] Using Serial", "Serial"),
        ("[6000000ns][gc          ] Using Shenandoah", "Shenandoah"),
        ("[101000000ns][gc] Using The Z Garbage Collector", "Z"),
    ],
)
def test_a_run_with_another_collector_says_which(line, name):
    log, _ = read([line, "[7000000ns][gc] Using 4 workers"])
    assert log.collector == name
    assert f"found the collector {name}," in report.not_traced(log, "log")


def test_a_broken_record_is_not_a_cycle():
    log, events = read(['[1ns][gc,merapi ] GC(2) Trace {"cycle":1,"gc_id":2,"objects":', "no decorations", ""])
    assert log.offloaded() == [] and events == []
    assert "not 'Trace {json}'" in log.problems[0]


def test_an_aborted_cycle_is_told():
    log, events = read([*LINES[:5], "[2600ns][gc,marking     ] GC(2) Concurrent Mark Abort"])
    assert events == ["abort"] and log.offloaded() == [] and not log.problems


def test_follower_gives_lines_out_once_complete(tmp_path):
    path = tmp_path / "log"
    follower = jvm_log.Follower(path)
    assert follower.lines() == []
    with path.open("w") as file:
        file.write("one\ntw")
        file.flush()
        assert follower.lines() == ["one"]
        file.write("o\n")
        file.flush()
        assert follower.lines() == ["two"]
    follower.close()
