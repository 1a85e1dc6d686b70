# SPDX-License-Identifier: Apache-2.0
"""Paths, errors, checksums and progress lines shared by the set-up and build tools."""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
CACHE = Path(os.environ.get("MERAPI_CACHE") or Path.home() / ".cache" / "merapi").absolute()
CACHE_LOCKS = CACHE / "locks"


def fail(message):
    """Print one error (expected, found, what to do) and end with status 1."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(1)


# What the machine does not let us do is no error of ours that a trace would explain.
OTHERS = "it belongs to somebody else: work in a clone, and with a cache (MERAPI_CACHE), of your own"
REMEDIES = {
    errno.EACCES: OTHERS,
    errno.EPERM: OTHERS,
    errno.EROFS: "work where files can be written",
    errno.ENOSPC: "make room there and start again",
    errno.EDQUOT: "make room there and start again",
}


def tell(kind, error, trace):
    """What ends a tool: Ctrl-C and refusals of the system in a line, all else with its trace. After Ctrl-C the
    interpreter ends by the signal all the same."""
    name = Path(sys.argv[0]).name
    if issubclass(kind, KeyboardInterrupt):
        print(f"{name}: stopped", file=sys.stderr)
    elif issubclass(kind, OSError) and error.errno in REMEDIES:
        at = f"{error.filename}: " if error.filename else ""
        print(f"{name}: {at}{error.strerror}; {REMEDIES[error.errno]}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = tell


def inputs():
    """The recorded versions and checksums of the JDK and of the Java programs' libraries."""
    return tomllib.loads((ROOT / "tools/inputs.toml").read_text())


def sha256(*paths):
    """SHA-256 (hex) over the contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def say(message):
    """One line about a step that starts; flushed, so that it is seen while the step runs."""
    print(message, flush=True)


class Progress:
    """Share of a long step: one line rewritten on a terminal, a line per ten percent (or 50 files) elsewhere."""

    def __init__(self, title, total=0):
        """`total` 0: unknown, the count alone is shown."""
        self.title, self.total, self.shown, self.begin = title, total, None, time.monotonic()
        self.live = sys.stdout.isatty()

    def at(self, done):
        seconds = f"{time.monotonic() - self.begin:.0f} s"
        if self.total:
            percent = min(100, 100 * done // self.total)
            step, text = percent if self.live else percent // 10, f"{percent:3d} % ({done} of {self.total}, {seconds})"
        else:
            step, text = done if self.live else done // 50, f"{done} ({seconds})"
        if step != self.shown:
            self.shown = step
            text = f"{self.title}: {text}"
            print(f"\r{text}" if self.live else text, end="" if self.live else "\n", flush=True)

    def end(self):
        if self.live and self.shown is not None:
            print(flush=True)


def count(text):
    """An argument that is a whole number of one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"expected a whole number, 1 or more, found '{text}'; give one or leave it out"
        )
    return int(text)


def above_zero(text):
    """An argument that is a number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found '{text}'; give one or leave it out")
    return number


def expect_built(paths):
    """What a tool takes is looked at before it works for minutes; {path: the target of make that makes it}."""
    for path, target in paths.items():
        if not path.exists():
            fail(f"expected {path}, found nothing; run 'make {target}'")


@contextlib.contextmanager
def exclusive(name, folder=BUILD / "locks"):
    """One process at a time in the step `name` of this clone, or of all that share CACHE_LOCKS; a second one waits and
    says so on standard error: what a tool answers may be on the other one."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process in '{name}'", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path, data):
    """Write bytes so that whoever is interrupted, or finds no room, leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def read_json(path):
    """What a JSON file holds that a tool of ours left; None when it is not there or cannot be read as JSON, as one that
    was cut off: what it tells of is made again."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


def write_if_changed(path, data):
    """Write bytes unless the file has them already (so that make sees no change). Returns True when written."""
    if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
        return False
    write_whole(path, data)
    return True
