# SPDX-License-Identifier: Apache-2.0
"""In one guest, in order: the bare expander, provisioning, and memory that both sides see."""

import contextlib
import json

import pytest
import saved_windows
from emulate import DEVICE_PROGRAM
from topology import MIB
from window_device import WindowDevice

SIZE = 1024 * MIB
# Exit codes of merapi(1).
ABSENT, BUSY = 3, 4


def test_bare_expander_is_listed(bare):
    devices = json.loads(bare.check("cxl list -M"))
    assert [d["ram_size"] for d in devices] == [SIZE]
    assert bare.run("ls /dev/dax*")[0] != 0


def test_provision_makes_devdax(window):
    assert window.device == "/dev/dax0.0"
    assert window.found["bytes"] == SIZE
    assert window.found["alignment"] == 2 * MIB
    listed = json.loads(window.machine.check("daxctl list -D"))
    assert [(d["chardev"], d["mode"]) for d in listed] == [("dax0.0", "devdax")]


def test_provision_again_changes_nothing(window):
    before = window.machine.check("cat /proc/iomem")
    assert window.found["changed"]
    assert window.machine.provision() == [{**window.found, "changed": False}]
    assert window.machine.check("cat /proc/iomem") == before


def test_guest_writes_are_seen_in_the_file(window):
    # First and last word, and both sides of a border between large pages; the same offset on both sides.
    for number, offset in enumerate((0, 2 * MIB - 8, 2 * MIB, 512 * MIB + 64, SIZE - 8)):
        word = 0x4D65726170690000 + number
        window.poke(offset, word)
        assert window.host_peek(offset) == word


def test_writes_to_the_file_are_seen_in_the_guest(window):
    for number, offset in enumerate((8, 4 * MIB - 8, 700 * MIB, SIZE - 16)):
        word = 0xC0FFEE0000 + number
        window.host_poke(offset, word)
        assert window.peek(offset) == word


def test_expander_is_mapped_directly(window):
    # Each access as a call into QEMU's device model would be a hundred times slower than memory, always; what other
    # work on this machine takes away is gone in another attempt.
    found = []
    for _ in range(10):
        speeds = window.machine.check(f"merapi-dax read {window.device} {32 * MIB}", 120).splitlines()
        expander, ordinary = map(float, speeds[-1].split())
        if expander >= 0.5 * ordinary:
            return
        found.append(f"expander {expander} MB/s, ordinary memory {ordinary} MB/s")
    pytest.fail("; ".join(found))


def test_another_window_on_the_same_expander(window):
    """The first device gives up its end, the second lies there, and goes again; the first gets all of it back by being
    made anew."""
    machine = window.machine
    made = machine.merapi("create-window dax0.0 --size 256M --shrink dax0.0")
    assert (made["window"], made["bytes"]) == ("dax:/dev/dax0.1", 256 * MIB)
    listed = {d["dax"]: d["bytes"] for d in machine.merapi("list")["dax"]}
    assert listed == {"dax0.0": SIZE - 256 * MIB, "dax0.1": 256 * MIB}
    machine.check("merapi-dax poke /dev/dax0.1 4096 0x5152")
    assert window.host_peek(SIZE - 256 * MIB + 4096) == 0x5152
    machine.merapi("destroy-window dax0.1")
    assert machine.run("ls /dev/dax0.1")[0] != 0
    assert machine.merapi(f"release {window.found['memdev']}")["changed"]
    assert machine.provision() == [window.found]


def test_two_windows_on_one_expander_are_traced_at_once(window, tmp_path):
    """Each by a device of its own, which serves that part of the memory alone."""
    machine = window.machine
    image = saved_windows.unpack("javac", machine.out)
    machine.merapi("create-window dax0.0 --size 256M --shrink dax0.0")
    listed = machine.merapi("list")["dax"]
    assert [(d["dax"], d["expander"], d["offset"], d["bytes"]) for d in listed] == [
        ("dax0.0", "mem0", 0, SIZE - 256 * MIB),
        ("dax0.1", "mem0", SIZE - 256 * MIB, 256 * MIB),
    ]
    with contextlib.ExitStack() as devices:
        for d in listed:
            part = f"{window.file}@{d['offset']}+{d['bytes']}"
            devices.enter_context(WindowDevice(DEVICE_PROGRAM, "model", tmp_path / d["dax"], part))
        verify = [f"merapi verify /merapi/out/{image.name} --window dax:{d['path']} --json" for d in listed]
        machine.check(f"{verify[0]} >/run/first & {verify[1]} >/run/second; wait $!", 120)
        found = [json.loads(machine.check(f"cat /run/{name}"))["runs"][0] for name in ("first", "second")]
    for run in found:
        assert run["verify"]["same"]
        assert run["objects"] == saved_windows.EXPECTED["javac"]["objects_marked"]
    machine.merapi("destroy-window dax0.1")
    assert machine.merapi(f"release {window.found['memdev']}")["changed"]
    assert machine.provision() == [window.found]


def test_released_and_provisioned_again_no_stale_mapping(window):
    machine = window.machine
    window.poke(8, 0x1234)
    released = machine.merapi(f"release {window.found['memdev']}")
    assert released["changed"]
    assert machine.run("ls /dev/dax0.0")[0] != 0
    assert not machine.merapi(f"release {window.found['memdev']}")["changed"]
    window.host_poke(8, 0x5678)
    assert machine.provision() == [window.found]
    assert window.peek(8) == 0x5678
    window.poke(16, 0x9ABC)
    assert window.host_peek(16) == 0x9ABC


def test_wrong_alignment_is_refused(window):
    machine = window.machine
    machine.check("daxctl disable-device dax0.0 && daxctl reconfigure-device -s 0 dax0.0")
    machine.check("daxctl create-device -r 0 -a 1073741824 -s 1073741824")
    status, output = machine.run("merapi provision dax0.1")
    assert status == ABSENT
    assert "expected an alignment of at most 2 MiB, found 1 GiB on dax0.1" in output
    found = {c["check"]: c for c in json.loads(machine.run("merapi doctor --json")[1])}
    assert found["dax dax0.1"]["verdict"] == "problem" and "create-device -a 2M" in found["dax dax0.1"]["remedy"]
    assert machine.merapi(f"release {window.found['memdev']}")["changed"]
    assert machine.provision() == [window.found]


def test_release_is_refused_while_a_process_has_the_window(window):
    machine = window.machine
    # The shell has it; without a command after it the shell would become the merapi command.
    line = f"exec 5<>{window.device}; merapi release {window.found['memdev']}; echo status $?"
    assert f"status {BUSY}" in machine.check(line)
    assert machine.provision() == [{**window.found, "changed": False}]


def test_doctor_finds_nothing_amiss(window):
    checks = window.machine.merapi("doctor")
    assert {"modules", "auto-online", "expander mem0", "dax dax0.0"} <= {c["check"] for c in checks}
    assert [c for c in checks if c["verdict"] == "problem"] == []
