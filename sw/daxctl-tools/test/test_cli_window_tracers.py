# SPDX-License-Identifier: Apache-2.0
"""What becomes of a tracer's PCI function when a window is made beside what it reaches: against a mock sysfs tree."""

import json
import os

import pytest
from cli_harness import BUSY, DENIED, OK, MockSystem, interposed, merapi, merapi_of_nobody
from divided_expander import NEXT, SHRINK, divide

TAKE = ("create-window", "dax0.0", "--size", "128M", "--shrink", "dax0.0")


def test_tracer_is_bounded_to_what_is_left(divided):
    divided.write(divided.free, 0)
    bounds = divided.function()
    done = divided.run(*TAKE, "--json")
    assert done.status == OK, done.err
    assert (bounds("window_offset"), bounds("window_bytes")) == (0, 384 << 20)
    assert "bounded merapi0 to 384 MiB from 0 B of mem0 on (dax0.0)" in done.json()["did"]
    assert done.json()["found"] == []


def test_nothing_is_taken_from_a_tracer_in_use(divided):
    """It went on reaching the new window, and nobody was told."""
    divided.write(divided.free, 0)
    bounds = divided.function()
    with open(divided.dev / "merapi0"):
        done = divided.run(*TAKE)
    assert done.status == BUSY
    assert f"{divided.dev}/merapi0, a tracer that reaches what is to be taken from dax0.0, found" in done.err
    assert str(os.getpid()) in done.err
    # Nor for a window that is made again.
    record = divided.folder / "state/windows.json"
    record.write_text(json.dumps({"0x1": [128 << 20]}))
    with open(divided.dev / "merapi0"):
        assert divided.run("provision", "mem0").status == BUSY
    assert divided.changes() == [] and bounds("window_bytes") == 512 << 20


def test_nothing_is_taken_from_a_tracer_that_is_not_ours_to_bound(folder):
    system = divide(MockSystem(folder))
    system.write(system.free, 0)
    system.function()
    if os.geteuid() != 0:
        (system.sys / "class/misc/merapi0/device/window_bytes").chmod(0o444)
    done = merapi_of_nobody(folder, *TAKE, env=system.env)
    assert done.status == DENIED
    assert "expected to bound merapi0" in done.err and "Permission denied" in done.err
    assert system.changes() == []


def test_tracer_of_another_window_is_left(divided):
    """It was bounded to the device that gave the room, whatever it traced before."""
    bounds = divided.function()
    assert divided.run("create-window", "dax0.0", "--size", "64M").status == OK
    divided.write("devices/pci0000:0c/0000:0d:00.1/window_offset", 384 << 20)
    divided.write("devices/pci0000:0c/0000:0d:00.1/window_bytes", 64 << 20)
    divided.write("bus/dax/devices/dax0.0/size", 384 << 20)
    divided.write(divided.free, 0)
    divided.program("daxctl", SHRINK + NEXT.replace("0x118000000", "0x110000000"))
    (divided.dev / "taken.1").mkdir()
    with open(divided.dev / "merapi0"):
        done = divided.run(*TAKE, "--json")
    assert done.status == OK, done.err
    assert f"daxctl reconfigure-device -s {256 << 20} dax0.0" in divided.changes()
    assert (bounds("window_offset"), bounds("window_bytes")) == (384 << 20, 64 << 20)
    assert done.json()["found"] == []


def test_a_window_of_free_room_is_no_tracer_s(divided):
    """One that nobody had bounded since its driver was loaded went on reaching the new window, in use or not."""
    divided.write("bus/dax/devices/dax0.0/size", 384 << 20)
    bounds = divided.function()
    with open(divided.dev / "merapi0"):
        done = divided.run("create-window", "dax0.0", "--size", "128M")
    assert (
        done.status == BUSY and f"{divided.dev}/merapi0, a tracer that reaches the room of the new window" in done.err
    )
    assert divided.changes()[-1] == "daxctl destroy-device dax0.1" and not (divided.dev / "dax0.1").exists()
    assert bounds("window_bytes") == 512 << 20 and not (divided.folder / "state/windows.json").exists()
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--json")
    assert done.status == OK and (bounds("window_offset"), bounds("window_bytes")) == (0, 384 << 20), done
    assert "bounded merapi0 to 384 MiB from 0 B of mem0 on (dax0.0)" in done.json()["did"]


def test_tracer_traces_nothing_of_a_window_that_is_gone(divided):
    bounds = divided.function()
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    assert divided.run("provision", "dax0.1").status == OK
    place = (384 << 20, 128 << 20)
    assert (bounds("window_offset"), bounds("window_bytes")) == place
    with open(divided.dev / "merapi0"):
        done = divided.run("destroy-window", "dax0.1")
    assert done.status == BUSY and "merapi0, a tracer that reaches dax0.1, found" in done.err
    assert (divided.dev / "dax0.1").exists() and (bounds("window_offset"), bounds("window_bytes")) == place
    done = divided.run("destroy-window", "dax0.1", "--json")
    assert done.json()["did"] == [
        "bounded merapi0 to nothing",
        "daxctl disable-device dax0.1",
        "daxctl destroy-device dax0.1",
    ]
    assert bounds("window_bytes") == 0


# Somebody opens the tracer between the look at its users and the bound.
OPENED = r"""
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int fd, const void* data, size_t bytes) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  if (strstr(path, "/window_bytes") != NULL) {
    errno = EBUSY;
    return -1;
  }
  return ((ssize_t (*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write"))(fd, data, bytes);
}
"""


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("why", ["opened", "place"])
def test_tracer_that_was_not_bounded_is_told(divided, why, as_json):
    """It reached the new window, with status 0 and without a word."""
    divided.write(divided.free, 0)
    divided.function()
    env = dict(divided.env)
    if why == "opened":
        env["LD_PRELOAD"] = str(interposed(divided.folder, "opened", OPENED))
        told = "tracer merapi0: not bounded to 384 MiB from 0 B of mem0 on (dax0.0): Device or resource busy"
    else:
        ((divided.sys / "bus/cxl/devices/decoder2.0").resolve() / "dpa_resource").unlink()
        told = "tracer merapi0: left as it is: where in its expander dax0.0 lies cannot be told"
    done = merapi(*TAKE, *(["--json"] if as_json else []), env=env)
    assert done.status == OK, done.err
    found = done.json()["found"] if as_json else done.out.splitlines()[:-1]
    assert len(found) == 1 and found[0].startswith(told if as_json else f"found  {told}"), done.out
