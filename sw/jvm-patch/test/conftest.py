# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the patched JDK, the compiled programs, and one device process that serves all ordinary runs."""

import os
import subprocess

import fault_runs
import jvm_harness
import pytest
from jvm_options import BASE, VERIFY

FULL = os.environ.get("MERAPI_FULL") == "1"


def pytest_configure(config):
    config.addinivalue_line("markers", "full: long; runs with -m full or MERAPI_FULL=1 only")


def pytest_collection_modifyitems(config, items):
    if FULL or "full" in (config.option.markexpr or ""):
        return
    skipped = pytest.mark.skip(reason="long; -m full or MERAPI_FULL=1 runs it")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def java():
    program = jvm_harness.jdk_folder() / "bin/java"
    if not program.exists():
        pytest.fail(f"expected the patched JDK at {program.parents[1]}, found nothing; run 'make jdk'", pytrace=False)
    return program


@pytest.fixture(scope="session")
def stock_jdk():
    try:
        return jvm_harness.stock_jdk_folder()
    except LookupError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def device_program():
    program = jvm_harness.device_program()
    if not program.exists():
        pytest.fail(f"expected the device process at {program}, found nothing; run 'make native'", pytrace=False)
    return program


@pytest.fixture(scope="session")
def rogue_program():
    program = jvm_harness.rogue_program()
    if not program.exists():
        pytest.fail(f"expected the rogue device at {program}, found nothing; run 'make native'", pytrace=False)
    return program


@pytest.fixture(scope="session")
def classes(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("classes")
    javac = jvm_harness.jdk_folder() / "bin/javac"
    if not javac.exists():
        javac = request.getfixturevalue("stock_jdk") / "bin/javac"
    jvm_harness.compile_programs(javac, folder)
    return folder


@pytest.fixture(scope="session")
def device(device_program, tmp_path_factory):
    with jvm_harness.ServedDevice(
        device_program, tmp_path_factory.mktemp("device"), *jvm_harness.PATIENT_MODEL
    ) as served:
        yield served
        status = served.process.poll()
    if status is not None:
        pytest.fail(f"the device process ended with status {status} while it was serving; see {served.log.name}")


@pytest.fixture
def runs():
    """Starts JVMs and ends those that are left."""
    started = []

    def start(*arguments, **options):
        run = jvm_harness.Run(*arguments, **options)
        started.append(run)
        return run

    yield start
    for run in started:
        if run.alive():
            run.process.kill()
            run.process.wait()


@pytest.fixture
def processes():
    """Ends child processes that a test started and left running."""
    started = []

    def start(command, **options):
        process = subprocess.Popen(command, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def start(runs, java, classes, tmp_path):
    """Starts a program on a window; `until` lets one of fault_runs.LONG end."""

    def begin(window, *program, flags=fault_runs.SHORT, folder=None):
        flag = jvm_harness.flag_of_window(window)
        return runs(java, [flag, *VERIFY, *BASE, *flags, "-cp", classes, *program], folder or tmp_path)

    return begin
