# SPDX-License-Identifier: Apache-2.0
"""The other arrangements of expanders, each in a guest of its own, and what provisioning refuses."""

import json

from topology import MIB

SIZE = 256 * MIB


def test_two_expanders_have_a_window_each(start, make_window):
    with start("two") as machine:
        windows = [make_window(machine, found, 0) for found in machine.provision()]
        assert sorted(w.found["expander"] for w in windows) == [0, 1]
        assert sorted(w.device for w in windows) == ["/dev/dax0.0", "/dev/dax1.0"]
        for number, window in enumerate(windows):
            window.poke(4096, 0x1111 * (number + 1))
        for number, window in enumerate(windows):
            assert window.host_peek(4096) == 0x1111 * (number + 1)
            window.host_poke(SIZE - 8, 0x2222 * (number + 1))
            assert window.peek(SIZE - 8) == 0x2222 * (number + 1)


def test_interleaved_pair_is_enumerated_and_refused(start):
    with start("interleaved") as machine:
        devices = json.loads(machine.check("cxl list -M"))
        assert [d["ram_size"] for d in devices] == [SIZE, SIZE]
        decoder = json.loads(machine.check("cxl list -D -d root"))[0]
        assert decoder["interleave_ways"] == 2
        status, output = machine.run("merapi-provision ram")
        assert status == 1
        assert "no tracer would see whole objects" in output
        assert machine.run("ls /dev/dax*")[0] != 0
        # Raw data: two expanders take turns every 256 bytes.
        create = "cxl create-region -m -t ram -d decoder0.0 -w 2 -g 256"
        # Which of them comes first is the host bridges' business.
        machine.check(f"{create} mem0 mem1 || {create} mem1 mem0")
        machine.check("daxctl reconfigure-device -m devdax -f dax0.0; test -e /dev/dax0.0")
        machine.check("merapi-dax poke /dev/dax0.0 0 0xaaaa; merapi-dax poke /dev/dax0.0 256 0xbbbb")
        words = []
        for path in machine.files():
            with open(path, "rb") as file:
                words.append(int.from_bytes(file.read(8), "little"))
        assert sorted(words) == [0xAAAA, 0xBBBB]


def test_persistent_expander_becomes_devdax(start, make_window):
    with start("pmem") as machine:
        window = make_window(machine, machine.provision()[0], 0)
        assert SIZE - 16 * MIB <= window.found["bytes"] < SIZE, "the namespace keeps its metadata at the start"
        window.poke(0, 0x4D65726170692121)
        found = window.file.read_bytes().find((0x4D65726170692121).to_bytes(8, "little"))
        assert found > 0 and found % (2 * MIB) == 0


def test_online_as_system_memory_is_told(start):
    """With kmem loaded the kernel takes the expander as ordinary memory; provisioning says so and what to do."""
    with start("one") as machine:
        machine.check("modprobe kmem")
        status, output = machine.run("merapi-provision ram")
        assert status == 1
        assert "online as system memory" in output
        assert "memhp_default_state=offline" in output


def test_without_modules_the_missing_one_is_named(start):
    with start("one") as machine:
        machine.check("rmmod dax_cxl")
        status, output = machine.run("merapi-provision ram")
        assert status == 1
        assert "is dax_cxl loaded" in output
