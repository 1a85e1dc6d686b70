# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` runs at the same time: conftest.py's groups hold in the pytest and pytest-xdist of today."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from common import ROOT

JAVA = ("sw/jvm-patch/test/test_6.py", "sw/jvm-patch/test/test_7.py")
MACHINE = ("sw/one/test/test_0.py", "sim/two/test/test_1.py", "tools/test/test_tools_jtreg.py")
TOOLS = ("tools/test/test_tools_2.py", "tools/test/test_tools_3.py")
RTL = ("sim/rtl/test/test_4.py", "hw/three/test/test_5.py")
TESTS = """
import os, pathlib, time
import pytest

@pytest.mark.parametrize("n", range(4))
def test_{name}(n):
    time.sleep({pause})
    with open(pathlib.Path(__file__).parents[{up}] / "ran", "a") as ran:
        processes = os.readlink("/proc/self/ns/pid")
        assert os.readlink("/proc/self") == str(os.getpid())
        ran.write(f"{file} {{os.environ['PYTEST_XDIST_WORKER']}} {{processes}}\\n")
"""


def own_processes():
    """Can processes of pytest have a view of their own processes alone?"""
    command = [ROOT / "tools/own_processes.sh", "true"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize("apart", [True, False])
def test_only_what_shares_nothing_runs_beside_others(apart, tmp_path):
    """Those of the machine take long enough here for the other process to do all else."""
    if apart and not own_processes():
        pytest.skip(
            "expected to be root who may make a namespace for processes (unshare --pid --mount-proc), found not"
        )
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tools").mkdir()
    if apart:
        shutil.copy(ROOT / "tools/own_processes.sh", tmp_path / "tools")
    else:
        (tmp_path / "tools/own_processes.sh").symlink_to(shutil.which("false"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number, file in enumerate((*JAVA, *MACHINE, *TOOLS, *RTL)):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(
            TESTS.format(name=number, up=file.count("/"), file=file, pause=0.5 if file in (*JAVA, *MACHINE) else 0)
        )
    flags = re.search(r"^BESIDE = .*(-n 2 .*)\)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *flags, str(tmp_path)], check=True, timeout=120, cwd=tmp_path, env=outer
    )
    ran = [line.split() for line in Path(tmp_path, "ran").read_text().splitlines()]
    assert len(ran) == 4 * len((*JAVA, *MACHINE, *TOOLS, *RTL))
    java, machine, tools = ({worker for file, worker, _ in ran if file in files} for files in (JAVA, MACHINE, TOOLS))
    assert len(java) == len(machine) == 1, "tests of one machine ran at the same time"
    assert len(tools) == 1, "tests of tools ran at the same time"
    assert {*java, *machine, *tools} == {"gw0", "gw1"}
    assert (java != machine) == apart
    assert apart or machine != tools, "tests of tools waited for those of the machine"
    views = {worker: processes for _, worker, processes in ran}
    assert len({os.readlink("/proc/self/ns/pid"), *views.values()}) == (3 if apart else 1)
