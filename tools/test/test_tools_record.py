# SPDX-License-Identifier: Apache-2.0
"""tools/rtl_record.py: what a simulated tracer records is made once for the same C++ and compiler."""

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "rtl_record.py"
COMPILER = """\
case $1 in
  --version) echo "{version}" ;;
  -print-prog-name=llvm-profdata) echo "{merge}" ;;
esac
"""
REPLAY = """\
[ "$(cat "$1")" = window ] || exit 5
echo recorded > "${MERAPI_ACTIVITY-$LLVM_PROFILE_FILE}"
"""


def program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


class Place:
    """A model, what traces it, and a cache."""

    def __init__(self, folder):
        self.folder = folder
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "Vtop.cpp").write_text("one")
        (folder / "window.xz").write_bytes(lzma.compress(b"window"))
        (folder / "recorder").mkdir()
        (folder / "recorder" / "small.activity.names").write_text("a\nb\n")
        program(folder / "merge", 'cp "$4" "$3"')
        self.compiler("14")
        program(folder / "replay", REPLAY)
        self.built = folder / "built"

    def compiler(self, version, merge="merge"):
        program(self.folder / "clang", COMPILER.format(version=version, merge=self.folder / merge))

    def record(self, what, *sources):
        words = [sys.executable, SCRIPT, what, "small", self.model, "--sources", *sources]
        words += ["--window", self.folder / "window.xz", "--replay", self.folder / "replay"]
        words += ["--recorder", self.folder / "recorder", "--compiler", self.folder / "clang"]
        words += ["--", "sh", "-c", f"echo >> {self.built}"]
        home = {**os.environ, "MERAPI_CACHE": str(self.folder / "cache")}
        return subprocess.run(words, capture_output=True, text=True, env=home, check=False)

    def builds(self):
        return len(self.built.read_text().splitlines()) if self.built.exists() else 0


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("what", "files"),
    [
        ("activity", {"activity": "recorded\n", "activity.names": "a\nb\n"}),
        ("profile", {"profile.profdata": "recorded\n"}),
    ],
)
def test_the_same_is_recorded_once(place, what, files):
    for _ in range(2):
        done = place.record(what)
        assert done.returncode == 0, done.stderr
        for name, text in files.items():
            assert (place.model / name).read_text() == text
            (place.model / name).unlink()
        assert {path.name for path in place.model.iterdir()} == {"Vtop.cpp"}
    assert place.builds() == 1


@pytest.mark.parametrize("what", ["activity", "profile"])
def test_of_another_model_compiler_or_source_it_is_made_anew(place, what):
    source = place.folder / "source.py"
    source.write_text("1")
    changes = [
        lambda: None,
        lambda: (place.model / "Vtop.cpp").write_text("two"),
        lambda: place.compiler("19"),
        lambda: source.write_text("2"),
    ]
    for count, change in enumerate(changes, 1):
        change()
        for _ in range(2):
            done = place.record(what, source)
            assert done.returncode == 0, done.stderr
        assert place.builds() == count


def test_a_compiler_without_profiles_is_told(place):
    place.compiler("14", merge="not-there")
    done = place.record("profile")
    assert done.returncode == 1 and f"{place.folder}/not-there: No such file" in done.stderr
    assert not (place.model / "profile.profdata").exists()
    place.compiler("14")
    assert place.record("profile").returncode == 0  # nothing was kept of it
    assert (place.model / "profile.profdata").read_text() == "recorded\n"


def test_a_trace_that_fails_is_told(place):
    program(place.folder / "replay", "echo no tracer >&2; exit 3")
    done = place.record("activity")
    assert done.returncode == 1 and "no tracer" in done.stderr
    assert not (place.model / "activity").exists()


def test_a_folder_without_a_model_is_told(place):
    (place.model / "Vtop.cpp").unlink()
    done = place.record("activity")
    assert done.returncode == 1 and "expected C++ of Verilator" in done.stderr and place.builds() == 0
