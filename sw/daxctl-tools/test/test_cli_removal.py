# SPDX-License-Identifier: Apache-2.0
"""merapi destroy-window of files that somebody uses or whose load was cut off, and what an interrupted load leaves."""

import signal
import subprocess

import pytest
from cli_harness import ABSENT, BUSY, OK, binary, interposed, merapi
from native_fixtures import OWN_PROCESSES, wait_until

pytestmark = pytest.mark.usefixtures("nothing_ignored")

# Stays in the middle of a load: where the window's magic is taken away, and the version behind it is not.
LOADS_FOR_EVER = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  uint64_t identity[2] = {1};
  if (pread(fd, identity, sizeof identity, 0) == sizeof identity && identity[0] == 0 && identity[1] != 0 &&
      write(2, "loading\\n", 8) == 8)
    for (;;) pause();
  return ((int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate"))(fd, mode, offset, bytes);
}
"""


def test_a_window_whose_device_is_not_seen_is_not_removed(window_file, start):
    """One of another container or user: /proc says nothing of it, its lock does."""
    served = start(binary("merapi-device"), "--model", "--window", window_file)
    served.wait_line("ready")
    command = [*OWN_PROCESSES, binary("merapi"), "destroy-window", window_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == BUSY, done
    assert f"expected nobody to use {window_file}, found a device's lock" in done.stderr
    assert window_file.exists()
    served.end()
    subprocess.run(command, check=True, timeout=60)
    assert not window_file.exists()


@pytest.fixture
def endless_load(image, folder, start):
    """A load into a file, which does not end."""
    library = interposed(folder, "endless", LOADS_FOR_EVER)

    def begin(file, *flags):
        load = start(binary("merapi"), "load", image, file, *flags, env={"LD_PRELOAD": str(library)})
        wait_until(lambda: "loading\n" in load.errors or load.process.poll() is not None)
        assert file.exists()
        return load.process

    return begin


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_a_load_made_goes_with_it(endless_load, folder, number):
    """It may be gigabytes of memory."""
    load = endless_load(folder / "made", "--create")
    load.send_signal(number)
    assert load.wait(30) == -number
    assert not (folder / "made").exists()


def test_a_window_that_was_there_stays(endless_load, window_file):
    load = endless_load(window_file, "--create")
    load.send_signal(signal.SIGINT)
    assert load.wait(30) == -signal.SIGINT
    assert window_file.exists()


def test_a_window_whose_load_was_cut_off_is_removed(endless_load, window_file, start):
    """No other verb takes it for a window."""
    endless_load(window_file).kill()
    done = merapi("info", window_file)
    assert done.status == ABSENT, done
    served = start(binary("merapi-device"), "--model", "--window", window_file)
    served.wait_line("ready")
    assert merapi("destroy-window", window_file).status == BUSY
    served.end()
    assert merapi("destroy-window", window_file).status == OK
    assert not window_file.exists()


@pytest.mark.parametrize("at, found", [(8, b"\xff\xff"), (0, b"something")])
def test_what_is_no_window_is_not_removed(window_file, at, found):
    with open(window_file, "r+b") as file:
        file.write(bytes(8))
        file.seek(at)
        file.write(found)
    before = window_file.read_bytes()
    assert merapi("destroy-window", window_file).status == ABSENT
    assert window_file.read_bytes() == before
