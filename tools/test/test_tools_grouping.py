# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` runs at the same time: conftest.py's groups hold in the pytest and pytest-xdist of today."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT

FOLDERS = ("sw/one/test", "sim/two/test", "sim/rtl/test", "hw/three/test")
TESTS = """
import os, pathlib, pytest

@pytest.mark.parametrize("n", range(4))
def test_{name}(n):
    with open(pathlib.Path(__file__).parents[{up}] / "ran", "a") as ran:
        ran.write(f"{folder} {{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""


def test_only_rtl_tests_run_beside_others(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number, folder in enumerate(FOLDERS):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"test_{number}.py").write_text(
            TESTS.format(name=number, up=folder.count("/") + 1, folder=folder)
        )
    flags = re.search(r"^BESIDE = .*(-n 2 .*)\)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *flags, str(tmp_path)], check=True, timeout=120, cwd=tmp_path, env=outer
    )
    ran = [line.split() for line in Path(tmp_path, "ran").read_text().splitlines()]
    assert len(ran) == 4 * len(FOLDERS)
    workers = {folder: {worker for at, worker in ran if at == folder} for folder in FOLDERS}
    assert len(workers["sw/one/test"] | workers["sim/two/test"]) == 1, "tests of one machine ran at the same time"
    assert len({worker for _, worker in ran}) == 2, "one process did everything"
