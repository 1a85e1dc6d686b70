# SPDX-License-Identifier: Apache-2.0
"""The root Makefile: what it says of variables, paths and of another make in the same clone."""

import fcntl
import os
import shutil
import subprocess

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


@pytest.mark.parametrize("name", ["a clone", "10%", "a:b"])
def test_paths_that_make_cannot_take(name, tmp_path):
    (tmp_path / name).mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path / name)
    done = make("native", cwd=tmp_path / name)
    _, err = done.communicate(timeout=60)
    assert done.returncode != 0 and f"found '{tmp_path / name}'; move it" in err
    assert sorted(file.name for file in tmp_path.rglob("*")) == sorted([name, "Makefile"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run-arguments", "DEVICE=rtl", "PRESET=nonsense"], "PRESET: expected one of ddr4-1ch, "),
        (["run-arguments", "DEVICE=model", "PRESET=hbm2"], "PRESET: expected with DEVICE=rtl alone"),
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
    assert "--check" in plan.splitlines()[0], plan


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
