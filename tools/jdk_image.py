# SPDX-License-Identifier: Apache-2.0
"""A complete, self-contained JDK folder: Debian's binaries of the same release around a libjvm of ours.

Only libjvm is compiled here. Everything else (class library, launchers, tools)
comes from the packages built from the same release, with three things redone
because they must agree with libjvm: the CDS archives, JFR's configuration, and,
when a patch adds JFR events, the event metadata inside the module jdk.jfr. The
modules that jlink and jpackage take (jmods) have them too.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from common import BUILD, ROOT, exclusive, fail, inputs, read_json, say, sha256, write_if_changed, write_whole
from jdk_source import debian_files

# Increment when the recipe below changes, so that existing folders are made again.
RECIPE = 3
JMOD_MAGIC = b"JM\x01\x00"
METADATA = "classes/jdk/jfr/internal/types/metadata.bin"
IN_DEB = Path("usr/lib/jvm/java-17-openjdk-amd64")


def base_folder():
    """Debian's JDK unpacked into build/jdk/debian, its links into /etc replaced by the files themselves.

    It is also the boot JDK and the compiler of the Java programs, so that every machine has the same ones.
    """
    with exclusive("jdk-debian"):
        return unpack_base()


def unpack_base():
    base, stamp = BUILD / "jdk/debian", BUILD / "jdk/debian.json"
    state = {"recipe": RECIPE, "files": inputs()["jdk"]["binary_files"]}
    if base.exists() and read_json(stamp) == state:
        return base
    say("unpacking the JDK's class library and tools")
    stamp.unlink(missing_ok=True)
    part = BUILD / "jdk/debian.part"
    for folder in (part, base):
        shutil.rmtree(folder, ignore_errors=True)
    part.mkdir(parents=True)
    for deb in debian_files("binary_files", "fetch"):
        subprocess.run(["dpkg", "-x", deb, part], check=True)
    home = part / IN_DEB
    for link in [p for p in home.rglob("*") if p.is_symlink()]:
        target = os.readlink(link)
        if target.startswith("/etc/ssl/"):
            source = Path(target)
            if not source.exists():
                fail(f"expected Java's certificates in {target}, found nothing; install ca-certificates-java")
        elif target.startswith("/"):
            source = part / target.lstrip("/")
        elif (link.parent / target).exists() and (link.parent / target).resolve().is_relative_to(home):
            continue
        else:
            link.unlink()  # documentation and src.zip, which are other packages
            continue
        link.unlink()
        shutil.copy2(source, link)
    dangling = [str(p) for p in home.rglob("*") if p.is_symlink() and not p.exists()]
    if dangling:
        fail(f"dangling links in the unpacked JDK: {', '.join(dangling)}")
    home.rename(base)
    shutil.rmtree(part)
    write_whole(stamp, json.dumps(state).encode())
    return base


def jfr_metadata(java_home, source):
    """JFR's event metadata as bytes, generated from a source tree's metadata.xml by the JDK's own tool."""
    folder = source / "src/hotspot/share/jfr/metadata"
    out = source.parent / "metadata.bin"
    tool = source / "make/src/classes/build/tools/jfr/GenerateJfrFiles.java"
    command = [java_home / "bin/java", tool, "--mode", "metadata", "--xml", folder / "metadata.xml"]
    done = subprocess.run([*command, "--xsd", folder / "metadata.xsd", "--output", out], capture_output=True, text=True)
    if done.returncode:
        fail(f"JFR metadata could not be generated from {folder}\n{done.stdout}{done.stderr}")
    return out.read_bytes()


def read_jmod(path):
    data = path.read_bytes()
    if not data.startswith(JMOD_MAGIC):
        fail(f"{path}: expected a jmod file, found {data[:4]!r}")
    return zipfile.ZipFile(io.BytesIO(data[len(JMOD_MAGIC) :]))


def replace_in_jmod(path, entries):
    """Replace or add `entries`, {name: bytes}; the file stays as it is when it has them."""
    source, out = read_jmod(path), io.BytesIO()
    names = set(source.namelist())
    if all(name in names and source.read(name) == data for name, data in entries.items()):
        return
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            data = entries.get(info.filename)
            target.writestr(info, source.read(info) if data is None else data)
        for name in sorted(set(entries) - names):
            target.writestr(name, entries[name])
    write_whole(path, JMOD_MAGIC + out.getvalue())


def module_hash(path):
    """A module's hash as java.base records it (jdk.internal.module.ModuleHashes.computeHash)."""
    jmod, value = read_jmod(path), hashlib.sha256()
    for name in sorted(i.filename for i in jmod.infolist() if i.filename.startswith("classes/") and not i.is_dir()):
        value.update(name.removeprefix("classes/").encode())
        value.update(jmod.read(name))
    return value.digest()


def replace_metadata(image, metadata):
    """Put other JFR event metadata into the folder's jdk.jfr and link lib/modules again."""
    jfr, java_base = image / "jmods/jdk.jfr.jmod", image / "jmods/java.base.jmod"
    if read_jmod(jfr).read(METADATA) == metadata:
        return
    say("linking lib/modules with the patch's JFR events")
    old = module_hash(jfr)
    replace_in_jmod(jfr, {METADATA: metadata})
    # java.base names the hash of every module it was built with, and jlink refuses another.
    info = read_jmod(java_base).read("classes/module-info.class")
    if info.count(old) != 1:
        fail(f"{java_base}: expected jdk.jfr's hash once in module-info.class, found it {info.count(old)} times")
    replace_in_jmod(java_base, {"classes/module-info.class": info.replace(old, module_hash(jfr))})
    linked = image.parent / f"{image.name}.linked"
    shutil.rmtree(linked, ignore_errors=True)
    command = [image / "bin/jlink", "--module-path", image / "jmods", "--add-modules", "ALL-MODULE-PATH"]
    done = subprocess.run([*command, "--output", linked], capture_output=True, text=True)
    if done.returncode:
        fail(f"jlink failed\n{done.stdout}{done.stderr}")
    (linked / "lib/modules").replace(image / "lib/modules")
    shutil.rmtree(linked)


def java(image, *arguments):
    done = subprocess.run([image / "bin/java", *arguments], capture_output=True, text=True)
    if done.returncode:
        fail(f"{image}/bin/java {' '.join(arguments)} failed (status {done.returncode})\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def assemble(image, libjvm, metadata, jfc, libmerapi):
    """Make (or bring up to date) the folder `image`.

    libjvm: file; metadata: JFR metadata as bytes; jfc: {name: bytes} of lib/jfr; libmerapi: file or None.
    """
    base = base_folder()
    jfc_digest = hashlib.sha256(b"".join(jfc[name] for name in sorted(jfc))).hexdigest()
    state = {
        "recipe": RECIPE,
        "base": inputs()["jdk"]["binary_files"],
        "libjvm": sha256(libjvm),
        "metadata": hashlib.sha256(metadata).hexdigest(),
        "jfc": jfc_digest,
    }
    stamp = image.parent / f"{image.name}.json"
    fresh = image.exists() and read_json(stamp) == state
    if fresh:
        if libmerapi:
            install_library(libmerapi, image)
        return
    say(f"assembling {image.relative_to(ROOT)}")
    part = image.parent / f"{image.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(base, part, symlinks=True)
    replace_metadata(part, metadata)
    for name, data in jfc.items():
        write_if_changed(part / "lib/jfr" / name, data)
    replace_in_jmod(part / "jmods/jdk.jfr.jmod", {f"lib/jfr/{name}": data for name, data in jfc.items()})
    install(libjvm, part / "lib/server/libjvm.so")
    replace_in_jmod(part / "jmods/java.base.jmod", {"lib/server/libjvm.so": libjvm.read_bytes()})
    if libmerapi:
        install_library(libmerapi, part)
    for archive in (part / "lib/server").glob("classes*.jsa"):
        archive.unlink()
    stamp.unlink(missing_ok=True)
    # JVMs that run from the old folder keep its files open; the folder's name is free only for a moment.
    old = image.parent / f"{image.name}.old"
    shutil.rmtree(old, ignore_errors=True)
    if image.exists():
        image.rename(old)
    # An archive records the path of lib/modules, so it is dumped in the final place.
    part.rename(image)
    shutil.rmtree(old, ignore_errors=True)
    # With the heap that the JDK's own build has: its size decides where the archived objects may be mapped.
    dump = ["-XX:+UseG1GC", "-Xshare:dump", "-Xms128m", "-Xmx128m"]
    java(image, *dump)
    java(image, *dump, "-XX:-UseCompressedOops")
    version = java(image, "-Xshare:on", "-version")
    wanted = f"{inputs()['jdk']['release']}+{inputs()['jdk']['build']}-{inputs()['jdk']['opt']}"
    if version.count(wanted) != 2:
        fail(f"expected class library and libjvm of version {wanted}, found\n{version}")
    write_whole(stamp, json.dumps(state).encode())


def install_library(libmerapi, image):
    install(libmerapi, image / "lib/libmerapi.so")
    replace_in_jmod(image / "jmods/java.base.jmod", {"lib/libmerapi.so": libmerapi.read_bytes()})


def install(source, target):
    """Replace `target` by a copy of `source` unless equal; a JVM that runs keeps the old file."""
    if not target.exists() or sha256(source) != sha256(target):
        part = target.with_name(target.name + ".part")
        shutil.copy2(source, part)
        part.replace(target)
