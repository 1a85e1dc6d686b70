# SPDX-License-Identifier: Apache-2.0
"""The record of windows, by which they are made again after a reboot: against a mock sysfs tree."""

import json
import os
import shutil
import subprocess

import pytest
from cli_harness import ABSENT, OK, SYSTEM, interposed, merapi
from divided_expander import SHRINK, SUBDIVIDE, another_region


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
