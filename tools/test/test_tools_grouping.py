# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` runs at the same time: conftest.py's groups hold in the pytest and pytest-xdist of today."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT

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
        ran.write(f"{file} {{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""


def test_only_rtl_tests_and_tools_run_beside_others(tmp_path):
    """Those of the machine take long enough here for the other process to do all else."""
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number, file in enumerate((*MACHINE, *TOOLS, *RTL)):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(
            TESTS.format(name=number, up=file.count("/"), file=file, pause=0.5 if file in MACHINE else 0)
        )
    flags = re.search(r"^BESIDE = .*(-n 2 .*)\)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *flags, str(tmp_path)], check=True, timeout=120, cwd=tmp_path, env=outer
    )
    ran = [line.split() for line in Path(tmp_path, "ran").read_text().splitlines()]
    assert len(ran) == 4 * len((*MACHINE, *TOOLS, *RTL))
    machine, tools = ({worker for file, worker in ran if file in files} for files in (MACHINE, TOOLS))
    assert len(machine) == 1, "tests of one machine ran at the same time"
    assert len(tools) == 1, "tests of tools ran at the same time"
    assert machine != tools, "tests of tools waited for those of the machine"
