# SPDX-License-Identifier: Apache-2.0
"""The report: sums, the closing table, and what makes a run fail."""

import json

import jvm_log
import report


def cycle_lines(gc_id, verify, objects=100):
    trace = {
        "cycle": gc_id,
        "gc_id": gc_id,
        "device": "model",
        "objects": objects,
        "references": 2 * objects,
        "live_bytes": 16 * objects,
        "deferred": 1,
        "satb": 0,
        "pauses": 1,
        "pause_us_max": 10.0,
        "device_ms": 1.0,
        "device_cpu_ms": 0.75,
        "concurrent_ms": 2.0,
        "host_cpu_ms": 0.5,
        "fallback": None,
    }
    lines = [
        f"[1ns][gc,merapi] GC({gc_id}) Trace {json.dumps(trace)}",
        f"[2ns][gc,marking] GC({gc_id}) Concurrent Mark From Roots 2.000ms",
    ]
    if verify is not None:
        lines.append(f"[3ns][gc,merapi] GC({gc_id}) Verify {json.dumps(verify)}")
    return [*lines, f"[4ns][gc] GC({gc_id}) Pause Remark 2M->2M(9M) 3.000ms"]


def made(verdicts, status=0):
    log = jvm_log.JvmLog()
    for number, verify in enumerate(verdicts):
        for line in cycle_lines(number, verify, 100 + number):
            log.feed(line)
    return report.build(log, "model", ["java"], status)


GOOD = {"missed": 0, "incomplete": 0, "floating": 5, "live_mismatch": 0, "ms": 2.5}


def test_sums_over_cycles():
    result = made([GOOD, GOOD, GOOD])
    assert result["cycles"] == 3
    assert result["objects_marked"] == 303 and result["references"] == 606
    assert result["live_bytes"] == 16 * 102 and result["largest_cycle_objects"] == 102
    assert result["verify"] == {"cycles": 3, "missed": 0, "incomplete": 0, "floating": 15, "live_mismatch": 0}
    assert result["concurrent_mark_ms"] == 6.0 and result["host_mark_cpu_ms"] == 1.5
    # Verification runs inside the remark pause and is not part of remark's own time.
    assert result["remark_ms"] == 1.5 and result["remark_with_verify_ms"] == 9.0
    assert report.problems(result, 3) == []


def read(*lines):
    log = jvm_log.JvmLog()
    for line in lines:
        log.feed(line)
    return log


BEGUN = "[1ns][gc,marking] GC(3) Concurrent Mark From Roots"


def fallback(reason, gc_id=3):
    return (
        f'[2ns][gc,merapi] GC({gc_id}) Fallback {{"reason":"{reason}","detail":"x","abandoned":true,"gc_id":{gc_id}}}'
    )


def test_cycles_that_fell_back_are_counted_with_their_reasons():
    def said(*lines):
        return report.fallbacks(report.build(read(*lines), "model", ["java"], 0))

    assert said(BEGUN) is None
    assert said(fallback("no device")).startswith("1 cycle fell back to the CPU: no device; ")
    several = [fallback("no device"), fallback("timeout", 4), fallback("timeout", 5)]
    assert said(*several).startswith("3 cycles fell back to the CPU: timeout (2), no device (1); ")


def test_a_run_without_a_cycle_says_why():
    assert "never reached a marking cycle" in report.no_cycles(read())
    assert "while its first marking cycle was under way" in report.no_cycles(read(BEGUN))
    assert report.no_cycles(read(BEGUN, fallback("no device"))) == "the device has finished no marking cycle"


def test_every_figure_says_how_it_was_obtained():
    result = made([GOOD])
    for name in ("cycles", "objects_marked", "verify", "host_mark_cpu_ms", "remark_ms", "concurrent_mark_ms"):
        assert result["how"][name]


def test_a_missed_object_fails_the_run():
    for name in ("missed", "incomplete", "live_mismatch"):
        result = made([GOOD, GOOD, GOOD | {name: 1}])
        assert any("verification" in problem for problem in report.problems(result, 3)), name
        assert "VERIFICATION FAILED" in report.verify_text(GOOD | {name: 1})


def test_too_few_cycles_fail_the_default_program_only():
    result = made([GOOD, GOOD])
    assert len(report.problems(result, 3)) == 2
    assert report.problems(result, 0) == []


def test_cycles_that_were_not_verified_fail_the_default_program():
    result = made([GOOD, None, None])
    assert report.problems(result, 3) == ["expected at least 3 verified cycles, found 1"]
    assert made([None])["verify"] is None


def test_the_programs_status_counts():
    assert report.problems(made([GOOD], status=3), 0) == ["the program ended with status 3"]
    assert report.problems(made([GOOD], status=-15), 0) == ["the program ended by SIGTERM"]
    assert report.problems(made([GOOD], status=-40), 0) == ["the program ended by signal 40"]


def test_table_has_a_row_for_each_cycle_and_a_sum():
    lines = report.table(made([GOOD, GOOD]))
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "201" in lines[-1] and "ok, 10 floating" in lines[-1]
    assert len(report.table(made([]))) == 2
