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


DEBIAN = "/usr/share/keyrings/debian-archive-keyring.gpg"
OTHERS = """
deb [arch=amd64 signed-by=/usr/share/keyrings/hashicorp.gpg] https://hashicorp.test bookworm main
deb https://pgdg.test/pub/repos/apt bookworm-pgdg main
deb-src https://sources.test/debian bookworm main
# deb https://off.test/debian bookworm main
deb https://parts.test/debian bookworm contrib
"""
STANZAS = """
Types: deb
URIs: http://one.test/debian
Suites: bookworm bookworm-updates
Components: contrib main
Signed-By: {key}

Types: deb deb-src
URIs: http://one.test/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://off.test/debian
Suites: bookworm
Components: main
"""


def sources(folder, line="", stanzas=""):
    (folder / "sources.list.d").mkdir()
    (folder / "sources.list").write_text(line)
    (folder / "sources.list.d/others.list").write_text(OTHERS)
    (folder / "sources.list.d/debian.sources").write_text(stanzas)
    return apt_root.machine_archives(folder)


def test_archives_of_others_are_not_taken_for_debians(tmp_path):
    """They name their suites after Debian's, and were asked for suites that they do not have."""
    assert sources(tmp_path, stanzas=STANZAS.format(key=DEBIAN)) == [
        ("http://one.test/debian", DEBIAN, False),
        ("http://one.test/debian-security", None, True),
    ]


def test_a_mirror_is_known_by_its_key_or_its_path(tmp_path):
    line = f"deb [signed-by={DEBIAN}] mirror+file:/etc/apt/mirrors.list trixie main\n"
    assert sources(tmp_path, line) == [("mirror+file:/etc/apt/mirrors.list", DEBIAN, False)]


def test_a_mirror_of_any_name_is_taken_when_there_is_no_other(tmp_path):
    found = sources(tmp_path, "deb http://proxy.test/cached-archive stable main\n")
    assert ("http://proxy.test/cached-archive", None, False) in found


def test_settings_of_the_machine_do_not_choose_versions(tmp_path, monkeypatch):
    """A default release that the private lists do not have ended every download; pins chose for other suites."""
    (tmp_path / "apt.conf").write_text('APT::Default-Release "sid";\nDir::Etc::preferences "/etc/hosts";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    root = object.__new__(apt_root.AptRoot)
    root.suite, root.dir = "trixie", tmp_path
    command = ["apt-config", *root.options(tmp_path / "sources.list"), "dump"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'APT::Default-Release "";' in said and 'Dir::Etc::preferences "/dev/null";' in said


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
