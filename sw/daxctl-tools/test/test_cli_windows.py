# SPDX-License-Identifier: Apache-2.0
"""merapi create-window and destroy-window: against a mock sysfs tree; window files for real."""

import concurrent.futures
import json
import subprocess
import sys

import pytest
from cli_harness import ABSENT, BUSY, OK, USAGE, Process, binary, merapi
from divided_expander import NEXT, SUBDIVIDE, another_region


def test_second_window_and_its_end(divided):
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--json")
    assert done.status == OK, done.err
    assert done.json()["window"] == f"dax:{divided.dev}/dax0.1"
    assert divided.changes() == [f"daxctl create-device -r 0 -s {128 << 20} -a 2097152"]
    assert divided.run("destroy-window", "dax0.1").status == OK
    assert divided.changes()[1:] == ["daxctl disable-device dax0.1", "daxctl destroy-device dax0.1"]


def test_two_windows_at_the_same_time(divided):
    """Each took the other's for its own, and the record kept one."""
    divided.program("daxctl", NEXT)
    sizes = [64 << 20, 128 << 20]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = [pool.submit(divided.run, "create-window", "dax0.0", "--size", str(s), "--json") for s in sizes]
        made = [run.result() for run in runs]
    assert [run.status for run in made] == [OK, OK], made
    assert [run.json()["bytes"] for run in made] == sizes
    assert len({run.json()["window"] for run in made}) == 2
    (serial, recorded), *_ = json.loads((divided.folder / "state/windows.json").read_text()).items()
    assert (serial, sorted(recorded)) == ("0x1", sizes)


def test_long_names(divided):
    """Their pattern was matched by a recursion that ended the command."""
    for name in ("dax:" + "a" * 60000, f"dax{'0' * 60000}.0", f"/dev/dax0.{'0' * 60000}", "a" * 60000):
        done = divided.run("create-window", name, "--size", "2M")
        assert done.status == ABSENT and "expected a dax device" in done.err, name[:12]
        done = divided.run("destroy-window", name)
        assert done.status == ABSENT and "File name too long" in done.err, name[:12]
    assert divided.changes() == []


def test_device_that_does_not_shrink_is_enabled_again(divided):
    divided.write(divided.free, 0)
    divided.program(
        "daxctl", '[ "$1" != reconfigure-device ] || { echo "error: Device or resource busy" >&2; exit 1; }'
    )
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--shrink", "dax0.0")
    assert done.status == BUSY and "reconfigure-device" in done.err
    assert divided.changes()[-1] == "daxctl enable-device dax0.0"


def test_no_room_is_said_and_shrinking_is_asked_for(divided):
    divided.write(divided.free, 0)
    done = divided.run("create-window", "dax0.0", "--size", "128M")
    assert done.status == ABSENT
    assert "--shrink" in done.err
    assert divided.changes() == []
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--shrink", "dax0.0")
    assert done.status == OK, done.err
    assert f"daxctl reconfigure-device -s {384 << 20} dax0.0" in divided.changes()


def test_room_is_not_taken_from_another_region(divided):
    """The other device became smaller, and then there was no room for the window all the same."""
    another_region(divided)
    divided.write(divided.free, 0)
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--shrink", "dax1.0")
    assert done.status == USAGE and "found dax1.0 of another one" in done.err
    assert divided.changes() == []


def test_a_region_of_several_is_named(divided):
    """The last one went, whatever it was, and the windows of all were forgotten."""
    another_region(divided)
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    before = divided.changes()
    done = divided.run("release", "mem0")
    assert done.status == USAGE and "expected one region on mem0 to release, found region0, region1" in done.err
    assert divided.changes() == before
    assert divided.run("release", "region1").status == OK
    assert json.loads((divided.folder / "state/windows.json").read_text()) == {"0x1": [128 << 20]}


@pytest.mark.parametrize(
    "verb", [["release", "mem0"], ["create-window", "dax0.0", "--size", "128M", "--shrink", "dax0.0"]]
)
def test_who_has_a_device_mapped_uses_it(divided, verb):
    """A program need not keep the descriptor of what it has mapped."""
    divided.write(divided.free, 0)
    (divided.dev / "dax0.0").write_bytes(bytes(4096))
    with open(divided.dev / "dax0.0", "r+b") as node:
        mapped = subprocess.Popen(
            [sys.executable, "-c", MAPPED, node.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    try:
        assert mapped.stdout.readline() == "mapped\n"
        done = divided.run(*verb)
        assert done.status == BUSY and f"({mapped.pid})" in done.err, done
        assert divided.changes() == []
    finally:
        mapped.communicate("")
    assert divided.run(*verb).status == OK


# Python's own mmap keeps a descriptor of its own.
MAPPED = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
node = os.open(sys.argv[1], os.O_RDWR)
assert libc.mmap(None, 4096, 1, 1, node, 0)
os.close(node)
print("mapped", flush=True)
sys.stdin.read()
"""


def test_window_in_pieces_is_refused(divided):
    divided.program("daxctl", SUBDIVIDE.replace("$EXTRA", "$d/mapping1"))
    done = divided.run("create-window", "dax0.0", "--size", "128M")
    assert done.status == ABSENT
    assert "one extent" in done.err
    assert divided.changes()[-1] == "daxctl destroy-device dax0.1"


def test_first_device_does_not_go_away(divided):
    done = divided.run("destroy-window", "dax0.0")
    assert done.status == USAGE
    assert "release" in done.err
    assert divided.changes() == []


@pytest.mark.parametrize("prefix", ("file:", ""))
def test_file_called_like_a_device_is_a_file(divided, prefix):
    """The device of that name was destroyed in its place."""
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    before = divided.changes()
    path = divided.folder / "dax0.1"
    assert divided.run("create-window", f"{prefix}{path}", "--heap", "4M").status == OK
    assert divided.run("destroy-window", f"{prefix}{path}", "--json").json()["did"] == [f"removed {path}"]
    assert not path.exists() and (divided.dev / "dax0.1").exists()
    assert divided.changes() == before


@pytest.mark.parametrize("name", ("{dev}/dax0.1", "dax:{dev}/dax0.1", "dax:dax0.1", "{folder}/link"))
def test_device_by_any_name(divided, name):
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    (divided.folder / "link").symlink_to(divided.dev / "dax0.1")
    assert divided.run("destroy-window", name.format(dev=divided.dev, folder=divided.folder)).status == OK
    assert divided.changes()[-1] == "daxctl destroy-device dax0.1"


def test_size_must_fit_the_mapping(divided):
    assert divided.run("create-window", "dax0.0", "--size", "1M").status == USAGE


def test_window_file(folder):
    path = folder / "w"
    done = merapi("create-window", f"file:{path}", "--heap", "64M", "--json")
    assert done.status == OK, done.err
    assert done.json()["bytes"] == path.stat().st_size
    assert merapi("info", path, "--json").json()["config"]["region_count"] == 64
    device = Process(binary("merapi-device"), "--model", "--window", path)
    try:
        device.wait_line("ready")
        done = merapi("destroy-window", path)
        assert done.status == BUSY
        assert str(device.pid) in done.err
    finally:
        device.end()
    assert merapi("destroy-window", path).status == OK
    assert not path.exists()


def test_other_files_are_not_destroyed(folder):
    path = folder / "letter"
    path.write_text("dear reader" * 1000)
    assert merapi("destroy-window", path).status == ABSENT
    assert path.exists()
