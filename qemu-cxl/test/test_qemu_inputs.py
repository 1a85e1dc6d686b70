# SPDX-License-Identifier: Apache-2.0
"""What the guest is made of: packages, their compiler, the driver and its style, the archive."""

import errno
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import checkpatch
import initramfs
import kbuild
import packages
import pytest


def test_archive_of_the_kernels_kind(tmp_path):
    root, out = tmp_path / "root", tmp_path / "out.cpio"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_bytes(b"\x7fELF and more")
    (root / "bin/tool").chmod(0o755)
    (root / "link").symlink_to("bin/tool")
    (root / "text").write_text("abc")
    initramfs.newc(root, out)
    data, at, entries = out.read_bytes(), 0, {}
    while True:
        assert at % 4 == 0
        assert data[at : at + 6] == b"070701"
        field = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = field[1], field[6], field[11]
        name = data[at + 110 : at + 110 + name_size - 1].decode()
        begin = (at + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            break
        entries[name] = (mode, data[begin : begin + size])
        at = (begin + size + 3) & ~3
    assert entries == {
        "bin": (stat.S_IFDIR | 0o755, b""),
        "bin/tool": (stat.S_IFREG | 0o755, b"\x7fELF and more"),
        "link": (stat.S_IFLNK | 0o777, b"bin/tool"),
        "text": (stat.S_IFREG | 0o644, b"abc"),
    }


def test_a_tree_of_a_shared_cache_is_made_once(tmp_path, monkeypatch):
    """Two clones that began together deleted each other's half-made tree, and kept what was left of it as whole."""
    made = []

    def unpack(name, part):
        made.append(name)
        time.sleep(0.5)
        (part / "packages.json").write_text("{}")

    monkeypatch.setattr(packages, "STORE", tmp_path)
    monkeypatch.setattr(packages, "CACHE_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(packages, "unpack", unpack)
    clones = [threading.Thread(target=packages.tree, args=("host",)) for _ in range(3)]
    for clone in clones:
        clone.start()
    for clone in clones:
        clone.join()
    assert made == ["host"] and packages.tree("host") == packages.tree_path("host")


def test_a_shared_compiler_is_made_to_run_once(tmp_path, monkeypatch):
    """By clones at once: patchelf writes a program in pieces, and one of two found the other's half."""
    libraries = packages.tree_path("host") / kbuild.LIBRARIES
    tree = tmp_path / "compiler"
    (tree / "bin").mkdir(parents=True)
    shutil.copy("/bin/true", tree / "bin/cc1")
    writer = tmp_path / "patchelf"
    writer.write_text(
        f'#!/bin/sh\necho x >> {tmp_path}/calls\nwhile [ $# -gt 2 ]; do [ "$1" != --output ] || out=$2; shift; done\n'
        "head -c 100 $2 > $out; sleep 0.3; cat $2 > $out\n"
    )
    writer.chmod(0o755)
    monkeypatch.setattr(kbuild, "PATCHELF", writer)
    monkeypatch.setattr(kbuild, "CACHE_LOCKS", tmp_path / "locks")
    clones = [threading.Thread(target=kbuild.relocate, args=(tree, ("bin",), libraries)) for _ in range(3)]
    for clone in clones:
        clone.start()
    while any(clone.is_alive() for clone in clones):
        assert (tree / "bin/cc1").read_bytes() == Path("/bin/true").read_bytes()
        assert os.access(tree / "bin/cc1", os.X_OK)
    assert (tmp_path / "calls").read_text() == "x\n"
    assert sorted(f.name for f in tree.rglob("*")) == ["bin", "cc1", "relocated"]


def test_a_program_that_cannot_be_changed_stays(tmp_path, monkeypatch, capsys):
    """A full disk left half a compiler in the cache, which no later run mended."""
    tree = tmp_path / "compiler"
    (tree / "bin").mkdir(parents=True)
    shutil.copy("/bin/true", tree / "bin/cc1")
    writer = tmp_path / "patchelf"
    writer.write_text(
        '#!/bin/sh\nwhile [ $# -gt 2 ]; do [ "$1" != --output ] || out=$2; shift; done\n'
        "head -c 100 $2 > ${out:-$2}; echo no room >&2; exit 1\n"
    )
    writer.chmod(0o755)
    monkeypatch.setattr(kbuild, "PATCHELF", writer)
    monkeypatch.setattr(kbuild, "CACHE_LOCKS", tmp_path / "locks")
    with pytest.raises(SystemExit):
        kbuild.relocate(tree, ("bin",), tmp_path)
    error = capsys.readouterr().err
    assert f"could not change {tree / 'bin/cc1'}" in error and f"remove {tree}" in error and "no room" in error
    assert [f.name for f in (tree / "bin").iterdir()] == ["cc1"]
    assert (tree / "bin/cc1").read_bytes() == Path("/bin/true").read_bytes()


def test_too_old_a_package_is_refused(capsys):
    packages.check_version("host", "qemu", "11.1.3+ds-1~bpo13+1", "11.1")
    with pytest.raises(SystemExit):
        packages.check_version("host", "qemu", "10.0.2", "11.1")
    assert "expected qemu at or above 11.1, found 10.0.2" in capsys.readouterr().err


def test_checkpatch_of_a_shared_cache_is_fetched_once_and_whole(tmp_path, monkeypatch):
    """Each clone that waited fetched it again, and what a full disk had cut off stayed for all."""
    fetched, copy = [], shutil.copy

    def run(command, **_):
        if "fetch" in command:
            fetched.append(command[-1])
            time.sleep(0.5)
            (Path(command[command.index("--dest") + 1]) / "source.deb").touch()
        else:
            for name in checkpatch.SCRIPTS:
                (Path(re.search(r"-C '([^']*)'", command[-1])[1]) / name).write_text("whole")
        return SimpleNamespace(returncode=0)

    def copy_in_part(source, target):
        Path(target).write_text("wh")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packages, "STORE", tmp_path / "store")
    monkeypatch.setattr(packages, "CACHE_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(checkpatch.subprocess, "run", run)
    monkeypatch.setattr(checkpatch, "SCRIPTS", checkpatch.SCRIPTS[:1])
    monkeypatch.setattr(checkpatch.shutil, "copy", copy_in_part)
    with pytest.raises(OSError, match="No space left"):
        checkpatch.scripts()
    monkeypatch.setattr(checkpatch.shutil, "copy", copy)
    clones = [threading.Thread(target=checkpatch.scripts) for _ in range(3)]
    for clone in clones:
        clone.start()
    for clone in clones:
        clone.join()
    assert len(fetched) == 2
    assert (checkpatch.scripts() / "checkpatch.pl").read_text() == "whole"


def test_driver_is_in_the_kernels_style(prepared, tmp_path):
    try:
        checkpatch.scripts()
    except SystemExit:
        pytest.skip("checkpatch.pl could not be had; run 'make checkpatch' to see why")
    sources = checkpatch.sources()
    assert len(sources) == 4 and checkpatch.findings(sources) == []
    source = checkpatch.DRIVER / "tracer_main.c"
    wrong = tmp_path / "wrong.c"
    wrong.write_text(source.read_text().replace("return IRQ_HANDLED;", "return (IRQ_HANDLED);"))
    assert any("return is not a function" in line for line in checkpatch.findings([wrong]))


def test_driver_names_the_kernel_that_it_needs(prepared, tmp_path, capsys):
    """To one that calls itself older; nothing is compiled."""
    with pytest.raises(SystemExit):
        kbuild.module(checkpatch.DRIVER, tmp_path / "driver", "PATCHLEVEL=7")
    assert "merapi_tracer: expected Linux 6.8 or newer, found 6.7" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.o"))


def test_the_environment_of_kernel_developers_is_left_out(prepared, tmp_path, monkeypatch):
    """With KBUILD_OUTPUT or LLVM exported the driver did not compile."""
    make = tmp_path / "bin/make"
    make.parent.mkdir()
    make.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\ntouch {tmp_path}/out/driver/merapi_tracer.ko\n")
    make.chmod(0o755)
    monkeypatch.setenv("PATH", f"{make.parent}:{os.environ['PATH']}")
    strange = {"KBUILD_OUTPUT": "/nowhere", "LLVM": "1", "LLVM_IAS": "1", "O": "/nowhere", "ARCH": "arm64"}
    strange |= {"CROSS_COMPILE": "none-", "KCFLAGS": "-none", "CPATH": "/nowhere", "MAKEFLAGS": "n", "V": "1"}
    for name, value in {**strange, "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)
    assert kbuild.module(checkpatch.DRIVER, tmp_path / "out").name == "merapi_tracer.ko"
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert {"PATH", "HOME", "LC_ALL"} <= names and not names & strange.keys()


def test_what_kbuild_leaves_beside_the_driver_is_no_part_of_it(prepared, tmp_path, monkeypatch):
    """Its README says to compile it in its folder. After that checks of style failed, and the guest was made anew."""
    driver, out = tmp_path / "driver", tmp_path / "out"
    sources = {"Kbuild", "tracer.h", "tracer_bounds.c", "tracer_file.c", "tracer_main.c"}
    driver.mkdir()
    for name in sources:
        shutil.copy(checkpatch.DRIVER / name, driver)
    monkeypatch.setattr(initramfs, "DRIVER", driver)
    monkeypatch.setattr(checkpatch, "DRIVER", driver)
    monkeypatch.setattr(checkpatch, "findings", lambda files: [] if {f.name for f in files} < sources else files)
    monkeypatch.setattr(sys, "argv", ["checkpatch.py"])
    recipe = initramfs.recipe()
    left = [f"merapi_tracer{kind}" for kind in (".ko", ".mod", ".mod.c", ".mod.o", ".o")]
    left += ["tracer_main.o", ".tracer_main.o.cmd", ".tracer_main.o.d", "Module.symvers", "modules.order"]
    for name in left:
        (driver / name).write_text("compiled")
    assert initramfs.recipe() == recipe
    assert checkpatch.main() == 0
    with pytest.raises(SystemExit):
        kbuild.module(driver, out, "PATCHLEVEL=7")
    assert {f.name for f in (out / "driver").iterdir()} == sources
    root = initramfs.HERE.parent
    ignored = ["git", "-C", root, "check-ignore", *(f"sw/driver/{name}" for name in left)]
    assert subprocess.run(ignored, capture_output=True, text=True).stdout.count("\n") == len(left)


def test_scripts_of_the_guest_are_shell(tmp_path):
    for name in initramfs.SCRIPTS:
        script = initramfs.HERE / "guest" / name
        assert script.stat().st_mode & 0o100
        assert subprocess.run(["sh", "-n", script]).returncode == 0


@pytest.mark.parametrize(("broken", "outcome"), [("packages.tree", "4 skipped"), ("prepare.ready", "4 errors")])
def test_a_driver_that_does_not_compile_fails_the_tests(prepared, tmp_path, broken, outcome):
    """It skipped all that need a guest, as packages do that cannot be fetched. Either is tried once for all tests."""
    module, tried = broken.partition(".")[0], tmp_path / "tried"
    (tmp_path / "breaks.py").write_text(
        f"import {module}\n\n\ndef end(*_):\n    open({str(tried)!r}, 'a').write('x')\n    raise SystemExit(1)\n\n\n"
        f"{broken} = end\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "breaks", "-k", "each_topology"]
    path = os.pathsep.join(map(str, (tmp_path, initramfs.HERE, initramfs.HERE.parent / "tools")))
    done = subprocess.run(
        [*command, Path(__file__).with_name("test_qemu_accepts.py")],
        cwd=initramfs.HERE.parent,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = done.stdout.splitlines()[-1]
    assert outcome in last and "passed" not in last, done.stdout + done.stderr
    assert (done.returncode == 0) == ("skipped" in outcome)
    assert tried.read_text() == "x"
