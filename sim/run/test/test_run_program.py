# SPDX-License-Identifier: Apache-2.0
"""What `make run` gives the program to work on, and what it makes of the program's end; without a Java machine."""

import contextlib
import fcntl
import io
import os
import resource
import signal
import stat
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
import run

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "Package: p{0}\nVersion: {0}\nDepends: p{1}\n\n"
WHOLE = "".join(PACKAGE.format(i, i // 2) for i in range(run.RTL_PACKAGES + 1000))
PART = WHOLE[: len(WHOLE) // 3]


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def out(tmp_path, monkeypatch):
    """The folder of the runner's files, and an apt-cache that knows WHOLE."""
    (tmp_path / "index").write_text(WHOLE)
    program(tmp_path / "bin/apt-cache", f"#!/bin/sh\necho asked >> {tmp_path}/asked\ncat {tmp_path}/index\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(run, "OUT", tmp_path / "run")
    return tmp_path / "run"


def test_an_index_is_made_once(out):
    assert run.package_index().read_text() == WHOLE
    assert run.package_index().read_text() == WHOLE
    assert run.packages_in(run.part_of_index(50).read_text()) == 50
    before = (out / "packages-50.txt").stat().st_mtime_ns
    (out / "packages.txt").unlink()
    assert run.part_of_index(50).stat().st_mtime_ns == before
    assert (out.parent / "asked").read_text() == "asked\n"
    assert [path.name for path in out.iterdir()] == ["packages-50.txt"]


@pytest.mark.parametrize("content", ["", PART, PACKAGE])
def test_a_part_of_an_index_is_made_again(out, content):
    out.mkdir()
    (out / "packages.txt").write_text(content)
    assert run.package_index().read_text() == WHOLE
    small = out / f"packages-{run.RTL_PACKAGES}.txt"
    small.write_text(content)
    assert run.packages_in(run.part_of_index(run.RTL_PACKAGES).read_text()) == run.RTL_PACKAGES


def test_an_index_is_never_seen_half_written(out, monkeypatch):
    """The file's name is given to what is complete; a process that ends before leaves none."""
    monkeypatch.setattr(Path, "replace", lambda *_: sys.exit(9))
    with pytest.raises(SystemExit):
        run.package_index()
    assert not (out / "packages.txt").exists()


def test_an_index_that_cannot_be_had_is_told(out, monkeypatch, capsys):
    (out.parent / "index").write_text(PART)
    monkeypatch.setattr(run.sys, "executable", str(out.parent / "bin/apt-cache"))
    with pytest.raises(SystemExit):
        run.package_index()
    assert f"index of {run.LEAST_PACKAGES} packages, found one of {run.packages_in(PART)}" in capsys.readouterr().err
    assert not out.exists()


def run_with(java, tmp_path):
    """The runner with this text as `java`."""
    program(tmp_path / "jdk/bin/java", java)
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_stream_is_told(tmp_path, closed):
    line = f'exec "$@" {closed}'
    program(tmp_path / "jdk/bin/java", f"#!/bin/sh\necho > {tmp_path}/started\n")
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    done = subprocess.run(["sh", "-c", line, "sh", *command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "started").exists()
    assert closed == "2>&-" or "expected open standard output and error" in done.stderr


@pytest.mark.parametrize(
    "end, status", [("exit 3", 3), ("exit 130", 130), ("exit 200", 200), ("exit 255", 255), ("kill -9 $$", 137)]
)
def test_a_failed_program_s_status(tmp_path, end, status):
    done = run_with(f"#!/bin/sh\n{end}\n", tmp_path)
    assert done.returncode == status, done.stderr
    assert f"the program ended {'by SIGKILL' if status == 137 else f'with status {status}'}\n" in done.stderr


def test_a_killed_run_leaves_no_program(tmp_path):
    pid = tmp_path / "pid"
    program(tmp_path / "jdk/bin/java", f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}\nexec sleep 1000\n")
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    runner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 30
    while not pid.exists():
        assert time.monotonic() < end and runner.poll() is None
        time.sleep(0.02)
    runner.kill()
    runner.wait()
    java = Path(f"/proc/{pid.read_text().strip()}")
    try:
        while java.exists() and "State:\tZ" not in (java / "status").read_text():
            assert time.monotonic() < end, "the program goes on without its runner"
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(java.name), signal.SIGKILL)


@pytest.mark.parametrize("end", ["while :; do echo more; done", "echo one; exec sleep 1000", "echo one; echo two"])
def test_output_that_nobody_reads_ends_the_run(tmp_path, end):
    """As `make run | head`: the program is ended, and the status is that of SIGPIPE."""
    pids = tmp_path / "pids"
    program(tmp_path / "jdk/bin/java", f"#!/bin/sh\necho $$ >> {pids}\nsleep 0.5\n{end}\n")
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout.readline().startswith("device: ")
            assert run.stdout.readline().startswith("program: ")
            run.stdout.close()
            assert run.wait(30) == 141
            assert run.stderr.read() == ""
        finally:
            run.kill()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())


MUCH = "i=0; while [ $i -lt 3000 ]; do echo $i 0123456789012345678901234567890123456789; i=$((i+1)); done"


def test_output_that_the_locale_does_not_know(tmp_path):
    """The thread that prints ended, and the program waited for room in its pipe without end."""
    program(tmp_path / "jdk/bin/java", f"#!/bin/sh\nprintf '\\342\\202\\254\\n'\n{MUCH}\nexit 3\n")
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "  | \\u20ac\n" in done.stdout and "  | 2999 0123" in done.stdout
    assert "Traceback" not in done.stderr


def test_output_that_finds_no_room_ends_the_run(tmp_path):
    """As on a disk that gets full: the program is ended, and the reason is told."""
    program(tmp_path / "jdk/bin/java", f"#!/bin/sh\n{MUCH}\nexec sleep 1000\n")
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    with open(tmp_path / "out", "w") as file:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)),
        )
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr


# A java that writes these lines to the log of the runner's -Xlog flag.
LOGGING = """#!/bin/sh
for word; do case "$word" in -Xlog:gc*:file=*) log=${word#*:file=}; log=${log%%%%:*};; esac; done
cat > "$log" <<'END'
%sEND
"""
G1 = "[1ns][gc] Using G1\n"
WINDOW = "[2ns][gc,merapi] Window device:/s: 2181038080 bytes, heap at offset 33554432 mapped at 0x700000000\n"
MARKED = "".join(f"[3ns][gc,marking] GC(1) Concurrent Mark From Roots{end}\n" for end in ("", " 2.5ms"))


@pytest.mark.parametrize("window", [WINDOW, WINDOW.replace("device:/s", "file:/a b: c")])
def test_a_program_without_marking_is_told_what_makes_some(tmp_path, window):
    done = run_with(LOGGING % (G1 + window), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "System.gc() with -XX:+ExplicitGCInvokesConcurrent" in done.stdout


@pytest.mark.parametrize(
    "java, words",
    [
        ("#!/bin/sh\n", "found no start of a JVM in it"),
        (LOGGING % "", "do the program's flags turn logging off (-Xlog:disable, -Xlog:all=off)?"),
        (LOGGING % "[1ns][gc] Using Parallel\n", "found the collector Parallel"),
        (LOGGING % G1, "found no window"),
        (LOGGING % (G1 + MARKED), "found no window"),
    ],
    ids=["no log", "empty log", "another collector", "no window", "no window, marked on the CPU"],
)
def test_a_program_of_which_nothing_was_seen_fails_the_run(tmp_path, java, words):
    done = run_with(java, tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
    assert "never reached a marking cycle" not in done.stdout


@pytest.mark.parametrize(
    "app", ["-version", "--version", "-cp 'a b' -Dcost=$5 Main", '-Dx="$HOME" Main', "Main `id`", "Outer$Inner $(HOME)"]
)
def test_make_gives_an_app_as_it_is(tmp_path, app):
    """The runner's words when a stand-in takes the place of python3."""
    program(tmp_path / "bin/python3", f'#!/bin/sh\nfor word; do echo "$word"; done > {tmp_path}/words\n')
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        env.pop(name, None)
    command = ["make", "-s", "run-arguments", f"APP={app}"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "words").read_text().splitlines()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert words[-1].endswith(app)


UNFINISHED = r"""#!/bin/sh
printf 'one\r\ntwo\rthree\n'
printf 'Name: '
sleep 2
printf 'four\nthe last line' >&2
printf 'five'
sleep 60 &
echo $! > "$0.left"
"""


def test_lines_that_are_not_finished(tmp_path, capsys):
    """A prompt is shown when it comes; what a program leaves behind, and keeps its output open, is not waited for."""
    log = tmp_path / "log"
    log.write_text("")
    status, _ = run.run_java(str(program(tmp_path / "java", UNFINISHED)), [], log)
    os.kill(int((tmp_path / "java.left").read_text()), signal.SIGKILL)  # it fails where that is gone
    assert status == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("  |")] == [
        "  | one",
        "  | two",
        "  | three",
        "  | Name:",
        "  | five",
    ]
    assert [line for line in shown if line.startswith("  !")] == ["  ! four", "  ! the last line"]


def test_a_slow_reader_gets_all_output(tmp_path, monkeypatch):
    """The reader begins when the program has ended and whatever patience the run has with it is over."""
    (tmp_path / "log").write_text("")
    reads, shown, join = threading.Event(), [], threading.Thread.join

    def say(_console, text):
        reads.wait()
        shown.append(text)

    def joined(thread, timeout=None):
        if timeout is None:
            reads.set()
            join(thread)

    monkeypatch.setattr(run.Console, "say", say)
    monkeypatch.setattr(threading.Thread, "join", joined)
    java = program(tmp_path / "java", f"#!/bin/sh\n{MUCH.replace('3000', '1000')}\necho END >&2\n")
    try:
        status, _ = run.run_java(str(java), [], tmp_path / "log")
        assert status == 0
        assert [line.split()[1] for line in shown if line.startswith("  |")] == [str(i) for i in range(1000)]
        assert "  ! END" in shown
    finally:
        reads.set()


@pytest.mark.parametrize(
    "left, seconds", [(f"while echo {'x' * 999}; do :; done", 1000), ("while echo tick; do sleep 0.05; done", 0.2)]
)
def test_what_goes_on_writing_after_the_program_s_end(tmp_path, monkeypatch, capsys, left, seconds):
    """All that the program wrote is shown, and the run ends though its stream does not."""
    monkeypatch.setattr(run, "LEFT_SECONDS", seconds)
    (tmp_path / "log").write_text("")
    java = program(tmp_path / "java", f"#!/bin/sh\n({left}) 2>&- &\necho $! > $0.left\n{MUCH}\n")
    try:
        run.run_java(str(java), [], tmp_path / "log")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "java.left").read_text()), signal.SIGKILL)
    shown = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in shown if word.isdigit()] == [str(i) for i in range(3000)]


def waiting(stream):
    """Bytes in a pipe that nobody has read."""
    return int.from_bytes(fcntl.ioctl(stream, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_stopped_run_ends_though_nobody_reads(tmp_path):
    """A terminal that is held: SIGTERM ends the program and the run."""
    pid = tmp_path / "pid"
    program(tmp_path / "jdk/bin/java", f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}\nexec yes {'x' * 999}\n")
    command = [sys.executable, ROOT / "sim/run/run.py", "--jdk", tmp_path / "jdk", "--app", "Main"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as runner:
        try:
            end = time.monotonic() + 30
            while not pid.exists() or waiting(runner.stdout) < 1 << 15:
                assert time.monotonic() < end and runner.poll() is None
                time.sleep(0.02)
            runner.terminate()
            assert runner.wait(60) == 130
            assert runner.stderr.read() == "run: stopped; the program and its device were ended\n"
        finally:
            runner.kill()
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


class Text(str):
    """Output that counts the characters that are copied or looked at."""

    handled = 0

    def __add__(self, other):
        return self.count_in(str.__add__(self, other))

    def __radd__(self, other):
        return self.count_in(str.__add__(other, self))

    def split(self, *how):
        return str.split(self.count_in(self), *how)

    @staticmethod
    def count_in(text):
        Text.handled += len(text)
        return Text(text)


def test_a_long_line_is_not_copied_for_each_of_its_blocks(tmp_path, monkeypatch, capsys):
    class Decoder(io.IncrementalNewlineDecoder):
        def decode(self, *block, **final):
            return Text(super().decode(*block, **final))

    monkeypatch.setattr(run.io, "IncrementalNewlineDecoder", Decoder)
    monkeypatch.setattr(Text, "handled", 0)
    lines = ["one", "x" * 4_000_000, "", "two" * 1000, "y" * 4_000_000]
    (tmp_path / "output").write_text("\n".join(lines))
    with open(tmp_path / "output", "rb") as stream:
        run.Console().copy(stream, "|", threading.Event())
    assert capsys.readouterr().out == "".join(f"  | {line}\n" for line in lines)
    assert Text.handled < 2 * sum(map(len, lines))
