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

import packages  # noqa: E402
from common import CACHE_LOCKS, exclusive, fail, say  # noqa: E402

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

    def whole():
        return all((folder / name).exists() for name in SCRIPTS)

    if not whole():
        with exclusive(folder.name, CACHE_LOCKS):
            # Another clone may have made it meanwhile.
            if not whole():
                fetch(package, suite, folder)
    return folder


def fetch(package, suite, folder):
    """Make the folder; of a process that is alone."""
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
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        part.mkdir(parents=True)
        for name in SCRIPTS:
            shutil.copy(Path(work) / name, part / name)
        part.rename(folder)


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


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    found = findings(sorted(DRIVER.glob("tracer*.[ch]")))
    for line in found:
        print(line)
    if not found:
        print("checkpatch: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
