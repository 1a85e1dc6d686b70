# SPDX-License-Identifier: Apache-2.0
"""Java programs whose heaps a simulated tracer marks: by `make run`, and with a device that dies and is replaced."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from device import Device
from jvm_log import log_flag, read
from run import known_memories

ROOT = Path(__file__).resolve().parents[3]
RUN = [sys.executable, ROOT / "sim/run/run.py", "--device", "rtl"]
REPORT = ROOT / "build/run/report.json"
PROGRAM = ROOT / "build/native/bin/merapi-device"
JAVA = ROOT / "build/jdk/image/bin/java"
CLASSES = ["-cp", str(ROOT / "build/apps/classes")]
SMALL = ["-Xmx64m", "-XX:+ExplicitGCInvokesConcurrent", *CLASSES, "merapi.apps.MarkBench"]
FULL = os.environ.get("MERAPI_FULL") == "1"


@pytest.fixture(autouse=True)
def built():
    for path in (JAVA, PROGRAM, ROOT / "build/apps/classes", ROOT / "build/rtl/lib/merapi-rtl-sim-small.so"):
        assert path.exists(), f"expected {path}, found nothing; run 'make jdk apps rtl-simulations'"


def right(report):
    assert report["device"] == "rtl" and report["status"] == 0
    assert report["fallbacks"] == 0, report["fallback_list"]
    assert report["verify"]["cycles"] == report["cycles"]
    assert (report["verify"]["missed"], report["verify"]["incomplete"], report["verify"]["live_mismatch"]) == (0, 0, 0)
    assert report["device_cycles"] > 0 and report["simulated_khz"] > 0
    assert all(entry["trace"]["device_cycles"] > 0 for entry in report["per_cycle"])


def test_memories_that_are_taken_are_there():
    assert set(known_memories()) == {"ideal", *(path.stem for path in (ROOT / "build/rtl/lib/memory").glob("*.ini"))}


def test_own_program():
    app = " ".join([*SMALL, "hashmap", "2", "20000"])
    done = subprocess.run(
        [*RUN, "--preset", "sim-small", "--memory", "ddr4-2400", "--app", app],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    right(report)
    assert (report["rtl_preset"], report["memory"]) == ("sim-small", "ddr4-2400")
    assert report["cycles"] == 2 and report["largest_cycle_objects"] > 40_000
    assert "cycles, host CPU" in done.stdout


@pytest.mark.skipif(not FULL, reason="takes minutes; MERAPI_FULL=1 runs it")
def test_default_program():
    done = subprocess.run(RUN, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    right(report)
    assert report["rtl_preset"] == "ddr4-1ch" and report["cycles"] >= 3
    assert report["largest_cycle_objects"] >= 1_000_000


def follow(log, what, seconds=120):
    """Wait for a line in a file that is being written."""
    end = time.monotonic() + seconds
    while not (log.exists() and what in log.read_text(errors="replace")):
        assert time.monotonic() < end, f"expected '{what}' in {log}, it did not come"
        time.sleep(0.02)


def test_killed_while_it_traces_and_replaced(tmp_path):
    options = ["--preset", "sim-small", "--memory", "ideal"]
    log = tmp_path / "jvm.log"
    with Device(PROGRAM, "rtl", tmp_path, options) as first:
        socket = first.socket
        flags = ["-XX:+UseG1GC", f"-XX:MerapiWindow=device:{socket}", "-XX:+MerapiVerify", log_flag(log)]
        jvm = subprocess.Popen([JAVA, *flags, *SMALL, "hashmap", "3", "60000"], stdout=subprocess.PIPE, text=True)
        try:
            follow(log, "answered generation 2")
            time.sleep(0.2)
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
            with Device(PROGRAM, "rtl", tmp_path, options) as second:
                assert second.socket == socket
                out, _ = jvm.communicate(timeout=300)
        finally:
            if jvm.poll() is None:
                jvm.kill()
                jvm.wait()
    assert jvm.returncode == 0 and "checksum" in out
    found = read(log)
    assert [f["reason"] for f in found.fallbacks][:1] == ["device lost"], found.fallbacks
    assert found.offloaded(), "the second device traced nothing"
    for cycle in found.cycles.values():
        if cycle.verify:
            assert (cycle.verify["missed"], cycle.verify["incomplete"], cycle.verify["live_mismatch"]) == (0, 0, 0)
