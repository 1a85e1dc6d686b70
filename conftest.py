# SPDX-License-Identifier: Apache-2.0
"""Which tests may run at the same time (`make test` runs two processes of pytest-xdist): those of the RTL and of the
model, each a simulation with one thread that shares nothing with others, beside all the rest, one after the other,
which start devices, Java machines and guests and list all that there are. Where each process of pytest can be given a
view of its own processes alone, as by root, the rest is two: tests of the JVM, and what else starts such. Of the
simulations the longest begin first. Tests of make and its tools look at no device of others and come one after the
other."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

APART = ("sim/rtl/test/", "hw/", "sim/test/test_native.py::test_native[model_test-")
TOOLS = "tools/"
JAVA = "sw/jvm-patch/test/"
JTREG = "test_tools_jtreg.py"  # which starts devices and Java machines
LONGEST = [
    f"test_rtl_regression.py::test_{name}"
    for name in ("units", "what_is_due", "faults", "directed", "every_address_bit", "contexts", "host", "what_changes")
]


own_processes = False  # does each process of pytest see its own processes alone?


def group(nodeid):
    """The tests of a group run one after the other."""
    if nodeid.startswith(APART):
        return nodeid
    if nodeid.startswith(TOOLS) and JTREG not in nodeid:
        return TOOLS
    return JAVA if own_processes and nodeid.startswith(JAVA) else "machine"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    global own_processes
    alone = ["sh", str(Path(__file__).parent / "tools/own_processes.sh")]
    if os.geteuid() == 0 and subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0:
        own_processes = True
        for spec in specs:
            spec.python = shlex.join([*alone, sys.executable])


def pytest_configure():
    """Debian has no `python`, whatever this machine has: what asks for it fails here, too."""
    folder = Path(__file__).parent / "build/test-path"
    folder.mkdir(parents=True, exist_ok=True)
    # Processes that see their own alone may have the same number.
    own = folder / f"python.{os.environ.get('PYTEST_XDIST_WORKER', '')}.{os.getpid()}"
    own.write_text("#!/bin/sh\necho 'python: not found (conftest.py); Debian has python3' >&2\nexit 127\n")
    own.chmod(0o755)
    own.replace(folder / "python")
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def pytest_collection_modifyitems(items):
    """The machine's tests, long simulations, tools, further simulations: whoever runs a test first has it until all
    that goes with it is done."""

    def place(item):
        if group(item.nodeid) == TOOLS:
            return len(LONGEST) - 0.5
        long = [rank for rank, name in enumerate(LONGEST) if name in item.nodeid]
        return (long or [len(LONGEST)])[0] if item.nodeid.startswith(APART) else -1

    items.sort(key=place)


# Groups by pytest-xdist's own marks (--dist loadgroup) are lost between it and pytest 9.2.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the order is that of pytest_collection_modifyitems

    class OneMachine(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    return OneMachine(config, log)


kept_runs = 0  # that were not made again (tools/kept_runs.py), in all processes of pytest


def pytest_runtest_logreport(report):
    global kept_runs
    if report.when == "teardown":
        kept_runs += sum(count for name, count in report.user_properties if name == "kept runs")


def pytest_terminal_summary(terminalreporter):
    if kept_runs:
        terminalreporter.write_line(
            f"{kept_runs} run(s) of the tracer's tests were not made again, since the same passed before (MERAPI_ONCE=0"
            " makes them)"
        )


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
