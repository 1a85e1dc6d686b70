# SPDX-License-Identifier: Apache-2.0
"""The JDK's source tree of one variant: fetched, checked, unpacked, patched and overlaid.

The tree is brought to its wanted state incrementally: a file whose contents do
not change is not touched, so that `make` in the JDK recompiles only what a
change of a patch or of the overlay really reaches. Files that somebody edited
in the tree by hand are never overwritten silently.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import (
    BUILD,
    CACHE,
    CACHE_LOCKS,
    ROOT,
    exclusive,
    fail,
    inputs,
    read_json,
    say,
    sha256,
    write_if_changed,
    write_whole,
)

PATCHES = ROOT / "sw/jvm-patch/patches"
OVERLAY = ROOT / "sw/jvm-patch/overlay"
HEADERS = ROOT / "sw/libmerapi/include/merapi"
# HotSpot's include path has src/hotspot/share, so the public headers are found as "merapi/merapi.h".
HEADERS_IN_JDK = Path("src/hotspot/share/merapi")
# What tar says when a name is not in the archive, and at its end then.
NOT_THERE = re.compile(r"tar: (.*: Not found in archive|Exiting with failure status due to previous errors)")


def is_intact(path, expected):
    """Whether the file is there with this SHA-256; one that was looked at is not read again."""
    if not path.exists():
        return False
    checked, state = path.with_name(path.name + ".ok"), f"{path.stat().st_size} {path.stat().st_mtime_ns}"
    if checked.exists() and checked.read_text() == state:
        return True
    if sha256(path) != expected:
        return False
    checked.write_text(state)
    return True


def debian_files(kind, verb):
    """Paths of the JDK's Debian files ('source_files' or 'binary_files'), fetched when missing, always checked. What an
    interrupted download left under a file's name is fetched again."""
    jdk = inputs()["jdk"]
    paths = [CACHE / "src" / name for name in jdk[kind]]

    def missing():
        return [path for path in paths if not is_intact(path, jdk[kind][path.name])]

    if missing():
        with exclusive("jdk-files", CACHE_LOCKS):
            if lacking := missing():
                fetch(lacking, paths, verb)
            for path in missing():
                found = f"one with SHA-256 {sha256(path)}" if path.exists() else "nothing"
                fail(
                    f"{path}: expected a file with SHA-256 {jdk[kind][path.name]} (tools/inputs.toml), found {found} "
                    f"after fetching; has {jdk['suite']} moved on from {jdk['version']}?"
                )
    return paths


def fetch(lacking, paths, verb):
    """Fetch the files at `lacking` anew with those of their package or packages, `paths`."""
    jdk = inputs()["jdk"]
    say(f"fetching {', '.join(p.name for p in lacking)}")
    for path in lacking:
        path.unlink(missing_ok=True)
    names = [jdk["source"]] if verb == "source" else [p.name.split("_")[0] for p in paths]
    packages = [f"{name}={jdk['version']}" for name in names]
    tool = [sys.executable, str(ROOT / "tools/apt_root.py"), verb, "--suite", jdk["suite"]]
    if subprocess.run([*tool, "--dest", str(CACHE / "src"), *packages]).returncode:
        fail(f"expected {' '.join(packages)} in Debian {jdk['suite']}; see the message above")


def patch_files():
    return sorted(PATCHES.glob("*.patch")) if PATCHES.is_dir() else []


def overlay_files():
    """{path in the JDK tree: file here} of the overlay and of libmerapi's public headers."""
    files = {HEADERS_IN_JDK / path.name: path for path in sorted(HEADERS.glob("*.h"))}
    if OVERLAY.is_dir():
        files |= {p.relative_to(OVERLAY): p for p in sorted(OVERLAY.rglob("*")) if p.is_file()}
    return files


def touched(patch):
    """Paths that a unified diff creates, changes or deletes."""
    names = re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", patch.read_text(), re.M)
    return sorted({Path(name) for name in names})


def digest(data):
    return None if data is None else hashlib.sha256(data).hexdigest()


class Tree:
    """Source tree of a variant ('merapi' and 'fastdebug': with patches and overlay, 'stock': as released)."""

    def __init__(self, variant):
        self.variant = variant
        self.dir = BUILD / "jdk" / variant
        self.src = self.dir / "src"
        self.pristine = self.dir / "pristine"
        self.state_file = self.dir / "synced.json"

    def unpack(self, force=False):
        """Unpack the release unless its tree exists; that of another release gives way with all that was made of it."""
        release, stamp = inputs()["jdk"]["source_files"], self.dir / "release.json"
        if (self.src / "configure").exists():
            # A tree without a stamp is of a time when it was not kept, or the stamp was cut off.
            if read_json(stamp) in (None, release):
                write_if_changed(stamp, json.dumps(release).encode())
                return
            if not force and (edited := self.edited()):
                fail(
                    f"{self.src} is of another release than tools/inputs.toml names, and these files in it were edited "
                    f"by hand; carry the edits over (build_jdk.py diff) or start with --force: {', '.join(edited)}"
                )
        stamp.unlink(missing_ok=True)
        for made in (self.src, self.pristine, self.dir / "out"):
            shutil.rmtree(made, ignore_errors=True)
        for made in (self.state_file, self.dir / "configured.json"):
            made.unlink(missing_ok=True)
        (tarball,) = debian_files("source_files", "source")
        say(f"unpacking the JDK's source into {self.src.relative_to(ROOT)}")
        part = self.dir / "src.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        subprocess.run(["tar", "-xf", tarball, "--strip-components=1", "-C", part], check=True)
        part.rename(self.src)
        write_if_changed(stamp, json.dumps(release).encode())

    def edited(self):
        """Files of patches and overlay that are not what `sync` made of them."""
        before = read_json(self.state_file) or {}
        now = {p: digest((self.src / p).read_bytes()) if (self.src / p).exists() else None for p in before}
        return sorted(p for p in before if now[p] != before[p])

    def extract(self, paths, folder):
        """Take those of `paths` that the release has from it into `folder`."""
        (tarball,) = debian_files("source_files", "source")
        names = "".join(f"*/{p}\n" for p in paths)
        command = ["tar", "-xf", tarball, "--strip-components=1", "--wildcards", "--no-wildcards-match-slash"]
        command += ["-C", folder, "-T", "-"]
        done = subprocess.run(command, input=names, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        said = done.stderr.splitlines()
        # Status 2 is an answer where names are not in the archive, and nothing else went wrong.
        if done.returncode and not (done.returncode == 2 and said and all(NOT_THERE.fullmatch(line) for line in said)):
            tail = "\n".join(said[-5:])
            fail(
                f"expected the released files from {tarball}, found tar ending with status {done.returncode}; "
                f"mend what it says and start again\n{tail}".rstrip()
            )

    def originals(self, paths):
        """{path: bytes as released, None when the release has no such file}; kept in `pristine`."""
        absent = self.pristine / "absent.json"
        known = set(read_json(absent) or ())
        wanted = [p for p in paths if str(p) not in known and not (self.pristine / p).exists()]
        if wanted:
            part = self.dir / "pristine.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            self.extract(wanted, part)
            for path in wanted:
                if (part / path).exists():
                    (self.pristine / path).parent.mkdir(parents=True, exist_ok=True)
                    (part / path).replace(self.pristine / path)
                else:
                    known.add(str(path))
            write_whole(absent, json.dumps(sorted(known)).encode())
            shutil.rmtree(part)
        return {p: (self.pristine / p).read_bytes() if (self.pristine / p).exists() else None for p in paths}

    def wanted(self):
        """{path: bytes, None for a file to delete}: what patches and overlay make of the release."""
        if self.variant == "stock":
            return {}
        patches = patch_files()
        paths = sorted({path for patch in patches for path in touched(patch)})
        files = dict(self.originals(paths))
        with tempfile.TemporaryDirectory(prefix="merapi-patch-") as folder:
            staging = Path(folder)
            for path, data in files.items():
                if data is not None:
                    (staging / path).parent.mkdir(parents=True, exist_ok=True)
                    (staging / path).write_bytes(data)
            for patch in patches:
                command = ["patch", "-p1", "--batch", "--no-backup-if-mismatch", "-F0", "-i", str(patch)]
                done = subprocess.run(command, cwd=staging, capture_output=True, text=True)
                if done.returncode:
                    fail(
                        f"{patch.relative_to(ROOT)} does not apply to JDK {inputs()['jdk']['version']} after the "
                        f"patches before it; refresh it\n{done.stdout}{done.stderr}"
                    )
            for path in paths:
                files[path] = (staging / path).read_bytes() if (staging / path).exists() else None
        for path, file in overlay_files().items():
            if path in files:
                fail(f"{path} is in the overlay and in a patch; it can only be in one of them")
            files[path] = file.read_bytes()
        return files

    def sync(self, force=False):
        """Bring the unpacked tree to its wanted state. Returns the number of files changed."""
        files = self.wanted()
        before = read_json(self.state_file) or {}
        gone = [Path(p) for p in before if Path(p) not in files]
        for path, data in self.originals(gone).items():
            files[path] = data
        released = self.originals([p for p in files if str(p) not in before])
        edited, changes = [], []
        for path, data in sorted(files.items()):
            target = self.src / path
            now = digest(target.read_bytes()) if target.exists() else None
            if now == digest(data):
                continue
            if now not in (before.get(str(path)), digest(released.get(path))):
                edited.append(str(path))
            changes.append((path, data))
        if edited and not force:
            fail(
                "these files in the unpacked tree were edited by hand and differ from patches and overlay; carry the "
                f"edits over (build_jdk.py diff) or start with --force: {', '.join(edited)}"
            )
        for path, data in changes:
            if data is None:
                (self.src / path).unlink()
            else:
                write_if_changed(self.src / path, data)
        state = {str(p): digest(data) for p, data in files.items() if p not in gone}
        self.dir.mkdir(parents=True, exist_ok=True)
        write_whole(self.state_file, (json.dumps(state, indent=1, sort_keys=True) + "\n").encode())
        return len(changes)

    def diff(self, only=()):
        """Unified diff from the release to the tree as it is: of the files that `only` names, and of the patched files
        in folders that it names; of all patched files when it names nothing."""
        patched = {path for patch in patch_files() for path in touched(patch)}
        paths = set() if only else set(patched)
        for path in map(Path, only):
            found = {path} if (self.src / path).is_file() else {p for p in patched if path in (p, *p.parents)}
            if not found:
                fail(
                    f"expected a file of {self.src}, or a folder with files that patches change, found '{path}'; "
                    "name it by its path in there"
                )
            paths |= found
        paths = sorted(paths)
        self.originals(paths)
        text = ""
        for path in paths:
            old, new = self.pristine / path, self.src / path
            pair = [str(f) if f.exists() else "/dev/null" for f in (old, new)]
            labels = [x if x == "/dev/null" else f"{side}/{path}" for side, x in zip("ab", pair, strict=True)]
            command = ["diff", "-u", "--label", labels[0], "--label", labels[1], *pair]
            text += subprocess.run(command, capture_output=True, text=True).stdout
        return text
