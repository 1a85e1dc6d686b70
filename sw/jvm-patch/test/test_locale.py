# SPDX-License-Identifier: Apache-2.0
"""Users' locales and encodings: what is for programs is JSON in UTF-8 in any of them."""

import json
import re
import subprocess

import jvm_harness
import pytest
from jvm_options import BASE, VERIFY

NUMBERS = 'LC_NUMERIC\ndecimal_point ","\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n'
CHARACTERS = ["<code_set_name> ASCII", "<comment_char> %", "<escape_char> /", "CHARMAP"]


@pytest.fixture
def decimal_comma(tmp_path, monkeypatch):
    """The locale of what the test starts writes 1,5. Made here: which ones a machine has, nobody knows."""
    folder = tmp_path / "locales"
    folder.mkdir()
    source, characters = folder / "numbers", folder / "characters"
    source.write_text(NUMBERS)
    codes = [f"<U{code:04X}> /x{code:02x} OF ASCII" for code in range(128)]
    characters.write_text("\n".join([*CHARACTERS, *codes, "END CHARMAP"]) + "\n")
    # It warns of the categories that are missing, with a status for it.
    command = ["localedef", "-c", "-f", characters, "-i", source, folder / "comma"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (folder / "comma/LC_NUMERIC").exists(), done.stderr
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setenv("LOCPATH", str(folder))
    monkeypatch.setenv("LC_NUMERIC", "comma")


def test_records_and_images_are_json_where_numbers_have_commas(
    decimal_comma, java, device, classes, runs, device_program, tmp_path
):
    image = tmp_path / "window.image"
    window = jvm_harness.flag_of_window(f"device:{device.socket}")
    save = [f"-XX:MerapiSaveImage={image}", "-XX:MerapiSaveImageCycle=2"]
    command = [window, *save, *VERIFY, *BASE, "-Xmx160m", "-cp", classes, "GraphRewiring", "count=500", "cycles=4"]
    result = runs(java, command, tmp_path).finish(120)
    own = [text for tags, _, text in result.log.lines if text.startswith("Concurrent Mark From Roots ")]
    assert own and all(re.search(r" \d+,\d+ms$", text) for text in own), "the locale is not the one that is meant"
    jvm_harness.check_ok(result)
    jvm_harness.check_verified(result)
    assert result.log.traces and len(result.log.verifies) >= 4, result.describe("expected traces and verifications")
    # G1's own lines are read as well.
    assert all(c.mark_ms > 0 and c.remark_ms > 0 for c in result.log.offloaded()), result.describe("times are missing")
    info = subprocess.run([device_program.parent / "merapi", "info", image], capture_output=True, text=True, check=True)
    assert re.search(r"G1|g1_mark_ms", info.stdout) and ",0" not in info.stdout, info.stdout
    command = [device_program.parent / "merapi-replay", image, "--json"]
    replay = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(replay.stdout)["g1_seconds"] > 0


@pytest.mark.parametrize("more", range(2))
def test_details_are_whole_characters(more, java, classes, runs, tmp_path):
    """A message that is too long is cut, within a letter of two bytes if it comes so."""
    socket = f"/tmp/{'ü' * 45}/s{'x' * more}"
    command = [f"-XX:MerapiWindow=device:{socket}", *BASE, "-Xmx64m", "-cp", classes, "GraphRewiring", "cycles=2"]
    result = runs(java, command, tmp_path).finish(60)
    jvm_harness.check_ok(result)
    assert result.log.fallbacks, result.describe("expected a fallback without a device")
    for line in (tmp_path / "gc.log").read_bytes().splitlines():
        if b"Fallback {" in line:
            assert "ü" * 30 in json.loads(line[line.index(b"{") :].decode())["detail"]
