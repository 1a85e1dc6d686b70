# SPDX-License-Identifier: Apache-2.0
"""Which tests may run at the same time (`make test` runs two processes of pytest-xdist): those of the RTL, each a
simulation with one thread that shares nothing with others, beside all the rest, one after the other, which start
devices, Java machines and guests and look at what they do in time. The longest simulation begins first."""

import signal

import pytest

APART = ("sim/rtl/test/", "hw/")
LONGEST = "test_rtl_regression.py::test_units"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.endswith(LONGEST))


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
