# SPDX-License-Identifier: Apache-2.0
"""Patches and overlay reach the JDK's tree incrementally, and edits made by hand are not lost."""

import hashlib
import io
import os
import pathlib
import subprocess
import tarfile

import jdk_source
import pytest

ADD_LINE = "--- a/src/one.cpp\n+++ b/src/one.cpp\n@@ -1,2 +1,3 @@\n first\n+added\n last\n"
CHANGE_LINE = "--- a/src/one.cpp\n+++ b/src/one.cpp\n@@ -1,3 +1,3 @@\n first\n-added\n+changed\n last\n"
NEW_FILE = "--- /dev/null\n+++ b/src/new.cpp\n@@ -0,0 +1 @@\n+new\n"


class Sandbox:
    """A JDK release of three files, patches and an overlay in a temporary folder."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.patches, self.overlay = folder, folder / "patches", folder / "overlay"
        for path in (self.patches, self.overlay, folder / "headers"):
            path.mkdir()
        (folder / "headers/merapi.h").write_text("header\n")
        tarball = folder / "jdk.tar"
        with tarfile.open(tarball, "w") as tar:
            for name, text in {"configure": "x", "src/one.cpp": "first\nlast\n", "src/two.cpp": "two\n"}.items():
                info = tarfile.TarInfo(f"jdk-17/{name}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        monkeypatch.setattr(jdk_source, "ROOT", folder)
        monkeypatch.setattr(jdk_source, "BUILD", folder / "build")
        monkeypatch.setattr(jdk_source, "PATCHES", self.patches)
        monkeypatch.setattr(jdk_source, "OVERLAY", self.overlay)
        monkeypatch.setattr(jdk_source, "HEADERS", folder / "headers")
        monkeypatch.setattr(jdk_source, "debian_files", lambda kind, verb: [self.release(kind, tarball)])
        monkeypatch.setattr(jdk_source, "inputs", lambda: {"jdk": {"version": "17", "source_files": self.files}})
        self.files, self.other = {"jdk.tar": "0"}, None
        self.tree = jdk_source.Tree("merapi")
        self.tree.unpack()

    def release(self, kind, tarball):
        assert kind == "source_files"
        return self.other or tarball

    def text(self, name):
        return (self.tree.src / name).read_text()


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    return Sandbox(tmp_path, monkeypatch)


def test_patches_apply_in_order_and_headers_are_copied(sandbox):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    (sandbox.patches / "0002-change.patch").write_text(CHANGE_LINE + NEW_FILE)
    assert sandbox.tree.sync() == 3
    assert sandbox.text("src/one.cpp") == "first\nchanged\nlast\n"
    assert sandbox.text("src/new.cpp") == "new\n"
    assert sandbox.text("src/hotspot/share/merapi/merapi.h") == "header\n"


def test_what_does_not_change_is_not_touched(sandbox):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    sandbox.tree.sync()
    target = sandbox.tree.src / "src/one.cpp"
    os.utime(target, (1, 1))
    (sandbox.overlay / "src").mkdir()
    (sandbox.overlay / "src/extra.cpp").write_text("extra\n")
    assert sandbox.tree.sync() == 1
    assert target.stat().st_mtime == 1


def test_removed_patch_and_overlay_files_are_undone(sandbox):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE + NEW_FILE)
    (sandbox.overlay / "src").mkdir()
    extra = sandbox.overlay / "src/extra.cpp"
    extra.write_text("extra\n")
    sandbox.tree.sync()
    (sandbox.patches / "0001-add.patch").unlink()
    extra.unlink()
    sandbox.tree.sync()
    assert sandbox.text("src/one.cpp") == "first\nlast\n"
    assert not (sandbox.tree.src / "src/new.cpp").exists()
    assert not (sandbox.tree.src / "src/extra.cpp").exists()
    assert sandbox.text("src/two.cpp") == "two\n"


def test_a_patch_that_does_not_apply_is_named(sandbox, capsys):
    (sandbox.patches / "0007-change.patch").write_text(CHANGE_LINE)
    with pytest.raises(SystemExit):
        sandbox.tree.sync()
    assert "0007-change.patch does not apply" in capsys.readouterr().err


def test_edits_by_hand_are_kept_until_forced(sandbox, capsys):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    sandbox.tree.sync()
    (sandbox.tree.src / "src/one.cpp").write_text("by hand\n")
    with pytest.raises(SystemExit):
        sandbox.tree.sync()
    assert "src/one.cpp" in capsys.readouterr().err
    assert sandbox.text("src/one.cpp") == "by hand\n"
    assert "+by hand" in sandbox.tree.diff()
    sandbox.tree.sync(force=True)
    assert sandbox.text("src/one.cpp") == "first\nadded\nlast\n"


def test_a_difference_is_of_what_was_named(sandbox, capsys):
    """It was of all files of all patches whatever was named."""
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    (sandbox.patches / "0002-new.patch").write_text(NEW_FILE)
    sandbox.tree.sync()
    (sandbox.tree.src / "src/two.cpp").write_text("edited\n")
    (sandbox.tree.src / "src/one.cpp").write_text("first\nadded\nedited\nlast\n")

    def files(*named):
        return [line[6:] for line in sandbox.tree.diff(named).splitlines() if line.startswith("+++ b/")]

    assert files() == files("src") == files("src/") == ["src/new.cpp", "src/one.cpp"]
    assert files("src/two.cpp", "src/new.cpp") == ["src/new.cpp", "src/two.cpp"]
    one = sandbox.tree.diff(["src/one.cpp"])
    assert [line for line in one.splitlines() if line[0] == "+"] == ["+++ b/src/one.cpp", "+added", "+edited"]
    (sandbox.tree.src / "src/one.cpp").unlink()
    assert "--- a/src/one.cpp\n+++ /dev/null\n" in sandbox.tree.diff(["src/one.cpp"])
    (sandbox.tree.src / "empty").mkdir()
    for name in ("src/three.cpp", "empty"):
        with pytest.raises(SystemExit):
            sandbox.tree.diff([name])
        assert f"found '{name}'; name it by its path in there" in capsys.readouterr().err


def test_a_file_is_patched_or_overlaid_not_both(sandbox, capsys):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    (sandbox.overlay / "src").mkdir()
    (sandbox.overlay / "src/one.cpp").write_text("mine\n")
    with pytest.raises(SystemExit):
        sandbox.tree.sync()
    assert "in the overlay and in a patch" in capsys.readouterr().err


def test_stock_has_neither(sandbox):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    stock = jdk_source.Tree("stock")
    stock.unpack()
    assert stock.sync() == 0
    assert (stock.src / "src/one.cpp").read_text() == "first\nlast\n"


# The first file that is asked for, or half of it, and nothing of the others.
BROKEN_TAR = """#!/bin/sh
while [ "$1" != -C ]; do shift; done
mkdir -p "$2/src"
printf first > "$2/src/one.cpp"
{end}
"""
ENDS = {
    "full disk": (
        "echo 'tar: src/one.cpp: Cannot write: No space left on device' >&2; "
        "echo 'tar: Exiting with failure status due to previous errors' >&2; exit 2",
        "status 2; mend what it says and start again\ntar: src/one.cpp: Cannot write: No space left on device",
    ),
    "killed": ("kill -9 $$", "status -9"),
    "killed after an answer": ("echo 'tar: */src/new.cpp: Not found in archive' >&2; kill -9 $$", "status -9"),
    "damaged": ("echo 'xz: (stdin): Unexpected end of input' >&2; exit 2", "xz: (stdin): Unexpected end of input"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_tar_that_failed_leaves_nothing(how, sandbox, monkeypatch, capsys):
    """Half a file was the released one from then on, and what tar had not come to was in no release."""
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE + NEW_FILE)
    tool, (end, said) = sandbox.folder / "bin/tar", ENDS[how]
    tool.parent.mkdir()
    tool.write_text(BROKEN_TAR.format(end=end))
    tool.chmod(0o755)
    with monkeypatch.context() as broken:
        broken.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        with pytest.raises(SystemExit):
            sandbox.tree.sync()
    assert f"expected the released files from {sandbox.folder}/jdk.tar, found tar " in (err := capsys.readouterr().err)
    assert said in err
    assert sandbox.tree.sync() == 3
    assert sandbox.text("src/one.cpp") == "first\nadded\nlast\n" and sandbox.text("src/new.cpp") == "new\n"


def test_what_is_in_no_release_is_asked_for_once(sandbox, monkeypatch):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE + NEW_FILE)
    sandbox.tree.sync()
    monkeypatch.setenv("PATH", os.fspath(sandbox.folder))
    assert sandbox.tree.originals([pathlib.Path("src/one.cpp"), pathlib.Path("src/new.cpp")]) == {
        pathlib.Path("src/one.cpp"): b"first\nlast\n",
        pathlib.Path("src/new.cpp"): None,
    }


def another_release(sandbox):
    """tools/inputs.toml names it from now on."""
    sandbox.files, sandbox.other = {"jdk-2.tar": "1"}, sandbox.folder / "jdk-2.tar"
    with tarfile.open(sandbox.other, "w") as tar:
        for name, text in {"configure": "x", "src/one.cpp": "newer\nfirst\nlast\n"}.items():
            info = tarfile.TarInfo(f"jdk-17/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))


def test_another_release_replaces_the_tree(sandbox):
    """The old sources were compiled, and kept under the new release's key."""
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    sandbox.tree.sync()
    (sandbox.tree.dir / "out").mkdir()
    (sandbox.tree.dir / "configured.json").write_text("flags")
    sandbox.tree.unpack()
    assert (sandbox.tree.dir / "out").exists()
    another_release(sandbox)
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE.replace("@@ -1,2 +1,3 @@", "@@ -2,2 +2,3 @@"))
    sandbox.tree.unpack()
    assert not (sandbox.tree.dir / "out").exists() and not (sandbox.tree.dir / "configured.json").exists()
    sandbox.tree.sync()
    assert sandbox.text("src/one.cpp") == "newer\nfirst\nadded\nlast\n"
    assert not (sandbox.tree.src / "src/two.cpp").exists()


def test_another_release_does_not_take_edits_with_it(sandbox, capsys):
    (sandbox.patches / "0001-add.patch").write_text(ADD_LINE)
    sandbox.tree.sync()
    (sandbox.tree.src / "src/one.cpp").write_text("by hand\n")
    another_release(sandbox)
    with pytest.raises(SystemExit):
        sandbox.tree.unpack()
    assert "src/one.cpp" in capsys.readouterr().err and sandbox.text("src/one.cpp") == "by hand\n"
    sandbox.tree.unpack(force=True)
    assert sandbox.text("src/one.cpp") == "newer\nfirst\nlast\n"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A cache that lacks `file`, and what is fetched for it: `gives`."""
    jdk = {"source": "openjdk-17", "suite": "bookworm", "version": "1"}
    jdk["source_files"] = {"file": hashlib.sha256(b"whole").hexdigest()}
    fetched = SimpleStore(tmp_path / "src/file")

    def run(command, **_):
        fetched.times += 1
        destination = pathlib.Path(command[command.index("--dest") + 1])
        destination.mkdir(exist_ok=True)
        (destination / "file").write_bytes(fetched.gives)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(jdk_source, "inputs", lambda: {"jdk": jdk})
    monkeypatch.setattr(jdk_source, "CACHE", tmp_path)
    monkeypatch.setattr(jdk_source, "CACHE_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(jdk_source.subprocess, "run", run)
    return fetched


class SimpleStore:
    def __init__(self, path):
        self.path, self.gives, self.times = path, b"whole", 0


def test_what_an_interrupted_download_left_is_fetched_again(store):
    """It stopped every later make until somebody deleted the file."""
    store.path.parent.mkdir()
    store.path.write_bytes(b"who")
    assert jdk_source.debian_files("source_files", "source") == [store.path]
    assert store.path.read_bytes() == b"whole" and store.times == 1
    jdk_source.debian_files("source_files", "source")
    assert store.times == 1


def test_another_file_than_the_recorded_one_is_told(store, capsys):
    store.gives = b"other"
    with pytest.raises(SystemExit):
        jdk_source.debian_files("source_files", "source")
    err = capsys.readouterr().err
    assert hashlib.sha256(b"whole").hexdigest() in err and hashlib.sha256(b"other").hexdigest() in err
    assert store.times == 1
