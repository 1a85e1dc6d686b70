# SPDX-License-Identifier: Apache-2.0
"""Windows of real programs: replayed on the model and the simulated tracers against the naive closure, and stripped of
their programs' data."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import saved_windows
from device_processes import BINARIES, binary

# Simulated tracers; `make test-rtl-wide` has a folder of its own for those that take minutes to compile.
SIMULATIONS = Path(os.environ.get("MERAPI_RTL_BUILD", BINARIES / "../../rtl")).resolve() / "lib"
NAME = "merapi-rtl-{}.so"


def presets():
    built = sorted(p.stem.removeprefix("merapi-rtl-") for p in SIMULATIONS.glob(NAME.format("*")))
    return [p for p in built if not p.endswith("-waves")] or ["sim-small"]


def replay(image, *arguments):
    command = [binary("merapi-replay"), "--check", "--json", *arguments, image]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}{done.stdout}"
    return json.loads(done.stdout)


def found(report):
    counters = report["counters"]
    return {
        "objects_marked": counters["objects_marked"],
        "live_words": counters["live_words"],
        "deferred": report["deferred"],
        "shapes_seen": report["shapes_seen"],
    }


@pytest.mark.parametrize("pauses", [0, 3])
@pytest.mark.parametrize("name", saved_windows.EXPECTED)
def test_replay_finds_what_the_program_had(name, pauses, folder):
    report = replay(saved_windows.unpack(name, folder), "--pauses", str(pauses))
    assert report["checked"] and report["ok"] and report["unanswered"] == 0
    assert found(report) == saved_windows.EXPECTED[name]


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("name", saved_windows.EXPECTED)
def test_a_simulated_tracer_finds_the_same(name, preset, folder):
    library = SIMULATIONS / NAME.format(preset)
    assert library.exists(), f"expected {library}, found nothing; run: make rtl-simulations"
    options = ["--rtl", "--preset", preset, "--rtl-folder", str(SIMULATIONS), "--pauses", "2"]
    report = replay(saved_windows.unpack(name, folder), *options)
    assert report["checked"] and report["ok"] and report["unanswered"] == 0 and report["rtl_preset"] == preset
    assert found(report) == saved_windows.EXPECTED[name]


def strip(image, copy):
    return subprocess.run([binary("merapi-strip"), image, copy], capture_output=True, text=True, timeout=120)


def test_strip_of_a_stripped_window_changes_nothing(folder):
    image, copy = saved_windows.unpack("javac", folder), folder / "copy.img"
    done = strip(image, copy)
    assert done.returncode == 0, done.stderr
    assert found(replay(copy)) == saved_windows.EXPECTED["javac"]


def test_strip_refuses_a_damaged_image_and_leaves_the_copy_alone(folder):
    image, copy = saved_windows.unpack("javac", folder), folder / "copy.img"
    image.write_bytes(image.read_bytes()[: 1 << 20])
    copy.write_text("precious")
    done = strip(image, copy)
    assert done.returncode == 3 and str(image) in done.stderr
    assert copy.read_text() == "precious"
