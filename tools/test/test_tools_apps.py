# SPDX-License-Identifier: Apache-2.0
"""What the build of the Java programs takes from its environment, and what it leaves when it fails."""

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


def test_what_a_failed_compilation_left_is_no_build(tmp_path, monkeypatch):
    """javac writes classes up to the one with an error. With the error undone they were taken for all of them."""
    source = tmp_path / "apps/src/main/java"
    source.mkdir(parents=True)
    (source / "A.java").write_text("class A {}")
    (tmp_path / "lib.sha256").write_text("")
    (tmp_path / "bin").mkdir()
    javac = tmp_path / "bin/javac"
    javac.write_text(
        '#!/bin/sh\nmkdir classes && touch classes/A.class && ! grep -q error "$0".says && touch classes/B.class\n'
    )
    javac.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build_apps, "APPS", tmp_path / "apps")
    monkeypatch.setattr(build_apps, "OUT", tmp_path)
    monkeypatch.setattr(build_apps, "ROOT", tmp_path)
    monkeypatch.setattr(build_apps, "base_folder", lambda: tmp_path)
    (tmp_path / "bin/javac.says").write_text("nothing")
    build_apps.classes()
    good = (source / "A.java").read_text()
    (source / "A.java").write_text("class A {")
    (tmp_path / "bin/javac.says").write_text("error")
    with pytest.raises(SystemExit):
        build_apps.classes()
    (source / "A.java").write_text(good)
    (tmp_path / "bin/javac.says").write_text("nothing")
    build_apps.classes()
    assert (tmp_path / "classes/B.class").exists()
