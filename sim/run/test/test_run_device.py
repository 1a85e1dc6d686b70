# SPDX-License-Identifier: Apache-2.0
"""Starting and ending a device process: it and its socket are gone afterwards, whatever happened."""

import os
import socket
import stat

import pytest
from device import Device, DeviceError

READY = """#!/usr/bin/env python3
import socket, sys, time
path = sys.argv[sys.argv.index("--socket") + 1]
server = socket.socket(socket.AF_UNIX)
server.bind(path)
print("ready " + path, flush=True)
time.sleep(60)
"""
DIES = "#!/bin/sh\necho 'no room for a window' >&2\nexit 3\n"
BABBLES = "#!/bin/sh\necho hello\nsleep 60\n"


def program(tmp_path, text):
    path = tmp_path / "device-program"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_serves_and_is_gone_afterwards(tmp_path):
    with Device(program(tmp_path, READY), "model", tmp_path / "run") as device:
        assert device.alive() and stat.S_ISSOCK(device.socket.stat().st_mode)
        assert device.cpu_ms() > 0
        path, pid = device.socket, device.process.pid
    assert gone(pid) and not path.exists()


def test_is_gone_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), Device(program(tmp_path, READY), "model", tmp_path / "run") as device:
        path, pid = device.socket, device.process.pid
        raise KeyboardInterrupt
    assert gone(pid) and not path.exists()


def test_a_long_folder_gets_a_short_socket(tmp_path):
    folder = tmp_path / ("x" * 120)
    with Device(program(tmp_path, READY), "model", folder) as device:
        assert len(os.fsencode(device.socket)) <= 107
        private = device.socket.parent
        client = socket.socket(socket.AF_UNIX)
        client.close()
    assert not private.exists()


def test_says_why_it_did_not_start(tmp_path):
    with pytest.raises(DeviceError, match="(?s)status 3.*no room for a window"):
        Device(program(tmp_path, DIES), "model", tmp_path / "run").__enter__()
    device = Device(program(tmp_path, BABBLES), "model", tmp_path / "run")
    with pytest.raises(DeviceError, match="expected 'ready PATH'"):
        device.__enter__()
    assert not device.alive()


def test_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(DeviceError, match="DEVICE=model"):
        Device(program(tmp_path, READY), "fpga", tmp_path)
    with pytest.raises(DeviceError, match="make native"):
        Device(tmp_path / "nothing", "model", tmp_path)
