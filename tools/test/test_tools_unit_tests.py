# SPDX-License-Identifier: Apache-2.0
"""Unit tests of the tracer's blocks are compiled once for the same sources, by the one Mill of a clone, and what runs
them is believed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from common import ROOT

SOURCE = ROOT / "build" / "test-units" / "BlockTest.scala"
MILL = """#!/bin/sh
echo compiled >> {folder}/runs
flock -n {root}/build/locks/mill true && exit 7
mkdir -p {out}/tracer/compile.dest/classes {out}/tracer/test/compile.dest/classes
cp {source} {out}/tracer/test/compile.dest/classes/BlockTest.class
touch {out}/tracer/compile.dest/classes/Block.class
echo "[error] $MILL_SAYS" >&2
echo '["qref:v1:1:{folder}/library.jar", "ref:v0:2:{out}/none", "ref:v0:3:{out}/tracer/compile.dest/classes",' \\
  '"ref:v0:4:{out}/tracer/test/compile.dest/classes"]'
exit ${{MILL_STATUS:-0}}
"""
JAVA = """#!/bin/sh
echo "$@"
echo "$JAVA_SAYS"
exit ${JAVA_STATUS:-0}
"""


@pytest.fixture
def unit_tests(tmp_path):
    SOURCE.parent.mkdir(parents=True, exist_ok=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "library.jar").write_text("")
    (tmp_path / "runs").write_text("")
    for name, text in (
        ("mill", MILL.format(root=ROOT, folder=tmp_path, out=tmp_path / "out", source=SOURCE)),
        ("java", JAVA),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    path = f"{programs}:{os.environ['PATH']}"
    own = {k: v for k, v in os.environ.items() if k not in ("MERAPI_ONCE", "MERAPI_FULL", "MERAPI_SEED")}

    def run(text, unit="", **said):
        SOURCE.write_text(text)
        done = subprocess.run(
            [sys.executable, ROOT / "tools/unit_tests.py", "--unit", unit, "--sources", SOURCE, "--version", "1",
             "--", programs / "mill"],
            env={**own, "MERAPI_CACHE": str(tmp_path / "cache"), "PATH": path, **said},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done, len((tmp_path / "runs").read_text().split())

    return run


def test_the_same_sources_are_compiled_once(unit_tests, tmp_path):
    done, compiled = unit_tests("one")
    assert (done.returncode, compiled) == (0, 1), done.stderr
    assert "rtl: compiling the unit tests" in done.stdout
    again, compiled = unit_tests("one")
    assert (again.returncode, compiled) == (0, 1), again.stderr
    assert "compiling" not in again.stdout
    path = again.stdout.split()[1].split(":")
    assert path[2:] == [str(tmp_path / "library.jar")]
    test, tracer = path[:2]
    assert f" -R {test} " in again.stdout
    assert Path(test, "BlockTest.class").read_text() == "one" and os.listdir(tracer) == ["Block.class"]
    assert unit_tests("two")[1] == 2


def test_a_library_that_is_gone_is_fetched_again(unit_tests, tmp_path):
    unit_tests("one")
    (tmp_path / "library.jar").unlink()
    assert unit_tests("one")[1] == 2


def test_what_did_not_compile_is_compiled_again(unit_tests):
    for attempt in (1, 2):
        done, compiled = unit_tests("one", MILL_STATUS="1", MILL_SAYS="not found: value x")
        assert (done.returncode, compiled) == (1, attempt)
        assert "compiling the unit tests failed" in done.stderr and "not found: value x" in done.stderr


def test_what_passed_runs_again_unless_told_otherwise(unit_tests):
    def runs(text="one", **said):
        done, _ = unit_tests(text, JAVA_SAYS="ran", **said)
        assert "ran" in done.stdout.splitlines()
        return "not run again" not in done.stdout

    assert runs(MERAPI_ONCE="1") and not runs(MERAPI_ONCE="1")
    assert runs(MERAPI_ONCE="0")
    assert not runs(MERAPI_ONCE="1") and runs(MERAPI_ONCE="1", CCACHE_NAMESPACE="another")
    assert runs("two", MERAPI_ONCE="1") and runs(unit="LimitsTest", MERAPI_ONCE="1")
    assert runs(MERAPI_ONCE="1", MERAPI_SEED="2") and runs(MERAPI_ONCE="1", MERAPI_FULL="1")
    for _ in range(2):
        done, _ = unit_tests("three", JAVA_STATUS="1", MERAPI_ONCE="1")
        assert done.returncode == 1 and "not run again" not in done.stdout


def test_who_fails_and_who_runs_nothing(unit_tests):
    assert unit_tests("one", JAVA_STATUS="1")[0].returncode == 1
    done, _ = unit_tests("one", unit="NoTest", JAVA_SAYS="No tests were executed.")
    assert done.returncode == 1
    assert "expected unit tests, found none of UNIT=NoTest" in done.stderr


@pytest.mark.parametrize(
    ("unit", "arguments"),
    [("LimitsTest", "-q .LimitsTest"), ("lane.ChaserTest", "-q .lane.ChaserTest"), ("lane.*", "-w merapi.lane")],
)
def test_units_by_name(unit_tests, unit, arguments):
    assert unit_tests("one", unit=unit)[0].stdout.splitlines()[-2].endswith(arguments)


def test_a_unit_that_is_no_name(unit_tests):
    done, compiled = unit_tests("one", unit="Limits Test")
    assert (done.returncode, compiled) == (1, 0)
    assert "UNIT: expected a class (LimitsTest) or a package (lane.*), found 'Limits Test'" in done.stderr
