# SPDX-License-Identifier: Apache-2.0
"""The guest's initramfs: programs of Debian packages, the kernel modules they need, and our scripts.

Nothing in it is compressed: QEMU hands memory over faster than an emulated processor unpacks it.
"""

import lzma
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import kbuild
import packages
from common import fail, sha256

HERE = Path(__file__).resolve().parent
SCRIPTS = {"init": "init", "merapi-agent": "usr/bin/merapi-agent"}
LIBMERAPI = HERE.parent / "sw/libmerapi"
DRIVER = HERE.parent / "sw/driver"
# Programs of ours, with what else each is compiled from.
TOOLS = {"merapi-dax": [], "merapi-driver-check": [], "merapi-ring": sorted((LIBMERAPI / "src").glob("*.c"))}
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")


def find_program(tree, name):
    for folder in ("usr/bin", "usr/sbin"):
        if (tree / folder / name).exists():
            return Path(folder) / name
    return fail(f"expected the program {name} in {tree}, found nothing; is its package named in inputs.toml?")


def needed(path):
    """Libraries that an ELF file names, itself excluded."""
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def copy_programs(tree, root, programs, libraries):
    """Copy programs and, transitively, the libraries they name."""
    wanted = [find_program(tree, name) for name in programs]
    wanted += [LIBRARIES / name for name in [*libraries, "ld-linux-x86-64.so.2"]]
    seen = set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        source = tree / name
        if not source.exists():
            fail(f"expected {name} in {tree}, found nothing; add its package to inputs.toml")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.resolve(), root / name)
        wanted += [LIBRARIES / library for library in needed(source)]


def module_name(path):
    return path.name.split(".")[0].replace("-", "_")


def module_bytes(path):
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def copy_modules(kernel, guest, root, names, own):
    """Copy modules with what they depend on, unpacked, and those of ours; make the index that modprobe reads."""
    base = next((kernel / "usr/lib/modules").iterdir(), None)
    if base is None:
        fail(f"expected modules in {kernel}/usr/lib/modules, found none; remove {kernel} and run again")
    available = {module_name(p): p for p in base.rglob("*.ko*")}
    builtin = {module_name(Path(line)) for line in (base / "modules.builtin").read_text().split()}
    target = root / "usr/lib/modules" / base.name
    wanted, seen = [n.replace("-", "_") for n in names], set()
    while wanted:
        name = wanted.pop()
        if name in seen or name in builtin:
            continue
        seen.add(name)
        if name not in available:
            fail(f"expected the module {name} in kernel {base.name}, found no file of it and nothing built in")
        path = available[name]
        data = module_bytes(path)
        copy = target / path.relative_to(base).with_name(path.name.removesuffix(".xz"))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        for depends in re.findall(rb"\0depends=([^\0]*)\0", b"\0" + data):
            wanted += [d.replace("-", "_") for d in depends.decode().split(",") if d]
        for soft in re.findall(rb"\0softdep=pre: ([^\0]*)\0", b"\0" + data):
            wanted += [d for d in soft.decode().replace("-", "_").split() if d in available]
    (target / "updates").mkdir()
    for path in own:
        shutil.copy(path, target / "updates" / path.name)
    for index in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if (base / index).exists():
            shutil.copy(base / index, target / index)
    depmod = packages.loader_command(guest, guest / "usr/bin/kmod", "-b", root, base.name, name="depmod")
    done = subprocess.run(depmod, capture_output=True, text=True)
    if done.returncode:
        fail(f"depmod failed on {target}\n{done.stderr}")
    return base.name


def link_busybox(root):
    """A link for each of busybox's programs that no package brought, and kmod's names."""
    busybox = root / "usr/bin/busybox"
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in ("modprobe", "insmod", "rmmod", "lsmod", "depmod", "modinfo"):
        (root / "usr/sbin" / name).symlink_to("../bin/kmod")
    for name in names:
        if not any((root / folder / name).exists() for folder in ("usr/bin", "usr/sbin")):
            (root / "usr/bin" / name).symlink_to("busybox")


def build_tool(name, out):
    """Compile a program of guest/ statically: the guest's C library is another one than this machine's."""
    command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-D_GNU_SOURCE"]
    command += ['-DMERAPI_LIBRARY_VERSION="guest"', f"-I{LIBMERAPI / 'include'}"]
    command += [HERE / f"guest/{name}.c", *TOOLS[name], "-o", out]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(f"could not compile {name}; is build-essential installed?\n{done.stderr}")


def newc(root, out):
    """Write the tree as a cpio archive of the kernel's kind (newc); owner root, time 0, so that it is reproducible."""

    def entry(file, name, mode, data, number):
        header = f"070701{number:08x}{mode:08x}" + "00000000" * 2 + f"{1:08x}{0:08x}{len(data):08x}" + "00000000" * 4
        encoded = os.fsencode(name) + b"\0"
        header += f"{len(encoded):08x}" + "00000000"
        file.write(header.encode() + encoded)
        file.write(b"\0" * (-(len(header) + len(encoded)) % 4))
        file.write(data)
        file.write(b"\0" * (-len(data) % 4))

    with open(out, "wb") as file:
        for number, path in enumerate(sorted(root.rglob("*")), 1):
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                data, mode = os.fsencode(os.readlink(path)), stat.S_IFLNK | 0o777
            elif stat.S_ISDIR(mode):
                data, mode = b"", stat.S_IFDIR | 0o755
            else:
                data, mode = path.read_bytes(), stat.S_IFREG | (0o755 if mode & 0o100 else 0o644)
            entry(file, str(path.relative_to(root)), mode, data, number)
        entry(file, "TRAILER!!!", 0, b"", 0)


def recipe():
    """What the initramfs is made of, as one checksum."""
    files = [HERE / "inputs.toml", HERE / "kernel.py", HERE / "kbuild.py", Path(__file__)]
    files += [HERE / "guest" / name for name in SCRIPTS]
    files += [source for name, more in TOOLS.items() for source in (HERE / f"guest/{name}.c", *more)]
    files += sorted((LIBMERAPI / "include/merapi").glob("*.h")) + sorted((LIBMERAPI / "src").glob("*.h"))
    files += kbuild.sources(DRIVER)
    return sha256(*files, *(packages.tree(name) / "packages.json" for name in ("kernel", "compiler", "guest")))


def make(out):
    """Write the initramfs to `out`."""
    settings = packages.wanted()["initramfs"]
    kernel, guest = packages.tree("kernel"), packages.tree("guest")
    root = out.with_name("initramfs")
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "sbin", "lib", "lib64"):
        (root / f"usr/{folder}").mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    for folder in (
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "etc",
        "root",
        "merapi/jdk",
        "merapi/apps",
        "merapi/native",
        "merapi/out",
    ):
        (root / folder).mkdir(parents=True)
    copy_programs(guest, root, settings["programs"], settings["libraries"])
    (root / "usr/lib64/ld-linux-x86-64.so.2").symlink_to("../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    link_busybox(root)
    copy_modules(kernel, guest, root, settings["modules"], [kbuild.module(DRIVER, out.with_name("driver"))])
    for name in TOOLS:
        build_tool(name, root / "usr/bin" / name)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for name, target in SCRIPTS.items():
        shutil.copy(HERE / "guest" / name, root / target)
        (root / target).chmod(0o755)
    part = out.with_name(out.name + ".part")
    newc(root, part)
    part.replace(out)
