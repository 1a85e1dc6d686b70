#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the Java programs of sim/apps into build/apps: libraries fetched by Maven, classes compiled by javac."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from common import BUILD, ROOT, exclusive, fail, inputs, say, sha256
from jdk_image import base_folder

APPS = ROOT / "sim/apps"
OUT = BUILD / "apps"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def maven_environment():
    """Environment of mvn, which ends where JAVA_HOME names no JDK and does without the variable."""
    home = os.environ.get("JAVA_HOME")
    stale = home is not None and not os.access(Path(home, "bin/java"), os.X_OK)
    return {k: v for k, v in os.environ.items() if not (stale and k == "JAVA_HOME")}


def libraries():
    """Fetch the libraries of pom.xml and compare each with its recorded checksum."""
    folder, stamp = OUT / "lib", OUT / "lib.sha256"
    state = sha256(APPS / "pom.xml", ROOT / "tools/inputs.toml")
    if folder.exists() and stamp.exists() and stamp.read_text() == state:
        return
    say("fetching the Java libraries of sim/apps")
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    command = ["mvn", "--quiet", "--batch-mode", "-f", APPS / "pom.xml", COPY, "-DincludeScope=runtime"]
    command.append(f"-DoutputDirectory={folder}")
    done = subprocess.run(command, capture_output=True, text=True, env=maven_environment())
    if done.returncode:
        fail(f"mvn could not fetch the libraries of sim/apps/pom.xml\n{done.stdout}{done.stderr}")
    found = {path.name: sha256(path) for path in sorted(folder.glob("*.jar"))}
    if found != inputs()["maven"]:
        shutil.rmtree(folder)
        fail(f"expected the libraries and SHA-256 sums of tools/inputs.toml [maven], found {found}")
    stamp.write_text(state)


def classes():
    folder, stamp = OUT / "classes", OUT / "classes.sha256"
    sources = sorted((APPS / "src/main/java").rglob("*.java"))
    state = sha256(*sources, OUT / "lib.sha256")
    if folder.exists() and stamp.exists() and stamp.read_text() == state:
        return
    say("compiling sim/apps")
    stamp.unlink(missing_ok=True)  # a compiler that ends with an error has written some of the classes
    shutil.rmtree(folder, ignore_errors=True)
    # The class files run on the patched and on the unpatched JDK alike.
    javac = base_folder() / "bin/javac"
    command = [javac, "--release", "17", "-Xlint:all", "-Werror", "-d", folder, "-cp", f"{OUT}/lib/*"]
    if subprocess.run([*command, *sources]).returncode:
        fail("the programs of sim/apps do not compile; see above")
    stamp.write_text(state)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    with exclusive("apps"):
        OUT.mkdir(parents=True, exist_ok=True)
        libraries()
        classes()


if __name__ == "__main__":
    main()
