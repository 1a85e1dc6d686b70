# SPDX-License-Identifier: Apache-2.0
"""The windows of sim/test/windows, unpacked, and what a trace of each must find."""

import json
import lzma
import shutil
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "windows"
EXPECTED = json.loads((FOLDER / "windows.json").read_text())


def unpack(name, folder):
    """Path of the window `name`, unpacked into `folder`."""
    path = Path(folder) / f"{name}.img"
    with lzma.open(FOLDER / f"{name}.img.xz") as packed, open(path, "wb") as file:
        shutil.copyfileobj(packed, file)
    return path
