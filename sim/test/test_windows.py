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
    image, paused = saved_windows.unpack(name, folder), []
    # The model's trace is a few milliseconds: on a busy machine it may be over before somebody pauses it.
    while pauses not in paused:
        # Its sign of life would be one more.
        report = replay(image, "--pauses", str(pauses), "--patience-us", "600000000")
        assert report["checked"] and report["ok"] and report["unanswered"] == 0
        assert found(report) == saved_windows.EXPECTED[name]
        assert report["counters"]["pauses"] == len(report["pause_us"])
        paused.append(len(report["pause_us"]))
        assert len(paused) < 50, paused


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("name", saved_windows.EXPECTED)
def test_a_simulated_tracer_finds_the_same(name, preset, folder):
    library = SIMULATIONS / NAME.format(preset)
    assert library.exists(), f"expected {library}, found nothing; run: make rtl-simulations"
    options = ["--rtl", "--preset", preset, "--rtl-folder", str(SIMULATIONS), "--pauses", "2"]
    report = replay(saved_windows.unpack(name, folder), *options)
    assert report["checked"] and report["ok"] and report["unanswered"] == 0 and report["rtl_preset"] == preset
    assert found(report) == saved_windows.EXPECTED[name]
    # Before the cycle has begun the device would acknowledge them all the same, idle.
    assert report["counters"]["pauses"] >= len(report["pause_us"]) == 2 and report["counters"]["pause_max"] > 0


def merapi(arguments):
    done = subprocess.run([binary("merapi"), *arguments.split()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def strip(image, copy):
    return subprocess.run([binary("merapi-strip"), image, copy], capture_output=True, text=True, timeout=120)


def test_strip_of_a_stripped_window_changes_nothing(folder):
    image, copy = saved_windows.unpack("javac", folder), folder / "copy.img"
    done = strip(image, copy)
    assert done.returncode == 0, done.stderr
    expected = saved_windows.EXPECTED["javac"]
    assert found(replay(copy)) == expected
    answers = json.loads(merapi(f"info --json {copy}"))["answers"]
    assert answers["objects"] == expected["deferred"], "answers of dead objects tell of them"
    assert answers["klasses"] <= expected["shapes_seen"]


def test_what_no_trace_reads_is_not_in_a_stripped_window(folder):
    """Rings, live words, spilled greys, the other bitmap, dead objects, and what lies between the areas."""
    window, image, copy = folder / "window", folder / "secret.img", folder / "copy.img"
    for name in (window, image, copy):
        name.unlink(missing_ok=True)
    merapi(f"load {saved_windows.unpack('javac', folder)} file:{window} --create")
    layout = json.loads(merapi(f"info file:{window} --json"))["layout"]
    areas = {area["area"]: (area["offset"], area["bytes"]) for area in layout if area["bytes"]}
    greys = json.loads(merapi(f"info {folder}/javac.img --json"))["bitmap"]
    read = (f"bitmap{greys}", "limits", "shapes", "shape_extension")
    places = {name: offset + size // 2 for name, (offset, size) in areas.items() if name not in read}
    with open(window, "r+b") as file:
        heap, heap_bytes = areas["heap"]
        file.seek(heap)
        places["heap"] = heap + file.read(heap_bytes).rindex(bytes(8192)) + 4096
        ends = sorted((offset + size + 4095) // 4096 * 4096 for offset, size in areas.values())
        starts = [offset for offset, _ in areas.values()]
        places |= {f"gap at {end:x}": end for end in ends if end not in starts and end < os.path.getsize(window)}
        assert len(places) >= 7, places
        for name, place in places.items():
            file.seek(place // 8 * 8)
            file.write(f"password of {name};".encode())
    merapi(f"save file:{window} {image} --bitmap {greys}")
    assert b"password of heap;" in image.read_bytes()
    done = strip(image, copy)
    assert done.returncode == 0, done.stderr
    left = [name for name in places if f"password of {name};".encode() in copy.read_bytes()]
    assert not left
    assert found(replay(copy)) == found(replay(image))


def test_strip_refuses_a_damaged_image_and_leaves_the_copy_alone(folder):
    image, copy = saved_windows.unpack("javac", folder), folder / "copy.img"
    image.write_bytes(image.read_bytes()[: 1 << 20])
    copy.write_text("precious")
    done = strip(image, copy)
    assert done.returncode == 3 and str(image) in done.stderr
    assert copy.read_text() == "precious"
