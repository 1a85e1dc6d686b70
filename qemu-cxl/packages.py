# SPDX-License-Identifier: Apache-2.0
"""Debian packages of the emulation, unpacked once into the cache and found again in no time.

Trees: `host` (QEMU with every library it needs, run through its own loader), `kernel` (the guest's
kernel, its modules and headers), `compiler` (for modules of that kernel) and `guest` (programs).
"""

import hashlib
import json
import re
import shutil
import subprocess
import threading
import tomllib
from pathlib import Path

import apt_root
from common import CACHE, CACHE_LOCKS, Progress, exclusive, fail, say

HERE = Path(__file__).resolve().parent
TREES = ("host", "kernel", "compiler", "guest")
STORE = CACHE / "qemu"


def wanted():
    """qemu-cxl/inputs.toml as a dictionary."""
    return tomllib.loads((HERE / "inputs.toml").read_text())


def tree_path(name):
    """Where the tree `name` is unpacked; another recipe gives another folder."""
    recipe = json.dumps(wanted()[name], sort_keys=True)
    return STORE / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def check_version(tree, name, have, least):
    if subprocess.run(["dpkg", "--compare-versions", have, "ge", least]).returncode:
        fail(f"{tree}: expected {name} at or above {least}, found {have} in the suite; is the mirror up to date?")


def versions_of(root, recipe, tree):
    """The packages to take as {name: version}: the closure of what is asked for."""
    taken = dict(p.split("=", 1) for p in root.closure(recipe["packages"]))
    for name, least in recipe.get("at_least", {}).items():
        if name not in taken:
            fail(f"{tree}: expected {name} in suite {recipe['suite']}, found nothing; run 'apt_root.py policy'")
        # The epoch says nothing about the program's own version.
        check_version(tree, name, re.sub(r"^\d+:", "", taken[name]), least)
    if "only" in recipe:
        taken = {name: version for name, version in taken.items() if name.startswith(tuple(recipe["only"]))}
        if not taken:
            fail(f"{tree}: expected packages of {recipe['only']}, found none behind {recipe['packages']}")
    return taken


def download(root, packages, debs, title):
    """Download into the folder `debs` while showing how much has arrived, in MB."""
    target = ["-t", root.suite] if root.suite.endswith("-backports") else []
    names = [f"{name}={version}" for name, version in packages.items()]
    uris = root.run("apt-get", *target, "download", "--print-uris", "-q", *names, cwd=debs)
    total = sum(int(size) for size in re.findall(r"^'[^']*' \S+ (\d+)", uris, re.M))
    progress, done, complete = Progress(title, max(1, total >> 20)), threading.Event(), threading.Event()

    def watch():
        before = sum(f.stat().st_size for f in debs.rglob("*") if f.is_file())
        while not done.wait(1):
            size = 0
            for file in list(debs.rglob("*")):
                try:
                    size += file.stat().st_size if file.is_file() else 0
                except FileNotFoundError:
                    continue
            progress.at(max(0, size - before) >> 20)
        if complete.is_set():
            progress.at(max(1, total >> 20))
        progress.end()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        root.run("apt-get", *target, "download", "-q", *names, cwd=debs)
        complete.set()
    finally:
        done.set()
        watcher.join()


def deb_of(debs, name, version):
    """The file of a package: apt writes ':' of a version as '%3a'."""
    found = [f for f in debs.glob(f"{name.split(':')[0]}_{version.replace(':', '%3a')}_*.deb")]
    if len(found) != 1:
        fail(f"expected {name} {version} in {debs}, found {len(found)} files; remove the folder and run again")
    return found[0]


def kept(path, files, fill):
    """The folder `path` of the cache with `files` in it, made once for all clones: `fill` gets an empty folder, which
    has its name only when it is whole."""

    def whole():
        return all((path / name).exists() for name in files)

    if not whole():
        with exclusive(path.name, CACHE_LOCKS):
            # Another clone may have made it meanwhile.
            if not whole():
                part = path.with_name(path.name + ".part")
                for old in (part, path):
                    shutil.rmtree(old, ignore_errors=True)
                part.mkdir(parents=True)
                fill(part)
                part.rename(path)
    return path


def tree(name):
    """The unpacked tree `name`, made when it is not there; packages.json in its folder says what it holds."""
    return kept(tree_path(name), ("packages.json",), lambda part: unpack(name, part))


def unpack(name, part):
    """Fill the empty folder `part` with the tree `name`."""
    recipe = wanted()[name]
    say(f"{name}: looking up {' '.join(recipe['packages'])} in Debian {recipe['suite']}")
    root = apt_root.AptRoot(recipe["suite"])
    # Lists of weeks ago name versions that the archive has no more.
    root.run("apt-get", "update", "-q")
    packages = versions_of(root, recipe, name)
    debs = root.dir / "cache" / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    download(root, packages, debs, f"{name}: downloading {len(packages)} packages, MB")
    # Merged /usr: packages of trixie hold files below /usr alone, and find /lib64/ld-linux through links.
    for folder in ("bin", "sbin", "lib", "lib64"):
        (part / f"usr/{folder}").mkdir(parents=True)
        (part / folder).symlink_to(f"usr/{folder}")
    files, progress = [], Progress(f"{name}: unpacking", len(packages))
    for number, (package, version) in enumerate(packages.items(), 1):
        files.append(deb_of(debs, package, version))
        extract = f"dpkg-deb --fsys-tarfile '{files[-1]}' | tar -x -C '{part}' --keep-directory-symlink"
        if subprocess.run(["bash", "-o", "pipefail", "-c", extract]).returncode:
            fail(f"could not unpack {files[-1]}; remove it and run again")
        progress.at(number)
    progress.end()
    apt_root.record(STORE / "inputs.json", files, recipe["suite"])
    (part / "packages.json").write_text(json.dumps(packages, indent=1, sort_keys=True) + "\n")


def loader_command(root, program, *arguments, name=None):
    """Command that runs a program of the tree `root` with that tree's loader and libraries alone, under `name`."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    paths = [libraries, *sorted(p for p in libraries.glob("*") if p.is_dir() and any(p.glob("lib*.so*")))]
    options = ["--library-path", ":".join(map(str, paths)), "--argv0", name or program, program]
    return [str(x) for x in [libraries / "ld-linux-x86-64.so.2", *options, *arguments]]
