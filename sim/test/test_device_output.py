# SPDX-License-Identifier: Apache-2.0
"""What the device process prints for programs: nobody waits for its reader, and it is text whatever paths are."""

import contextlib
import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from device_processes import binary, finish, processor_seconds
from native_fixtures import wait_until


def test_a_reader_that_stopped_reading_stops_nothing(probes, folder):
    out, end = os.pipe()
    command = [binary("merapi-device"), "--model", "--json", "--socket", folder / "s"]
    device = subprocess.Popen(command, stdout=end, stderr=subprocess.DEVNULL)
    try:
        wait_until((folder / "s").exists)
        while select.select([], [end], [], 0.05)[1]:
            device.send_signal(signal.SIGUSR1)
        # The kernel's pages are taken; the last one may have some room left.
        for _ in range(200):
            device.send_signal(signal.SIGUSR1)
            time.sleep(0.002)
        code, result = finish(probes(f"device:{folder}/s"))
        assert code == 0, result
        device.terminate()
        assert device.wait(20) == 0
    finally:
        device.kill()
        device.wait(10)
        os.close(end)
    with open(out) as lines:
        events = [json.loads(line) for line in lines.read().splitlines(keepends=True) if line.endswith("\n")]
    assert events[0]["event"] == "ready"


@contextlib.contextmanager
def log_that_nobody_reads(folder):
    """A device, and where its log can be read once somebody does; a page of it is taken before."""
    out, end = os.pipe()
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    command = [binary("merapi-device"), "--model", "--socket", folder / "s"]
    device = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    with open(out, "rb", buffering=0) as log:
        try:
            wait_until((folder / "s").exists)
            yield device, log
        finally:
            device.kill()
            device.wait(10)


def refuse(path, count):
    """Connections that are no hosts, each of which the log tells."""
    for _ in range(count):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as host:
            host.connect(str(path))
            host.send(b"?")


def test_a_log_that_nobody_reads_stops_nothing(probes, folder):
    """Contexts waited for its reader: they served no host, and kept the memory of those that had ended."""
    with log_that_nobody_reads(folder) as (device, log):
        refuse(folder / "s", 100)  # some 10 KB
        for seed in range(3):
            code, result = finish(probes(f"device:{folder}/s", "--seed", seed))
            assert code == 0, result
        maps = Path(f"/proc/{device.pid}/maps")
        wait_until(lambda: "memfd:" not in maps.read_text())
        device.terminate()
        assert device.wait(20) == 0
        assert b"a window was refused" in log.read().splitlines()[0]


def test_lines_of_the_log_that_nobody_took_are_counted(folder):
    """Once somebody reads again; what was kept comes first, and whole."""
    with log_that_nobody_reads(folder) as (device, log):
        refuse(folder / "s", 12000)  # more than the megabyte that is kept
        refused = lost = 0
        while refused + lost < 12000:
            if not select.select([log], [], [], 0.2)[0]:
                refuse(folder / "s", 1)  # what was lost is told before the next line
            line = log.readline().decode()
            assert line.endswith("\n"), line
            if told := re.fullmatch(r"(\d+) lines of the log were lost: nobody took them\n", line):
                lost += int(told[1])
            else:
                assert "a window was refused" in line, line
                refused += 1
        assert refused > 5000
        assert lost > 0
        device.terminate()
        assert "ending: signal" in log.read().decode()
        assert device.wait(20) == 0


def test_events_that_nobody_took_are_counted(folder):
    """Once somebody reads again; each line is whole."""
    out, end = os.pipe()
    windows = [word for i in range(40) for word in ("--window", folder / f"w{i}")]
    command = [binary("merapi-device"), "--model", "--json", "--size", "2M", "--log-level", "off", *windows]
    device = subprocess.Popen(command, stdout=end)
    os.close(end)
    try:
        with open(out) as lines:
            for _ in windows:  # of each that it began, and that it is ready
                lines.readline()
            for _ in range(1000):  # some 10 KB each; those that come together are one
                device.send_signal(signal.SIGUSR1)
                time.sleep(0.002)
            lost = seen = 0
            device.send_signal(signal.SIGUSR1)
            end = time.monotonic() + 60
            while lost == 0:
                assert time.monotonic() < end, "nothing was lost"
                event = json.loads(lines.readline())
                seen += 1
                lost = event["events"] if event["event"] == "lost" else 0
                if seen % 10 == 0:
                    device.send_signal(signal.SIGUSR1)
            assert 0 < lost < 1000
            device.terminate()
            assert json.loads(lines.readlines()[-1])["event"] == "status"
        assert device.wait(20) == 0
    finally:
        device.kill()
        device.wait(10)


def test_a_full_disk_makes_no_half_lines(folder):
    """What was begun was given up, and the next line followed on the half one; nobody counted what was lost."""
    path = folder / "events"
    command = [binary("merapi-device"), "--model", "--json", "--socket", folder / "s"]
    with open(path, "w") as out:
        device = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
    try:

        def ask(times):
            for _ in range(times):
                device.send_signal(signal.SIGUSR1)
                time.sleep(0.01)

        wait_until(lambda: "ready" in path.read_text())
        hard = resource.prlimit(device.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(device.pid, resource.RLIMIT_FSIZE, (path.stat().st_size + 45, hard))
        ask(10)
        assert path.stat().st_size < 200
        seconds = processor_seconds(device)
        time.sleep(1)
        assert processor_seconds(device) - seconds < 0.3
        resource.prlimit(device.pid, resource.RLIMIT_FSIZE, (hard, hard))
        ask(1)
        wait_until(lambda: path.read_text().count("status") > 5)
        device.terminate()
        assert device.wait(20) == 0
    finally:
        device.kill()
        device.wait(10)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert {event["event"] for event in events} == {"ready", "status"}


def test_paths_that_are_no_text(folder):
    path = os.fsencode(folder) + b"/x\xff"
    command = [binary("merapi-device"), "--model", "--json", "--window", path, "--size", "64M"]
    device = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert json.loads(device.stdout.readline())["context"]["window"].endswith("/x\ufffd")
        assert json.loads(device.stdout.readline())["where"].endswith("/x\ufffd")
        device.terminate()
        assert device.wait(20) == 0
    finally:
        device.kill()
        device.communicate()
