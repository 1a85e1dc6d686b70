# SPDX-License-Identifier: Apache-2.0
"""Yosys, as synthesis, mutation, coverage and proofs start it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path


class YosysError(Exception):
    """It is not there, is not done in time, or has failed; the text says which, and what to do."""


def run_script(yosys: str, script: str, work: Path, seconds: int) -> None:
    """Run `script` (X.ys) in the folder `work` with the command `yosys`; what it says goes to X.log."""
    log = Path(script).with_suffix(".log").name
    try:
        done = subprocess.run(
            [*shlex.split(yosys), "-q", "-l", log, script],
            cwd=work, capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
    except OSError as error:
        raise YosysError(
            f"expected Yosys in '{yosys}', found {error.strerror}: install it (Debian: yosys) or name another one"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise YosysError(
            f"expected Yosys to be done with {work / script} in {seconds} s, found it at work; see {work / log}"
        ) from error
    if done.returncode != 0:
        said = done.stderr + done.stdout
        raise YosysError(
            f"Yosys failed on {work / script}: {'; '.join(re.findall('ERROR.*', said)) or said.strip()[-600:]}"
        )
