# SPDX-License-Identifier: Apache-2.0
"""What a replay's report means, which figures miss a limit, and what bench_rtl refuses before it measures."""

import copy
import json
import sys

import bench_rtl
import pytest
import rtl_limits

REPLAYED = {
    "rtl_preset": "ddr4-1ch",
    "memory": "ddr4-2400",
    "khz": 250.0,
    "lines_needed": {"objects": 1000, "heap": 200_000, "bitmap": 50_000},
    "counters": {
        "cycles": 500_000,
        "objects_scanned": 1_000_000,
        "bytes_read": 20_000_000,
        "bytes_written": 4_000_000,
        "pause_max": 0,
        "stall_memory": 7,
        "stall_completion": 3,
    },
}
WINDOW = {"name": "h2", "kind": "real", "g1_ms": 30.0}


def test_row():
    row = rtl_limits.row(WINDOW, REPLAYED, 1)
    assert row["milliseconds"] == pytest.approx(2.0)
    assert row["ratio"] == pytest.approx(15.0)
    assert row["objects_per_cycle"] == 2.0
    assert row["bytes_needed"] == 64 * 300_000
    assert row["share_of_limit"] == pytest.approx(0.5)  # 19.2 MB at 19.2 GB/s is 1 ms of 2
    assert row["bandwidth_gb_s"] == pytest.approx(12.0)
    assert row["stalls"] == {"memory": 7, "completion": 3}
    assert rtl_limits.row(WINDOW, REPLAYED, 4)["share_of_limit"] == pytest.approx(0.125)


def rows(**changes):
    replayed = copy.deepcopy(REPLAYED)
    replayed["counters"] |= changes.pop("counters", {})
    return [rtl_limits.row(WINDOW | changes, replayed, 1)]


def failures(found):
    return [v["name"] for v in rtl_limits.judge(found) if not v["ok"]]


def test_good_figures_pass():
    assert failures(rows()) == []


def test_shares_have_a_mean_and_no_verdict_without_a_peak():
    def verdicts(found):
        return [v for v in rtl_limits.judge(found) if "share of the physical limit" in v["name"]]

    # Of 0.5 and 0.25.
    (share,) = verdicts(rows() + rows(counters={"cycles": 1_000_000}))
    assert share["value"] == pytest.approx(0.375) and not share["ok"]
    unknown = rtl_limits.row(WINDOW, REPLAYED | {"memory": "/somebody/s.ini"}, 1)
    assert unknown["share_of_limit"] is None and verdicts([unknown]) == []


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"g1_ms": 19.0}, "real windows, G1 over tracer"),
        ({"g1_ms": 0.0}, "real windows, G1 over tracer"),
        ({"counters": {"cycles": 600_000}}, "share of the physical limit"),
        ({"kind": "graph", "g1_ms": 39.0}, "graph windows"),
        ({"kind": "aged", "g1_ms": 9.0}, "aged windows"),
        ({"kind": "list", "g1_ms": 2.0}, "list windows"),
        ({"counters": {"pause_max": 1300}}, "pause acknowledged once it was seen"),
        (
            {"kind": "paused", "counters": {"pause_max": 1300, "pauses": 7}},
            "pause acknowledged once it was seen, worst of 7",
        ),
    ],
)
def test_a_missed_limit_is_found(changes, part):
    assert any(part in name for name in failures(rows(**changes)))


def test_a_trace_with_pauses_is_held_to_no_ratio():
    assert failures(rows(kind="paused", g1_ms=1.0, counters={"cycles": 5_000_000, "pause_max": 1200})) == []


def test_slow_simulation_is_found():
    slow = REPLAYED | {"khz": 199.0}
    assert any("simulated cycles" in n for n in failures([rtl_limits.row(WINDOW, slow, 1)]))
    ideal = REPLAYED | {"khz": 399.0, "memory": "ideal"}
    row = rtl_limits.row(WINDOW, ideal, 1)
    assert row["share_of_limit"] is None
    assert any("ideal memory" in n for n in failures([row]))


def test_wide_presets_have_their_own_limit():
    wide = REPLAYED | {"rtl_preset": "hbm2", "memory": "hbm2"}
    assert failures([rtl_limits.row(WINDOW | {"g1_ms": 60.0}, wide, 8)]) == []
    assert len(failures([rtl_limits.row(WINDOW | {"g1_ms": 40.0}, wide, 8)])) == 1


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """bench_rtl's main with such arguments, in a build where everything is there and nothing is measured."""
    for name in (
        "jdk/bin/java",
        "jdk/lib/server/libjvm.so",
        "apps/classes",
        "apps/lib/sources.jar",
        "program",
        "stamp",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rtl/lib").mkdir(parents=True)
    (tmp_path / "rtl/lib/merapi-rtl-ddr4-1ch.so").touch()
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/rtl.json").write_text("figures of before")
    monkeypatch.setattr(bench_rtl, "BUILD", tmp_path)
    monkeypatch.setattr(bench_rtl, "OUT", tmp_path / "bench")
    monkeypatch.setattr(bench_rtl.windows, "CLASSES", tmp_path / "stamp")
    monkeypatch.setattr(bench_rtl.windows, "SOURCES", tmp_path / "apps/lib/sources.jar")
    monkeypatch.setattr(bench_rtl, "measure", lambda args, rows: None)
    programs = [f"--{name}-program={tmp_path / 'program'}" for name in ("device", "replay", "age")]

    def main(*words):
        monkeypatch.setattr(sys, "argv", ["bench_rtl.py", f"--jdk={tmp_path / 'jdk'}", *programs, *words])
        with pytest.raises(SystemExit) as ended:
            bench_rtl.main()
        assert (tmp_path / "bench/rtl.json").read_text() == "figures of before"
        return ended.value.code

    return main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "h3"], "invalid choice: 'h3'"),
        (["--scale", "nan"], "expected a number above 0, found 'nan'"),
        (["--scale", "inf"], "expected a number above 0, found 'inf'"),
        (["--scale", "0"], "expected a number above 0, found '0'"),
        (["--scale", "-1"], "expected a number above 0, found '-1'"),
        (["--scale", "all"], "expected a number above 0, found 'all'"),
        (["--packages", "0"], "expected a whole number, 1 or more, found '0'"),
    ],
)
def test_wrong_words_are_told(bench, capsys, words, said):
    assert bench(*words) == 2
    assert said in capsys.readouterr().err


def test_figures_of_nothing_do_not_replace_others(bench, capsys):
    assert bench("--only", "h2") == 1
    assert "expected a window that was traced, found none" in capsys.readouterr().err


def test_rows_before_a_failure_are_kept(bench, capsys, monkeypatch, tmp_path):
    def measure(args, rows):
        rows.append(rtl_limits.row(WINDOW, REPLAYED, 1))
        raise bench_rtl.BenchError("the second replay ended with status 1")

    monkeypatch.setattr(bench_rtl, "measure", measure)
    assert bench("--only", "h2") == 1
    said = capsys.readouterr().err
    assert "the second replay ended with status 1" in said and "rtl-unfinished.json" in said
    kept = json.loads((tmp_path / "bench/rtl-unfinished.json").read_text())
    assert [row["window"] for row in kept["rows"]] == [WINDOW["name"]] and kept["limits"] == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("jdk/bin/java", "jdk"),
        ("jdk/lib/server/libjvm.so", "jdk"),
        ("apps/classes", "apps"),
        ("stamp", "apps"),
        ("apps/lib/sources.jar", "apps"),
        ("program", "native"),
    ],
)
def test_what_is_not_built_is_told(bench, tmp_path, capsys, name, target):
    (tmp_path / name).rmdir()
    assert bench() == 1
    assert f"expected {tmp_path / name}, found nothing; run 'make {target}'" in capsys.readouterr().err


def test_a_tracer_that_is_not_simulated_is_told(bench, tmp_path, capsys):
    assert bench("--preset", "hbm2") == 1
    said = capsys.readouterr().err
    assert f"expected {tmp_path}/rtl/lib/merapi-rtl-hbm2.so, found nothing" in said
    assert "run 'make rtl-simulations RTL_SIMULATIONS=hbm2:fast'" in said
