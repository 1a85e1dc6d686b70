# SPDX-License-Identifier: Apache-2.0
"""Which tests may run at the same time (`make test` runs two processes of pytest-xdist): those of the RTL, each a
simulation with one thread that shares nothing with others, beside all the rest, one after the other, which start
devices, Java machines and guests and look at what they do in time."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
APART = ("sim/rtl/test/", "hw/")


def pytest_collection_modifyitems(items):
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        item.add_marker(pytest.mark.xdist_group(item.nodeid if path.startswith(APART) else "machine"))
