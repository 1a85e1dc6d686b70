# SPDX-License-Identifier: Apache-2.0
"""The device process as hosts and administrators meet it: many windows, dead hosts, dead devices, bad windows."""

import mmap
import os
import pwd
import random
import resource
import shutil
import signal
import socket as sockets
import struct
import subprocess
import time
from pathlib import Path

import pytest
from device import realtime_permitted
from device_processes import binary, finish, run, wait_until

ROOT = Path(__file__).resolve().parents[2]
# Offsets of docs/contract.md.
VERSION, GENERATION, DEVICE_IDENTITY, DEVICE_GENERATION, FAULT = 8, 0x200, 0x400, 0x440, 0x500
DIRECTORY, BEGIN_CYCLE = 0x80, 1
DEVICE_MAGIC, IDLE, BAD_MAGIC, BAD_VERSION = 0x43525452, 3, 1, 2


def map_file(path, length=0):
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)


# ------------------------------------------------------------- command line


def test_version_and_help():
    assert run("--version").stdout.startswith("merapi-device ")
    text = run("--help")
    assert text.returncode == 0
    for option in ["--socket", "--window", "--strict", "--patience-us", "--coherence", "Exit codes"]:
        assert option in text.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--model"],
        ["--socket", "/tmp/x"],
        ["--model", "--socket", "/tmp/x", "--stack-entries", "1"],
        ["--model", "--socket", "/tmp/x", "--coherence", "perhaps"],
        ["--model", "--socket", "/tmp/x", "--no-such-option"],
        ["--model", "--socket", "/tmp/x", "--preset", "sim-small"],
        ["--model", "--socket", "/tmp/x", "--memory", "ideal"],
        ["--model", "--socket", "/tmp/x", "--rtl-folder", "/tmp"],
        ["--model", "--socket", "/tmp/x", "--trace-waves", "/tmp/x.vcd"],
        ["--model", "--socket", "/no/such/folder/x", "--name", "n" * 24],
        ["--rtl", "--socket", "/no/such/folder/x", "--strict"],
        ["--rtl", "--socket", "/no/such/folder/x", "--stack-entries", "64"],
        ["--rtl", "--socket", "/no/such/folder/x", "--no-spill"],
        ["--model", "--socket", ""],
        ["--model", "--window", ""],
        ["--model", "--window", "/tmp/x", "--size", "-5"],
        ["--model", "--socket", "/tmp/x", "--spin-us", "-1"],
        ["--model", "--socket", "/tmp/x", "--spin-us", "4294967296"],
        ["--model", "--window", "/tmp/x", "--size", "18446744073709551616"],
        ["--model", "--window", "/tmp/x", "--size", "16777216T"],
        ["--model=false", "--socket", "/no/such/folder/x"],
        ["--model", "--socket", "/no/such/folder/x", "--no-spill=false"],
        ["--model", "--socket", "/no/such/folder/x", "--json=true"],
        ["--rtl", "--socket", "/no/such/folder/x", "--preset", ""],
        ["--rtl", "--socket", "/no/such/folder/x", "--memory", ""],
        ["--rtl", "--socket", "/no/such/folder/x", "--rtl-folder", ""],
        ["--rtl", "--socket", "/no/such/folder/x", "--trace-waves", ""],
        ["--rtl", "--socket", "/no/such/folder/x", "--trace-waves", "/tmp/x.vcd", "--trace-on", "3"],
        [
            "--rtl",
            "--socket",
            "/no/such/folder/x",
            "--trace-waves",
            "/tmp/x.vcd",
            "--trace-from",
            "99999999999999999999",
        ],
    ],
)
def test_wrong_command_line(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr


def test_numbers_are_decimal_or_with_0x(start, folder):
    for size in ("0100M", "104857600", "0x6400000"):
        window = folder / size
        start("--window", window, "--size", size).wait_event("ready")
        assert window.stat().st_size == 100 << 20, size


def test_cannot_serve(folder):
    result = run("--model", "--socket", folder / "no" / "such" / "folder", "--name", "n" * 23)
    assert result.returncode == 3
    result = run("--model", "--window", folder / "missing")
    assert result.returncode == 3 and "missing" in result.stderr
    result = run("--model", "--socket", folder / "no" / "such" / "folder")
    assert result.returncode == 3


def test_files_of_others_are_left_alone(folder):
    for name, content in {
        "image": b"MERAPIMG" + bytes(20000),
        "text": b"public class U {}" * 500,
        "data": b"x" * 8192,
    }.items():
        path = folder / name
        path.write_bytes(content)
        for size in ([], ["--size", "32M"]):
            result = run("--model", "--window", path, *size)
            assert result.returncode == 3 and "choose another path" in result.stderr, result
            assert path.read_bytes() == content


def test_a_file_that_a_killed_device_left_is_served_again(start, folder):
    device = start("--window", folder / "w", "--size", "32M")
    device.wait_event("ready")
    wait_until(lambda: any((folder / "w").read_bytes()[:4096]))  # it says that it sleeps
    device.kill()
    assert any((folder / "w").read_bytes()[:4096])
    start("--window", folder / "w", "--size", "32M").wait_event("ready")


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_a_socket_of_another_program_is_left_alone(folder, kind):
    with sockets.socket(sockets.AF_UNIX, getattr(sockets, kind)) as other:
        other.bind(str(folder / "s"))
        if kind == "SOCK_STREAM":
            other.listen()
        result = run("--model", "--socket", folder / "s")
        assert result.returncode == 3 and "another program listens there" in result.stderr
        assert (folder / "s").is_socket()


def test_a_window_that_is_refused_keeps_its_size(start, folder):
    device = start("--window", folder / "w", "--size", "16M")
    device.wait_event("ready")
    result = run("--model", "--window", folder / "w", "--size", "64M")
    assert result.returncode == 3 and "another process serves it" in result.stderr
    assert (folder / "w").stat().st_size == 16 << 20
    assert device.stop() == 0
    # What was made for nothing goes again.
    for size, window in [("3", "new"), ("64M", f"new@{64 << 20}+{64 << 20}")]:
        result = run("--model", "--window", folder / window, "--size", size)
        assert result.returncode == 3 and "expected a " in result.stderr, result
        assert not (folder / "new").exists()
    # As `ulimit -f` has it.
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    command = [binary("merapi-device"), "--model", "--window", folder / "new", "--size", "64M"]
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))}
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, **limit)
    assert result.returncode == 3 and "File too large" in result.stderr, result
    assert not (folder / "new").exists()


def test_ready_lines_and_clean_end(folder):
    socket, window = folder / "s", folder / "w"
    process = subprocess.Popen(
        [binary("merapi-device"), "--model", "--socket", socket, "--window", window, "--size", "64M"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == f"ready {window}\n"
        assert process.stdout.readline() == f"ready {socket}\n"
        assert window.stat().st_size == 64 << 20
        assert run("--model", "--socket", socket).returncode == 3, "a second device at the same socket"
        assert run("--model", "--window", window).returncode == 3, "a second device on the same window"
        process.terminate()
        assert process.wait(10) == 0
        assert not socket.exists()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("engine", [("--model",), ("--model", "--json")])
def test_closed_streams_are_not_the_window(start, probes, folder, engine):
    """What the device prints and logs would be written over the window if that had a stream's number."""
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    assert finish(probes(f"file:{folder}/w"))[0] == 0
    assert device.stop() == 0
    identity = (folder / "w").read_bytes()[:16]
    script = 'exec "$@" <&- >&- 2>&-'
    command = [binary("merapi-device"), *engine, "--log-level", "debug", "--window", folder / "w"]
    process = subprocess.Popen(["sh", "-c", script, "sh", *map(str, command)])
    try:
        wait_until(lambda: f"{folder}/w" in Path(f"/proc/{process.pid}/maps").read_text())
        assert (folder / "w").read_bytes()[:16] == identity
        code, result = finish(probes(f"file:{folder}/w", "--cycles", 2))
        assert code == 0, result
        streams = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (0, 1, 2)]
        assert set(streams) == {"/dev/null"}, streams
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(20)
    assert (folder / "w").read_bytes()[:16] == identity


SCHED_RR = 2


def policies(process):
    """The scheduling policy of each of its threads: field 41 of proc_pid_stat(5)."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return [int((task / "stat").read_text().rpartition(")")[2].split()[38]) for task in tasks]


@pytest.mark.skipif(not realtime_permitted(), reason="this user may not use SCHED_RR")
def test_realtime_is_for_windows_alone(start, folder):
    device = start("--window", folder / "w", "--size", "64M", "--realtime")
    device.wait_event("ready")
    wait_until(lambda: policies(device.process).count(SCHED_RR) == 1)
    assert policies(device.process)[0] == 0, "the thread that listens needs no processor first"
    assert device.stop() == 0


def test_realtime_without_permission(folder):
    command = [binary("merapi-device"), "--model", "--realtime", "--socket", folder / "s"]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", *command]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode == 3, result.stderr
    assert "expected permission for SCHED_RR" in result.stderr
    # A simulation is busy for minutes.
    assert run("--rtl", "--realtime", "--socket", folder / "s").returncode == 2


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


def processor_seconds(process):
    """User and system time: fields 14 and 15 of proc_pid_stat(5)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


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
    wait_until(lambda: device.maps_windows() == 0)
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
        wait_until(lambda: device.maps_windows() == 0)
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
    device.process.send_signal(signal.SIGSTOP)
    time.sleep(7)  # longer than the probe's patience
    device.process.send_signal(signal.SIGCONT)
    code, result = finish(host)
    assert code == 0, result
    assert result["losses"]


# -------------------------------------------------------------- bad windows


def test_truncated_file_ends_one_context(start, probes, folder):
    device = start("--socket", folder / "s", "--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    probes(f"file:{folder}/w", "--linger-ms", 100000)
    window = map_file(folder / "w", 4096)
    wait_until(lambda: struct.unpack_from("<I", window, DEVICE_GENERATION + 32)[0] == IDLE)
    other = probes(f"device:{folder}/s", "--cycles", 20, "--linger-ms", 20)
    os.truncate(folder / "w", 4096)
    # A submission: the ring lies where the file has no more bytes.
    produced = struct.unpack_from("<Q", window, GENERATION + 8)[0]
    struct.pack_into("<Q", window, GENERATION + 8, produced + 1)
    ended = device.wait_event("ended", want=lambda e: e["context"]["window"] == str(folder / "w"))
    assert ended["context"]["end"] == "fault"
    assert ended["context"]["last_fault"] == "window truncated"
    assert struct.unpack_from("<I", (folder / "w").read_bytes(), FAULT)[0] == 12
    code, result = finish(other)
    assert code == 0, result
    assert device.process.poll() is None


def test_truncated_to_nothing_ends_the_only_context(start, folder):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    os.truncate(folder / "w", 0)
    assert device.process.wait(20) == 4


def test_a_fault_s_cycle_is_told(start, probes, folder):
    """Also when the cycle began in the same step."""
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    assert finish(probes(f"file:{folder}/w"))[0] == 0
    window = map_file(folder / "w")
    generation = struct.unpack_from("<Q", window, GENERATION)[0] | 1
    struct.pack_into("<QQQ", window, GENERATION, generation, 0, 0)
    ring = struct.unpack_from("<Q", window, DIRECTORY)[0]
    for i, opcode in enumerate((BEGIN_CYCLE, 99)):
        struct.pack_into("<BBHI6QII", window, ring + 64 * i, opcode, 0, 0, 0, *[0] * 6, i + 1, 77)
    struct.pack_into("<Q", window, GENERATION + 8, 2)
    struct.pack_into("<Q", window, GENERATION, generation + 1)
    wait_until(lambda: struct.unpack_from("<I", window, FAULT)[0] != 0)
    wait_until(lambda: any("fault " in line for line in device.log.all))
    (line,) = (line for line in device.log.all if "fault " in line)
    assert "fault bad command in cycle 77;" in line


def test_unformatted_window_is_refused(start, folder):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    window = map_file(folder / "w")
    struct.pack_into("<Q", window, 0, 0x1234)
    struct.pack_into("<Q", window, GENERATION, 2)
    wait_until(lambda: struct.unpack_from("<Q", window, DEVICE_GENERATION)[0] == 2)
    assert struct.unpack_from("<I", window, FAULT)[0] == BAD_MAGIC
    assert struct.unpack_from("<Q", window, FAULT + 8)[0] == 0x1234


@pytest.mark.parametrize("major,minor,refused", [(1, 0, False), (2, 0, True), (0, 9, True), (1, 99, True)])
def test_foreign_version_is_refused(start, probes, folder, major, minor, refused):
    device = start("--window", folder / "w", "--size", "64M")
    device.wait_event("ready")
    assert finish(probes(f"file:{folder}/w"))[0] == 0  # lays the window out
    window = map_file(folder / "w")
    generation = struct.unpack_from("<Q", window, GENERATION)[0] | 1
    struct.pack_into("<QQQ", window, GENERATION, generation, 0, 0)
    time.sleep(0.3)  # the device sees the end of the old generation
    struct.pack_into("<HH", window, VERSION, major, minor)
    struct.pack_into("<Q", window, GENERATION, generation + 1)
    wait_until(lambda: struct.unpack_from("<Q", window, DEVICE_GENERATION)[0] == generation + 1)
    assert struct.unpack_from("<I", window, FAULT)[0] == (BAD_VERSION if refused else 0)
    # The host reads from the identity line which version the device speaks.
    assert struct.unpack_from("<IHH", window, DEVICE_IDENTITY)[:2] == (DEVICE_MAGIC, 1)


def test_garbage_windows(start, probes, folder):
    """Random windows, some with a valid start and random contents, are refused or stop with a fault; nothing else."""
    seed = int(os.environ.get("MERAPI_SEED", "1"))
    print(f"replay: MERAPI_SEED={seed}")
    dice = random.Random(seed)
    files = [folder / f"w{i}" for i in range(6)]
    arguments = [word for path in files for word in ("--window", path)]
    device = start("--socket", folder / "s", "--size", "16M", *arguments)
    device.wait_event("ready", want=lambda e: e["where"].endswith("/s"))
    for round_ in range(4):
        for path in files:
            window = map_file(path)
            window[:65536] = dice.randbytes(65536)
            if dice.random() < 0.7:
                struct.pack_into("<QHHI", window, 0, 0x3149504152454D, 1, 0, 4096)
            if dice.random() < 0.5:  # rings that pass the checks, with random entries
                struct.pack_into("<QQQQ", window, 0x80, 0x1000, 0x1000, 0x2000, 0x1000)
                struct.pack_into("<QQ", window, 0x208, dice.randrange(65), 0)
                for i in range(64):
                    struct.pack_into("<BBHI", window, 0x1000 + 64 * i, dice.randrange(8), 0, dice.randrange(8), 1)
                    struct.pack_into("<II", window, 0x1000 + 64 * i + 56, i + 1, 1)
            struct.pack_into("<III", window, 0x240, 0, 0, dice.randrange(3))
            struct.pack_into("<Q", window, GENERATION, 2 * round_ + 2)
            wait_until(lambda w=window, g=2 * round_ + 2: struct.unpack_from("<Q", w, DEVICE_GENERATION)[0] == g)
    code, result = finish(probes(f"device:{folder}/s"))
    assert code == 0, result
    assert device.stop() == 0
