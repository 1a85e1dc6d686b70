#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel's own style check, checkpatch.pl, over the driver. Status: 0 nothing found, 1 something was.

The script comes from the source package of the guest's kernel (fetched once, some 150 MB); its scripts stay.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import kbuild  # noqa: E402
import packages  # noqa: E402
from common import fail, say  # noqa: E402

DRIVER = packages.HERE.parent / "sw/driver"
SCRIPTS = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
OPTIONS = ("--no-tree", "--strict", "--terse")


def source_package():
    """Name and suite of the source package, of the release of the guest's kernel."""
    recipe = packages.wanted()["kernel"]
    release = recipe["at_least"]["linux-image-amd64"]
    return f"linux-source-{release}", recipe["suite"]


def scripts():
    """The folder with checkpatch.pl and what it reads, made when it is not there."""
    package, suite = source_package()
    folder = packages.STORE / f"checkpatch-{package}"
    return packages.kept(folder, SCRIPTS, lambda part: fetch(package, suite, part))


def fetch(package, suite, part):
    """Fill the empty folder `part`."""
    with tempfile.TemporaryDirectory(prefix="merapi-checkpatch-") as work:
        say(f"fetching checkpatch.pl ({package} of Debian {suite})")
        command = [sys.executable, packages.HERE.parent / "tools/apt_root.py", "fetch", "--suite", suite]
        command += ["--record", packages.STORE / "inputs.json", "--dest", work, package]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            fail(f"could not fetch {package}; see above")
        deb = next(Path(work).glob("*.deb"))
        patterns = " ".join(f"'*/scripts/{name}'" for name in SCRIPTS)
        take = (
            f"dpkg-deb --fsys-tarfile '{deb}' | tar -xO --wildcards './usr/src/*.tar.xz' | "
            f"tar -xJ -C '{work}' --strip-components=2 --wildcards {patterns}"
        )
        if subprocess.run(["bash", "-o", "pipefail", "-c", take]).returncode:
            fail(f"expected {', '.join(SCRIPTS)} in {package}, found not all of them; see above")
        for name in SCRIPTS:
            shutil.copy(Path(work) / name, part / name)


def findings(files):
    """What checkpatch says of the files, line by line; empty when it finds nothing."""
    command = ["perl", scripts() / "checkpatch.pl", *OPTIONS, "-f", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [
        line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("total: 0 errors, 0 warn")
    ]
    if done.returncode and not lines:
        fail(f"checkpatch.pl ended with status {done.returncode} and said nothing")
    return lines


def sources():
    """The driver's files in C."""
    return [file for file in kbuild.sources(DRIVER) if file.suffix in (".c", ".h")]


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    found = findings(sources())
    for line in found:
        print(line)
    if not found:
        print("checkpatch: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
