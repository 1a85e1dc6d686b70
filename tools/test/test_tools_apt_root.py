# SPDX-License-Identifier: Apache-2.0
"""Command line of apt_root.py, as the JDK's build and the guest's set-up write it."""

import hashlib
import json
import os
import subprocess
import sys

import apt_root
import pytest
from common import ROOT


def test_packages_behind_options():
    args = apt_root.arguments(["source", "--suite", "bookworm", "--dest", "folder", "name=1.0"])
    assert (args.verb, args.suite, str(args.dest), args.packages) == ("source", "bookworm", "folder", ["name=1.0"])


def test_packages_before_options_and_none():
    assert apt_root.arguments(["fetch", "a", "b", "--suite", "trixie"]).packages == ["a", "b"]
    assert apt_root.arguments(["index", "--suite", "trixie"]).packages == []


@pytest.mark.parametrize("before", [None, "", "{", '{"old_1_amd64.deb": {"from": "debian trixie", "sha256": "0"}}'])
def test_a_record_that_cannot_be_read_begins_anew(tmp_path, before):
    """An empty one, left when a disk was full, ended every later fetch."""
    record, deb = tmp_path / "inputs.json", tmp_path / "new_1_amd64.deb"
    deb.write_text("deb")
    if before is not None:
        record.write_text(before)
    apt_root.record(record, [deb], "trixie")
    found = json.loads(record.read_text())
    assert found["new_1_amd64.deb"] == {"from": "debian trixie", "sha256": hashlib.sha256(b"deb").hexdigest()}
    assert ("old_1_amd64.deb" in found) == ("old" in (before or ""))


APT = """#!{python}
import fcntl, os, pathlib, sys, time
lock = open({folder!r} + "/lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("E: Could not get lock")
if sys.argv[-2:] == ["update", "-q"]:
    with open({folder!r} + "/updates", "a") as log:
        print("update", file=log)
    (pathlib.Path({folder!r}) / "apt/bookworm/state/lists/Packages").touch()
time.sleep(1)
print("answer")
"""


def test_clones_that_share_a_cache_wait_for_each_other(tmp_path):
    """apt refuses a second process in its folders; the second clone was told to check its network."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("apt-get", "apt-cache"):
        (bin_folder / name).write_text(APT.format(python=sys.executable, folder=str(tmp_path)))
        (bin_folder / name).chmod(0o755)
    env = {**os.environ, "MERAPI_CACHE": str(tmp_path), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    command = [sys.executable, ROOT / "tools/apt_root.py", "index", "--suite", "bookworm"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    clones = [subprocess.Popen(command, env=env, **pipes) for _ in range(3)]
    ends = [clone.communicate(timeout=60) for clone in clones]
    assert [clone.returncode for clone in clones] == [0, 0, 0], ends
    assert [out for out, _ in ends] == ["answer\n"] * 3
    assert (tmp_path / "updates").read_text() == "update\n"
