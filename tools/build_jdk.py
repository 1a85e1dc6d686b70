#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the patched JDK (or, for comparison, the unpatched one) as a folder that runs.

  build_jdk.py image --variant merapi --libmerapi FILE   build/jdk/image
  build_jdk.py image --variant stock                     build/jdk/stock-image
  build_jdk.py image --variant fastdebug --libmerapi FILE
                                                         build/jdk/fastdebug-image: patched, with HotSpot's asserts
  build_jdk.py sync --variant merapi                     bring build/jdk/merapi/src up to date
  build_jdk.py diff [PATH...]                            what all patches and edits by hand make of the released
                                                         PATH (of all patched files), from build/jdk/merapi/src
  build_jdk.py source --variant stock                    only unpack (jtreg's tests are in the tree)

A finished libjvm is kept in the cache under the digest of everything it was
made from; the same sources in another clone take it from there.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jdk_image
from common import BUILD, CACHE, ROOT, Progress, count, exclusive, fail, inputs, say, sha256
from jdk_source import Tree, overlay_files, patch_files
from kept import Kept

IMAGES = {
    "merapi": BUILD / "jdk/image",
    "stock": BUILD / "jdk/stock-image",
    "fastdebug": BUILD / "jdk/fastdebug-image",
}
CACHED = 12  # finished libjvms in the cache; each is 25 MB, one with asserts 40
JFC = ("default.jfc", "profile.jfc")


def configure_flags(variant, boot_jdk=Path("/") / jdk_image.IN_DEB):
    """Flags of the JDK's configure, the same for all variants but for the name in -Xinternalversion and asserts.

    Without `boot_jdk` they are those of a key, the same in every clone.
    """
    jdk = inputs()["jdk"]
    return [
        "--enable-headless-only",
        "--with-jvm-variants=server",
        "--with-native-debug-symbols=none",
        "--with-zlib=system",
        "--enable-ccache",
        "--disable-warnings-as-errors",
        # Without precompiled headers a change of one header recompiles its users only, and the variants share
        # the compiler cache for every file that no patch reaches.
        "--disable-precompiled-headers",
        f"--with-boot-jdk={boot_jdk}",
        f"--with-build-user={variant}",
        # The serviceability agent refuses a libjvm whose version differs from the class library's.
        "--with-version-pre=",
        f"--with-version-build={jdk['build']}",
        f"--with-version-opt={jdk['opt']}",
        *(["--with-debug-level=fastdebug"] if variant == "fastdebug" else []),
    ]


def environment(tree):
    """Environment of configure and make: ccache in the cache folder, with paths relative to the variant's folder."""
    own = {
        "CCACHE_DIR": str(CACHE / "ccache"),
        "CCACHE_BASEDIR": str(tree.dir),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_MAXSIZE": "5G",
    }
    # JDK's configure warns about and refuses some of these.
    left_out = ("JAVA_HOME", "JDK_HOME", "CLASSPATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "MAKEFLAGS", "MFLAGS")
    return {k: v for k, v in os.environ.items() if k not in left_out} | own


def key(variant):
    """Digest of everything that libjvm is made from."""
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    value = hashlib.sha256()
    parts = [*sorted(inputs()["jdk"]["source_files"].items()), *configure_flags(variant), compiler]
    value.update(repr(parts).encode())
    if variant != "stock":
        for patch in patch_files():
            value.update(f"{patch.name} {sha256(patch)}\n".encode())
        for path, file in sorted(overlay_files().items()):
            value.update(f"{path} {sha256(file)}\n".encode())
    return value.hexdigest()


def run_configure(tree):
    out, stamp = tree.dir / "out", tree.dir / "configured.json"
    state = json.dumps(configure_flags(tree.variant))
    if (out / "spec.gmk").exists() and stamp.exists() and stamp.read_text() == state:
        return
    # Not a JDK of the machine: Debian 13 has no JDK 17.
    flags = configure_flags(tree.variant, jdk_image.base_folder())
    say(f"configuring the JDK ({tree.variant})")
    out.mkdir(parents=True, exist_ok=True)
    log = tree.dir / "configure.log"
    with open(log, "w") as file:
        command = ["bash", "../src/configure", *flags]
        done = subprocess.run(command, cwd=out, env=environment(tree), stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        tail = "\n".join(log.read_text().splitlines()[-25:])
        fail(f"the JDK's configure failed; see {log}\n{tail}")
    share_compiler_cache(tree)
    stamp.write_text(state)


def share_compiler_cache(tree):
    """JDK's make tells ccache that paths within its sources alone are relative. What it generates lies beside them, and
    by these folders no clone would find what another one has compiled."""
    spec = tree.dir / "out/spec.gmk"
    text, count = re.subn(
        rf"\bCCACHE_BASEDIR={re.escape(str(tree.src))}/?(?=\s)", f"CCACHE_BASEDIR={tree.dir}", spec.read_text()
    )
    if not count:
        say(f"expected CCACHE_BASEDIR={tree.src} in {spec}, found none; other clones will compile everything again")
    spec.write_text(text)


def mend_dependencies(tree):
    """JDK's make writes object paths through the source folder (src/../out/x.o) into its dependency files when the
    output lies beside the sources; such a target matches none, and a changed header would rebuild nothing."""
    wrong, right = f"{tree.src}/../out/", f"{tree.dir}/out/"
    for file in (tree.dir / "out").rglob("*.d"):
        text = file.read_text()
        if wrong in text:
            times = file.stat()
            file.write_text(text.replace(wrong, right))
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_make(tree, jobs):
    """make hotspot, showing the share of files compiled; the whole output goes to make.log."""
    log = tree.dir / "make.log"
    mend_dependencies(tree)
    # LOG=info names every compiled file, which is what progress is counted from.
    command = ["make", "hotspot", f"JOBS={jobs}", "LOG=info"]
    progress, compiled = Progress(f"compiling libjvm ({tree.variant}), files"), 0
    with open(log, "w") as file:
        where = {"cwd": tree.dir / "out", "env": environment(tree)}
        process = subprocess.Popen(command, **where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout:
            file.write(line)
            if match := re.search(r"Creating .*libjvm\.so from (\d+) file", line):
                progress.total = int(match.group(1))
            elif re.match(r"Compiling \S+\.(cpp|S|c) \(for libjvm", line):
                compiled += 1
                progress.at(compiled)
        process.wait()
    progress.end()
    if process.returncode:
        lines = log.read_text().splitlines()
        errors = [line for line in lines if re.search(r"\berror\b|Error \d", line)]
        tail = "\n".join((errors or lines)[-25:])
        fail(f"the JDK's make failed; see {log}\n{tail}")


def libjvm(variant, jobs, force):
    """Folder with libjvm.so, metadata.bin and JFR's configurations of this variant: from the cache or built."""
    kept = Kept("jdk", CACHED)
    if found := kept.find(key(variant)):
        return found
    with exclusive(f"jdk-{variant}"):
        tree = Tree(variant)
        tree.unpack(force)
        wanted = None
        # Sources that are edited during the build are built once more, which is quick; the key must fit the result.
        while wanted != key(variant):
            wanted = key(variant)
            if changed := tree.sync(force):
                say(f"{changed} file(s) changed in build/jdk/{variant}/src")
            run_configure(tree)
            run_make(tree, jobs)
        metadata = jdk_image.jfr_metadata(jdk_image.base_folder(), tree.src)
        with kept.made(wanted) as part:
            shutil.copy2(tree.dir / "out/support/modules_libs/java.base/server/libjvm.so", part)
            (part / "metadata.bin").write_bytes(metadata)
            for name in JFC:
                shutil.copy2(tree.src / "src/jdk.jfr/share/conf/jfr" / name, part)
    return kept.folder / wanted


def image(variant, libmerapi, jobs, force):
    if libmerapi and not libmerapi.exists():
        fail(f"expected libmerapi at {libmerapi}, found nothing; run 'make native' first")
    kept = libjvm(variant, jobs, force)
    with exclusive(f"image-{variant}"):
        jfc = {name: (kept / name).read_bytes() for name in JFC}
        metadata = (kept / "metadata.bin").read_bytes()
        jdk_image.assemble(IMAGES[variant], kept / "libjvm.so", metadata, jfc, libmerapi)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("verb", choices=["image", "sync", "diff", "source"])
    parser.add_argument("paths", nargs="*", help="diff: files or folders in the tree")
    parser.add_argument("--variant", choices=sorted(IMAGES), default="merapi")
    parser.add_argument("--libmerapi", type=Path, help="libmerapi.so to put into the folder")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1)
    parser.add_argument("--force", action="store_true", help="overwrite files edited by hand in the unpacked tree")
    args = parser.parse_args()
    if os.uname().machine != "x86_64":
        fail(f"expected an x86-64 machine (the JDK's binaries are taken for it), found {os.uname().machine}")
    tree = Tree(args.variant)
    if args.verb == "image":
        image(args.variant, args.libmerapi, args.jobs, args.force)
    elif args.verb == "diff":
        sys.stdout.write(tree.diff(args.paths))
    else:
        with exclusive(f"jdk-{args.variant}"):
            tree.unpack()
            if args.verb == "sync":
                say(f"{tree.sync(args.force)} file(s) changed in {tree.src.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
