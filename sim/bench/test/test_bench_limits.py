# SPDX-License-Identifier: Apache-2.0
"""The bench's arithmetic: what it is held to, CPU time between two instants, programs that fail."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import bench_jvm
import limits
import measured_jvm
import pytest
from common import ROOT

JAVA = ROOT / "build/jdk/image/bin/java"


def row(mark, cpu, remark=1.0, **trace):
    facts = {"deferred": 1000, "satb": 0, "host_cpu_ms": 1.0, "device_cpu_ms": 5.0, "objects": 10}
    return {"mark_ms": mark, "marking_threads_cpu_ms": cpu, "remark_ms": remark, "trace": facts | trace}


def marked(stock, model):
    rows = {"stock": [row(stock, stock)], "merapi": [row(model, 0.5)]}
    facts = {"window_bytes": bench_jvm.HEAP_BYTES * 33 // 32 + (4 << 20), "device_private_bytes": 1 << 20}
    return bench_jvm.Bench.marking_of(rows) | facts


def by_name(verdicts):
    return {v["name"]: v for v in verdicts}


def test_marking_limits():
    part = {"hashmap": marked(100, 50), "graph": marked(400, 100), "list": marked(100, 50)}
    found = by_name(limits.marking(part, bench_jvm.HEAP_BYTES))
    assert all(v["ok"] for v in found.values()), found
    mean = found["marking, geometric mean"]["value"]
    assert math.isclose(mean, (2 * 4 * 2) ** (1 / 3))
    # 3 % of the stock CPU time and 0.3 us for each deferred object.
    assert math.isclose(found["list: host CPU between hand-over and hand-back"]["limit"], 3.0 + 0.3)
    assert math.isclose(found["list: memory beyond heap and bitmaps"]["value"], 5.0)


def test_what_is_worse_misses():
    part = {"hashmap": marked(100, 101), "graph": marked(300, 100), "list": marked(100, 50)}
    part["list"]["host_cpu_ms"] = 4.0
    part["graph"]["model_remark_ms"] = 1.6
    missed = [v["name"] for v in limits.marking(part, bench_jvm.HEAP_BYTES) if not v["ok"]]
    assert missed == [
        "hashmap: marking, stock over model",
        "graph: marking, stock over model",
        "marking, geometric mean",
        "list: host CPU between hand-over and hand-back",
        "graph: remark",
    ]


def test_what_was_not_measured_misses():
    assert not limits.verdict("pause", None, 100, " us")["ok"]
    assert not limits.verdict("pause", 1, None, " us")["ok"]
    found = by_name(limits.judge({"fallbacks": ["device silent"]}))
    assert not found["fallbacks to the CPU"]["ok"]


def test_builds_are_compared_pair_by_pair():
    stock = [100 + 3 * i for i in range(12)]  # a machine that slows down
    slower = limits.paired_ratio([1.03 * s for s in stock], stock)
    assert math.isclose(slower["ratio"], 1.03) and math.isclose(slower["interval"][0], 1.03)
    mixed = limits.paired_ratio([s * (0.97 if i % 2 else 1.05) for i, s in enumerate(stock)], stock)
    assert mixed["interval"] == pytest.approx([0.97, 1.05])
    # Two at each end: heads at most twice in 12 throws have a probability of 1.9 %, thrice of 7.3 %.
    assert limits.paired_ratio(range(1, 13), [1] * 12)["interval"] == [3, 10]
    keys = ("work_cpu_ms", "work_ms", "start_cpu_ms", "start_ms")
    assert [v["ok"] for v in limits.flag_off(dict.fromkeys(keys, slower))] == [False] * 4
    assert [v["ok"] for v in limits.flag_off(dict.fromkeys(keys, mixed))] == [True] * 4


def test_percentile_is_a_value_that_was_seen():
    assert bench_jvm.percentile(range(1, 101), 0.99) == 99 and bench_jvm.percentile(range(1, 102), 0.99) == 100
    assert bench_jvm.percentile(range(10), 0.9) == 8 and bench_jvm.percentile(range(10), 0.95) == 9
    assert bench_jvm.percentile([5], 0.99) == 5 and bench_jvm.percentile([], 0.99) is None
    assert bench_jvm.median([1, None, 3]) == 2 and bench_jvm.median([]) is None


def test_cpu_time_between_two_instants_is_interpolated():
    clock = measured_jvm.ThreadClock(0)
    clock.instants, clock.cpu = [0, 1_000_000, 2_000_000], [0, 0, 1_000_000]
    assert clock.between(500_000, 1_500_000) == 0.5
    assert clock.between(0, 3_000_000) is None


def test_a_program_that_fails_is_an_error():
    with pytest.raises(measured_jvm.BenchError, match="status 1"):
        measured_jvm.run(JAVA, ["-cp", "nowhere", "NoSuchClass"])


def test_a_run_is_measured(tmp_path):
    measured = measured_jvm.run(JAVA, ["-XX:+UseG1GC", "-version"], tmp_path / "log", sample=measured_jvm.MARKERS)
    assert measured.wall_ms > 0 and measured.cpu_ms > 0
    assert measured.log.offloaded() == [] and measured.marking_cpu_ms == {}


def test_a_killed_bench_leaves_no_program(tmp_path):
    script = tmp_path / "endless"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    script.chmod(0o755)
    code = f"import measured_jvm; measured_jvm.run({str(script)!r}, [])"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    bench = subprocess.Popen([sys.executable, "-c", code], env=os.environ | path)
    end, pid = time.monotonic() + 60, tmp_path / "pid"
    while not (pid.exists() and pid.read_text().endswith("\n")):
        assert time.monotonic() < end and bench.poll() is None
        time.sleep(0.01)
    bench.kill()
    bench.wait()
    # Whoever adopts it may take its time to reap it.
    stat = Path(f"/proc/{int(pid.read_text())}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "the program runs on"
        time.sleep(0.01)


def test_a_shape_without_a_traced_cycle_is_told():
    row = {"mark_ms": 1.0}
    bench_jvm.Bench.expect_cycles("graph", {"stock": [row], "merapi": [row]})
    with pytest.raises(measured_jvm.BenchError, match="graph: expected cycles of merapi .* that the device traced"):
        bench_jvm.Bench.expect_cycles("graph", {"stock": [row], "merapi": []})


@pytest.mark.parametrize("option", ["--runs", "--starts", "--replacements"])
def test_nothing_is_measured_without_a_run(option):
    done = subprocess.run([sys.executable, bench_jvm.__file__, option, "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "expected a whole number, 1 or more, found '0'" in done.stderr


@pytest.mark.parametrize("name", ["jdk/bin/java", "stock/bin/java", "apps/classes", "device"])
def test_what_is_not_built_is_told(name, tmp_path, monkeypatch, capsys):
    targets = {"jdk/bin/java": "jdk", "stock/bin/java": "jdk-stock", "apps/classes": "apps", "device": "native"}
    for other in targets:
        if other != name:
            (tmp_path / other).mkdir(parents=True)
    monkeypatch.setattr(bench_jvm, "BUILD", tmp_path)
    folders = {"jdk": tmp_path / "jdk", "stock_jdk": tmp_path / "stock", "device_program": tmp_path / "device"}
    with pytest.raises(SystemExit):
        bench_jvm.Bench(SimpleNamespace(**folders))
    assert f"expected {tmp_path / name}, found nothing; run 'make {targets[name]}'" in capsys.readouterr().err
