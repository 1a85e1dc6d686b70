# SPDX-License-Identifier: Apache-2.0
"""merapi run: the device process that runs share, its socket, and what runs leave for each other beside it."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from cli_harness import alive, binary, device_of, devices_at, devices_of, merapi, merapi_of_nobody
from native_fixtures import wait_until


def test_a_running_device_is_used_and_left(java, env, start):
    os.mkdir(os.path.dirname(env["MERAPI_SOCKET"]), 0o700)
    device = start(binary("merapi-device"), "--model", "--socket", env["MERAPI_SOCKET"])
    device.wait_line("ready")
    assert merapi("run", "--", java, env=env).status == 0
    assert device.process.poll() is None


def test_two_runs_share_a_device_and_the_last_ends_it(java, env, start):
    first = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "trap"})
    first.wait_line("waiting")
    device = device_of(env)
    second = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "trap"})
    second.wait_line("waiting")
    assert device_of(env) == device
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(30)
    assert alive(device), "the first run took the second one's device away"
    second.process.send_signal(signal.SIGTERM)
    second.process.wait(30)
    wait_until(lambda: not alive(device))


def test_a_killed_run_is_cleaned_up_by_the_next(java, env, start):
    run = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "long"})
    run.wait_line("waiting")
    device = device_of(env)
    run.process.kill()
    run.process.wait(10)
    assert alive(device)
    assert merapi("run", "--", java, env=env).status == 0
    wait_until(lambda: not alive(device))


def test_device_that_does_not_start(java, env, folder):
    broken = folder / "broken"
    broken.write_text("#!/bin/sh\necho 'no such engine' >&2\nexit 2\n")
    broken.chmod(0o755)
    done = merapi("run", "--", java, env={**env, "MERAPI_DEVICE_PROGRAM": str(broken)})
    assert done.status == 125
    assert "no such engine" in done.err
    assert "arguments" not in done.out


def test_a_device_program_that_cannot_be_run(java, env, folder):
    (folder / "text").write_text("not for running")
    for path in (folder / "text", folder, folder / "absent"):
        done = merapi("run", "--", java, env={**env, "MERAPI_DEVICE_PROGRAM": str(path)})
        assert done.status == 125 and "arguments" not in done.out
        assert f"expected merapi-device's path in MERAPI_DEVICE_PROGRAM, found {path}" in done.err


def test_in_a_folder_that_is_gone(java, folder):
    """Where a relative path leads cannot be told there; it was "cannot make absolute path"."""
    for options in (["--socket", "s"], ["--window", "file:w"], ["--jdk", "jdk"]):
        (folder / "gone").mkdir()
        script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
        command = ["sh", "-c", script, "sh", folder / "gone", binary("merapi"), "run", *options, "--", "java"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 125
        assert f"cannot tell where {options[1].removeprefix('file:')} is" in done.stderr
        assert "the current folder may have been removed" in done.stderr


def test_a_device_of_another_user_is_told(folder, start):
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    device = start(binary("merapi-device"), "--model", "--socket", shared / "s")
    device.wait_line("ready")
    (shared / "s").chmod(0o755)
    done = merapi_of_nobody(folder, "run", "--socket", shared / "s", "--", "/bin/true")
    assert done.status == 125 and "found another user's socket: Permission denied" in done.err, done.err


def by_name(path):
    """The ways to name a socket."""
    return [([], {"MERAPI_SOCKET": str(path)}), (["--socket", str(path)], {})]


def of_nobody(folder, options, env):
    """A run of an ordinary user; he may start a device."""
    device = shutil.copy(binary("merapi-device"), folder / "merapi-device")
    own = {"MERAPI_SOCKET": "", "XDG_RUNTIME_DIR": "", "MERAPI_DEVICE_PROGRAM": str(device)}
    return merapi_of_nobody(folder, "run", *options, "--", "/bin/true", env={**own, **env})


@pytest.mark.parametrize("way", (0, 1))
def test_a_socket_may_be_named_wherever_its_user_may_write(folder, way):
    """In a folder of all, as /tmp is, MERAPI_SOCKET was refused and --socket was not."""
    shared = folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = of_nobody(folder, *by_name(shared / "s")[way])
    assert done.status == 0, done
    assert not devices_at(shared / "s") and not (shared / "s").exists()
    # A folder that is not there is made, for its user alone.
    done = of_nobody(folder, *by_name(shared / "new/s")[way])
    assert done.status == 0, done
    assert (shared / "new").stat().st_mode & 0o777 == 0o700
    # Where he may not, it is told.
    private = folder / "private"
    private.mkdir()
    private.chmod(0o755)
    if os.geteuid() == 0:
        done = of_nobody(folder, *by_name(private / "s")[way])
        assert done.status == 125 and "Permission denied" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_the_folder_that_nobody_named_is_the_user_s_own(folder):
    """Its name is known to all: a socket in it might be anybody's."""
    runtime = folder / "runtime"
    (runtime / "merapi").mkdir(parents=True)
    os.chown(runtime, *pwd.getpwnam("nobody")[2:4])
    (runtime / "merapi").chmod(0o777)
    done = of_nobody(folder, [], {"XDG_RUNTIME_DIR": str(runtime)})
    assert done.status == 125
    assert f"expected a folder of your own at {runtime}/merapi, into which nobody else writes" in done.err
    assert "found another user's" in done.err and "would be given your heap" in done.err
    assert "--socket or MERAPI_SOCKET" in done.err
    assert os.listdir(runtime / "merapi") == []
    # One of his own into which others write is as bad.
    os.chown(runtime / "merapi", *pwd.getpwnam("nobody")[2:4])
    done = of_nobody(folder, [], {"XDG_RUNTIME_DIR": str(runtime)})
    assert done.status == 125 and "found one that is open to others" in done.err and "chmod go-w" in done.err
    (runtime / "merapi").chmod(0o755)
    assert of_nobody(folder, [], {"XDG_RUNTIME_DIR": str(runtime)}).status == 0


def test_default_socket_without_a_usable_runtime_folder(java, env, folder):
    def window(runtime):
        plan = merapi("run", "--dry-run", "--", java, env={"MERAPI_SOCKET": "", "XDG_RUNTIME_DIR": str(runtime)})
        return plan.json()["window"]

    (folder / "plain").write_text("")
    fallback = f"device:/tmp/merapi-{os.geteuid()}/device.sock"
    assert window(folder) == f"device:{folder}/merapi/device.sock"
    assert [window(name) for name in (folder / "gone", folder / "plain", "relative", "")] == [fallback] * 4
    if os.geteuid() == 0:
        # That of the user from whom su came: what root leaves there would lock him out.
        os.chown(folder, *pwd.getpwnam("nobody")[2:4])
        assert window(folder) == fallback


def test_no_device_stays_when_it_cannot_be_recorded(java, env):
    os.makedirs(env["MERAPI_SOCKET"] + ".runs/devices")
    done = merapi("run", "--", java, env=env)
    assert done.status == 125
    assert f"cannot write {env['MERAPI_SOCKET']}.runs/devices" in done.err
    assert not devices_at(env["MERAPI_SOCKET"])


def test_the_device_has_nothing_of_the_run_that_started_it(java, env, folder, start):
    """Locks, pipes and the folder of the first run are free when it ends, though others go on with its device."""
    del env["MERAPI_DEVICE_PROGRAM"]
    (folder / "mine").mkdir()
    command = [binary("merapi"), "run", "--", "sh", "-c", "echo begun; read line"]
    ours, theirs = os.pipe()
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = subprocess.Popen(
            command,
            env={**os.environ, **env},
            cwd=folder / "mine",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock.fileno(), theirs),
        )
    os.close(theirs)
    with first, open(ours, "rb") as pipe, open(folder / "lock") as lock:
        assert first.stdout.readline() == b"begun\n"
        second = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "long"})
        second.wait_line("waiting")
        (device,) = devices_at(env["MERAPI_SOCKET"])
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.communicate(b"\n", timeout=30)
        assert first.returncode == 0 and alive(device)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_blocking(pipe.fileno(), False)
        assert pipe.read() == b""
        assert os.readlink(f"/proc/{device}/cwd") == "/"


def test_a_device_program_by_a_relative_path(java, env, folder):
    (folder / "device").write_text('#!/bin/sh\nexec ./real "$@"\n')
    (folder / "device").chmod(0o755)
    (folder / "real").symlink_to(binary("merapi-device"))
    done = merapi("run", "--", java, env={**env, "MERAPI_DEVICE_PROGRAM": "./device"}, cwd=folder)
    assert done.status == 0, done.err


VANISHING = {
    "socket": ["device.sock"],
    "socket and record": ["device.sock", "device.sock.runs/devices"],
    "all files": None,
}


@pytest.mark.parametrize("ends_first", [0, 1])
@pytest.mark.parametrize("names", VANISHING.values(), ids=VANISHING)
def test_no_device_stays_when_files_vanish(java, env, start, names, ends_first):
    run = os.path.dirname(env["MERAPI_SOCKET"])
    runs = []
    for _ in range(2):
        runs.append(start(binary("merapi"), "run", "--", java, env={**env, "MODE": "trap"}))
        runs[-1].wait_line("waiting")
        if len(runs) == 1:
            (first,) = devices_at(env["MERAPI_SOCKET"])
            for path in [os.path.join(run, name) for name in names or os.listdir(run)]:
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    (second,) = set(devices_at(env["MERAPI_SOCKET"])) - {first}
    for index in (ends_first, 1 - ends_first):
        runs[index].process.send_signal(signal.SIGTERM)
        assert runs[index].process.wait(30) == 7
        if index == ends_first and index == 0:
            assert alive(second), "the first run took the second one's device away"
    wait_until(lambda: not alive(first) and not alive(second))
    assert devices_of(env) == []


def test_no_device_stays_when_its_folder_vanishes(java, env, start):
    run = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "trap"})
    run.wait_line("waiting")
    device = device_of(env)
    shutil.rmtree(os.path.dirname(env["MERAPI_SOCKET"]))
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(30) == 7
    assert not alive(device)


@pytest.mark.parametrize("words", [["sleep", "60"], ["sh", "-c", "sleep 60; :", "--socket", "{}"]])
def test_only_devices_of_this_socket_are_ended(java, env, start, words):
    os.makedirs(env["MERAPI_SOCKET"] + ".runs", 0o700)
    other = start(*[word.format(env["MERAPI_SOCKET"]) for word in words])
    elsewhere = start(binary("merapi-device"), "--model", "--socket", env["MERAPI_SOCKET"] + "2")
    elsewhere.wait_line("ready")
    with open(env["MERAPI_SOCKET"] + ".runs/devices", "w") as record:
        for pid in (other.pid, elsewhere.pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            record.write(f"{pid} {fields[19]}\n")
    assert merapi("run", "--", java, env=env).status == 0
    assert alive(other.pid) and alive(elsewhere.pid)
    assert not devices_at(env["MERAPI_SOCKET"])


def test_files_beside_a_socket_are_anybody_s(java, folder):
    """A run emptied SOCKET.log and removed SOCKET.pid, whosever they were and wherever they led."""
    socket = folder / "server"
    victim = folder / "victim"
    beside = {folder / f"server.{kind}": f"another's {kind}" for kind in ("pid", "lock", "users", "log")}
    for path, text in beside.items():
        path.write_text(text)
    victim.write_text("a link leads here")
    (folder / "linked.log").symlink_to(victim)
    for name in ("server", "linked"):
        done = merapi("run", "--socket", folder / name, "--", java)
        assert done.status == 0, done.err
    # A run that is refused leaves them as well.
    socket.write_text("a file")
    done = merapi("run", "--socket", socket, "--", java)
    assert done.status == 125 and "found another kind of file" in done.err
    assert {path: path.read_text() for path in beside} == beside
    assert victim.read_text() == "a link leads here"
    assert socket.read_text() == "a file"


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
@pytest.mark.parametrize("way", [0, 1])
def test_what_cannot_be_a_socket_leaves_no_folder(java, folder, kind, way):
    """/dev/null.runs was left when --socket /dev/null had been refused."""
    socket = folder / "s"
    {"file": socket.touch, "folder": socket.mkdir, "pipe": lambda: os.mkfifo(socket)}.get(
        kind, lambda: socket.symlink_to("nowhere")
    )()
    options, env = by_name(socket)[way]
    done = merapi("run", *options, "--", java, env=env)
    assert done.status == 125 and done.out == ""
    assert f"expected a socket or nothing at {socket}, found another kind of file; name another with" in done.err
    assert sorted(os.listdir(folder)) == ["java", "s"]


def test_a_path_that_is_too_long_for_a_socket_leaves_no_folder(java, folder):
    socket = folder / "new" / ("s" * 107)
    done = merapi("run", "--socket", socket, "--", java)
    assert done.status == 125 and done.out == ""
    assert f"expected a socket path of at most 107 characters, found {len(str(socket))}" in done.err
    assert os.listdir(folder) == ["java"]


def test_a_device_behind_a_link_is_used(java, folder, device):
    (folder / "link").symlink_to(device.socket)
    done = merapi("run", "--socket", folder / "link", "--", java)
    assert done.status == 0, done.err


def file_at(path):
    path.write_text("a file")


def link_at(path):
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_folder_of_the_user_s_own_that_cannot_be_opened_is_told(folder):
    """It was said to be another user's."""
    runtime = folder / "runtime"
    (runtime / "merapi").mkdir(parents=True)
    os.chown(runtime, *pwd.getpwnam("nobody")[2:4])
    os.chown(runtime / "merapi", *pwd.getpwnam("nobody")[2:4])
    for mode, found in (
        (0o300, "one that cannot be opened (Permission denied)"),
        (0o770, "one that is open to others"),
    ):
        (runtime / "merapi").chmod(mode)
        done = of_nobody(folder, [], {"XDG_RUNTIME_DIR": str(runtime)})
        assert done.status == 125
        assert f"into which nobody else writes, found {found}: " in done.err
    os.chown(runtime / "merapi", 0, 0)
    (runtime / "merapi").chmod(0o700)
    done = of_nobody(folder, [], {"XDG_RUNTIME_DIR": str(runtime)})
    assert done.status == 125 and "found another user's: " in done.err


def open_folder_at(path):
    path.mkdir()
    path.chmod(0o777)


def folder_of_nobody_at(path):
    path.mkdir()
    os.chown(path, *pwd.getpwnam("nobody")[2:4])


KINDS = [file_at, link_at, open_folder_at, *([folder_of_nobody_at] if os.geteuid() == 0 else [])]


@pytest.mark.parametrize("make", KINDS)
def test_what_runs_leave_for_each_other_is_their_user_s(java, folder, make):
    runs = folder / "s.runs"
    make(runs)
    done = merapi("run", "--socket", folder / "s", "--", java)
    assert done.status == 125
    assert f"expected a folder of your own at {runs}" in done.err and "name another socket" in done.err
    assert not devices_at(folder / "s")
    assert runs.is_file() or not list(runs.iterdir())


def test_a_link_within_them_is_not_followed(java, folder):
    (folder / "s.runs").mkdir(0o700)
    (folder / "victim").write_text("a link leads here")
    (folder / "s.runs/log").symlink_to(folder / "victim")
    merapi("run", "--socket", folder / "s", "--", java)
    assert (folder / "victim").read_text() == "a link leads here"
