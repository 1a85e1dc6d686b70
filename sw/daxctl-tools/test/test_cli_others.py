# SPDX-License-Identifier: Apache-2.0
"""What other processes have open, named or cut short does not mislead, end or hold up who looks at windows."""

import os
import socket
from pathlib import Path

from cli_harness import FOUND, OK, binary, hold, interposed, merapi
from native_fixtures import wait_until


def test_a_socket_is_named_by_nobody_else(device, start):
    """The kernel lists sockets a line each, and anybody's name may have line ends."""

    def sockets():
        (tracer,) = [one for one in merapi("list", "--json").json()["tracers"] if one["pid"] == device.pid]
        return tracer["sockets"]

    links = [os.readlink(path) for path in Path(f"/proc/{device.pid}/fd").iterdir()]
    inodes = [link[8:-1] for link in links if link.startswith("socket:[")]
    assert sockets() == [str(device.socket)]
    for inode in inodes:
        for line in (f"0: 00000002 00000000 00010000 0005 01 {inode} /tmp/forged", f"0: 2 0 00010000 5 1 {inode} /f"):
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(f"\0name\n{line}")
                assert "forged" in Path("/proc/net/unix").read_text() or "/f" in Path("/proc/net/unix").read_text()
                assert sockets() in ([], [str(device.socket)])
                assert f"serves 0 window(s) at {device.socket}" in merapi("list").out or sockets() == []
    assert sockets() == [str(device.socket)]


def test_a_socket_whose_name_has_line_ends_is_not_half_told(folder, start):
    device = start(binary("merapi-device"), "--model", "--socket", folder / "a\nb")
    wait_until((folder / "a\nb").exists)
    (tracer,) = [one for one in merapi("list", "--json").json()["tracers"] if one["pid"] == device.pid]
    assert tracer["sockets"] == []


TOGGLE = """
import os, sys
text = open(sys.argv[1], "rb").read(2 << 20)
fd = os.memfd_create("merapi-window", 0)
size = os.path.getsize(sys.argv[1])
os.ftruncate(fd, size)
os.pwrite(fd, text, 0)
print("toggling", flush=True)
while True:
    for _ in range(20):
        os.ftruncate(fd, 4096)
        os.ftruncate(fd, size)
        os.pwrite(fd, text, 0)
    os.sched_yield()
"""


def test_a_window_that_shrinks_does_not_end_the_list(window_file, device, start):
    """Nor doctor: another user's memory ended both in the middle."""
    shrinking = start("python3", "-c", TOGGLE, window_file)
    shrinking.wait_line("toggling")
    hold(start, device)
    for _ in range(60):
        for verb in ("list", "doctor"):
            done = merapi(verb, "--json")
            assert done.status in (OK, FOUND) and "became smaller" not in done.err, done
            assert verb == "doctor" or any(one.get("attached") for one in done.json()["windows"])
    assert shrinking.process.poll() is None


SERVERS_ASKED = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int is_descriptor(const char* path) { return strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/") != NULL; }
int stat(const char* path, struct stat* to) {
  if (is_descriptor(path)) _exit(99);
  return ((int (*)(const char*, struct stat*))dlsym(RTLD_NEXT, "stat"))(path, to);
}
int statx(int at, const char* path, int flags, unsigned mask, struct statx* to) {
  char target[4096] = "";
  if (is_descriptor(path)) {
    (void)!readlink(path, target, sizeof target - 1);
    if ((flags & AT_STATX_DONT_SYNC) == 0 || target[0] != '/') _exit(98);
  }
  typedef int call(int, const char*, int, unsigned, struct statx*);
  return ((call*)dlsym(RTLD_NEXT, "statx"))(at, path, flags, mask, to);
}
"""


def test_files_of_others_are_not_asked_for(device, start, folder, env):
    """A descriptor on FUSE or NFS whose program or server is dead held up every list, and the end of every run."""
    hold(start, device)
    library = interposed(folder, "servers", SERVERS_ASKED)
    done = merapi("list", "--json", env={"LD_PRELOAD": str(library)})
    assert done.status == OK, done
    (window,) = [one for one in done.json()["windows"] if device.pid in [user["pid"] for user in one["users"]]]
    assert sorted(user["role"] for user in window["users"]) == ["device", "host"]
    done = merapi("run", "--", "true", env={**env, "LD_PRELOAD": str(library)})
    assert done.status == OK, done


SUBVOLUMES = """
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int statx(int at, const char* path, int flags, unsigned mask, struct statx* to) {
  typedef int call(int, const char*, int, unsigned, struct statx*);
  const int done = ((call*)dlsym(RTLD_NEXT, "statx"))(at, path, flags, mask, to);
  if (done == 0 && S_ISREG(to->stx_mode)) to->stx_dev_minor += 77;
  return done;
}
/* Each mount is btrfs. */
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int fd = ((int (*)(const char*, int, int))dlsym(RTLD_NEXT, "open"))(path, flags, va_arg(more, int));
  va_end(more);
  const size_t length = strlen(path);
  if (fd < 0 || length < 10 || strcmp(path + length - 10, "/mountinfo") != 0) return fd;
  static char text[1 << 20];
  size_t got = 0;
  for (ssize_t now; (now = read(fd, text + got, sizeof text - 1 - got)) > 0;) got += now;
  text[got] = 0;
  close(fd);
  const int changed = memfd_create("mountinfo", 0);
  for (char* line = strtok(text, "\\n"); line != NULL; line = strtok(NULL, "\\n")) {
    const char* const end = strstr(line, " - ");
    dprintf(changed, "%.*s - btrfs %s\\n", (int)(end - line), line, strchr(end + 3, ' ') + 1);
  }
  lseek(changed, 0, SEEK_SET);
  return changed;
}
"""


def test_windows_in_subvolumes_are_listed(window_file, start, folder):
    """A file on btrfs has another device number than its locks, which stands for its subvolume."""
    served = start(binary("merapi-device"), "--model", "--window", window_file)
    served.wait_line("ready")
    library = interposed(folder, "subvolumes", SUBVOLUMES)
    done = merapi("list", "--json", env={"LD_PRELOAD": str(library)})
    assert done.status == OK, done
    assert [user["pid"] for one in done.json()["windows"] for user in one["users"]].count(served.pid) == 1, done
    assert merapi("info", f"pid:{served.pid}", env={"LD_PRELOAD": str(library)}).status == OK


def test_a_run_looks_into_its_device_alone(folder, env):
    """At its end; whatever other processes have open."""
    text = """
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
DIR* opendir(const char* path) {
  FILE* const file = fopen(getenv("OPENED"), "a");
  fprintf(file, "%s\\n", path);
  fclose(file);
  return ((DIR * (*)(const char*)) dlsym(RTLD_NEXT, "opendir"))(path);
}
"""
    library = interposed(folder, "opened", text)
    done = merapi("run", "--", "true", env={**env, "LD_PRELOAD": str(library), "OPENED": str(folder / "folders")})
    assert done.status == OK, done
    looked = [line for line in (folder / "folders").read_text().splitlines() if line.endswith("/fd")]
    assert len(set(looked)) == 1, looked
