# SPDX-License-Identifier: Apache-2.0
"""What ends merapi run, replay and verify: the device goes with them, and nothing holds them up."""

import fcntl
import os
import shutil
import signal
import subprocess
import termios
from pathlib import Path

import pytest
from cli_harness import ABSENT, OK, SYSTEM, alive, binary, devices_at, merapi
from native_fixtures import stop_process, wait_until

pytestmark = pytest.mark.usefixtures("nothing_ignored")


@pytest.fixture
def image(window_file, folder):
    path = folder / "image"
    assert merapi("save", window_file, path).status == OK
    return path


def ignoring_children(*command):
    return [shutil.which("env"), "--ignore-signal=CHLD", *map(str, command)]


def test_run_whose_caller_ignores_children(env):
    run = [binary("merapi"), "run", "--window", "file:/nope", "--"]
    look = [*run, "grep", "SigIgn", "/proc/self/status"]

    def end_of(command):
        return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=30)

    assert end_of(ignoring_children(*run, "sh", "-c", "exit 7")).returncode == 7
    # The program finds SIGCHLD as its caller left it.
    for command, ignored in ((ignoring_children(*look), 1), (look, 0)):
        done = end_of(command)
        assert done.returncode == 0, done
        assert int(done.stdout.split()[1], 16) >> (signal.SIGCHLD - 1) & 1 == ignored


def test_failed_command_whose_caller_ignores_children(system):
    system.dax("dax0.0", driver="kmem", region=None)
    system.fail("daxctl", "no such device")
    command = ignoring_children(binary("merapi"), "provision", "dax0.0", "--patience", "0.1")
    done = subprocess.run(command, env={**os.environ, **system.env}, capture_output=True, text=True, timeout=60)
    assert done.returncode == SYSTEM, done
    assert "no such device" in done.stderr


def test_device_that_does_not_start_whose_caller_ignores_children(env, folder):
    broken = folder / "broken"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    command = ignoring_children(binary("merapi"), "run", "--", "true")
    more = {**env, "MERAPI_DEVICE_PROGRAM": str(broken)}
    done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 125
    assert "ended with status 2" in done.stderr


def endless(start, image, verb, env):
    """A replay under way, and its device."""
    replay = start(binary("merapi"), verb, image, "--repeat", "100000", env=env)
    # The pipe gets lines when the stream's buffer is full: it has traced by then.
    wait_until(lambda: replay.lines or replay.process.poll() is not None)
    (device,) = devices_at(env["MERAPI_SOCKET"])
    return replay, device


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("verb", ["replay", "verify"])
def test_no_device_stays_of_a_replay_that_is_ended(image, env, start, verb, number):
    replay, device = endless(start, image, verb, env)
    replay.process.send_signal(number)
    assert replay.process.wait(30) == -number
    assert not alive(device)
    assert not os.path.exists(env["MERAPI_SOCKET"] + ".runs/devices")


def test_no_device_stays_of_a_replay_that_nobody_reads(image, env):
    command = [binary("merapi"), "verify", image, "--repeat", "100000"]
    with subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE) as replay:
        assert b"as computed on the CPU" in replay.stdout.readline()
        replay.stdout.close()
        assert replay.wait(30) == -signal.SIGPIPE
    assert not devices_at(env["MERAPI_SOCKET"])


def test_the_device_is_of_the_session_and_no_member_of_the_group(env, start):
    """A scheduler that shares processors among sessions would let it wait long; Ctrl-C is for the group."""
    run = start(binary("merapi"), "run", "--", "sleep", "60", env=env)
    wait_until(lambda: devices_at(env["MERAPI_SOCKET"]))
    (device,) = devices_at(env["MERAPI_SOCKET"])
    wait_until(lambda: os.getpgid(device) == device)
    assert os.getsid(device) == os.getsid(run.pid)


def test_a_stopped_device_is_told(image, env, start):
    """It cannot give a window back, and no other run has one."""
    replay, device = endless(start, image, "verify", env)
    stop_process(device)
    try:
        replay.process.terminate()
        assert replay.process.wait(30) == -signal.SIGTERM
        wait_until(lambda: replay.errors)
        told = f"left the device process {device}, which is stopped and holds 1 window(s); kill -CONT {device}"
        assert told in replay.errors[-1]
    finally:
        os.kill(device, signal.SIGCONT)
    assert merapi("run", "--", "true", env=env).status == 0
    wait_until(lambda: not alive(device))


def test_who_looks_on_keeps_no_device(image, env, start):
    watch = start(binary("merapi"), "top", "--interval", "0.05", "--json")
    replay, device = endless(start, image, "verify", env)
    wait_until(lambda: any('"attached": true' in line for line in watch.lines))
    stop_process(watch.process.pid)
    replay.process.terminate()
    assert replay.process.wait(30) == -signal.SIGTERM
    assert not alive(device)


def test_work_of_a_killed_replay_ends(image, env, start):
    replay, device = endless(start, image, "verify", env)
    children = Path(f"/proc/{replay.pid}/task/{replay.pid}/children").read_text().split()
    (child,) = [int(pid) for pid in children if int(pid) != device]
    replay.process.kill()
    wait_until(lambda: not alive(child))
    assert merapi("run", "--", "true", env=env).status == 0
    wait_until(lambda: not alive(device))


def test_device_of_a_relative_socket_is_ended_by_the_last(image, env, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("d.sock", "./d.sock", str(folder / "d.sock")):
        more = {**os.environ, **env}
        run = subprocess.Popen([binary("merapi"), "run", "--socket", "d.sock", "--", "sleep", "60"], env=more)
        replay = None
        try:
            wait_until(lambda: devices_at(folder / "d.sock") and os.path.exists(folder / "d.sock"))
            (device,) = devices_at(folder / "d.sock")
            command = [binary("merapi"), "verify", image, "--socket", name, "--repeat", "100000"]
            replay = subprocess.Popen(command, env=more, stdout=subprocess.PIPE)
            replay.stdout.readline()
            run.terminate()
            assert run.wait(30) == -signal.SIGTERM
            assert alive(device), "the run took the replay's device away"
            replay.terminate()
            assert replay.wait(30) == -signal.SIGTERM
            assert not alive(device), name
        finally:
            for process in filter(None, (run, replay)):
                process.kill()
                process.wait(10)
            for pid in devices_at(folder / "d.sock"):
                os.kill(pid, signal.SIGKILL)


def is_open_file(descriptor, path):
    try:
        return os.path.samefile(descriptor, path)
    except FileNotFoundError:
        return False  # closed meanwhile


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_waits_for_its_turn_can_be_ended(env, start, number):
    os.makedirs(env["MERAPI_SOCKET"] + ".runs", 0o700)
    with open(env["MERAPI_SOCKET"] + ".runs/turn", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = start(binary("merapi"), "run", "--", "true", env=env)
        wait_until(lambda: any(is_open_file(fd, lock.name) for fd in open_files(run.pid)))
        run.process.send_signal(number)
        assert run.process.wait(10) == -number
    assert not devices_at(env["MERAPI_SOCKET"])


def open_files(pid):
    folder = Path(f"/proc/{pid}/fd")
    return [path for path in folder.iterdir() if path.exists()]


@pytest.mark.parametrize("terminal", [False, True])
def test_signal_while_the_device_starts(env, folder, terminal):
    """The program is not begun, and the device ends."""
    slow = folder / "merapi-device-slow"
    slow.write_text(f'#!/bin/sh\necho > {folder}/starting\nsleep 0.5\nexec {binary("merapi-device")} "$@"\n')
    slow.chmod(0o755)
    command = [binary("merapi"), "run", "--", "sleep", "60"]
    more = {**os.environ, **env, "MERAPI_DEVICE_PROGRAM": str(slow)}
    ours, theirs = os.openpty()

    def take_terminal():
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with subprocess.Popen(command, env=more, stdin=theirs, start_new_session=True, preexec_fn=take_terminal) as run:
        try:
            wait_until((folder / "starting").exists)
            if terminal:
                os.write(ours, b"\x03")
            else:
                run.send_signal(signal.SIGINT)
            assert run.wait(30) == -signal.SIGINT
        finally:
            run.kill()
            os.close(theirs)
            os.close(ours)
    assert not devices_at(env["MERAPI_SOCKET"])


def test_a_terminal_that_hangs_up_ends_the_program(env, folder):
    """`ssh -t HOST merapi run`: the hang-up reaches the session's leader alone, which did not pass it on."""
    ours, theirs = os.openpty()
    script = f"trap 'echo > {folder}/told; exit 7' HUP; echo > {folder}/begun; while :; do sleep 0.05; done"
    command = [binary("merapi"), "run", "--", "sh", "-c", script]

    def take_terminal():
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    more = {**os.environ, **env}
    with subprocess.Popen(command, env=more, start_new_session=True, preexec_fn=take_terminal, **streams) as run:
        try:
            os.close(theirs)
            wait_until((folder / "begun").exists)
            os.close(ours)
            assert run.wait(30) == 7
            assert (folder / "told").exists()
        finally:
            run.kill()
    assert not devices_at(env["MERAPI_SOCKET"])


def test_image_that_became_smaller(image, env, start):
    """Told as such, and the device goes here as well."""
    replay, device = endless(start, image, "replay", env)
    os.truncate(image, 4096)
    assert replay.process.wait(30) == ABSENT
    wait_until(lambda: any("a file became smaller" in line for line in replay.errors))
    assert not alive(device)
