# SPDX-License-Identifier: Apache-2.0
"""In one guest, in order: the bare expander, provisioning, and memory that both sides see."""

import json

import pytest
from topology import MIB

SIZE = 1024 * MIB
# Exit code of merapi(1).
BUSY = 4


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
