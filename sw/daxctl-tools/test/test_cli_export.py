# SPDX-License-Identifier: Apache-2.0
"""merapi export."""

import signal
import subprocess
from pathlib import Path

import pytest
from cli_harness import ABSENT, OK, ROOT, USAGE, binary, interposed, merapi


def decode(path, folder):
    """The dump through protoc and our schema: text of every field."""
    proto = ROOT / "sw/daxctl-tools/proto"
    with open(path, "rb") as dump:
        done = subprocess.run(
            ["protoc", f"--proto_path={proto}", "--decode=merapi.heapdump.HeapDump", "heapdump.proto"],
            stdin=dump,
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
        )
    return done.stdout


def test_export_heapdump(image, folder, device):
    dump = folder / "dump.binpb"
    done = merapi("export", image, dump, "--format", "heapdump", "--json")
    assert done.status == OK, done.err
    summary = done.json()
    text = decode(dump, folder)
    assert text.count("objects {") == summary["objects"]
    assert text.count("edges {") == summary["edges"]
    assert text.count("roots {") == summary["roots"]
    assert 'name: "immix"' in text
    starts = {line.split()[1] for line in text.splitlines() if line.startswith("  start:")}
    targets = {line.split()[1] for line in text.splitlines() if line.startswith("    objref:")} - {"0"}
    assert targets <= starts, "an edge leads to an object that is not in the dump"
    # All objects that a trace leaves marked: the greys and what the device finds.
    verified = merapi("verify", image, "--socket", device.socket, "--json").json()["runs"][0]["verify"]
    assert summary["objects"] > verified["expected_objects"]


def test_export_to_standard_output(image, folder):
    """-, as for other programs; it made a file of that name."""
    assert merapi("export", image, folder / "dump").status == OK
    with open(folder / "piped", "wb") as out:
        done = subprocess.run([binary("merapi"), "export", image, "-"], stdout=out, stderr=subprocess.PIPE, cwd=folder)
    assert done.returncode == OK, done
    assert (folder / "piped").read_bytes() == (folder / "dump").read_bytes()
    assert not (folder / "-").exists() and b" objects, " in done.stderr


def test_the_bitmap_of_an_image_is_not_to_be_chosen(image, folder):
    """It was ignored."""
    done = merapi("export", image, folder / "dump", "--bitmap", "1")
    assert done.status == USAGE
    assert "expected --bitmap with a window alone" in done.err and not (folder / "dump").exists()


def test_export_writes_nothing_when_it_fails(folder):
    bad = folder / "bad"
    bad.write_bytes(bytes(1 << 20))
    done = merapi("export", bad, folder / "dump")
    assert done.status == ABSENT
    assert sorted(p.name for p in folder.iterdir()) == ["bad"]


# Ends the process where it gives the file that it unpacks into its size, and says which file that is. A file system may
# have no files without a name.
KILLED = r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int open(const char* path, int flags, ...) {
  const int nameless = (flags & O_TMPFILE) == O_TMPFILE;
  if (nameless && getenv("KILLED_NAMED") != NULL) {
    errno = EOPNOTSUPP;
    return -1;
  }
  va_list more;
  va_start(more, flags);
  const mode_t mode = nameless || (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}

int ftruncate(int fd, off_t bytes) {
  char link[64], path[PATH_MAX] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (readlink(link, path, sizeof path - 1) < 0) return -1;
  FILE* told = fopen(getenv("KILLED_TOLD"), "we");
  fputs(path, told);
  fclose(told);
  kill(getpid(), SIGKILL);
  return (int)bytes;
}
"""


@pytest.mark.parametrize("named", [False, True])
def test_an_export_that_is_killed_leaves_nothing_behind(image, folder, named):
    """The file that it unpacks into had a name until the window was laid out."""
    told = folder / "told"
    env = {"LD_PRELOAD": str(interposed(folder, "killed", KILLED)), "KILLED_TOLD": str(told)}
    done = merapi("export", image, folder / "dump", env={**env, **({"KILLED_NAMED": "1"} if named else {})})
    assert done.status == -signal.SIGKILL, done
    unpacked = Path(told.read_text())
    try:
        assert not unpacked.exists()
    finally:
        unpacked.unlink(missing_ok=True)
    assert unpacked.name.startswith("merapi-") == named
