# SPDX-License-Identifier: Apache-2.0
"""The assembled JDK folder is complete and agrees with itself."""

import errno
import json
import subprocess
import zipfile
from pathlib import Path

import jdk_image
import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "build/jdk/image"

EVENTS = """
import jdk.jfr.FlightRecorder;
public class Events {
  public static void main(String[] args) {
    FlightRecorder.getFlightRecorder().getEventTypes().forEach(e -> System.out.println(e.getName()));
  }
}
"""


@pytest.fixture
def image():
    assert IMAGE.exists(), f"expected the patched JDK at {IMAGE}, found nothing; run 'make jdk'"
    return IMAGE


def java(image, *arguments):
    done = subprocess.run([image / "bin/java", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_folder_is_self_contained(image):
    links = [p for p in image.rglob("*") if p.is_symlink()]
    assert [p for p in links if not p.resolve().is_relative_to(image.resolve())] == []
    assert (image / "lib/libmerapi.so").is_file() and not (image / "lib/libmerapi.so").is_symlink()


def test_archives_are_used(image):
    for flag in ("-XX:+UseCompressedOops", "-XX:-UseCompressedOops"):
        java(image, "-Xshare:on", flag, "-version")


def test_libjvm_and_class_library_are_of_one_version(image):
    version = java(image, "-version").splitlines()
    runtime = version[1].partition("(build ")[2].rstrip(")")
    assert runtime and f"(build {runtime}," in version[2]


def test_flags_exist_and_are_off(image):
    flags = java(image, "-XX:+PrintFlagsFinal", "-version")
    for name, value in {"MerapiWindow": "", "MerapiVerify": "false"}.items():
        (line,) = [x for x in flags.splitlines() if f" {name} " in x]
        assert line.partition("=")[2].partition("{")[0].strip() == value


def test_jfr_knows_the_events_of_the_patch(image, tmp_path):
    (tmp_path / "Events.java").write_text(EVENTS)
    names = java(image, str(tmp_path / "Events.java")).split()
    assert "jdk.MerapiTrace" in names and "jdk.GarbageCollection" in names


def test_jlink_accepts_the_modules(image, tmp_path):
    out = tmp_path / "linked"
    command = [image / "bin/jlink", "--module-path", image / "jmods", "--add-modules", "jdk.jfr", "--output", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_replacing_in_a_module_changes_its_hash_only_there(tmp_path):
    jmod = tmp_path / "m.jmod"
    archive = tmp_path / "m.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("classes/a", "one")
        file.writestr("classes/b", "two")
        file.writestr("lib/c", "three")
    jmod.write_bytes(jdk_image.JMOD_MAGIC + archive.read_bytes())
    before = jdk_image.module_hash(jmod)
    jdk_image.replace_in_jmod(jmod, {"lib/c": b"other", "lib/d": b"new"})
    assert jdk_image.module_hash(jmod) == before
    jdk_image.replace_in_jmod(jmod, {"classes/b": b"other"})
    assert jdk_image.module_hash(jmod) != before
    assert jdk_image.read_jmod(jmod).read("classes/a") == b"one"
    assert jdk_image.read_jmod(jmod).read("classes/b") == b"other"
    assert jdk_image.read_jmod(jmod).read("lib/d") == b"new"


def test_a_module_is_replaced_whole_or_not(tmp_path, monkeypatch):
    """One that was cut short ended every later build: the folder's stamp said that it was as it should be."""
    jmod, archive = tmp_path / "m.jmod", tmp_path / "m.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("lib/c", "three")
    jmod.write_bytes(jdk_image.JMOD_MAGIC + archive.read_bytes())

    def full(path, data):
        with open(path, "wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space"):
        disk.setattr(Path, "write_bytes", full)
        jdk_image.replace_in_jmod(jmod, {"lib/c": b"other"})
    assert jdk_image.read_jmod(jmod).read("lib/c") == b"three"
    jdk_image.replace_in_jmod(jmod, {"lib/c": b"other"})
    assert jdk_image.read_jmod(jmod).read("lib/c") == b"other"


def test_module_hash_is_javas(image):
    info = jdk_image.read_jmod(image / "jmods/java.base.jmod").read("classes/module-info.class")
    assert info.count(jdk_image.module_hash(image / "jmods/java.logging.jmod")) == 1


def test_stamp_names_what_it_was_made_from(image):
    state = json.loads((image.parent / "image.json").read_text())
    assert set(state) >= {"libjvm", "metadata", "base", "recipe"}
