# SPDX-License-Identifier: Apache-2.0
"""What a device process is started with: its command line, files and sockets of others, streams, scheduling."""

import errno
import os
import resource
import signal
import socket as sockets
import subprocess
from pathlib import Path

import pytest
from device import realtime_permitted
from device_processes import binary, finish, run
from native_fixtures import wait_until


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
        ["--model", "--socket", "/no/such/folder/x", "--name", ""],
        ["--rtl", "--socket", "/no/such/folder/x", "--strict"],
        ["--rtl", "--socket", "/no/such/folder/x", "--stack-entries", "64"],
        ["--rtl", "--socket", "/no/such/folder/x", "--no-spill"],
        ["--model", "--socket", ""],
        ["--model", "--window", ""],
        ["--model", "--window", "/tmp/x", "--size", "-5"],
        ["--model", "--socket", "/tmp/x", "--spin-us", "-1"],
        ["--model", "--socket", "/no/such/folder/x", "--spin-us", "600000001"],
        ["--model", "--socket", "/no/such/folder/x", "--spin-us", "18446744073709551615"],
        ["--model", "--window", "/tmp/x", "--size", "18446744073709551616"],
        ["--model", "--window", "/tmp/x", "--size", "16777216T"],
        ["--model", "--window", "/no/such/folder/x", "--size", "8E"],
        ["--model", "--socket", "/no/such/folder/x", "--size", "1G"],
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


def test_long_names(folder):
    """Their pattern was matched by a recursion that ended the process."""
    long = "a" * 60000
    for window in (long, f"{long}@0+1048576", f"w@{'1' * 60000}+1048576", f"w@0+{'1' * 60000}"):
        result = run("--model", "--window", folder / window)
        assert result.returncode == 3 and "cannot serve" in result.stderr, window[:10]


def test_a_part_and_a_file_of_its_name(start, folder):
    whole, part = folder / "w@8", folder / "w@8@2097152+67108864"
    with open(whole, "wb") as file:
        file.truncate(128 << 20)
    start("--window", part).wait_event("ready")
    start("--window", folder / "w@0+x", "--size", "32M").wait_event("ready")
    part.write_bytes(b"other data")
    result = run("--model", "--window", part)
    assert result.returncode == 3 and f"{part}" in result.stderr


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


@pytest.mark.parametrize("option", ("--help", "--version"))
def test_help_that_is_lost_is_told(option):
    """As of every other program."""
    with open("/dev/full", "w") as full:
        result = subprocess.run([binary("merapi-device"), option], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 3
    assert "merapi-device: expected to write to standard output, found: No space left on device" in result.stderr


@pytest.mark.usefixtures("nothing_ignored")
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ready_lines_and_clean_end(folder, ending):
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
        process.send_signal(ending)
        assert process.wait(10) == 0
        assert not socket.exists()
    finally:
        process.kill()
        process.communicate()


def test_a_hangup_that_is_ignored_does_not_end_it(start, probes, folder):
    device = start("--socket", folder / "s", under=("nohup",))
    device.wait_event("ready")
    device.process.send_signal(signal.SIGHUP)
    assert finish(probes(f"device:{folder}/s"))[0] == 0
    assert device.process.poll() is None
    assert device.stop() == 0


def test_an_interrupt_that_is_ignored_does_not_end_it(start, folder):
    """A shell without job control has it ignored for what it starts with `&`: Ctrl-C is for the others."""
    device = start("--socket", folder / "s", under=("env", "--ignore-signal=INT"))
    device.wait_event("ready")
    device.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        device.process.wait(0.5)
    assert device.stop() == 0


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


def test_asking_for_realtime_changes_nothing(monkeypatch):
    """Who is permitted by a limit alone may not give the policy's reset at a fork back: the asker failed."""
    before, asked = os.sched_getscheduler(0), []
    realtime_permitted()
    assert os.sched_getscheduler(0) == before

    def permit_once(_pid, policy, _param):
        asked.append(policy)
        if len(asked) > 1:
            raise PermissionError(errno.EPERM, "not any more")

    monkeypatch.setattr(os, "sched_setscheduler", permit_once)
    assert realtime_permitted()


@pytest.mark.skipif(not realtime_permitted(), reason="this user may not use SCHED_RR")
def test_realtime_is_for_windows_alone(start, folder):
    device = start("--window", folder / "w", "--size", "64M", "--realtime")
    device.wait_event("ready")
    wait_until(lambda: policies(device.process).count(SCHED_RR) == 1)
    assert policies(device.process)[0] == 0, "the thread that listens needs no processor first"
    assert device.stop() == 0


@pytest.mark.parametrize(("option", "policy"), [("--other", 0), ("--batch", 3), ("--idle", 5)])
def test_a_policy_that_was_chosen_stays(option, policy, start, probes, folder):
    device = start("--window", folder / "w", "--size", "64M", under=["chrt", option, "0"])
    device.wait_event("ready")
    code, result = finish(probes(f"file:{folder}/w"))
    assert code == 0, result
    assert set(policies(device.process)) == {policy}
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
