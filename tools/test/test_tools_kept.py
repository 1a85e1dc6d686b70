# SPDX-License-Identifier: Apache-2.0
"""What is kept in the cache is found, whole, by whoever has the same sources, and by nobody else."""

import errno
import os
import resource
import subprocess
import sys

import elaborate_rtl
import kept
import pytest
from common import ROOT

# In the tree: keys name its files.
SOURCE = ROOT / "build" / "test-elaborate"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "CACHE", tmp_path)
    return kept.Kept("kind", 2)


def keep(store, key, text="text"):
    with store.made(key) as part:
        (part / "sub").mkdir()
        (part / "sub/file").write_text(text)


def test_what_was_made_is_found(store):
    assert store.find("a") is None
    keep(store, "a")
    assert (store.find("a") / "sub/file").read_text() == "text"
    assert store.find("b") is None


@pytest.mark.parametrize("name", ["sub/file", kept.DIGESTS])
@pytest.mark.parametrize("damage", [lambda file: file.write_text("junk"), lambda file: file.unlink()])
def test_damage_is_seen_and_made_good(name, damage, store, capsys):
    keep(store, "a")
    damage(store.folder / "a" / name)
    assert store.find("a") is None
    assert "found it damaged" in capsys.readouterr().out
    keep(store, "a", "anew")
    assert (store.find("a") / "sub/file").read_text() == "anew"


def test_what_failed_is_not_kept(store):
    with pytest.raises(SystemExit), store.made("a") as part:
        (part / "half").write_text("half")
        sys.exit(1)
    assert store.find("a") is None
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize("damaged", [False, True])
def test_what_cannot_be_replaced(store, monkeypatch, damaged):
    """It is used if it is whole, and else it is an error: nobody gets what was damaged."""
    keep(store, "a")
    if damaged:
        (store.folder / "a/sub/file").write_text("junk")
    monkeypatch.setattr(kept.shutil, "rmtree", lambda *arguments, **options: None)
    if damaged:
        with pytest.raises(OSError):
            keep(store, "a")
    else:
        keep(store, "a")
        assert store.find("a")


def test_those_used_last_stay(store):
    for key, used in (("a", 1), ("b", 2)):
        keep(store, key)
        os.utime(store.folder / key, (used, used))
    assert store.find("a")
    keep(store, "c")
    assert {path.name for path in store.folder.iterdir()} == {"a", "c"}


def test_what_another_user_keeps_is_used(store, monkeypatch):
    """Only its owner may say that it was used just now."""

    def refused(path):
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    keep(store, "a")
    monkeypatch.setattr(kept.os, "utime", refused)
    assert store.find("a") == store.folder / "a"


ELABORATOR = """#!/bin/sh
echo run >> {count}
flock -n {root}/build/locks/mill true && exit 7
echo "{said}"
while [ $# -gt 0 ]; do
  cp {source} $2/Top.sv
  echo $1 > $2/preset.json
  mkdir -p $2/verification/assert && echo bound > $2/verification/assert/Top.sv
  [ $1 = headless ] || echo Top.sv > $2/filelist.f
  shift 2
done
exit {status}
"""


@pytest.fixture
def elaborate(tmp_path):
    SOURCE.mkdir(parents=True, exist_ok=True)
    source = SOURCE / "Top.scala"
    runs = tmp_path / "runs"
    runs.write_text("")

    def run(folder, text, said="", status=0, preset="small", together=()):
        source.write_text(text)
        script = tmp_path / "elaborate"
        script.write_text(ELABORATOR.format(root=ROOT, count=runs, said=said, source=source, status=status))
        script.chmod(0o755)
        done = subprocess.run(
            [sys.executable, ROOT / "tools/elaborate_rtl.py", preset, folder, *(f"--together={p}" for p in together),
             "--sources", source, "--version", "1", "--", script],
            env={**os.environ, "MERAPI_CACHE": str(tmp_path / "cache")}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done, len(runs.read_text().split())

    return run


def test_the_same_sources_are_elaborated_once(elaborate, tmp_path):
    done, runs = elaborate(tmp_path / "first", "one")
    assert (done.returncode, done.stdout, runs) == (0, "rtl: elaborating small\n", 1), done.stderr
    second = tmp_path / "second"
    (second / "obj").mkdir(parents=True)
    (second / "verification/assert").mkdir(parents=True)
    for old in ("Gone.sv", "obj/ready", "verification/assert/Gone.sv"):
        (second / old).write_text("old")
    done, runs = elaborate(second, "one")
    assert (done.returncode, done.stdout, runs) == (0, "", 1)
    files = sorted(str(path.relative_to(second)) for path in second.rglob("*") if path.is_file())
    assert files == ["Top.sv", "filelist.f", "obj/ready", "preset.json", "verification/assert/Top.sv"]
    assert (second / "Top.sv").read_text() == "one"
    done, runs = elaborate(second, "two")
    assert (done.returncode, runs, (second / "Top.sv").read_text()) == (0, 2, "two")


def test_what_another_make_has_put_there_stays(elaborate, tmp_path):
    """It may be reading that. Older than the sources, or of others, it is replaced."""
    folder = tmp_path / "small"

    def replaced(text, time=4e9):
        listed = folder / "filelist.f"
        os.utime(listed, (time, time))
        done, _ = elaborate(folder, text)
        assert done.returncode == 0 and (folder / "Top.sv").read_text() == text, done.stderr
        return listed.stat().st_mtime != time

    assert elaborate(folder, "one")[0].returncode == 0
    assert not replaced("one")
    (folder / "obj").mkdir()
    (folder / "obj/ready").write_text("")
    assert not replaced("one")
    for name in ("Gone.sv", "verification/assert/Gone.sv"):
        (folder / name).write_text("old")
        assert replaced("one") and not (folder / name).exists()
    (folder / "verification/assert/Top.sv").write_text("cut")
    assert replaced("one")
    assert replaced("one", time=1)
    assert replaced("two")


def test_presets_are_elaborated_together(elaborate, tmp_path):
    """Those that are not there yet, in one run, each under its own name."""
    together = ("small", "wide", "deep", "wide")
    done, runs = elaborate(tmp_path / "small", "one", together=together[:2])
    assert (done.returncode, done.stdout, runs) == (0, "rtl: elaborating small, wide\n", 1), done.stderr
    assert not (tmp_path / "wide").exists()
    for preset, said, runs_by_then in (("wide", "", 1), ("deep", "rtl: elaborating deep\n", 2), ("small", "", 2)):
        done, runs = elaborate(tmp_path / preset, "one", preset=preset, together=together)
        assert (done.returncode, done.stdout, runs) == (0, said, runs_by_then), done.stderr
        assert (tmp_path / preset / "preset.json").read_text() == f"{preset}\n"


def test_presets_are_kept_when_all_are_made(elaborate, tmp_path):
    done, runs = elaborate(tmp_path / "small", "one", together=("headless",))
    assert done.returncode == 1 and "expected filelist.f from elaborating headless, found none" in done.stderr
    assert not (tmp_path / "small/filelist.f").exists() and list((tmp_path / "cache/rtl").iterdir()) == []
    done, runs = elaborate(tmp_path / "small", "one")
    assert (done.returncode, runs) == (0, 2), done.stderr


def test_a_list_of_files_that_found_no_room_is_not_there(tmp_path):
    """An empty one was new, so make went on with it."""
    made, folder = tmp_path / "made", tmp_path / "small"
    for path in (made, folder):
        path.mkdir()
        (path / "Top.sv").write_text("one")
        (path / "filelist.f").write_text("Top.sv\n" * 2000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            elaborate_rtl.put(made, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (folder / "Top.sv").exists() and not (folder / "filelist.f").exists()
    elaborate_rtl.put(made, folder)
    assert (folder / "filelist.f").read_text() == (made / "filelist.f").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["Top.sv", "filelist.f"]


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ("hw/tracer-rtl/src/Top.scala:3:1: warning: a value is cut", 0, "expected no warning from elaborating small"),
        ("[error] no such thing", 1, "elaborating small failed"),
    ],
)
def test_what_was_refused_is_elaborated_again(elaborate, tmp_path, said, status, expected):
    folder = tmp_path / "made"
    for attempt in (1, 2):
        done, runs = elaborate(folder, "one", said, status)
        assert done.returncode == 1 and expected in done.stderr and said in done.stderr
        assert runs == attempt and not (folder / "filelist.f").exists()
    done, runs = elaborate(folder, "one", "elsewhere/Arbiter.scala:1:1: warning: unused")
    assert (done.returncode, runs) == (0, 3), done.stderr
