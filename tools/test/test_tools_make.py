# SPDX-License-Identifier: Apache-2.0
"""The root Makefile: what it says of variables, paths and of another make in the same clone."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from common import ROOT


def make(*words, cwd=ROOT, **variables):
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.Popen(
        ["make", *words], cwd=cwd, env={**env, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_second_make_waits():
    (ROOT / "build/locks").mkdir(parents=True, exist_ok=True)
    with open(ROOT / "build/locks/native", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = make("native")
        try:
            said = next(line for line in second.stdout if "waiting" in line)
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(1)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
            second.communicate(timeout=600)
    assert said == "waiting for another process in 'native'\n"
    assert second.returncode == 0


@pytest.mark.parametrize(
    "name",
    ["a clone", " ", "10%", "a:b", "it's", 'a"b', "a&b", "a;b", "a$b", "a$$b", "a#b", "(a)", "a)", "a(", "{a}", "[a]"]
    + ["a|b", "a<b", "a>b", "a*b", "a?b", "a!b", "a`b", "a^b", "a=b", "a,b", "a\\b", "a\tb", "z\u00fcrich"],
)
def test_paths_that_make_cannot_take(name, tmp_path):
    (tmp_path / name).mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path / name)
    done = make("native", cwd=tmp_path / name)
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and f"found '{tmp_path / name}'; move it" in err
    assert sorted(file.name for file in tmp_path.rglob("*")) == sorted([name, "Makefile"])


def test_a_path_that_make_can_take(tmp_path):
    clone = tmp_path / "Clone-2_of.me@here+there~1"
    clone.mkdir()
    shutil.copy(ROOT / "Makefile", clone)
    out, err = make("-s", "where-native", "--eval=where-native: ; @echo $(CURDIR)", cwd=clone).communicate(timeout=60)
    assert (out, err) == (f"{clone}\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run-arguments", "DEVICE=rtl", "PRESET=nonsense"], "PRESET: expected one of ddr4-1ch, "),
        (["run-arguments", "DEVICE=model", "PRESET=hbm2"], "PRESET: expected with DEVICE=rtl alone"),
        (["run-arguments", "DEVICE=rtl", "MEMORY=nonsense"], "MEMORY: expected one of ideal, ddr4-2400, hbm2, or "),
        (["run-arguments", "DEVICE=rtl", "MEMORY=tools"], "MEMORY: expected one of ideal, "),
        (["qemu-arguments", "DEVICE=nonsense"], "DEVICE: expected one of "),
        (["qemu-arguments", "TOPOLOGY=nonsense"], "TOPOLOGY: expected one of "),
        (["qemu-arguments", "DEVICE=rtl", "PRESET=nonsense"], "PRESET: expected one of ddr4-1ch, "),
    ],
)
def test_arguments_are_looked_at_first(words, expected):
    done = make("-s", *words)
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and expected in err


@pytest.mark.parametrize("target", ["run", "qemu", "qemu-shell"])
def test_arguments_come_before_builds(target):
    plan, _ = make("-n", target, "DEVICE=model").communicate(timeout=60)
    assert 0 < plan.index("--check") < plan.index("tools/setup.py"), plan


@pytest.mark.parametrize("words", [["test"], ["test-native"], ["rtl"], ["run", "DEVICE=rtl"]])
def test_what_only_root_installs_comes_before_builds(words):
    """Without cargo a user was told so when libjvm and the tracer's Verilog had been made, after half an hour."""
    plan, _ = make("-n", *words).communicate(timeout=60)
    assert 0 < plan.index("expected cargo") < plan.index("tools/setup.py"), plan


@pytest.mark.parametrize("words", [["native"], ["test-jvm"], ["run", "DEVICE=model"], ["lint"]])
def test_what_needs_no_simulation_needs_no_cargo(words):
    plan, _ = make("-n", *words).communicate(timeout=60)
    assert "tools/setup.py" in plan and "cargo" not in plan


@pytest.mark.parametrize("jobs", ["abc", "0", "-1", "1 2", "5000", "%"])
def test_jobs_are_a_number(jobs):
    done = make("-s", "run-arguments", f"JOBS={jobs}")
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and f"JOBS: expected a number from 1 to 1024, found '{jobs}'" in err


def stand_in(folder, text):
    folder.mkdir()
    (folder / "python3").write_text(text)
    (folder / "python3").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


OLDER = f"""#!/bin/sh
shift  # -c
exec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 13, "final", 0); exec(sys.argv[1])' "$1"
"""


@pytest.mark.parametrize("target", ["run", "setup", "qemu", "contract"])
def test_an_older_python_is_told(target, tmp_path):
    done = make(target, PATH=stand_in(tmp_path / "bin", OLDER))
    out, err = done.communicate(timeout=60)
    assert done.returncode != 0 and "expected Python 3.11 or later, found 3.10 at " in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("nothing_ignored")
@pytest.mark.parametrize("name", ["setup", "apps"])
def test_tools_end_at_an_interrupt_without_a_trace(name):
    (ROOT / "build/locks").mkdir(parents=True, exist_ok=True)
    tool = {"setup": "setup.py", "apps": "build_apps.py"}[name]
    with open(ROOT / "build/locks" / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, ROOT / "tools" / tool]
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "waiting" in waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)
    assert err == f"{tool}: stopped\n" and waiting.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["DEVICE=rtl"], "sim-small:fast ddr4-1ch:fast"),
        (["DEVICE=rtl", "PRESET=sim-small"], "sim-small:fast ddr4-1ch:fast"),
        (["DEVICE=rtl", "PRESET=hbm2"], "hbm2:fast"),
        (["DEVICE=model", "PRESET=hbm2"], "sim-small:fast ddr4-1ch:fast"),
    ],
)
def test_a_run_has_the_simulation_of_its_preset(words, expected):
    out, err = make("-s", "--eval=shown: ; @echo '$(RTL_SIMULATIONS)'", "shown", *words, MERAPI_FULL="").communicate(
        timeout=60
    )
    assert out.strip() == expected, err


@pytest.mark.parametrize("value", ["", "somewhere"])
def test_the_cache_is_one_place(value):
    plan, _ = make("-pn", "help", MERAPI_CACHE=value).communicate(timeout=60)
    (cache,) = [
        line.removeprefix("MERAPI_CACHE := ") for line in plan.splitlines() if line.startswith("MERAPI_CACHE :=")
    ]
    assert cache == (str(ROOT / value) if value else os.path.expanduser("~/.cache/merapi"))
    assert f"CCACHE_DIR := {cache}/ccache" in plan


@pytest.mark.parametrize(
    ("words", "unread"),
    [
        (["DEVCE=model", "PROGRAM:=x y"], "DEVCE PROGRAM"),
        (["APP=-cp x Main SIZE=3 a:b", "DEVICE:=rtl", "JOBS=1"], ""),
    ],
)
def test_a_variable_that_nothing_reads_is_told(words, unread):
    _, err = make("help", *words).communicate(timeout=60)
    assert sorted(err.partition("no target reads ")[2].partition(";")[0].split()) == unread.split(), err


def test_the_variables_of_the_list_are_read():
    """Each one that `make help` names; what a target does not know is told above."""
    out, _ = make("help").communicate(timeout=60)
    names = set(re.findall(r"\b([A-Z][A-Z_]+)=", out))
    assert {"DEVICE", "UNIT", "MUTANTS", "MERAPI_SEEDS"} <= names
    _, err = make("help", *(f"{name}=" for name in names)).communicate(timeout=60)
    assert err == ""
