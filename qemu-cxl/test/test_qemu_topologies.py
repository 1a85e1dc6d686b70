# SPDX-License-Identifier: Apache-2.0
"""The other arrangements of expanders, each in a guest of its own, and what provisioning refuses."""

import json
import time
from pathlib import Path

import emulate
import pytest
from jvm_log import read
from topology import MIB

ENGINES = "/sys/class/misc/merapi0/device/engines"
SIZE = 256 * MIB
# Exit codes of merapi(1).
FOUND, USAGE, ABSENT = 1, 2, 3


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
        for expander in ("mem0", "mem1"):
            status, output = machine.run(f"merapi provision {expander}")
            assert status == ABSENT
            assert "no device of it sees whole objects" in output
        assert machine.run("ls /dev/dax*")[0] != 0
        # Raw data: two expanders take turns every 256 bytes.
        create = "cxl create-region -m -t ram -d decoder0.0 -w 2 -g 256"
        # Which of them comes first is the host bridges' business.
        machine.check(f"{create} mem0 mem1 || {create} mem1 mem0")
        machine.check("daxctl reconfigure-device -m devdax -f dax0.0; test -e /dev/dax0.0")
        machine.check("merapi-dax poke /dev/dax0.0 0 0xaaaa; merapi-dax poke /dev/dax0.0 256 0xbbbb")
        status, output = machine.run("merapi provision dax0.0")
        assert status == ABSENT
        assert "interleaved over 2" in output
        slow = [c for c in json.loads(machine.run("merapi doctor --json")[1]) if c["check"] == "dax dax0.0"]
        assert slow[0]["verdict"] == "problem" and "does not map it directly" in slow[0]["remedy"]
        words = []
        for path in machine.files():
            with open(path, "rb") as file:
                words.append(int.from_bytes(file.read(8), "little"))
        assert sorted(words) == [0xAAAA, 0xBBBB]


def test_windows_are_made_again_after_a_reboot(start, make_window):
    with start("one", 512 * MIB) as machine:
        machine.provision()
        keep = "export MERAPI_STATE=/merapi/out/windows.json;"
        machine.check(f"{keep} merapi create-window dax0.0 --size 128M --shrink dax0.0")
        machine.reset()
        assert machine.run("ls /dev/dax*")[0] != 0, "a guest that has just booted"
        machine.check(f"{keep} merapi provision mem0")
        listed = [(d["dax"], d["offset"], d["bytes"]) for d in machine.merapi("list")["dax"]]
        assert listed == [("dax0.0", 0, 384 * MIB), ("dax0.1", 384 * MIB, 128 * MIB)]
        machine.check("merapi-dax poke /dev/dax0.1 64 0x5152")
        with open(machine.files()[0], "rb") as file:
            file.seek(384 * MIB + 64)
            assert int.from_bytes(file.read(8), "little") == 0x5152


def test_persistent_expander_becomes_devdax(start, make_window):
    with start("pmem") as machine:
        window = make_window(machine, machine.provision()[0], 0)
        assert SIZE - 16 * MIB <= window.found["bytes"] < SIZE, "the namespace keeps its metadata at the start"
        window.poke(0, 0x4D65726170692121)
        found = window.file.read_bytes().find((0x4D65726170692121).to_bytes(8, "little"))
        assert found > 0 and found % (2 * MIB) == 0


def test_region_refused_by_the_kernel(start):
    """A kernel that knows that it runs in a virtual machine makes no region of an expander."""
    with start("one", hidden=False) as machine:
        status, output = machine.run("merapi provision mem0 --patience 1")
        assert status not in (0, USAGE)
        assert "cxl create-region" in output and "-hypervisor" in output
        assert machine.run("ls /dev/dax*")[0] != 0


def test_taken_as_system_memory_and_taken_back(start, make_window):
    """The auto-online trap: `doctor` says so and what to do, `provision` does it while nobody lives in that memory."""
    with start("one") as machine:
        machine.provision()
        machine.check("echo online >/sys/devices/system/memory/auto_online_blocks; modprobe kmem")
        machine.check("daxctl reconfigure-device -m system-ram -f dax0.0")
        status, output = machine.run("merapi doctor --json")
        assert status == FOUND
        problems = {c["check"]: c for c in json.loads(output) if c["verdict"] == "problem"}
        assert problems["dax dax0.0"]["found"] == "is system memory"
        assert "memhp_default_state=offline" in problems["auto-online"]["remedy"]
        window = make_window(machine, machine.provision()[0], 0)
        assert window.found["changed"]
        window.poke(64, 0x1234)
        assert window.host_peek(64) == 0x1234


def test_missing_module_is_loaded(start):
    with start("one") as machine:
        machine.check("rmmod dax_cxl")
        assert machine.provision()[0]["device"] == "/dev/dax0.0"


def test_absent_module_is_named(start):
    with start("one") as machine:
        machine.check("rmmod dax_cxl && rm /usr/lib/modules/*/kernel/drivers/dax/dax_cxl.ko")
        status, output = machine.run("merapi provision --patience 1")
        assert status not in (0, USAGE)
        assert "dax_cxl" in output


def test_function_that_goes_without_a_word_is_told(start):
    """What is read of it is all ones; it was taken for a tracer that works, by whoever slept at it, too."""
    tracer = {"program": emulate.DEVICE_PROGRAM, "name": "model"}
    with start("one", 256 * MIB, tracer=tracer) as machine:
        name = emulate.tracer_window(machine, machine.provision()[0])
        machine.check("sleep 600 5<>/dev/merapi0 >/dev/null 2>&1 & echo $! >/run/holder")
        machine.front.process.kill()
        machine.front.process.wait()
        status, output = machine.run(f"cat {ENGINES}")
        assert status != 0 and "Input/output error" in output
        assert "does not answer, and is not used any more" in machine.check("dmesg")
        machine.check("kill $(cat /run/holder)")
        status, output = machine.run(f"merapi reset {name}")
        assert status not in (0, USAGE) and "Input/output error" in output


@pytest.fixture(scope="module")
def persistent(start):
    """A guest whose window lies behind a namespace's metadata: machine, window and the name by which it is traced. What
    the last test leaves of it is of no use."""
    tracer = {"program": emulate.DEVICE_PROGRAM, "name": "model"}
    with start("pmem", tracer=tracer) as machine:
        window = machine.provision()[0]
        yield machine, window, emulate.tracer_window(machine, window)


def test_persistent_window_is_traced_at_its_place(persistent):
    """The driver tells the function where the window begins."""
    machine, window, name = persistent
    listed = machine.merapi("list")
    (device,), (function,) = listed["dax"], listed["functions"]
    assert device["offset"] > 0
    assert (function["window_offset"], function["window_bytes"]) == (device["offset"], window["bytes"])
    program = ["-Xms64m", "-Xmx64m", "-XX:+ExplicitGCInvokesConcurrent", "-cp", "/merapi/apps/classes"]
    program += ["merapi.apps.MarkBench", "list", "1", "20000"]
    status, output = machine.run(" ".join(emulate.java_command(name, "/merapi/out/pmem.log", program)), 120)
    assert status == 0, output
    log = read(machine.out / "pmem.log")
    assert log.offloaded(), output
    assert log.fallbacks == []
    verified = [c.verify for c in log.offloaded() if c.remark_ms is not None]
    assert verified and all(v["missed"] == v["incomplete"] == v["live_mismatch"] == 0 for v in verified)


def test_bounds_are_set_again_after_sleep(persistent):
    """The function wakes from D3hot with nothing in its reach. The kernel only tries what it does to sleep: it
    wakes by itself. Shares are of no use afterwards."""
    machine, window, name = persistent
    engines = int(machine.check(f"cat {ENGINES}"))
    machine.check("echo 0 > /sys/module/suspend/parameters/pm_test_delay; echo platform > /sys/power/pm_test")
    machine.check("echo freeze > /sys/power/state", 120)
    assert int(machine.check(f"cat {ENGINES}")) > engines
    tracer, memory = name.removeprefix("pci:").split(",")
    assert json.loads(machine.check(f"merapi-ring {tracer} {memory} 10"))["round_trips"] == 10


def traced_part(machine):
    """Offset and bytes of what the engine traces, of its command line."""
    deadline = time.monotonic() + 60
    while (engine := machine.front.engine()) is None:
        assert time.monotonic() < deadline, "no engine"
    words = Path(f"/proc/{engine}/cmdline").read_text().split("\0")
    offset, _, length = words[words.index("--window") + 1].rpartition("@")[2].partition("+")
    return int(offset), int(length)


def test_function_recovers_from_an_error_of_its_slot(persistent):
    """The expander's neighbour is asked and reset with it, and bounded again. The expander is of no use afterwards."""
    machine, window, _ = persistent
    folder = machine.check("readlink -f /sys/class/misc/merapi0/device")
    bounds = tuple(int(machine.check(f"cat {folder}/window_{name}")) for name in ("offset", "bytes"))
    for error in ("COMP_TIME", "DLP"):  # not fatal, fatal
        machine.check("dmesg -c >/dev/null; exec 5</dev/merapi0; cat <&5 >/run/read 2>&1 &")
        inject = f"pcie_aer_inject_error expander0-device {error}"
        assert machine.monitor(("human-monitor-command", {"command-line": inject}))[0].startswith("OK")
        status, output = machine.run("for i in $(seq 300); do dmesg | grep recovery && exit; sleep 0.1; done; dmesg")
        assert "device recovery successful" in output
        assert "Input/output error" in machine.check(
            "for i in $(seq 50); do grep error /run/read && exit; sleep 0.1; done"
        )
        assert int(machine.check(f"cat {ENGINES}")) > 0
        assert traced_part(machine) == bounds and bounds[0] > 0 and bounds[1] == window["bytes"]


def test_nothing_traces_for_a_kernel_that_ended(persistent):
    """Another one that it starts would find a tracer at work. The guest says nothing after this."""
    machine, _, _ = persistent
    assert machine.front.engine() is not None
    machine.check("(sleep 0.5; halt -f) >/dev/null 2>&1 &")
    deadline = time.monotonic() + 60
    while machine.front.engine() is not None:
        assert time.monotonic() < deadline, "the engine goes on"
        time.sleep(0.1)
