# SPDX-License-Identifier: Apache-2.0
"""`make run` as a user meets it: the patched JVM, the device, real programs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUN = [sys.executable, ROOT / "sim/run/run.py"]
REPORT = ROOT / "build/run/report.json"
CLASSES = f"-cp {ROOT / 'build/apps/classes'}"


@pytest.fixture(autouse=True)
def built():
    for path in ("build/jdk/image/bin/java", "build/native/bin/merapi-device", "build/apps/classes"):
        assert (ROOT / path).exists(), f"expected {path}, found nothing; run 'make jdk apps'"


def run(*arguments, timeout=600):
    return subprocess.run([*RUN, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def left_over():
    return list((ROOT / "build/run").glob("*.sock"))


def test_default_program():
    done = run("--rounds", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    assert report["device"] == "model" and report["status"] == 0
    assert report["cycles"] >= 3
    assert report["largest_cycle_objects"] >= 1_000_000
    assert report["references"] > report["objects_marked"] > 0
    assert report["verify"]["cycles"] >= 3
    assert (report["verify"]["missed"], report["verify"]["incomplete"]) == (0, 0)
    for name in ("live_bytes", "deferred", "concurrent_mark_ms", "host_mark_cpu_ms", "remark_ms"):
        assert report[name] > 0, name
    assert done.stdout.count("trace ") >= report["cycles"]
    assert "top: libc6" in done.stdout
    assert not left_over()


def test_own_program_and_its_own_flags():
    done = run("--app", f"-Xmx300m -XX:+ExplicitGCInvokesConcurrent {CLASSES} merapi.apps.MarkBench graph 2 1000000")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    assert report["cycles"] == 2 and report["verify"]["missed"] == 0
    # Objects in young regions are roots: they are not marked by the device.
    assert report["largest_cycle_objects"] >= 500_000
    assert "  | checksum 1999999" in done.stdout


def test_a_failing_program_fails_the_run():
    done = run("--app", f"{CLASSES} merapi.apps.MarkBench")
    assert done.returncode == 2
    assert "  ! usage: MarkBench" in done.stdout
    assert "the program ended with status 2" in done.stderr
    assert json.loads(REPORT.read_text())["status"] == 2


def test_unknown_device():
    done = run("--device", "abacus")
    assert done.returncode == 2
    assert "expected one of model, rtl, found 'abacus'" in done.stderr


@pytest.mark.parametrize("rounds", ["0", "-3", "1.5"])
def test_rounds_of_no_program(rounds):
    done = run("--check", "--rounds", rounds)
    assert done.returncode == 2 and f"expected a whole number, 1 or more, found '{rounds}'" in done.stderr


@pytest.mark.parametrize(("option", "value"), [("--preset", "sim-small"), ("--memory", "ideal")])
def test_a_simulated_tracer_s_options_need_one(option, value):
    done = run("--device", "model", option, value)
    assert done.returncode == 2
    assert f"{option[2:].upper()}: expected with DEVICE=rtl alone, found '{value}'" in done.stderr


def test_stopping_leaves_nothing_behind():
    app = f"{CLASSES} merapi.apps.MarkBench list 1000 1000"
    process = subprocess.Popen(
        [*RUN, "--app", app], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    children = []
    while len(children) < 2 or not left_over():
        assert time.monotonic() < deadline, "expected a device and a JVM"
        time.sleep(0.05)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    time.sleep(1)  # on most machines the JVM has found the device by now
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "were ended" in errors
    assert not left_over()
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
