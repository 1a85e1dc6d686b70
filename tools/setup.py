#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Set the machine up: Debian packages and the private Python environment.

Does nothing, in well under a second, when everything is there. Packages are
installed only by root; for anybody else the command to run is printed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from common import BUILD, CACHE, ROOT, exclusive, fail, say, sha256

PACKAGES = ROOT / "tools/debian-packages.txt"
REQUIREMENTS = ROOT / "tools/requirements.txt"


def wanted_packages():
    """Names in tools/debian-packages.txt."""
    lines = (line.split("#")[0].strip() for line in PACKAGES.read_text().splitlines())
    return [line for line in lines if line]


def installed(packages):
    """{name: version} of those packages that dpkg has installed."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status} ${Version}\n", *packages],
        capture_output=True,
        text=True,
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == "installed"}


def debian_packages():
    """Install what is missing and record the versions in build/setup/packages.json."""
    if not shutil.which("dpkg-query"):
        fail("expected a Debian system (12 or 13), found no dpkg-query; use a Debian machine or container")
    wanted = wanted_packages()
    missing = [p for p in wanted if p not in installed(wanted)]
    if missing:
        names = " ".join(missing)
        if os.geteuid() != 0:
            fail(
                f"{len(missing)} Debian package(s) are missing; as root run:\n  "
                f"apt-get update && apt-get install -y --no-install-recommends {names}\nand start again"
            )
        say(f"installing {len(missing)} Debian package(s): {names}")
        log = BUILD / "setup/apt.log"
        with open(log, "w") as file:
            done = subprocess.run([ROOT / "tools/apt_install.sh", *missing], stdout=file, stderr=file)
        if done.returncode:
            tail = "\n".join(log.read_text().splitlines()[-15:])
            fail(f"apt-get could not install them; see {log}\n{tail}")
    versions = installed(wanted)
    (BUILD / "setup/packages.json").write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n")


def has_pytest(venv):
    """False also when the Python that it was made with has gone, as after an upgrade of Debian."""
    look = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('pytest'))"
    try:
        return subprocess.run([venv / "bin/python", "-c", look], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def python_environment():
    """build/venv with exactly tools/requirements.txt."""
    venv, stamp = BUILD / "venv", BUILD / "venv/requirements.sha256"
    state = sha256(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == state and has_pytest(venv):
        return
    say("preparing build/venv (pytest, ruff, clang-format)")
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    if subprocess.run([*pip, "-r", REQUIREMENTS]).returncode:
        shutil.rmtree(venv, ignore_errors=True)
        fail("pip could not install tools/requirements.txt; check the network and pip's configuration")
    stamp.write_text(state)


def cache_folder():
    """Downloads and compiler caches go there from the first step on."""
    other = "name a folder of your own: MERAPI_CACHE=DIR"
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"expected a cache folder at {CACHE}, found: {error.strerror}; {other}")
    # All of ccache's, which ends a compilation when it may not write into one of them.
    below = (Path(path) for path, _, _ in os.walk(CACHE / "ccache"))
    for folder in (CACHE, *(path for path in CACHE.iterdir() if path.is_dir()), *below):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            fail(f"expected to be allowed to write into the cache folder {folder}, found that we are not; {other}")


def own_build():
    """What CMake, configure and the JDK's archives leave in build/ names this clone by its path: in a copy of the clone
    they would build the other one's sources, into the other one's folder."""
    stamp, here = BUILD / "setup/place", os.fsencode(ROOT)
    if not stamp.exists():
        stamp.write_bytes(here)
    elif (made := stamp.read_bytes()) != here:
        fail(f"expected a build/ that was made in {ROOT}, found one made in {os.fsdecode(made)}; run: make clean")


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    (BUILD / "setup").mkdir(parents=True, exist_ok=True)
    own_build()
    cache_folder()
    with exclusive("setup"):
        debian_packages()
        python_environment()


if __name__ == "__main__":
    main()
