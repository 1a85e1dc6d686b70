# SPDX-License-Identifier: Apache-2.0
"""What the log of a program whose window was saved says about marking on the CPU."""

import json
import zipfile
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(windows, "FOLDER", tmp_path)
    monkeypatch.setattr(windows, "CLASSES", tmp_path / "classes.sha256")
    monkeypatch.setattr(windows, "SOURCES", tmp_path / "sources.jar")
    (tmp_path / "classes.sha256").write_text("one")
    (tmp_path / "jdk/lib/server").mkdir(parents=True)
    (tmp_path / "jdk/lib/server/libjvm.so").write_text("one")
    return tmp_path


def test_a_window_is_kept_as_long_as_what_made_it(folder, monkeypatch):
    """Windows of other programs, or of other arguments, would be reported as those of these sources."""
    runs = []

    def run(java, arguments, log, sample):
        runs.append(arguments)
        for word in arguments:
            if word.startswith("-XX:MerapiSaveImage="):
                (folder / word.partition("=")[2]).write_text("image")
        log.write_text(LOG)
        cycles = {n: SimpleNamespace(gc_id=n, mark_ms=10.0) for n in range(windows.CYCLE)}
        return SimpleNamespace(log=SimpleNamespace(cycles=cycles), marking_cpu_ms={})

    class NoDevice:
        socket = "socket"

        def __init__(self, *arguments):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(windows.measured_jvm, "run", run)
    monkeypatch.setattr(windows, "Device", NoDevice)

    def capture(arguments):
        before = len(runs)
        windows.capture("h2", "real", 100, arguments, "tag", folder / "jdk/bin/java", "device")
        return len(runs) - before

    assert capture(["one"]) == windows.RUNS and capture(["one"]) == 0
    assert capture(["two"]) == windows.RUNS and capture(["two"]) == 0
    for path in ("classes.sha256", "jdk/lib/server/libjvm.so"):
        (folder / path).write_text("another")
        assert capture(["two"]) == windows.RUNS and capture(["two"]) == 0
    assert json.loads((folder / "h2-tag.json").read_text())["classes"] == "another"


def test_sources_are_all_there_or_none(folder, monkeypatch):
    with zipfile.ZipFile(folder / "sources.jar", "w") as jar:
        jar.writestr("org/A.java", "class A {}")
        jar.writestr("org/B.java", "class B {}")

    def some(self, path, names):
        (path / "org").mkdir(parents=True)
        (path / names[0]).write_text("class A {}")
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(zipfile.ZipFile, "extractall", some)
        windows.sources()
    assert sorted(p.name for p in windows.sources().rglob("*.java")) == ["A.java", "B.java"]
    with zipfile.ZipFile(folder / "newer.jar", "w") as jar:
        jar.writestr("org/C.java", "class C {}")
    monkeypatch.setattr(windows, "SOURCES", folder / "newer.jar")
    assert sorted(p.name for p in windows.sources().rglob("*.java")) == ["C.java"]
