# SPDX-License-Identifier: Apache-2.0
"""Saved windows traced again by merapi-replay, on its own model and on a device process."""

import json
import subprocess

import pytest
from device_processes import binary


def replay(*arguments):
    run = subprocess.run([binary("merapi-replay"), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return run, json.loads(lines[-1]) if lines else None


def save(folder, seed):
    image = folder / f"image{seed}"
    out = subprocess.run(
        [binary("device_probe"), f"file:{folder}/w{seed}", "--seed", str(seed), "--save", str(image)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert out.returncode == 0, out.stdout
    return image, json.loads(out.stdout)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replay_on_own_model(folder, seed):
    image, saved = save(folder, seed)
    run, result = replay(image, "--check", "--json", "--pauses", 3)
    assert run.returncode == 0, run
    assert result["ok"] and result["checked"]
    assert result["counters"]["objects_marked"] == saved["marked"]
    assert result["deferred"] == saved["deferred"] and result["unanswered"] == 0
    assert result["g1_seconds"] == 0.0015 and result["ratio"] > 0
    assert len(result["pause_us"]) == 3


def test_pauses_all_along(folder):
    image, saved = save(folder, 5)
    run, result = replay(image, "--check", "--json", "--pause-every-us", 1)
    assert run.returncode == 0, run
    assert result["checked"] and result["counters"]["objects_marked"] == saved["marked"]
    assert result["pause_us"]


def test_replay_on_a_device_process(start, folder):
    image, saved = save(folder, 4)
    start("--socket", folder / "s", "--strict").wait_event("ready")
    for _ in range(2):
        run, result = replay(image, "--socket", folder / "s", "--check", "--json")
        assert run.returncode == 0, run
        assert result["counters"]["objects_marked"] == saved["marked"]
    run, _ = replay(image, "--socket", folder / "s", "--check")
    assert run.returncode == 0 and "equal to the closure" in run.stdout


def test_damaged_image_is_refused(folder):
    image, _ = save(folder, 5)
    data = bytearray(image.read_bytes())
    damaged = folder / "damaged"
    for at in range(len(data) // 2, len(data) // 2 + 4096):
        data[at] ^= 0x5A
    damaged.write_bytes(data)
    run, result = replay(damaged, "--check", "--json")
    assert run.returncode in (1, 3), run
    assert result is None or not result["ok"]
    assert run.stderr or result["problem"]


def test_what_cannot_be_replayed(folder):
    (folder / "text").write_text("not an image")
    run, _ = replay(folder / "text")
    assert run.returncode == 3 and run.stderr
    run, _ = replay(folder / "missing")
    assert run.returncode == 2
    image, _ = save(folder, 6)
    run, _ = replay(image, "--socket", folder / "nobody")
    assert run.returncode in (1, 3)
