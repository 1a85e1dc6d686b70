# SPDX-License-Identifier: Apache-2.0
"""Windows saved from running programs: traced again without the JVM, they give what a naive closure gives."""

import json
import re
import subprocess

import jvm_harness
import pytest
from jvm_options import BASE, VERIFY

PROGRAMS = {
    "GraphRewiring": ["count=500", "cycles=4"],
    "ClassUnloading": ["cycles=4"],
    "ReferenceBlocks": ["cycles=4"],
}
FLAGS = {
    "narrow": [],
    "wide": ["-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers", "-XX:ObjectAlignmentInBytes=16"],
}


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_saved_window_replays(program, flags, java, device, classes, runs, device_program, tmp_path):
    image = tmp_path / "window.image"
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    save = [f"-XX:MerapiSaveImage={image}", "-XX:MerapiSaveImageCycle=2"]
    command = [window, *save, *VERIFY, *BASE, *FLAGS[flags], "-Xmx160m", "-cp", classes, program, *PROGRAMS[program]]
    result = runs(java, command, tmp_path).finish(120)
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    assert image.exists(), result.describe("expected a saved window")

    report = replay(device_program, image)
    assert report["unanswered"] == 0, "the image lacks answers that its host would give"
    assert report["g1_seconds"] > 0, "the image lacks the time that stock marking took"
    assert report["counters"]["objects_marked"] > 1000

    # The class path is a string of the program's heap: data, which a stripped copy does not have.
    copy, data = tmp_path / "stripped.image", str(classes).encode()
    subprocess.run([device_program.parent / "merapi-strip", image, copy], check=True, timeout=120)
    assert data in image.read_bytes() and data not in copy.read_bytes()
    stripped = replay(device_program, copy)
    for counter in ("objects_marked", "live_words", "references_read", "deferred", "shapes_seen"):
        assert stripped["counters"][counter] == report["counters"][counter], counter


def test_cycle_to_save_never_comes(java, device, classes, runs, tmp_path):
    image = tmp_path / "window.image"
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    save = [f"-XX:MerapiSaveImage={image}", "-XX:MerapiSaveImageCycle=1000"]
    command = [window, *save, *BASE, "-Xmx160m", "-cp", classes, "GraphRewiring", "count=500", "cycles=2"]
    result = runs(java, command, tmp_path).finish(120)
    jvm_harness.check_ok(result)
    expected = rf"Cannot save {image}: expected marking cycle 1000 \(MerapiSaveImageCycle\), .* ended after \d+"
    assert re.search(expected, result.log.text("gc,merapi")), result.describe(f"expected '{expected}'")
    assert not image.exists()


def replay(device_program, image):
    """The report of a replay that was compared with the naive closure."""
    command = [device_program.parent / "merapi-replay", "--check", "--json", image]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"replay of {image} ended with status {done.returncode}: {done.stderr}{done.stdout}"
    report = json.loads(done.stdout)
    assert report["checked"] and report["ok"], report
    return report
