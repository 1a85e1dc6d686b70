# SPDX-License-Identifier: Apache-2.0
"""merapi info, list and top on real windows."""

import json
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
from cli_harness import ABSENT, DENIED, OK, ROOT, USAGE, binary, hold, merapi, merapi_of_nobody
from native_fixtures import OWN_MOUNTS, wait_until


def test_window_file(window_file):
    before = window_file.read_bytes()
    done = merapi("info", window_file, "--json")
    assert done.status == OK, done.err
    info = done.json()
    assert info["kind"] == "window"
    assert info["bytes"] == os.path.getsize(window_file)
    assert info["device"]["kind"] == "model"
    assert info["device"]["coherence"] == "coherent"
    assert info["config"]["region_count"] == 24
    assert info["config"]["region_bytes"] == 1 << 18
    assert info["counters"]["objects_marked"] > 0
    assert info["fault"]["code"] == "none"
    assert not info["attached"]
    areas = {area["area"]: area for area in info["layout"]}
    assert areas["heap"]["bytes"] >= 24 << 18
    assert areas["heap"]["offset"] % (2 << 20) == 0
    assert window_file.read_bytes() == before, "looking changed the window"


def test_host_of_an_impossible_number_is_nobody(window_file):
    """It was told of the process that has the lower half."""
    with open(window_file, "r+b") as window:
        window.seek(24)  # identity.host_pid
        window.write(struct.pack("<Q", (1 << 32) + os.getpid()))
    host = merapi("info", window_file, "--json").json()["host"]
    assert host == {"pid": (1 << 32) + os.getpid(), "command": ""}


def test_host_is_told_while_it_has_the_window(window_file):
    """Whoever got the number of one that ended was told as the host."""
    with open(window_file, "r+b") as window:
        window.seek(24)  # identity.host_pid
        window.write(struct.pack("<Q", os.getpid()))
    assert merapi("info", window_file, "--json").json()["host"] == {"pid": os.getpid(), "command": ""}
    assert f"pid {os.getpid()} (gone)" in merapi("info", window_file).out
    own = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
    with open(window_file):
        assert merapi("info", window_file, "--json").json()["host"]["command"] == os.path.basename(own)


def test_text_shows_the_same(window_file):
    done = merapi("info", window_file)
    assert done.status == OK
    assert "24 regions of 256 KiB" in done.out
    assert "objects_marked" in done.out


def test_live_window_by_pid_is_not_disturbed(device, start):
    probe = hold(start, device)
    first = merapi("info", f"pid:{probe.pid}", "--json").json()
    assert merapi("info", f"pid:{probe.pid + (1 << 32)}").status == ABSENT  # nobody's, not his
    assert first["attached"]
    assert first["host"] == {"pid": probe.pid, "command": "device_probe"}
    assert first["device"]["pid"] == device.pid
    second = merapi("info", f"pid:{probe.pid}", "--json").json()
    assert second["generation"] == first["generation"]
    assert probe.process.poll() is None


def test_no_file(folder):
    done = merapi("info", folder / "nothing")
    assert done.status == ABSENT
    assert "expected" in done.err and "found" in done.err
    assert done.out == ""


def test_not_a_window(folder):
    path = folder / "zeros"
    path.write_bytes(bytes(1 << 20))
    done = merapi("info", path)
    assert done.status == ABSENT
    assert "expected" in done.err


def test_truncated_file(window_file):
    os.truncate(window_file, 1 << 20)
    done = merapi("info", window_file)
    assert done.status == ABSENT
    assert "expected" in done.err


def test_file_truncated_under_top(window_file, folder, start):
    """It ended, with all the other windows."""
    other = folder / "other"
    other.write_bytes(window_file.read_bytes())
    watch = start(binary("merapi"), "top", window_file, other, "--interval", "0.05", "--json")
    next_report(watch, lambda report: "traces" in report[0] and "traces" in report[1])
    whole = window_file.read_bytes()
    os.truncate(window_file, 0)
    for _ in range(2):
        next_report(watch, lambda report: "became smaller" in report[0].get("problem", "") and "traces" in report[1])
    window_file.write_bytes(whole)
    next_report(watch, lambda report: "traces" in report[0])


def test_no_permission(window_file):
    window_file.chmod(0)
    done = merapi_of_nobody(window_file.parent, "info", window_file)
    assert done.status == DENIED, done.err
    assert "Permission denied" in done.err


def test_list_shows_window_host_and_tracer(device, start):
    probe = hold(start, device)
    found = merapi("list", "--json").json()
    mine = [w for w in found["windows"] if any(u["pid"] == probe.pid for u in w["users"])]
    assert len(mine) == 1
    roles = {u["pid"]: u["role"] for u in mine[0]["users"]}
    assert roles == {probe.pid: "host", device.pid: "device"}
    assert mine[0]["attached"]
    assert mine[0]["tracer"]["kind"] == "model"
    tracer = next(t for t in found["tracers"] if t["pid"] == device.pid)
    assert tracer["sockets"] == [str(device.socket)]
    assert tracer["windows"] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_list_and_top_know_nothing_of_another_user_s_device(folder, device, start):
    """They said that it serves 0 windows, and that none is in use."""
    hold(start, device)
    done = merapi_of_nobody(folder, "list", "--json")
    assert done.status == OK, done.err
    tracer = next(t for t in done.json()["tracers"] if t["pid"] == device.pid)
    assert tracer["windows"] is None and tracer["sockets"] is None
    done = merapi_of_nobody(folder, "list")
    (line,) = [line for line in done.out.splitlines() if f"merapi-device({device.pid})" in line]
    assert line.endswith(", another user's: its windows are not to be seen")
    done = merapi_of_nobody(folder, "top", "--once", "--interval", "0.01")
    assert "no window is in use" not in done.out


def test_list_shows_all_of_a_socket_s_path(folder, start):
    socket = folder / "a socket  of mine"
    device = start(binary("merapi-device"), "--model", "--socket", socket)
    device.wait_line("ready")
    tracer = next(t for t in merapi("list", "--json").json()["tracers"] if t["pid"] == device.pid)
    assert tracer["sockets"] == [str(socket)]


def test_list_shows_expanders_regions_and_dax(system):
    system.expander("mem0")
    system.expander("mem1")
    system.region("region0", ["mem0", "mem1"])
    system.dax("dax0.0")
    found = system.run("list", "--json").json()
    assert [e["expander"] for e in found["expanders"]] == ["mem0", "mem1"]
    assert found["expanders"][0]["volatile_bytes"] == 512 << 20
    assert found["regions"][0]["expanders"] == ["mem0", "mem1"]
    assert found["regions"][0]["interleave_ways"] == 2
    assert found["dax"][0]["mode"] == "devdax"
    assert found["dax"][0]["region"] == "region0"
    # Of an interleaved pair no part of one expander can be told.
    assert found["dax"][0]["offset"] is None


def test_list_shows_where_a_window_lies(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0", size=384 << 20)
    system.dax("dax0.1", size=128 << 20, start=0x100000000 + (384 << 20))
    found = system.run("list", "--json").json()
    assert [(d["dax"], d["expander"], d["offset"]) for d in found["dax"]] == [
        ("dax0.0", "mem0", 0),
        ("dax0.1", "mem0", 384 << 20),
    ]
    assert "128 MiB from 384 MiB of mem0 on" in system.run("list").out


def traced_for_ever(start, device, linger_ms, *more):
    """A probe that goes on with cycle after cycle until the test ends, however long a busy machine takes for it."""
    probe = start(
        binary("device_probe"), f"device:{device}", "--cycles", "1000000", "--linger-ms", str(linger_ms), *more
    )
    wait_until(lambda: merapi("info", f"pid:{probe.pid}").status == OK)
    return probe


def test_top_once(device, start):
    probe = traced_for_ever(start, device.socket, 20, "--regions", "2")
    found = []

    def traced():
        done = merapi("top", f"pid:{probe.pid}", "--once", "--interval", "1", "--json")
        assert done.status == OK, done.err
        (window,) = done.json()
        assert window["seconds"] >= 1
        found.append(window)
        return window["traces_per_s"] > 0

    # The probe may still be at its handshake.
    wait_until(traced, 60)
    assert found[-1]["traces"] > 0
    assert set(found[-1]["stalls_per_s"]) >= {"stall_memory", "stall_grey"}


def test_top_sums_up_the_cycles_of_an_interval(device, start):
    """Counters start anew with each of them; the same heap is traced every time."""
    probe = traced_for_ever(start, device.socket, 200, "--regions", "2")
    watch = start(binary("merapi"), "top", f"pid:{probe.pid}", "--interval", "2", "--json")
    (window,) = next_report(watch, lambda report: report[0]["traces_per_s"] * report[0]["seconds"] >= 4)
    traces = window["traces_per_s"] * window["seconds"]
    objects = window["objects_per_s"] * window["seconds"]
    assert objects > 0.6 * traces * window["counters"]["objects_marked"]


def test_top_shows_bandwidth_and_stalls(folder, start):
    """Of a tracer that has them: the model counts neither."""
    simulation = ROOT / "build/rtl/lib/merapi-rtl-sim-small.so"
    assert simulation.exists(), f"expected {simulation}, found nothing; run 'make rtl-simulations'"
    device = start(binary("merapi-device"), "--rtl", "--preset", "sim-small", "--socket", folder / "r.sock")
    device.wait_line("ready")
    probe = traced_for_ever(start, folder / "r.sock", 50, "--seed", "5", "--regions", "4")
    watch = start(binary("merapi"), "top", f"pid:{probe.pid}", "--interval", "0.5", "--json")
    # An interval may end anywhere in a cycle: behind its first read and before its first mark, for one.
    rates = ("objects_per_s", "references_per_s", "bytes_read_per_s", "bytes_written_per_s")
    (window,) = next_report(
        watch, lambda report: all(report[0][rate] > 0 for rate in rates) and sum(report[0]["stalls_per_s"].values()) > 0
    )
    assert window["tracer"]
    # People see the same.
    shown = start(binary("merapi"), "top", f"pid:{probe.pid}", "--interval", "0.5")
    shown.wait_line("OBJECTS/S      REFS/S      READ/S   WRITTEN/S  STALLS/S")
    wait_until(lambda: any(re.search(r"\d [KMG]iB +[\d.]+ [KMG]iB +[\d.]+ [kMG] ", line) for line in shown.lines), 60)


def next_report(watch, wanted, seconds=60):
    """The first report of `merapi top --json` that is as wanted; fails with the last one when none comes."""
    found, last = [], None

    def there():
        nonlocal last
        text = "".join(watch.lines)
        decoder, at = json.JSONDecoder(), 0
        while (at := text.find("[\n", at)) >= 0:
            try:
                last, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                return False
            if wanted(last):
                found.append(last)
                return True
        assert watch.process.poll() is None, watch.errors
        return False

    try:
        wait_until(there, seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}; the last report of {watch.process.args}: {last}") from error
    return found[0]


def test_top_of_nothing(folder):
    done = merapi("top", folder / "nothing", "--once")
    assert done.status == ABSENT


def test_top_tells_failures_apart(window_file):
    assert merapi("top", "pid:abc", "--once").status == USAGE
    window_file.chmod(0)
    done = merapi_of_nobody(window_file.parent, "top", window_file, "--once")
    assert done.status == DENIED, done.err


def mapped(pid):
    """The windows in the address space of a process, by device and inode."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {tuple(line.split()[3:5]) for line in lines if "merapi-window" in line}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("interval", [0.2, 3])
def test_top_gives_a_dead_window_up(device, start, named, interval):
    probe = hold(start, device)
    names = [f"pid:{probe.pid}"] if named else []
    watch = start(binary("merapi"), "top", *names, "--interval", interval, "--json")
    (window,) = mapped(probe.pid)
    wait_until(lambda: window in mapped(watch.pid))
    probe.end()
    # Memory of the size of a heap, whatever the interval.
    wait_until(lambda: window not in mapped(watch.pid), 10)
    if named:
        next_report(watch, lambda report: "its process has ended or closed it" in report[0].get("problem", ""))


def test_top_sees_a_window_made_again(window_file, folder, start):
    (folder / "copy").write_bytes(window_file.read_bytes())
    watch = start(binary("merapi"), "top", window_file, "--interval", "0.1", "--json")
    next_report(watch, lambda report: "traces" in report[0])
    window_file.unlink()
    next_report(watch, lambda report: "found none or another" in report[0].get("problem", ""))
    (folder / "copy").rename(window_file)
    seen = len(watch.lines)
    wait_until(lambda: any('"traces"' in line for line in watch.lines[seen:]))


def listed(pid):
    """The window that the process has open, as JSON and as people see it."""
    (window,) = [w for w in merapi("list", "--json").json()["windows"] if any(u["pid"] == pid for u in w["users"])]
    (line,) = [line for line in merapi("list").out.splitlines() if line.startswith("window") and f"({pid})" in line]
    return window, line


def test_list_names_what_opens_the_window(device, window_file, folder, start):
    probe = hold(start, device)
    window, line = listed(probe.pid)
    assert (window["kind"], window["label"]) == ("memory", "merapi-window")
    assert f"{window['window']} (memory)  " in line
    assert merapi("info", window["window"]).status == OK

    served = start(binary("merapi-device"), "--model", "--window", window_file)
    served.wait_line("ready")
    window, line = listed(served.pid)
    assert (window["kind"], window["window"], window["label"]) == ("file", f"file:{window_file}", str(window_file))
    assert f"file:{window_file}  " in line
    # Removed, with another file in its place.
    window_file.unlink()
    window_file.write_bytes(bytes(1 << 20))
    window, line = listed(served.pid)
    assert (window["kind"], window["label"]) == ("removed", str(window_file))
    assert "problem" not in window and window["cycle"] > 0
    assert f" (removed {window_file})  " in line
    assert merapi("info", window["window"]).status == OK
    assert str(window_file) not in [u["window"] for u in merapi("top", "--once", "--interval", "0.1", "--json").json()]


def test_list_of_a_nameless_memory_file(window_file, start):
    """As merapi-replay has it."""
    content = window_file.read_bytes()
    fd = os.memfd_create("merapi-replay")
    try:
        os.write(fd, content)
        served = start(binary("merapi-device"), "--model", "--window", f"/proc/{os.getpid()}/fd/{fd}")
        served.wait_line("ready")
        window, line = listed(served.pid)
        assert (window["kind"], window["label"]) == ("memory", "merapi-replay")
        assert "problem" not in window and window["cycle"] > 0
        done = merapi("doctor", "--json")
        (one,) = [one for one in done.json() if one["check"] == f"window {window['window']}"]
        assert one["verdict"] == "ok", one
    finally:
        os.close(fd)


def test_list_shows_the_window_of_another_mount_namespace(window_file, folder, start):
    """And not what is at its path here."""
    inner, outer = folder / "inner", folder / "outer"
    inner.mkdir()
    outer.write_bytes(window_file.read_bytes())
    (inner / "w").write_bytes(bytes(1 << 20))
    if subprocess.run([*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", inner], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a tmpfs")
    script = f'mount -t tmpfs none {inner} && cp {outer} {inner}/w && exec "$@"'
    command = [binary("merapi-device"), "--model", "--window", inner / "w"]
    served = start(*OWN_MOUNTS, "sh", "-c", script, "sh", *command)
    served.wait_line("ready")
    window, line = listed(served.pid)
    assert window["label"] == f"{inner}/w" and window["window"].startswith(f"file:/proc/{served.pid}/fd/")
    assert "problem" not in window and window["cycle"] > 0
    assert f" ({inner}/w elsewhere)  " in line
    assert merapi("info", window["window"]).status == OK


def test_names_of_others_are_no_commands_for_a_terminal(folder, start):
    """A window's path, a device's name: whoever looks at them had them carried out, or read lines that others wrote."""
    path = folder / "w\x1b]0;title\x07\nwindow  another \u009b2K \u00e9"
    assert merapi("create-window", f"file:{path}", "--heap", "16M").status == OK
    device = start(binary("merapi-device"), "--model", "--name", "a\x1b[31m\nb\x7f", "--window", path)
    device.wait_line("ready")
    reset = merapi("reset", f"file:{path}")
    done = [merapi("list"), merapi("info", path), merapi("top", "--once", "--interval", "0.05"), merapi("doctor")]
    for one in done:
        assert not set(one.out) & {*map(chr, range(32)), "\x7f", "\x9b"} - {"\n"}, one.out
    named = r"w\x1b]0;title\x07\x0awindow  another \x9b2K " + "\u00e9"
    assert named in done[0].out and named in done[1].out and named in done[3].out
    assert r"a\x1b[31m\x0ab\x7f" in done[0].out and r"a\x1b[31m\x0ab\x7f" in done[1].out and r"a\x1b[31m" in reset.out
    assert merapi("info", path, "--json").json()["device"]["name"] == "a\x1b[31m\nb\x7f"


def test_json_is_parsable_and_alone_on_stdout(window_file):
    done = merapi("info", window_file, "--json")
    json.loads(done.out)
    assert done.err == ""


def test_list_shows_functions_of_tracers(system):
    system.function()
    (system.sys / "class/misc/loop-control").mkdir()
    found = system.run("list", "--json").json()["functions"]
    assert found == [
        {
            "function": "merapi0",
            "path": str(system.dev / "merapi0"),
            "pci": "0000:0d:00.1",
            "memory_bytes": 512 << 20,
            "window_offset": 0,
            "window_bytes": 512 << 20,
            "interrupts": 7,
            "engines": 2,
            "users": [],
        }
    ]
    system.function("merapi1", slot="0000:0e:00", traces=0)
    listed = system.run("list").out
    assert "merapi0  traces 512 MiB from 0 B on, at PCI 0000:0d:00.1; used by nobody" in listed
    assert "merapi1  traces nothing ('merapi provision' gives it a window), at PCI 0000:0e:00.1; used by" in listed
