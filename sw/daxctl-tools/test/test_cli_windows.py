# SPDX-License-Identifier: Apache-2.0
"""merapi create-window and destroy-window, and their record: against a mock sysfs tree; window files for real."""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys

import pytest
from cli_harness import (
    ABSENT,
    BUSY,
    DENIED,
    OK,
    SYSTEM,
    USAGE,
    MockSystem,
    Process,
    binary,
    interposed,
    merapi,
    merapi_of_nobody,
)

SUBDIVIDE = """
case "$1" in
  create-device)
    d=$(dirname $(readlink -f $SYS/bus/dax/devices/dax0.0))/dax0.1
    mkdir -p $d/mapping0 $EXTRA; : > $d/mapping; echo $5 > $d/size; echo 2097152 > $d/align
    echo 0x118000000 > $d/resource
    ln -s $SYS/bus/dax/drivers/device_dax $d/driver; ln -s $d $SYS/bus/dax/devices/dax0.1; : > $DEV/dax0.1;;
  destroy-device) rm $SYS/bus/dax/devices/dax0.1 $DEV/dax0.1;;
esac
"""


# As the kernel, which lets a device shrink that nobody has.
SHRINK = """
[ "$1" != reconfigure-device ] || echo $3 > $SYS/bus/dax/devices/$4/size
"""


def divide(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0")
    system.free = "devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax_region/available_size"
    system.write(system.free, 256 << 20)
    system.program("daxctl", SUBDIVIDE + SHRINK)
    return system


@pytest.fixture
def divided(system):
    return divide(system)


def test_second_window_and_its_end(divided):
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--json")
    assert done.status == OK, done.err
    assert done.json()["window"] == f"dax:{divided.dev}/dax0.1"
    assert divided.changes() == [f"daxctl create-device -r 0 -s {128 << 20} -a 2097152"]
    assert divided.run("destroy-window", "dax0.1").status == OK
    assert divided.changes()[1:] == ["daxctl disable-device dax0.1", "daxctl destroy-device dax0.1"]


def test_windows_are_made_again_after_a_reboot(divided):
    """The kernel has forgotten the second device; provision makes it of the record, once."""
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    record = divided.folder / "state/windows.json"
    assert json.loads(record.read_text()) == {"0x1": [128 << 20]}
    (divided.sys / "bus/dax/devices/dax0.1").unlink()
    (divided.dev / "dax0.1").unlink()
    shutil.rmtree((divided.sys / "bus/dax/devices/dax0.0").resolve().parent / "dax0.1")
    done = divided.run("provision", "mem0", "--json")
    assert done.status == OK, done.err
    assert done.json()["further_windows"] == [f"dax:{divided.dev}/dax0.1"]
    assert done.json()["did"] == [f"daxctl create-device -r 0 -s {128 << 20} -a 2097152"]
    again = divided.run("provision", "mem0", "--json").json()
    assert not again["changed"] and again["further_windows"] == done.json()["further_windows"]
    # What was taken away on purpose stays away.
    assert divided.run("destroy-window", "dax0.1").status == OK
    assert json.loads(record.read_text()) == {}
    assert not divided.run("provision", "mem0", "--json").json()["changed"]


# As SUBDIVIDE, under the next number, and as slow as a kernel.
NEXT = """
[ "$1" = create-device ] || exit 0
sleep 0.5
n=1; until mkdir $DEV/taken.$n; do n=$((n + 1)); done 2>/dev/null
d=$(dirname $(readlink -f $SYS/bus/dax/devices/dax0.0))/dax0.$n
mkdir -p $d/mapping0; echo $5 > $d/size; echo 2097152 > $d/align; echo 0x118000000 > $d/resource
ln -s $SYS/bus/dax/drivers/device_dax $d/driver; : > $DEV/dax0.$n; ln -s $d $SYS/bus/dax/devices/dax0.$n
sleep 0.5
"""


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


def test_release_forgets_the_windows(divided):
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    assert divided.run("release", "mem0").status == OK
    assert json.loads((divided.folder / "state/windows.json").read_text()) == {}


def test_damaged_record_is_told(divided):
    record = divided.folder / "state/windows.json"
    record.parent.mkdir()
    record.write_text('{"0x1": "many"}')
    done = divided.run("provision", "mem0")
    assert done.status == ABSENT
    assert str(record) in done.err and "remove it" in done.err


@pytest.mark.parametrize(
    "text", ("", "{", "[" * 10000, "null", '{"0x1": [-1]}', '{"0x1": [0]}', '{"0x1": [2097153]}', '{"0x1": ["2M"]}')
)
def test_damaged_record_is_told_before_anything_is_changed(divided, text):
    """A window was made and left out of the record, or gone and still in it; the status said that nothing worked."""
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    before = divided.changes()
    record = divided.folder / "state/windows.json"
    record.write_text(text)
    for verb in (["create-window", "dax0.0", "--size", "64M"], ["destroy-window", "dax0.1"], ["release", "mem0"]):
        done = divided.run(*verb)
        assert done.status == ABSENT, (verb, done)
        assert str(record) in done.err and "remove it" in done.err
    assert divided.changes() == before
    assert record.read_text() == text
    record.unlink()
    assert divided.run("destroy-window", "dax0.1").status == OK


# Tells, in order, which files and folders (their inodes) are written through to the disk and given another name, and
# lets either fail for files.
DISK = r"""
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int fails(const char* call) {
  const char* failing = getenv("DISK_FAILS");
  if (failing == NULL || strcmp(failing, call) != 0) return 0;
  errno = strcmp(call, "fsync") == 0 ? EIO : ENOSPC;
  return 1;
}

static void tell(const char* call, const struct stat* status) {
  FILE* told = fopen(getenv("DISK_TOLD"), "ae");
  fprintf(told, "%s %s %lu\n", call, S_ISDIR(status->st_mode) ? "folder" : "file", (unsigned long)status->st_ino);
  fclose(told);
}

int fsync(int fd) {
  struct stat status;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && fails("fsync")) return -1;
  tell("fsync", &status);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int rename(const char* from, const char* to) {
  struct stat status;
  if (fails("rename")) return -1;
  if (stat(from, &status) == 0) tell("rename", &status);
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
"""


@pytest.fixture
def disk(divided):
    """disk(fails): what the command then says to the disk, as `tell` has it, is in divided.told."""
    library, divided.told = interposed(divided.folder, "disk", DISK), divided.folder / "told"

    def run(*arguments, fails=""):
        divided.told.write_text("")
        more = {"LD_PRELOAD": str(library), "DISK_TOLD": str(divided.told), "DISK_FAILS": fails}
        return merapi(*arguments, env={**divided.env, **more})

    return run


def test_record_is_on_the_disk_before_it_has_its_name(divided, disk):
    """A crash left an empty record, or an old one though the new one had been told of."""
    assert disk("create-window", "dax0.0", "--size", "128M").status == OK
    record = divided.folder / "state/windows.json"
    file, folder = record.stat().st_ino, record.parent.stat().st_ino
    told = divided.told.read_text().splitlines()
    assert told == [f"fsync file {file}", f"rename file {file}", f"fsync folder {folder}"]
    assert record.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("fails", "words"), (("fsync", "Input/output error"), ("rename", "No space left on device")))
def test_a_record_that_was_not_written_is_the_old_one(divided, disk, fails, words):
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    record = divided.folder / "state/windows.json"
    before = record.read_text()
    done = disk("destroy-window", "dax0.1", fails=fails)
    assert done.status != OK
    assert f"expected to write {record}, found: {words}" in done.err
    assert record.read_text() == before
    assert sorted(os.listdir(record.parent)) == ["windows.json", "windows.json.lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk_leaves_the_old_record(divided):
    state = divided.folder / "state"
    state.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", state], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no mounts here: {mounted.stderr}")
    try:
        assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
        before = (state / "windows.json").read_text()
        with open(state / "other", "wb", 0) as other, pytest.raises(OSError, match="No space"):
            while True:
                other.write(bytes(4096))
        done = divided.run("destroy-window", "dax0.1")
        assert done.status == SYSTEM
        assert f"expected to write {state / 'windows.json'}, found: No space left on device" in done.err
        assert (state / "windows.json").read_text() == before
        assert sorted(os.listdir(state)) == ["other", "windows.json", "windows.json.lock"]
    finally:
        subprocess.run(["umount", state], check=True)


def test_record_that_cannot_be_read_is_told(divided):
    """It was taken for an empty one, and replaced."""
    record = divided.folder / "state/windows.json"
    record.parent.mkdir()
    record.symlink_to(record)
    done = divided.run("create-window", "dax0.0", "--size", "128M")
    assert done.status == ABSENT
    assert f"expected to read the record of windows at {record}, found: Too many levels of symbolic links" in done.err
    assert divided.changes() == [] and record.is_symlink()
    record.unlink()
    record.mkdir()
    done = divided.run("create-window", "dax0.0", "--size", "128M")
    assert done.status == ABSENT and str(record) in done.err
    assert divided.changes() == []


def test_record_beside_the_caller(divided, tmp_path):
    """A name without a folder was never written."""
    env = {**divided.env, "MERAPI_STATE": "record.json"}
    done = merapi("create-window", "dax0.0", "--size", "128M", env=env, cwd=tmp_path)
    assert done.status == OK and not done.err, done
    assert json.loads((tmp_path / "record.json").read_text()) == {"0x1": [128 << 20]}


def test_window_that_stays_in_the_record_is_told(divided, disk):
    """The status said that it was gone for good, and the message that it was not made again."""
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    record = divided.folder / "state/windows.json"
    done = disk("destroy-window", "dax0.1", "--json", fails="rename")
    assert done.status == SYSTEM, done
    assert (
        f"expected to write {record}, found: No space left on device; the window is gone, but the next "
        "'merapi provision'" in done.err
    )
    assert "after a reboot" not in done.err
    assert done.json()["did"][-1] == "daxctl destroy-device dax0.1"
    assert json.loads(record.read_text()) == {"0x1": [128 << 20]}
    shutil.rmtree((divided.sys / "bus/dax/devices/dax0.0").resolve().parent / "dax0.1")
    assert divided.run("provision", "mem0", "--json").json()["further_windows"] == [f"dax:{divided.dev}/dax0.1"]
    assert divided.run("destroy-window", "dax0.1").status == OK
    assert json.loads(record.read_text()) == {}


def test_windows_of_a_released_region_that_stay_in_the_record_are_told(divided, disk):
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    done = disk("release", "mem0", "--json", fails="rename")
    assert done.status == SYSTEM, done
    assert "the next 'merapi provision' makes its further windows again" in done.err
    assert "after a reboot" not in done.err
    assert done.json()["did"][-1] == "cxl destroy-region region0"


def test_record_that_cannot_be_written_leaves_nothing_behind(divided, disk):
    done = disk("create-window", "dax0.0", "--size", "128M", fails="rename")
    assert done.status == OK
    assert "not made again after a reboot" in done.err and "Success" not in done.err
    assert os.listdir(divided.folder / "state") == ["windows.json.lock"]


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


def another_region(system, mode="ram", **more):
    """region1, with dax1.0 unless it is persistent, in the second half of the expander; `more`: elsewhere."""
    where = {"place": 512 << 20, "decoder": 1, "start": 0x200000000} | more
    system.region("region1", [where.pop("memory", "mem0")], mode=mode, **where)
    if mode == "ram":
        system.dax("dax1.0", region="region1", start=0x200000000)
        system.write("devices/platform/ACPI0017:00/root0/decoder0.0/region1/dax_region0/dax_region/available_size", 0)


def test_room_is_not_taken_from_another_region(divided):
    """The other device became smaller, and then there was no room for the window all the same."""
    another_region(divided)
    divided.write(divided.free, 0)
    done = divided.run("create-window", "dax0.0", "--size", "128M", "--shrink", "dax1.0")
    assert done.status == USAGE and "found dax1.0 of another one" in done.err
    assert divided.changes() == []


@pytest.mark.parametrize("target", ["dax1.0", "region1"])
def test_windows_are_made_again_in_their_own_region_alone(divided, target):
    """Those of the other region of the expander were carved out of this one."""
    another_region(divided)
    assert divided.run("create-window", "dax0.0", "--size", "128M").status == OK
    before = divided.changes()
    done = divided.run("provision", target, "--json")
    assert done.status == OK and not done.json()["changed"] and done.json()["further_windows"] == [], done
    assert divided.changes() == before
    # In a region that does not begin with the expander's first byte they are made again, too.
    record = divided.folder / "state/windows.json"
    record.write_text(json.dumps({"0x1": [128 << 20], "0x1@0x20000000": [64 << 20]}))
    divided.program("daxctl", SUBDIVIDE.replace("dax0.", "dax1.").replace("0x118000000", "0x21c000000") + SHRINK)
    done = divided.run("provision", target, "--json")
    assert done.json()["further_windows"] == [f"dax:{divided.dev}/dax1.1"], done
    assert divided.run("release", "region1").status == OK
    assert json.loads(record.read_text()) == {"0x1": [128 << 20]}


@pytest.mark.parametrize("number", ["0x0", ""])
def test_expanders_without_a_number_do_not_share_a_record(divided, number):
    """All of them had the number 0: the windows of one were made on another."""
    divided.write("devices/pci0000:0c/0000:0d:00.0/mem0/serial", number)
    done = divided.run("create-window", "dax0.0", "--size", "128M")
    assert done.status == OK and "expected an expander with a serial number" in done.err, done
    assert "not made again after a reboot" in done.err
    assert not (divided.folder / "state/windows.json").exists()


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
