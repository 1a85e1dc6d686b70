# SPDX-License-Identifier: Apache-2.0
"""Processes that a launcher starts and must not leave behind: devices, emulators, Java programs."""

import ctypes
import signal
import subprocess

PR_SET_PDEATHSIG = 1


def die_with_parent():
    """In the child, before it becomes a program: end when the starting process is gone, however it went."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process, seconds):
    """End a process that may run still: by SIGTERM, and when that takes longer than so many seconds by SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
