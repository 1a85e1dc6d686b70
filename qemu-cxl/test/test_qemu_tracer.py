# SPDX-License-Identifier: Apache-2.0
"""The tracer's PCI function in the shared guest: registers, driver, doorbell and interrupt."""

import re

import pytest
from gen_contract import offset_of
from native_fixtures import wait_until
from topology import MIB

ROUND_TRIPS = 2000
# Exit code of merapi(1).
ABSENT = 3
# How many lines merapi-driver-check prints when it comes to its end.
DRIVER_CHECKS = 79
# Seconds that an emulated guest may take.
PATIENCE = 60


def read_register(machine, bar, offset):
    return int(machine.check(f"busybox devmem {bar + offset:#x} 32"), 0)


def function_bar(machine, folder):
    """Where the registers are of a function that has no driver, enabled."""
    machine.check(f"echo 1 > {folder}/enable")
    return int(machine.check(f"head -n 1 {folder}/resource").split()[0], 0)


def test_function_beside_the_expander(window):
    """Enumerated in the expander's slot; its registers answer without a driver."""
    machine = window.machine
    listed = machine.check("lspci -n -d 1234:4d52").splitlines()
    assert len(listed) == 1
    address = listed[0].split()[0]
    assert address.endswith(".1")
    assert " 1200: 1234:4d52" in listed[0]
    folder = f"/sys/bus/pci/devices/0000:{address}"
    bar = function_bar(machine, folder)
    assert read_register(machine, bar, 0).to_bytes(4, "little") == b"MRPI"
    assert read_register(machine, bar, 8) == window.found["bytes"]
    assert [read_register(machine, bar, at) for at in (0x18, 0x24, 0x30, 0x34)] == [0, 0, 0, 0], "no window, no engine"
    for engines, length in ((1, window.found["bytes"]), (1, 0)):
        machine.check(f"busybox devmem {bar + 0x30:#x} 32 {length}; busybox devmem {bar + 0x20:#x} 32 1")
        wait_until(lambda running=length != 0: read_register(machine, bar, 0x18) == running, PATIENCE)
        assert read_register(machine, bar, 0x24) == engines
    machine.check(f"echo 0 > {folder}/enable")
    assert machine.front.alive()


def test_driver_tells_the_bounds(tracer, window):
    assert tracer.attribute("window_bytes") == window.found["bytes"]
    listed = window.machine.merapi("list")["functions"]
    assert [(t["path"], t["window_bytes"], t["users"]) for t in listed] == [(tracer.device, window.found["bytes"], [])]


def test_a_tracer_without_a_window_traces_nothing(tracer, window):
    """The memory beside it may be the system's: one that nobody had bounded answered what looked like a host there."""
    machine = tracer.machine
    driver, address = "/sys/bus/pci/drivers/merapi_tracer", machine.check(f"basename $(readlink -f {tracer.folder})")
    machine.check(f"echo {address.strip()} > {driver}/unbind; echo {address.strip()} > {driver}/bind")
    generation = offset_of("host_index", "generation")
    assert (tracer.attribute("window_offset"), tracer.attribute("window_bytes")) == (0, 0)
    window.poke(generation, 2)
    before = window.peek(offset_of("device_index", "state")), window.peek(offset_of("device_identity", "magic"))
    machine.check(f"echo 1 > {tracer.folder}/reset")
    assert "traces nothing" in machine.check("merapi list")
    status, output = machine.run(f"merapi reset {tracer.name}")
    assert status == ABSENT and "found one that traces nothing yet; 'merapi provision' bounds it" in output
    assert tracer.attribute("engines") == 0 or tracer.front.engine() is None
    after = window.peek(offset_of("device_index", "state")), window.peek(offset_of("device_identity", "magic"))
    assert after == before
    window.poke(generation, 0)
    tracer.bind()
    assert tracer.round_trips(10)["round_trips"] == 10


def test_driver_keeps_its_word(tracer, window):
    """Ownership, what each call answers, poll, read, eventfd, resets, a process that dies with the device open, and an
    unbinding under one."""
    status, output = tracer.machine.run(f"merapi-driver-check {tracer.device} {tracer.memory} {window.found['bytes']}")
    lines = output.splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == []
    assert (status, len(lines)) == (0, DRIVER_CHECKS)


def test_bounds_are_the_drivers_word(tracer, window):
    """The driver tells the tracer what it reaches: the window that is provisioned, of those on the expander, at its
    place. A memory smaller than that is refused, whatever the host makes of it."""
    machine, first = tracer.machine, window.found["bytes"] - 256 * MIB

    def bounds():
        return tracer.attribute("window_offset"), tracer.attribute("window_bytes")

    assert bounds() == (0, window.found["bytes"]) and tracer.attribute("memory_bytes") == window.found["bytes"]
    made = machine.merapi("create-window dax0.0 --size 256M --shrink dax0.0")
    assert bounds() == (0, first)
    assert tracer.round_trips(10)["round_trips"] == 10
    status, output = machine.run(f"merapi reset pci:{tracer.device},/dev/dax0.1")
    assert status == ABSENT
    assert f"found one of {first} bytes" in output
    assert [(d["dax"], d["offset"]) for d in machine.merapi("list")["dax"]] == [("dax0.0", 0), ("dax0.1", first)]
    # Not beyond the memory, and not under a user.
    assert machine.run(f"echo {first + 256 * MIB} >{tracer.folder}/window_offset")[0] != 0
    command = f"echo {first - 2 * MIB} >{tracer.folder}/window_bytes"
    status, output = machine.run(f"exec 5<>{tracer.device}; {command}")
    assert status != 0 and "busy" in output
    assert bounds() == (0, first)
    machine.check(command)
    assert bounds() == (0, first - 2 * MIB)
    machine.check(f"echo {first} >{tracer.folder}/window_bytes")
    machine.merapi("provision dax0.1")
    assert bounds() == (first, made["bytes"])
    second = type(tracer)(window, "/dev/dax0.1")
    assert second.round_trips(10)["round_trips"] == 10
    # The memory of another window is large enough; where it is the host cannot see.
    status, output = machine.run(f"merapi reset --timeout 1 {tracer.name}")
    assert status != 0 and "or bounded to another part of the expander, which 'merapi doctor' tells?" in output
    machine.check(
        f"merapi doctor | grep -F 'tracer merapi0: traces 256 MiB from {first >> 20} MiB of mem0 on (dax0.1)'"
    )
    machine.check(f"echo 1 > {tracer.folder}/reset")
    assert second.round_trips(10)["round_trips"] == 10, "bounded again after a reset"
    machine.merapi("destroy-window dax0.1")
    assert bounds() == (first, 0)
    assert machine.merapi("provision dax0.0")["changed"] and bounds() == (0, first)
    assert machine.merapi(f"release {window.found['memdev']}")["changed"]
    assert bounds() == (0, 0)
    assert machine.provision() == [window.found]


@pytest.mark.parametrize("way", ["wait", "poll", "read", "eventfd"])
def test_interrupts_are_neither_lost_nor_without_cause(tracer, way):
    done = tracer.round_trips(ROUND_TRIPS, way)
    assert done["round_trips"] == ROUND_TRIPS
    assert done["lost"] == done["spurious"] == 0
    assert ROUND_TRIPS <= done["sleeps"] == done["interrupts"]


def test_one_user_at_a_time(tracer):
    # The shell holds the device open while the program asks for it.
    status, output = tracer.machine.run(f"exec 5<>{tracer.device}; merapi-ring {tracer.device} {tracer.memory} 1")
    assert status == 1
    assert "busy" in output
    assert tracer.round_trips(1)["round_trips"] == 1


def test_last_close_resets(tracer):
    engines = tracer.attribute("engines")
    tracer.machine.check(f"exec 5<>{tracer.device}")
    wait_until(lambda: tracer.attribute("engines") == engines + 1, PATIENCE)
    assert tracer.round_trips(10)["round_trips"] == 10


def test_function_reset_brings_a_fresh_engine(tracer):
    engines = tracer.attribute("engines")
    tracer.machine.check(f"echo 1 > {tracer.folder}/reset")
    wait_until(lambda: tracer.attribute("engines") > engines, PATIENCE)
    assert tracer.round_trips(10)["round_trips"] == 10


@pytest.mark.parametrize(
    ("how", "way"), [("unbind", "wait"), ("unbind", "poll"), ("unbind", "read"), ("remove", "wait")]
)
def test_function_goes_under_a_user(tracer, how, way):
    """What sleeps is woken and told, what traced for it is ended; the function is there again afterwards."""
    machine = tracer.machine
    path = machine.check(f"readlink -f {tracer.folder}")
    driver = "/sys/bus/pci/drivers/merapi_tracer"
    interrupts, engines = tracer.attribute("interrupts"), tracer.attribute("engines")
    machine.check(f"merapi-ring {tracer.device} {tracer.memory} 10000000 {way} >/run/ring 2>&1 &")
    wait_until(lambda: tracer.attribute("interrupts") > interrupts, PATIENCE)
    assert tracer.attribute("engines") == engines
    machine.check(f"echo 1 > {path}/remove" if how == "remove" else f"basename {path} > {driver}/unbind")
    wait_until(lambda: machine.run("pidof merapi-ring")[0] != 0, PATIENCE)
    # It is told by the driver, unless it sees first that a fresh engine has begun, with empty rings.
    assert re.search("Input/output error|complete: Bad message", machine.check("cat /run/ring"))
    assert machine.run(f"test -e {tracer.device}")[0] != 0
    if how == "remove":
        machine.check("echo 1 > /sys/bus/pci/rescan")
    else:
        bar = function_bar(machine, path)
        wait_until(lambda: read_register(machine, bar, 0x18) == 0, PATIENCE)
        assert read_register(machine, bar, 0x24) == engines
        machine.check(f"echo 0 > {path}/enable; basename {path} > {driver}/bind")
    tracer.bind()
    assert tracer.round_trips(10)["round_trips"] == 10


def test_function_has_its_name_again_under_a_user(tracer):
    """A program that goes on without its tracer may keep the descriptor for hours; the function came back as another
    device meanwhile, and stayed it."""
    machine = tracer.machine
    path = machine.check(f"readlink -f {tracer.folder}")
    driver = "/sys/bus/pci/drivers/merapi_tracer"
    machine.check(f"sleep 600 5<>{tracer.device} >/dev/null 2>&1 & echo $! > /run/holder")
    wait_until(lambda: machine.run(f"ls -l /proc/$(cat /run/holder)/fd | grep -q {tracer.device}")[0] == 0, PATIENCE)
    machine.check(f"basename {path} > {driver}/unbind; basename {path} > {driver}/bind")
    assert machine.run(f"test -c {tracer.device}")[0] == 0
    tracer.bind()
    assert tracer.round_trips(10)["round_trips"] == 10, "the old user has the old function"
    machine.check("kill $(cat /run/holder)")
    wait_until(lambda: machine.run("test -e /proc/$(cat /run/holder)")[0] != 0, PATIENCE)
    assert tracer.round_trips(10)["round_trips"] == 10
