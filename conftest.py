# SPDX-License-Identifier: Apache-2.0
"""Which tests may run at the same time (`make test` runs two processes of pytest-xdist): those of the RTL, each a
simulation with one thread that shares nothing with others, beside all the rest, one after the other, which start
devices, Java machines and guests and look at what they do in time. Of the simulations the longest begin first."""

import os
import signal
from pathlib import Path

import pytest

APART = ("sim/rtl/test/", "hw/")
LONGEST = [
    f"test_rtl_regression.py::test_{name}"
    for name in ("units", "what_is_due", "faults", "directed", "every_address_bit", "contexts", "host", "what_changes")
]


def pytest_configure():
    """Debian has no `python`, whatever this machine has: what asks for it fails here, too."""
    folder = Path(__file__).parent / "build/test-path"
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"python.{os.getpid()}"
    own.write_text("#!/bin/sh\necho 'python: not found (conftest.py); Debian has python3' >&2\nexit 127\n")
    own.chmod(0o755)
    own.replace(folder / "python")
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def pytest_collection_modifyitems(items):
    """One simulation, all the rest, further simulations: whoever runs a test first has it until all that goes with it
    is done."""

    def place(item):
        long = [rank for rank, name in enumerate(LONGEST) if name in item.nodeid]
        return (long or [len(LONGEST)])[0] if item.nodeid.startswith(APART) else 0.5

    items.sort(key=place)


# Groups by pytest-xdist's own marks (--dist loadgroup) are lost between it and pytest 9.2.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class OneMachine(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid if nodeid.startswith(APART) else "machine"

    return OneMachine(config, log)


@pytest.fixture
def nothing_ignored():
    """What a shell starts in the background ignores SIGINT and SIGQUIT, and so does what that starts: tests that
    send them must not depend on who runs them. A handler is not inherited over exec."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
