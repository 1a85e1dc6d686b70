# SPDX-License-Identifier: Apache-2.0
"""Runs beside merapi-rogue, and what their logs must say: by mode, the reasons that may be given."""

import re

import jvm_harness
from jvm_options import BASE, VERIFY

PROGRAM = "GraphRewiring"
ARGUMENTS = ["-Xms128m", "-Xmx128m", "count=1500", "cycles=6"]

PATIENCE_US = 500_000

NO_DEVICE = "no device"
SILENT = "device silent|pause not acknowledged|abort not acknowledged"
BAD = "bad completion"

# Mode: the reasons that may be given.
AT_HANDSHAKE = {
    "silent": NO_DEVICE,
    "wrong-version": NO_DEVICE,
    "foreign-magic": NO_DEVICE,
    "non-coherent": NO_DEVICE,
    "small-window": NO_DEVICE,
    "dirty-rings": NO_DEVICE,
    "endless-patience": NO_DEVICE,
    "no-heap-scope": NO_DEVICE,
}
IN_TRACE = {
    "hang-up": f"device lost|{SILENT}",
    "deaf": SILENT,
    "stuck": "device stuck",
    "late-pause": SILENT,
    "garbage-bytes": BAD,
    "garbage-type": BAD,
    "too-many-words": BAD,
    "duplicate": BAD,
    "swapped": BAD,
    "torn": BAD,
    # An index below what the host has read is impossible; one that goes back no further only hides completions.
    "index-back": f"{BAD}|device stuck",
    "index-far": BAD,
    "consumed-far": BAD,
    # The host itself marks what the program overwrites: an object that it came to mark was deferred rightly.
    "defer-unmarked": f"{BAD}|device stuck",
    "defer-outside": BAD,
    "defer-misaligned": BAD,
    "shape-unknown": BAD,
    "flood": "device fault",
    "chatter": "device stuck",
    "fault-completion": "device fault",
    "fault-record": "device fault",
    "idle-early": "verification",
    "live-too-large": "bad live words",
}


def start(runs, java, device, classes, folder, *more, program=PROGRAM, given=ARGUMENTS):
    flags = [flag for flag in given if flag.startswith("-")]
    arguments = [argument for argument in given if not argument.startswith("-")]
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    return runs(java, [window, *VERIFY, *BASE, *flags, "-cp", classes, program, *arguments, *more], folder)


def rogue(program, folder, mode, *more):
    # Generous where acknowledgements are not what is tested: the machine may be busy with other things.
    patience = [] if mode in ("late-pause", "deaf", "stop") else ["--patience-us", PATIENCE_US]
    return jvm_harness.ServedDevice(program, folder / "device", "--mode", mode, *patience, *more)


def check_told(result, device, mode, reasons, abandoned):
    assert f"strike {mode} " in device.said(), result.describe(f"the device never got to '{mode}'")
    jvm_harness.check_ok(result)
    found = [f["reason"] for f in result.log.fallbacks]
    assert found, result.describe(f"expected a fallback ({reasons}), found none")
    assert re.fullmatch(reasons, found[0]), result.describe(f"expected the reason '{reasons}', found '{found[0]}'")
    if abandoned:
        jvm_harness.check_abandoned(result)


def check_used_again(result):
    events = [kind for kind, _ in result.log.events]
    later = events[events.index("fallback") :]
    assert "trace" in later, result.describe("the device was not used again after its fault")
