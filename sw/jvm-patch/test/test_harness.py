# SPDX-License-Identifier: Apache-2.0
"""The harness itself: what it must notice in a log, shown with logs that are wrong in one thing each."""

import json
from pathlib import Path

import jvm_harness
import pytest
from jvm_options import SETS, bytes_of, flags_for

TRACE = {
    "cycle": 3,
    "gc_id": 7,
    "device": "model",
    "objects": 100,
    "references": 300,
    "live_bytes": 4000,
    "deferred": 5,
    "ahead": 0,
    "shapes": 40,
    "satb": 0,
    "greys": 9,
    "pauses": 1,
    "pause_us_max": 12.5,
    "device_ms": 1.5,
    "device_cpu_ms": 1.4,
    "concurrent_ms": 2.0,
    "host_cpu_ms": 0.1,
    "fallback": None,
}
VERIFY = {"gc_id": 7, "missed": 0, "incomplete": 0, "floating": 4, "live_mismatch": 0, "ms": 3.0}


def line(tags, text, gc_id=None):
    gc = f"GC({gc_id}) " if gc_id is not None else ""
    return f"[12345ns][{tags}] {gc}{text}\n"


def record(word, value, gc_id=7):
    return line("gc,merapi", f"{word} {json.dumps(value)}", gc_id)


def result_of(*lines, status=0, output="OK nodes 5\n"):
    log = jvm_harness.Log()
    for text in lines:
        log.feed(text)
    return jvm_harness.Result(["java"], status, output, 1.0, log, Path("/nonexistent"))


REMARK = line("gc", "Pause Remark 10M->10M(64M) 1.234ms", 7)
GOOD = [record("Trace", TRACE), REMARK, record("Verify", VERIFY)]


JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2024-01-16' >&2
exit {status}
"""


@pytest.mark.parametrize(
    ("version", "status", "found"),
    [("17", 0, None), ("17.0.19", 0, None), ("21.0.2", 0, "of release 21.0.2"), ("1.8.0_17", 0, "of release 1.8.0_17")]
    + [
        ("17.0.2", 1, "that tells no release (status 1)"),
        ('"', 0, "that tells no release (status 0)"),
        (None, 0, "none"),
    ],
)
def test_the_unpatched_jdk_is_of_the_patched_one_s_release(version, status, found, tmp_path, monkeypatch):
    """Another one told nothing of a program, and where there was none, all tests ended with a TypeError."""
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    if version is not None:
        java.write_text(JAVA.format(version=version, status=status))
        java.chmod(0o755)
    monkeypatch.setattr(jvm_harness, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(java.parent))
    if found is None:
        assert jvm_harness.stock_jdk_folder() == tmp_path
        return
    with pytest.raises(LookupError) as told:
        jvm_harness.stock_jdk_folder()
    found = found if version is None else f"{java} {found}"
    built = tmp_path / "build/jdk/stock-image"
    expected = f"expected an unpatched JDK 17 at {built} or in PATH, found {found}; run 'make jdk-stock'"
    assert str(told.value) == expected
    (built / "bin").mkdir(parents=True)
    (built / "bin/java").touch()
    assert jvm_harness.stock_jdk_folder() == built


def test_a_good_run_passes():
    result = result_of(*GOOD)
    jvm_harness.check_ok(result)
    jvm_harness.check_offloaded(result, 1)


@pytest.mark.parametrize("result", [result_of(*GOOD, status=1), result_of(*GOOD, output="nearly\n")])
def test_a_wrong_end_is_noticed(result):
    with pytest.raises(AssertionError):
        jvm_harness.check_ok(result)


@pytest.mark.parametrize("field", ["missed", "incomplete", "live_mismatch"])
def test_a_wrong_verification_is_noticed(field):
    with pytest.raises(AssertionError, match=field):
        jvm_harness.check_offloaded(result_of(GOOD[0], REMARK, record("Verify", {**VERIFY, field: 1})), 1)


def test_floating_garbage_is_not_wrong():
    jvm_harness.check_offloaded(result_of(GOOD[0], REMARK, record("Verify", {**VERIFY, "floating": 10**6})), 1)


def test_a_remark_without_verification_is_noticed():
    with pytest.raises(AssertionError, match="no Verify line"):
        jvm_harness.check_offloaded(result_of(GOOD[0], REMARK), 1)
    aborted = line("gc,marking", "Concurrent Mark Abort", 7)
    jvm_harness.check_offloaded(result_of(GOOD[0], REMARK, aborted), 1)


def test_too_few_traces_are_noticed():
    with pytest.raises(AssertionError, match="at least 2"):
        jvm_harness.check_offloaded(result_of(*GOOD), 2)


@pytest.mark.parametrize("reason", ["device lost", "exit"])
def test_a_fallback_is_noticed(reason):
    fallback = {"reason": reason, "detail": "x", "abandoned": True, "gc_id": 8}
    with pytest.raises(AssertionError, match="no fallback"):
        jvm_harness.check_offloaded(result_of(*GOOD, record("Fallback", fallback, 8)), 1)


@pytest.mark.parametrize("field", sorted(jvm_harness.TRACE_FIELDS))
def test_a_trace_without_a_field_is_noticed(field):
    trace = {key: value for key, value in TRACE.items() if key != field}
    result = result_of(record("Trace", trace), *GOOD)
    assert any(field in problem for problem in result.log.problems)


def test_a_trace_with_a_fallback_is_noticed():
    """What was taken from the device has a line of its own (docs/log.md)."""
    assert any("fallback" in problem for problem in result_of(record("Trace", {**TRACE, "fallback": "x"})).log.problems)


def test_every_trace_of_a_cycle_counts():
    """One whose remark had no room in the mark stack is traced again."""
    again = record("Trace", {**TRACE, "cycle": 4})
    jvm_harness.check_offloaded(result_of(*GOOD, again), 2)
    with pytest.raises(AssertionError, match="used twice"):
        jvm_harness.check_offloaded(result_of(*GOOD, GOOD[0]), 1)


def test_a_broken_record_is_noticed():
    assert result_of(line("gc,merapi", 'Trace {"cycle": 1', 7)).log.problems


def test_complaints_of_verification_are_noticed():
    text = "Reachable but not marked: 0x0000000700000000 java.lang.String in region 4"
    with pytest.raises(AssertionError, match="complains"):
        jvm_harness.check_offloaded(result_of(*GOOD, line("gc,merapi", text, 7)), 1)


ABANDONED = record("Fallback", {"reason": "device lost", "detail": "x", "abandoned": True, "gc_id": 7})
LATER = line("gc", "Pause Remark 10M->10M(64M) 1.234ms", 9)


def test_an_abandoned_cycle_must_be_followed_by_another():
    jvm_harness.check_abandoned(result_of(ABANDONED, LATER))
    with pytest.raises(AssertionError, match="no cycle was marked after"):
        jvm_harness.check_abandoned(result_of(ABANDONED))


def test_an_abandoned_cycle_must_not_be_reported_as_traced():
    with pytest.raises(AssertionError, match="went on all the same"):
        jvm_harness.check_abandoned(result_of(record("Trace", TRACE), ABANDONED, LATER))
    with pytest.raises(AssertionError, match="went on all the same"):
        jvm_harness.check_abandoned(result_of(REMARK, ABANDONED, LATER))


def test_an_abandoned_cycle_must_have_its_number():
    fallback = {"reason": "device lost", "detail": "x", "abandoned": True, "gc_id": jvm_harness.UNDEFINED_GC_ID}
    with pytest.raises(AssertionError, match="GC id"):
        jvm_harness.check_abandoned(result_of(record("Fallback", fallback), LATER))


def test_every_program_says_how_to_run_it():
    programs = jvm_harness.programs()
    assert len(programs) >= 20
    for program in programs.values():
        for options in SETS.values():
            heap = [flag for flag in flags_for(program, options) if flag.startswith("-Xmx")]
            assert len(heap) == 1, f"{program.name}: expected one -Xmx in its @flags"
            assert bytes_of(heap[0][4:]) >= options.heap_least << 20
