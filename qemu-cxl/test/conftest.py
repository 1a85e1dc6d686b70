# SPDX-License-Identifier: Apache-2.0
"""One guest for all tests that leave it usable; tests that spoil theirs start their own.

A missing prerequisite skips these tests with its reason; everything else that goes wrong is a failure.
"""

import json
import mmap
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "qemu-cxl"), str(ROOT / "tools"), str(ROOT / "sim/run"), str(ROOT / "sim/test")]

import emulate  # noqa: E402
import prepare  # noqa: E402
from machine import GuestError, Machine, check_room  # noqa: E402
from topology import MIB  # noqa: E402
from vfio_client import Client, front  # noqa: E402

# Two expanders of the largest test, the guest's own memory and some room.
NEEDED_BYTES = 4096 * MIB


# The shared guest begins with a bare expander and is reset by its last test.
ORDER = (
    "pci_front",
    "pci_function",
    "qemu_parts",
    "qemu_inputs",
    "qemu_accepts",
    "qemu_topologies",
    "qemu_window",
    "qemu_tracer",
    "qemu_jvm",
)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent

    def position(item):
        return 1 + ORDER.index(item.path.stem.removeprefix("test_")) if item.path.parent == here else 0

    items.sort(key=position)


@pytest.fixture
def served(tmp_path):
    """A client that has bounded the function to all of its memory, and the window's control page as this process maps
    it."""
    with front(tmp_path, ["sleep", "1000"]) as (_, path, window), open(window, "r+b") as file:
        page = mmap.mmap(file.fileno(), 4096)
        client = Client(path)
        client.bound(0, 64 * MIB)
        yield client, page
        client.close()
        page.close()


@pytest.fixture(scope="session")
def prepared():
    """QEMU and the guest, made when they are not there."""
    for path, target in (
        (ROOT / "build/jdk/image/bin/java", "jdk"),
        (ROOT / "build/apps/classes", "apps"),
        (emulate.DEVICE_PROGRAM, "native"),
    ):
        if not path.exists():
            pytest.skip(f"expected {path}, found nothing; run 'make {target}'")
    try:
        check_room(NEEDED_BYTES)
    except GuestError as error:
        pytest.skip(str(error))
    try:
        prepare.fetch()
    except SystemExit:
        pytest.skip("QEMU or the guest's packages could not be had; run 'make qemu-setup' to see why")
    # Once for all tests: pytest would ask a fixture that ended by another exception for each of them.
    try:
        return prepare.ready()
    except SystemExit:
        pytest.fail("the guest could not be made of its packages and our sources; the reason is in the output")


@pytest.fixture(scope="session")
def start(prepared, tmp_path_factory):
    """Function that makes a Machine (a context manager) of the named topology."""

    def make(topology, expander_bytes=256 * MIB, **options):
        folder = tmp_path_factory.mktemp(f"guest-{topology}")
        out = folder / "out"
        out.mkdir()
        machine = Machine(topology, folder, emulate.shares(out), expander_bytes, **options)
        machine.out = out
        return machine

    return make


@pytest.fixture(scope="session")
def bare(start):
    """The shared guest, its expander not provisioned yet when the first test gets it. The engine of its tracer function
    is held, so that a test may serve the window by a process of its own."""
    tracer = {"program": emulate.DEVICE_PROGRAM, "name": "model", "held": True}
    with start("one", 1024 * MIB, tracer=tracer) as machine:
        yield machine


class Window:
    """The provisioned expander of the shared guest and the seconds from QEMU's launch until it was there."""

    def __init__(self, machine, found, seconds):
        self.machine, self.found, self.seconds = machine, found, seconds
        self.device = found["device"]
        self.file = machine.files()[found["expander"]]

    def peek(self, offset):
        return int(self.machine.check(f"merapi-dax peek {self.device} {offset}"), 0)

    def poke(self, offset, word):
        self.machine.check(f"merapi-dax poke {self.device} {offset} {word}")

    def host_peek(self, offset):
        with open(self.file, "rb") as file:
            file.seek(offset)
            return int.from_bytes(file.read(8), "little")

    def host_poke(self, offset, word):
        with open(self.file, "r+b", buffering=0) as file:
            file.seek(offset)
            file.write(word.to_bytes(8, "little"))


@pytest.fixture(scope="session")
def window(bare):
    begin = time.monotonic()
    found = bare.provision()
    assert len(found) == 1
    return Window(bare, found[0], bare.ready_s + time.monotonic() - begin)


@pytest.fixture
def tracer(window):
    """The driver's character device of the tracer function in the shared guest, an engine behind it."""
    tracer = Tracer(window)
    tracer.bind()
    window.machine.front.release()
    yield tracer
    window.machine.front.hold()


class Tracer:
    def __init__(self, window, memory=None):
        self.machine, self.front, self.memory = window.machine, window.machine.front, memory or window.device
        self.device, self.folder = "/dev/merapi0", "/sys/class/misc/merapi0/device"
        self.name = f"pci:{self.device},{self.memory}"

    def bind(self):
        """The driver has the function, which traces the window."""
        self.machine.check(f"modprobe merapi_tracer; test -c {self.device}")
        self.machine.merapi(f"provision {self.memory}")

    def attribute(self, name):
        return int(self.machine.check(f"cat {self.folder}/{name}"))

    def round_trips(self, count, way="", seconds=120):
        """Result of merapi-ring, which fails by itself when an interrupt is lost or comes without cause."""
        return json.loads(self.machine.check(f"merapi-ring {self.device} {self.memory} {count} {way}", seconds))


@pytest.fixture
def make_window():
    return Window
