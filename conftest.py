# SPDX-License-Identifier: Apache-2.0
"""Which tests may run at the same time (`make test` runs two processes of pytest-xdist): those of the RTL, each a
simulation with one thread that shares nothing with others, beside all the rest, one after the other, which start
devices, Java machines and guests and look at what they do in time. The longest simulation begins first."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
APART = ("sim/rtl/test/", "hw/")
LONGEST = "test_rtl_regression.py::test_units"


def pytest_collection_modifyitems(items):
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        item.add_marker(pytest.mark.xdist_group(item.nodeid if path.startswith(APART) else "machine"))
    items.sort(key=lambda item: not item.nodeid.endswith(LONGEST))
