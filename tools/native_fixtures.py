# SPDX-License-Identifier: Apache-2.0
"""What tests of native programs share: where the binaries are, and a folder for sockets and windows.

Binaries come from build/native/bin or the folder in MERAPI_NATIVE.
"""

import os
import tempfile
from pathlib import Path

import pytest
from common import ROOT

BINARIES = Path(os.environ.get("MERAPI_NATIVE", ROOT / "build/native/bin"))


def binary(name):
    """Path of a program; the test fails when it was not built."""
    path = BINARIES / name
    if not path.exists():
        pytest.fail(f"expected {path}, found nothing; run: make native", pytrace=False)
    return str(path)


@pytest.fixture
def folder():
    # Short, for the length that a unix socket's path may have, and on tmpfs.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="merapi-", dir=base) as path:
        yield Path(path)
