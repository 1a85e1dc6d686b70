# SPDX-License-Identifier: Apache-2.0
"""The makefiles of the RTL: what is fetched, elaborated and made faster, once, and what of it may fail."""

import fcntl
import os
import re
import sys

import pytest
from common import ROOT
from test_tools_make import make

FETCH = """#!/bin/sh
case "$*" in
  "-m venv"*) mkdir -p "$4/bin"; ln -sf /bin/true "$4/bin/pip" ;;
  *dependency:copy*) touch "${{5#*=}}/mill-dist-${{4##*:}}.jar" ;;
  *mdep.outputFile*) touch "${{6#*=}}" ;;
  *) exec {python} "$@" ;;
esac
echo >> {log}
"""


@pytest.mark.parametrize("made", ["venv/ready", "tools/mill", "tools/scalafmt/classpath"])
def test_what_several_targets_need_is_made_once(made, tmp_path):
    """By whichever comes first: a second one emptied the folder of the Verilator that the first one ran."""
    tools, log = tmp_path / "bin", tmp_path / "log"
    tools.mkdir()
    for name in ("python3", "mvn"):
        (tools / name).write_text(FETCH.format(python=sys.executable, log=log))
        (tools / name).chmod(0o755)
    words = ["-o", "setup", f"{tmp_path}/{made}", f"RTL_VENV={tmp_path}/venv", f"RTL_TOOLS={tmp_path}/tools"]
    (ROOT / "build/locks").mkdir(parents=True, exist_ok=True)
    with open(ROOT / "build/locks/rtl-tools", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [make(*words, PATH=f"{tools}:{os.environ['PATH']}") for _ in range(2)]
        waited = [any("waiting for another process in 'rtl-tools'" in line for line in one.stderr) for one in both]
    said = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert waited == [True, True] and len(log.read_text().splitlines()) == 1
    again = make(*words, PATH=f"{tools}:{os.environ['PATH']}")
    again.communicate(timeout=60)
    assert again.returncode == 0 and len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rtl-alone", "RTL_PRESETS=sim-small sim-pair"], {"sim-small", "sim-pair"}),
        (["rtl-simulations-alone", "RTL_SIMULATIONS=sim-small:fast hbm2:fast"], {"sim-small", "hbm2"}),
        (["synth-alone", "SYNTH_PRESETS=ddr4-4ch hbm2"], {"ddr4-4ch", "hbm2"}),
        (["formal-alone", "PROOFS=exhaust-4ch"], {"sim-small", "proof", "proof-1ch", "proof-4ch"}),
        ([f"{ROOT}/build/rtl/ddr4-4ch/filelist.f"], set()),
        (
            ["test", "MAKE=make -n -W build.sc"],
            {"sim-small", "sim-lanes", "sim-ports", "ddr4-1ch", "sim-pair", "proof"},
        ),
    ],
)
def test_what_a_target_needs_is_elaborated_together(words, expected):
    plan, _ = make("-n", "-W", "build.sc", *words).communicate(timeout=120)
    runs = [re.findall(r"--together (\S+)", line) for line in plan.splitlines() if "elaborate_rtl.py" in line]
    assert runs and set(runs[0]) == expected


# What makes a simulation: each says what it is, and ends with the status that it is told.
MAKERS = {
    "perl": "printf 'libVsim_small.a libverilated.a: ;\\n' > {folder}/rtl/sim-small/fast/Vsim_small.mk",
    "python3": """\
case "$*" in
  *rtl_record.py*) echo "$2 said this"; eval "exit \\${{$2:-0}}" ;;
  *plain_evaluation.py*) ;;
  *) exec {python} "$@" ;;
esac""",
    "venv/bin/python": """\
case "$*" in
  *gate_model.py*) echo "$2 said this"; eval "exit \\${{$2:-0}}" ;;
  *) echo {folder} ;;
esac""",
}


@pytest.fixture
def fast_simulation(tmp_path):
    """Makes the simulation of sim-small by programs that end as they are told; gives what make says, or None if it made
    none."""
    preset = tmp_path / "rtl/sim-small"
    for path in (preset, tmp_path / "venv/bin", tmp_path / "tools"):
        path.mkdir(parents=True)
    (preset / "preset.json").write_text('{"lanes": 1, "contexts": 1}')
    for name, text in MAKERS.items():
        (tmp_path / name).write_text("#!/bin/sh\n" + text.format(folder=tmp_path, python=sys.executable) + "\n")
        (tmp_path / name).chmod(0o755)
    old = [preset / "filelist.f", tmp_path / "venv/ready", tmp_path / "tools/dramsim3"]
    for path in old:
        path.touch()
    words = [word for name in (*old, "native", "setup") for word in ("-o", str(name))]
    words += [f"RTL_{name.upper()}={tmp_path}/{name}" for name in ("venv", "tools")] + [f"RTL_BUILD={tmp_path}/rtl"]

    def run(**ends):
        ready = preset / "fast/ready"
        ready.unlink(missing_ok=True)
        done = make("-s", *words, str(ready), PATH=f"{tmp_path}:{os.environ['PATH']}", **ends)
        out, err = done.communicate(timeout=60)
        assert (done.returncode == 0) == ready.exists(), err
        return done.returncode == 0, out + err

    return run


def test_what_cannot_be_done_leaves_a_simulation_slower(fast_simulation):
    for ends, said in (
        ({}, None),
        ({"check": "3"}, "is simulated as Verilator wrote it and slow; "),
        ({"gate": "3"}, "is simulated as Verilator wrote it and slow; "),
        ({"profile": "3"}, "is compiled without a profile; "),
    ):
        made, text = fast_simulation(**ends)
        assert made and ("says why" in text) == bool(said) and (said or "") in text, text


@pytest.mark.parametrize("step", ["check", "activity", "gate", "profile"])
@pytest.mark.parametrize("status", ["1", "2", "137"])
def test_what_fails_in_passing_leaves_no_simulation(step, status, fast_simulation):
    """It was made all the same, slower for good."""
    made, text = fast_simulation(**{step: status})
    assert not made and f"{step} said this\n" in text and "found the failure above; see " in text
    assert fast_simulation()[0]
