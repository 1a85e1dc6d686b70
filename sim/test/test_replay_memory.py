# SPDX-License-Identifier: Apache-2.0
"""The copy of a window that merapi-replay, merapi-age and merapi-strip make in memory: wherever there is room, and
nothing is left of it, however they end."""

import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
import saved_windows
from device_processes import binary
from native_fixtures import OWN_MOUNTS

SHM = Path("/dev/shm")


@pytest.fixture
def image(folder):
    return saved_windows.unpack("javac", folder)


def commands(image):
    copy = image.parent / "copy.img"
    return [
        [binary("merapi-replay"), image, "--check"],
        [binary("merapi-age"), image, copy],
        [binary("merapi-strip"), image, copy],
    ]


def with_mounts(script, command):
    """Run `command` after the shell's `script` has mounted what it wants, seen by this command alone."""
    line = ["sh", "-e", "-c", script + '; exec "$@"', "sh", *map(str, command)]
    return subprocess.run([*OWN_MOUNTS, *line], capture_output=True, text=True, timeout=120)


@pytest.fixture
def mounts():
    done = with_mounts("mount -t tmpfs tmpfs /mnt", ["true"])
    if done.returncode:
        pytest.skip(f"no mounts of one's own here: {done.stderr.strip()}")


@pytest.mark.parametrize("which", range(3))
def test_a_small_dev_shm_is_no_bound(which, mounts, tmp_path):
    """The size of /dev/shm in a container (64 MB) has nothing to do with its memory."""
    image = saved_windows.unpack("javac", tmp_path)
    done = with_mounts("mount -t tmpfs -o size=64k tmpfs /dev/shm", commands(image)[which])
    assert done.returncode == 0, done


@pytest.mark.parametrize("which", range(3))
def test_too_little_memory_is_told_before_it_is_used(image, which, mounts, folder):
    meminfo = folder / "meminfo"
    meminfo.write_text("MemTotal: 9999999 kB\nMemAvailable: 700 kB\nSwapFree: 100 kB\n")
    done = with_mounts(f"mount --bind {meminfo} /proc/meminfo", commands(image)[which])
    assert done.returncode == 3 and not done.stdout, done
    assert "bytes of memory for " in done.stderr and "found 819200;" in done.stderr


GROUPS = {
    "second version": (
        "0::/some/where",
        "some",
        {"memory.max": "2000000", "memory.current": "1900000",
         "memory.stat": "anon 5\ninactive_file 30000\nactive_file 4000"},
    ),
    "first version": (
        "7:hugetlb,memory:/some/where",
        "hugetlb,memory/some",
        {"memory.limit_in_bytes": "2000000", "memory.usage_in_bytes": "1900000",
         "memory.stat": "inactive_file 1\nactive_file 2\ntotal_inactive_file 30000\ntotal_active_file 4000"},
    ),
    "first version in a container": (
        "7:memory:/of/the/host",
        "memory",
        {"memory.limit_in_bytes": "2000000", "memory.usage_in_bytes": "1866000", "memory.stat": "total_cache 1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", GROUPS)
def test_a_container_s_memory_counts(image, mounts, folder, which):
    own, place, files = GROUPS[which]
    bound = folder / "group" / place
    (bound / "where").mkdir(parents=True)
    (bound / "where" / "memory.max").write_text("max\n")
    (bound / "where" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (folder / "self").write_text(f"1:cpu:/elsewhere\n{own}\n")
    for name, text in files.items():
        (bound / name).write_text(text + "\n")
    script = f"mount --bind {folder}/group /sys/fs/cgroup; mount --bind {folder}/self /proc/$$/cgroup"
    done = with_mounts(script, commands(image)[0])
    assert done.returncode == 3 and "found 134000;" in done.stderr, done


def test_a_killed_replay_leaves_no_memory(folder):
    image = saved_windows.unpack("javac", folder)
    before, end = set(SHM.glob("merapi-replay*")), time.monotonic() + 60
    killed = False
    while not killed:
        # Some tenths of a second; one that is over before it is looked at says nothing.
        command = [binary("merapi-replay"), image, "--pause-every-us", "1", "--lines", "--check"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and not killed:
            assert time.monotonic() < end, "no window was mapped"
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            if "merapi-replay" in maps.replace(binary("merapi-replay"), ""):
                process.send_signal(signal.SIGKILL)
                killed = process.wait(10) == -signal.SIGKILL
    assert set(SHM.glob("merapi-replay*")) == before


@pytest.mark.parametrize("which", range(4))
def test_limits_of_memory_are_told(image, which):
    """Below every limit (ulimit -d) a program does its work or says what it lacked; it named exceptions."""
    told = []
    command = [*commands(image), [binary("merapi"), "export", image, image.parent / "copy.img"]][which]
    for mebibytes in (1, 2, 4, 6, 8, 10, 12, 16, 24):
        limit = mebibytes << 20
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),  # noqa: B023
        )
        assert done.returncode in (0, 3, 6), (mebibytes, done)
        if done.returncode:
            assert "bad_alloc" not in done.stderr and ("ulimit" in done.stderr or "cannot" in done.stderr), done
            told.append(done.stderr)
            assert not (image.parent / "copy.img").exists()
        (image.parent / "copy.img").unlink(missing_ok=True)
    assert any("expected more memory" in text for text in told), told
