# SPDX-License-Identifier: Apache-2.0
"""The device process as hosts meet it: many windows, dead hosts, dead devices."""

import fcntl
import os
import pwd
import resource
import shutil
import signal
import socket as sockets
import struct
import subprocess
import sys
import time

import pytest
from device_processes import binary, finish, processor_seconds
from native_fixtures import stop_process, wait_until

# ------------------------------------------------------------------ tracing


@pytest.mark.parametrize("options", [[], ["--strict"], ["--strict", "--stack-entries", "4", "--no-spill"]])
def test_many_windows_at_once(start, probes, folder, options):
    device = start("--socket", folder / "s", *options)
    device.wait_event("ready")
    hosts = [probes(f"device:{folder}/s", "--seed", i, "--cycles", 3, "--pauses", 3) for i in range(1, 6)]
    for host in hosts:
        code, result = finish(host)
        assert code == 0, result
    wait_until(lambda: device.maps_windows() == 0)
    assert device.stop() == 0


def test_window_file(start, probes, folder):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    for seed in (1, 2):  # a file outlives its hosts
        code, result = finish(probes(f"file:{folder}/w", "--seed", seed, "--cycles", 2))
        assert code == 0, result
    assert device.stop() == 0


def test_coherence_mode_reaches_hosts(start, probes, folder):
    device = start("--socket", folder / "s", "--coherence", "non-coherent")
    device.wait_event("ready")
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 3 and "coherence" in result["what"], result


def test_hosts_that_come_while_the_device_has_no_processor(start, probes, folder):
    """Those beyond 65 were told that it does not answer."""
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    stop_process(device.process.pid)
    hosts = [probes(f"device:{folder}/s", "--seed", i) for i in range(100)]
    time.sleep(2)
    device.process.send_signal(signal.SIGCONT)
    for host in hosts:
        code, result = finish(host)
        assert code == 0, result


# --------------------------------------------------------------- dead hosts


def test_host_killed_while_tracing(start, probes, folder):
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    hosts = [probes(f"device:{folder}/s", "--hold", "--seed", i) for i in range(3)]
    for host in hosts:
        assert host.stdout.readline() == "tracing\n"
    assert device.maps_windows() >= 3
    for host in hosts:
        host.kill()
    for _ in hosts:
        assert device.wait_event("ended", 10)["context"]["end"] == "host gone"
    wait_until(lambda: device.maps_windows() == 0)
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result


def test_host_killed_while_the_device_spins(start, probes, folder):
    """A device that looks for work without sleeping looks for its host too."""
    device = start("--socket", folder / "s", "--spin-us", 60_000_000)
    device.wait_event("ready")
    host = probes(f"device:{folder}/s", "--hold")
    assert host.stdout.readline() == "tracing\n"
    host.kill()
    assert device.wait_event("ended", 10)["context"]["end"] == "host gone"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_socket_of_another_user_is_told_as_such(start, folder):
    """The device is there: starting one at the same socket would not help."""
    start("--model", "--socket", folder / "s").wait_event("ready")
    folder.chmod(0o755)
    (folder / "s").chmod(0o755)
    probe = shutil.copy(binary("device_probe"), folder / "probe")
    if not os.access(probe, os.X_OK):
        pytest.skip(f"programs may not be run in {folder}")
    nobody = pwd.getpwnam("nobody")
    done = subprocess.run(
        [probe, f"device:{folder / 's'}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
    )
    assert done.returncode != 0
    assert "found: Permission denied; it is another user's" in done.stdout, done


def test_host_that_says_nothing_delays_nobody(start, probes, folder):
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    silent = sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    silent.connect(str(folder / "s"))
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    silent.close()


def silent_hosts(path, count):
    """Connections that say nothing; a full backlog is waited for."""
    hosts = [sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) for _ in range(count)]
    for host in hosts:
        host.connect(str(path))
        host.settimeout(20)
    return hosts


def test_silent_hosts_are_bounded_and_given_up(start, probes, folder):
    """Each held a descriptor as long as it liked, until there were none for others."""
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    before = len(os.listdir(f"/proc/{device.process.pid}/fd"))
    silent = silent_hosts(folder / "s", 300)
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    assert len(os.listdir(f"/proc/{device.process.pid}/fd")) - before < 80
    begun = time.monotonic()
    for host in silent:  # the last ones too, in their time
        assert host.recv(64) == b""
    assert time.monotonic() - begun < 15
    wait_until(lambda: len(os.listdir(f"/proc/{device.process.pid}/fd")) == before)
    wait_until(lambda: any("expected a host's hello within 5 s" in line for line in device.log.all))
    assert not any("Too many open files" in line for line in device.log.all)
    assert device.stop() == 0


def test_silent_hosts_take_no_descriptor_from_others(start, probes, folder):
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    used = len(os.listdir(f"/proc/{device.process.pid}/fd"))
    hard = resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE, (used + 8, hard))
    silent = silent_hosts(folder / "s", 30)
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    # Dropped to make room they are not told of; so they are at their deadline.
    assert not any("expected a host's hello" in line for line in device.log.all), "it waited for the silent ones"
    for host in silent:
        host.close()


def test_a_host_that_takes_its_time(start, folder):
    """Who says hello within the time is served, however many came and went meanwhile, and whenever the device runs."""
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    (slow,) = silent_hosts(folder / "s", 1)
    others = silent_hosts(folder / "s", 40)
    time.sleep(1)
    for host in others:
        host.close()
    stop_process(device.process.pid)
    memory = os.memfd_create("merapi-window", os.MFD_ALLOW_SEALING)
    os.truncate(memory, 64 << 20)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    hello = struct.pack("<8sHHI", b"MRPHELLO", 1, 0, 0)
    sockets.send_fds(slow, [hello], [memory])
    os.close(memory)
    time.sleep(6)
    device.process.send_signal(signal.SIGCONT)
    magic, status, pid = struct.unpack("<8siI", slow.recv(64))
    assert (magic, status, pid) == (b"MRPHELLO", 0, device.process.pid)
    device.wait_event("began")
    slow.close()
    device.wait_event("ended")


# Comes and goes; with a message it is refused, without one nobody is told.
VISITS = """
import socket, sys
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as host:
        try:
            host.connect(sys.argv[1])
            host.send(sys.argv[2].encode())
        except OSError:
            pass
"""


@pytest.mark.parametrize("message", ["", "no hello"])
def test_hosts_without_end_do_not_keep_it_from_signals(start, folder, message):
    """It took one after the other as long as there was one, and nothing but SIGKILL ended it."""
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    visitors = [subprocess.Popen([sys.executable, "-c", VISITS, folder / "s", message]) for _ in range(3)]
    try:
        time.sleep(1)
        assert device.status() == []
        assert device.stop() == 0
    finally:
        for visitor in visitors:
            visitor.kill()
            visitor.wait()


def test_out_of_descriptors(start, probes, folder):
    """Hosts wait for a descriptor; the device neither spins nor fills its log, and serves those it has."""
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    served = probes(f"device:{folder}/s", "--cycles", 40, "--linger-ms", 50)
    device.wait_event("began")
    used = len(os.listdir(f"/proc/{device.process.pid}/fd"))
    hard = resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE, (used + 2, hard))
    waiting = [sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) for _ in range(8)]
    for host in waiting:
        host.connect(str(folder / "s"))
    wait_until(lambda: any("Too many open files" in line for line in device.log.all))
    seconds = processor_seconds(device.process)
    time.sleep(2)
    # The window that is served costs time, too.
    assert processor_seconds(device.process) - seconds < 0.5
    assert len(device.log.all) < 100, device.log.all[-3:]
    code, result = finish(served)
    assert code == 0, result
    resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    for host in waiting:
        host.close()
    assert device.stop() == 0
    assert sum("Too many open files" in line for line in device.log.all) <= 2, device.log.all


def test_the_last_descriptors_refuse_nobody(start, probes, folder):
    """However many are left, a host waits until there are enough for all of its window."""
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    device.wait_event("ended")  # its window is unmapped before its connection is closed
    used = len(os.listdir(f"/proc/{device.process.pid}/fd"))
    hard = resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE)[1]
    for free in range(8):
        resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE, (used + free, hard))
        host = probes(f"device:{folder}/s")
        time.sleep(0.5)
        assert free > 4 or host.poll() is None, f"{free} free descriptors: {finish(host)}"
        resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        code, result = finish(host)
        assert code == 0, result
        device.wait_event("ended")
    assert not any("refused" in line for line in device.log.all), device.log.all


# ------------------------------------------------------------- dead devices


def test_device_killed_and_started_anew(start, probes, folder):
    first = start("--socket", folder / "s")
    first.wait_event("ready")
    host = probes(f"device:{folder}/s", "--cycles", 30, "--linger-ms", 50, "--reattach")
    first.wait_event("began")
    time.sleep(0.3)
    first.kill()
    second = start("--socket", folder / "s")
    second.wait_event("ready")
    code, result = finish(host)
    assert code == 0, result
    assert result["losses"], "the host did not notice that its device died"


def test_device_stopped_and_woken(start, probes, folder):
    device = start("--socket", folder / "s")
    device.wait_event("ready")
    host = probes(f"device:{folder}/s", "--cycles", 40, "--linger-ms", 50, "--reattach", "--pauses", 1)
    device.wait_event("began")
    time.sleep(0.3)
    stop_process(device.process.pid)
    time.sleep(7)  # longer than the probe's patience
    device.process.send_signal(signal.SIGCONT)
    code, result = finish(host)
    assert code == 0, result
    assert result["losses"]
