# SPDX-License-Identifier: Apache-2.0
"""What the build of the Java programs takes from its environment."""

import subprocess

import build_apps
import pytest


@pytest.mark.parametrize("kind", ["none", "java", "text", "empty"])
def test_a_stale_java_home_is_not_maven_s(tmp_path, monkeypatch, kind):
    """It was found out minutes later, by mvn."""
    home = tmp_path / "jdk"
    java = home / "bin/java"
    if kind != "none":
        java.parent.mkdir(parents=True)
    if kind in ("java", "text"):
        java.write_text("#!/bin/sh\n")
    if kind == "java":
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert build_apps.maven_environment().get("JAVA_HOME") == (str(home) if kind == "java" else None)


def test_mvn_does_without_it(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")
    run = {"capture_output": True, "text": True}
    assert subprocess.run(["mvn", "--version"], **run).returncode != 0
    done = subprocess.run(["mvn", "--version"], env=build_apps.maven_environment(), **run)
    assert done.returncode == 0, done
