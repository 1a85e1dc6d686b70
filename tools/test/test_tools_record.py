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
  -fprofile-instr-generate) echo '"/usr/bin/ld" "{library}" "-lc"' >&2 ;;
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

    def compiler(self, version, library="libm.so"):
        text = COMPILER.format(version=version, merge=self.folder / "merge", library=library)
        program(self.folder / "clang", text)

    def record(self, what, *sources, building="true"):
        words = [sys.executable, SCRIPT, what, "small", self.model, "--sources", *sources]
        words += ["--window", self.folder / "window.xz", "--replay", self.folder / "replay"]
        words += ["--recorder", self.folder / "recorder", "--compiler", self.folder / "clang"]
        words += ["--", "sh", "-c", f"echo >> {self.built}; {building}"]
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


@pytest.mark.parametrize("lacks", ["merge", "libclang_rt.profile-x86_64.a"])
def test_a_compiler_without_profiles_is_told(place, lacks):
    """Before the tracer is built that could not be linked, with a status of its own: slower is all that it costs."""
    library = place.folder / "libclang_rt.profile-x86_64.a"
    library.touch()
    place.compiler("14", library=library)
    (place.folder / lacks).rename(place.folder / "elsewhere")
    done = place.record("profile")
    assert done.returncode == 3 and f"expected {place.folder / lacks}, which a profile by " in done.stdout
    assert place.builds() == 0 and not (place.model / "profile.profdata").exists()
    (place.folder / "elsewhere").rename(place.folder / lacks)
    assert place.record("profile").returncode == 0
    assert (place.model / "profile.profdata").read_text() == "recorded\n"


def test_profiles_that_cannot_be_merged_are_told(place):
    program(place.folder / "merge", "echo No space left on device >&2; exit 1")
    done = place.record("profile")
    assert done.returncode == 1 and "No space left on device" in done.stderr
    program(place.folder / "merge", 'cp "$4" "$3"')
    assert place.record("profile").returncode == 0  # nothing was kept of it


def test_a_trace_without_a_record_is_told(place):
    program(place.folder / "replay", "true")
    done = place.record("activity")
    assert done.returncode == 1 and "expected a record of what changes in small, found none" in done.stderr
    program(place.folder / "replay", REPLAY)
    assert place.record("activity").returncode == 0


def test_a_tracer_that_cannot_be_built_is_told(place):
    done = place.record("activity", building="exit 3")
    assert done.returncode == 1 and "building the small that records failed" in done.stderr


def test_a_trace_that_fails_is_told(place):
    program(place.folder / "replay", "echo no tracer >&2; exit 3")
    done = place.record("activity")
    assert done.returncode == 1 and "no tracer" in done.stderr
    assert not (place.model / "activity").exists()


def test_a_folder_without_a_model_is_told(place):
    (place.model / "Vtop.cpp").unlink()
    done = place.record("activity")
    assert done.returncode == 1 and "expected C++ of Verilator" in done.stderr and place.builds() == 0
