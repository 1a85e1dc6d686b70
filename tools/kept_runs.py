# SPDX-License-Identifier: Apache-2.0
"""Runs that are the same whenever they begin with the same, as a simulation from its seed: kept in the cache by the
digest of the program and of what it is given, so that `make test` does not make them again. Only runs that passed are
kept, and whoever takes one looks at what it wrote as if it had been made just now."""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import fail, sha256
from kept import DIGESTS, Kept

MOST = 1000  # some 120 of each version of the tracer; a few kB each


def wanted():
    """MERAPI_ONCE=1: `make test` says so unless told otherwise; whatever is started by hand runs."""
    return os.environ.get("MERAPI_ONCE") == "1"


def digest(program):
    """Of what is executed. In its debug information a program says where it was compiled."""
    now = os.stat(program)
    return digest_of(program, (now.st_ino, now.st_size, now.st_mtime_ns))


@functools.cache
def digest_of(program, _identity):
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare"
        stripped = subprocess.run(["strip", "--strip-debug", "-o", bare, program], capture_output=True, check=False)
        return sha256(program if stripped.returncode else bare)


def once(key_now, make):
    """(what the run of this key has left: texts by their files' names; was it there). `key_now` tells the key, which
    must be the same when the run is over; `make` fills an empty folder, and raises when the run fails. A run that is
    made leaves nothing of an earlier one."""
    kept, key = Kept("runs", MOST), key_now()
    found = kept.find(key) if wanted() else None
    if found:
        with contextlib.suppress(OSError):  # another process makes it again
            return texts(found, json.loads((found / DIGESTS).read_text())), True
    shutil.rmtree(kept.folder / key, ignore_errors=True)
    with kept.made(key) as part:
        make(part)
        if key_now() != key:
            fail("expected programs, sources and records that stay as they are while tests run, found them changed")
        return texts(part, os.listdir(part)), False


def texts(folder, names):
    return {name: (folder / name).read_text() for name in names}
