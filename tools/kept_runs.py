# SPDX-License-Identifier: Apache-2.0
"""Runs that are the same whenever they begin with the same, as a simulation from its seed: kept in the cache by the
digest of the program and of what it is given, so that `make test` does not make them again. Only runs that passed are
kept, and whoever takes one looks at what it wrote as if it had been made just now."""

import functools
import os
import subprocess
import tempfile
from pathlib import Path

from common import sha256
from kept import Kept

MOST = 1000  # some 120 of each version of the tracer; a few kB each


def wanted():
    """MERAPI_ONCE=1: `make test` says so unless told otherwise; whatever is started by hand runs."""
    return os.environ.get("MERAPI_ONCE") == "1"


@functools.cache
def digest(program):
    """Of what is executed. In its debug information a program says where it was compiled."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare"
        stripped = subprocess.run(["strip", "--strip-debug", "-o", bare, program], capture_output=True, check=False)
        return sha256(program if stripped.returncode else bare)


def once(key, make):
    """(a folder of the cache with what the run of this key has left, was it there). `make` fills an empty folder, and
    raises when the run fails."""
    kept = Kept("runs", MOST)
    found = kept.find(key) if wanted() else None
    if found:
        return found, True
    with kept.made(key) as part:
        make(part)
    return kept.folder / key, False
