# SPDX-License-Identifier: Apache-2.0
"""merapi run: the device it starts and ends, flags, signals and the exit status."""

import json
import os
import signal
import stat

import pytest
from cli_harness import binary, compile_java, merapi, patched_jdk, wait_until

FAKE_JAVA = """#!/bin/sh
echo "arguments $*"
case "$MODE" in
  status) exit 42;;
  signal) kill -SEGV $$;;
  trap) trap 'echo got; exit 7' TERM; echo waiting; while :; do sleep 0.05; done;;
  long) echo waiting; exec sleep 30;;
esac
"""


@pytest.fixture
def java(folder):
    path = folder / "java"
    path.write_text(FAKE_JAVA)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def env(folder):
    return {"MERAPI_SOCKET": str(folder / "run" / "device.sock"), "MERAPI_DEVICE_PROGRAM": binary("merapi-device")}


def device_of(env):
    """The pid that the runs recorded, None when there is no device."""
    try:
        return int(open(env["MERAPI_SOCKET"] + ".pid").read().split()[0])
    except FileNotFoundError:
        return None


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_gives_the_window_and_ends_the_device(java, env):
    done = merapi("run", "--", java, "-cp", "x", "Main", env=env)
    assert done.status == 0, done.err
    words = done.out.split()
    assert words[1] == "-XX:+UseG1GC"
    assert words[2] == f"-XX:MerapiWindow=device:{env['MERAPI_SOCKET']}"
    assert words[-3:] == ["-cp", "x", "Main"]
    assert device_of(env) is None
    assert not os.path.exists(env["MERAPI_SOCKET"])


def test_exit_status_passes_through(java, env):
    assert merapi("run", "--", java, env={**env, "MODE": "status"}).status == 42


def test_death_by_signal_passes_through(java, env):
    assert merapi("run", "--", java, env={**env, "MODE": "signal"}).status == -signal.SIGSEGV


def test_signal_is_passed_on_and_the_device_ended(java, env, start):
    run = start(binary("merapi"), "run", "--", java, env={**env, "MODE": "trap"})
    run.wait_line("waiting")
    device = device_of(env)
    assert alive(device)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(30) == 7
    assert not alive(device)


def test_program_that_is_not_there(env):
    done = merapi("run", "--", "/nowhere/java", env=env)
    assert done.status == 127
    assert "/nowhere/java" in done.err
    assert device_of(env) is None


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


def test_window_of_the_command_is_refused(java, env):
    done = merapi("run", "--", java, "-XX:MerapiWindow=file:/x", env=env)
    assert done.status == 125
    assert "--window" in done.err


def test_own_collector_is_left(java, env):
    done = merapi("run", "--", java, "-XX:+UseZGC", env=env)
    assert "UseG1GC" not in done.out


def test_script_gets_java_options(env, folder):
    script = folder / "tool"
    script.write_text('#!/bin/sh\necho "$JDK_JAVA_OPTIONS"\n')
    script.chmod(0o755)
    done = merapi("run", "--", script, env={**env, "JDK_JAVA_OPTIONS": "-Xmx1g"})
    assert done.out.split()[0] == "-Xmx1g"
    assert f"-XX:MerapiWindow=device:{env['MERAPI_SOCKET']}" in done.out


def test_dry_run_starts_nothing(java, env):
    done = merapi("run", "--dry-run", "--", java, "Main", env=env)
    plan = json.loads(done.out)
    assert plan["command"][-1] == "Main"
    assert not os.path.exists(env["MERAPI_SOCKET"])


def test_real_jvm_traces(env, tmp_path):
    compile_java(
        tmp_path,
        "Collect",
        "public class Collect { public static void main(String[] a) { "
        "Object[] keep = new Object[100000]; for (int i = 0; i < keep.length; i++) keep[i] = new int[8]; "
        "System.gc(); System.gc(); System.out.println(keep.length); } }",
    )
    flags = ["-Xmx64m", "-XX:+ExplicitGCInvokesConcurrent", "-Xlog:gc+merapi=info", "-cp", tmp_path]
    done = merapi("run", "--verify", "--jdk", patched_jdk(), "--", "java", *flags, "Collect", env=env, timeout=300)
    assert done.status == 0, done.err
    assert "100000" in done.out
    assert "Trace {" in done.out
    assert "Fallback" not in done.out
    assert device_of(env) is None
