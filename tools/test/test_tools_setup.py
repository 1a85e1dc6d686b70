# SPDX-License-Identifier: Apache-2.0
"""Set-up: nothing to do when everything is there, a clear message when it cannot be done."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import common
import pytest
import setup


def test_packages_are_named_once_and_with_a_reason():
    lines = [x for x in setup.PACKAGES.read_text().splitlines() if x.strip() and not x.startswith("#")]
    assert all("#" in line for line in lines), "each line: package  # why"
    names = setup.wanted_packages()
    assert len(names) == len(set(names)) == len(lines)


def test_everything_is_installed_here():
    names = setup.wanted_packages()
    assert sorted(setup.installed(names)) == sorted(names)


def test_missing_packages_are_listed_for_those_who_may_not_install(monkeypatch, capsys):
    monkeypatch.setattr(setup, "wanted_packages", lambda: ["make", "no-such-package-a", "no-such-package-b"])
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit):
        setup.debian_packages()
    error = capsys.readouterr().err
    assert "2 Debian package(s) are missing" in error
    assert "apt-get update && apt-get install -y --no-install-recommends no-such-package-a no-such-package-b" in error


def test_a_build_of_another_clone_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "build/setup").mkdir(parents=True)
    monkeypatch.setattr(setup, "BUILD", tmp_path / "build")
    monkeypatch.setattr(setup, "ROOT", tmp_path / "clone")
    for _ in range(2):
        setup.own_build()
    monkeypatch.setattr(setup, "ROOT", tmp_path / "copy")
    with pytest.raises(SystemExit):
        setup.own_build()
    assert f"made in {tmp_path / 'copy'}, found one made in {tmp_path / 'clone'}; run: make" in capsys.readouterr().err


def run_setup(**environment):
    command = [sys.executable, setup.ROOT / "tools/setup.py"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


def test_a_cache_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file/below", Path("/proc/cache")):
        done = run_setup(MERAPI_CACHE=str(cache))
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert f"setup.py: expected a cache folder at {cache}, found: " in done.stderr
        assert "MERAPI_CACHE=DIR" in done.stderr


def test_a_part_of_the_cache_that_is_another_s_is_told(tmp_path, monkeypatch, capsys):
    """ccache makes folders below its own as whoever comes first, and ended the compilation of the next user."""
    (tmp_path / "ccache/d/2").mkdir(parents=True)
    (tmp_path / "ccache/d/2/file").touch()
    monkeypatch.setattr(setup, "CACHE", tmp_path)
    setup.cache_folder()
    for folder in (tmp_path / "ccache", tmp_path / "ccache/d/2"):
        monkeypatch.setattr(setup.os, "access", lambda path, mode, folder=folder: path != folder)
        with pytest.raises(SystemExit):
            setup.cache_folder()
        assert f"write into the cache folder {folder}, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "build/x"), "build/x: Permission denied; it belongs to "),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room"),
    ],
)
def test_what_the_machine_refuses_is_told_in_a_line(error, said, capsys):
    common.tell(type(error), error, None)
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_other_errors_have_their_trace(capsys):
    common.tell(KeyError, KeyError("x"), None)
    assert "KeyError: 'x'" in capsys.readouterr().err


def test_an_environment_of_a_python_that_has_gone_is_none(tmp_path):
    assert setup.has_pytest(common.BUILD / "venv")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pytest").touch()
    (tmp_path / "bin/python").symlink_to(tmp_path / "python3.9")
    assert not setup.has_pytest(tmp_path)
    (tmp_path / "python3.9").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3.9").chmod(0o755)
    assert not setup.has_pytest(tmp_path)


def test_python_tools_are_pinned_with_checksums():
    lines = [x for x in setup.REQUIREMENTS.read_text().splitlines() if x.strip() and not x.startswith("#")]
    assert lines and all("==" in line and "--hash=sha256:" in line for line in lines)


def test_inputs_have_versions_and_checksums():
    inputs = common.inputs()
    sums = {**inputs["jdk"]["source_files"], **inputs["jdk"]["binary_files"], **inputs["maven"]}
    assert sums and all(len(value) == 64 for value in sums.values())
    assert all(inputs["jdk"]["release"] in name for name in inputs["jdk"]["source_files"])


def test_progress_is_a_line_per_ten_percent_without_a_terminal(capsys):
    progress = common.Progress("step", 100)
    for done in range(1, 101):
        progress.at(done)
    progress.end()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11 and lines[-1].startswith("step: 100 % (100 of 100")
