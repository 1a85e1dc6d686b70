# SPDX-License-Identifier: Apache-2.0
"""Runs the merapi command, device processes and probes; makes sysfs trees and stand-ins for cxl, daxctl and ndctl."""

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import native_fixtures
import pytest
from common import ROOT

# Exit codes of merapi(1).
OK, FOUND, USAGE, ABSENT, BUSY, DENIED, SYSTEM = range(7)


def binary(name):
    given = os.environ.get("MERAPI_CLI") if name == "merapi" else None
    return given or native_fixtures.binary(name)


@dataclass
class Done:
    status: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)


def merapi(*arguments, env=None, timeout=120, program=None, **more):
    """Run the command to its end."""
    done = subprocess.run(
        [program or binary("merapi"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "MERAPI_DEVICE_PROGRAM": binary("merapi-device"), **(env or {})},
        **more,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def merapi_of_nobody(folder, *arguments, env=None):
    """The command as an ordinary user; `folder` then lets everybody in and holds a copy of the command, since a clone
    may lie where only its owner reads."""
    if os.geteuid() != 0:
        return merapi(*arguments, env=env)
    copy = folder / "merapi-of-nobody"
    shutil.copy(binary("merapi"), copy)
    folder.chmod(0o755)
    nobody = pwd.getpwnam("nobody")
    return merapi(
        *arguments, env=env, program=copy, cwd=folder, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[]
    )


def interposed(folder, name, text):
    """A library for LD_PRELOAD with functions in C that take the place of the system's."""
    library = folder / f"{name}.so"
    compiler = ["cc", "-x", "c", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, "-", "-ldl"]
    subprocess.run(compiler, input=text, text=True, check=True, timeout=60)
    return library


class Process:
    """A process whose lines of output can be waited for; ends with the test."""

    def __init__(self, *command, env=None):
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.lines, self.errors = [], []
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=lambda s=stream, to=lines: to.extend(iter(s.readline, "")), daemon=True).start()
        self.pid = self.process.pid

    def wait_line(self, text, seconds=60):
        def there():
            if any(text in line for line in self.lines):
                return True
            assert self.process.poll() is None, f"ended with {self.process.poll()}: {self.lines} {self.errors}"
            return False

        native_fixtures.wait_until(there, seconds)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        return self.process.wait(20)


def devices_at(socket):
    """Pids of the living device processes of this socket, recorded or not."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_text().split("\0")
            if str(socket) in words and os.path.basename(os.readlink(f"/proc/{entry}/exe")) == "merapi-device":
                found.append(int(entry))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def patched_jdk():
    jdk = ROOT / "build/jdk/image"
    if not (jdk / "bin/java").exists():
        pytest.fail(f"expected the patched JDK at {jdk}, found nothing; run 'make jdk'", pytrace=False)
    return jdk


def compile_java(folder, name, text):
    """Compile one class into the folder."""
    compiler = patched_jdk() / "bin/javac"
    source = folder / f"{name}.java"
    source.write_text(text)
    subprocess.run([compiler if compiler.exists() else "javac", "-d", folder, source], check=True, timeout=300)


class MockSystem:
    """A sysfs tree, a /dev and programs on PATH. The programs act on the tree as the kernel would, record their
    command lines in `calls`, and fail with the words of the file NAME.fail when there is one."""

    def __init__(self, folder):
        self.folder, self.sys, self.dev, self.bin = folder, folder / "sys", folder / "dev", folder / "bin"
        for name in ("bus/cxl/devices", "bus/dax/devices", "bus/dax/drivers", "bus/nd/devices", "module", "devices"):
            (self.sys / name).mkdir(parents=True)
        self.dev.mkdir()
        self.bin.mkdir()
        for name in ("cxl", "daxctl", "ndctl", "modprobe"):
            self.program(name, "exit 0")
        for name in ("device_dax", "cxl_acpi", "cxl_pci", "cxl_mem", "dax_cxl"):
            self.module(name)
        self.write("devices/system/memory/auto_online_blocks", "offline")
        self.config = folder / "config"
        self.config.write_text(
            "".join(
                f"CONFIG_{name}=m\n"
                for name in ("DEV_DAX", "DEV_DAX_CXL", "CXL_BUS", "CXL_ACPI", "CXL_MEM", "CXL_REGION")
            )
        )

    @property
    def env(self):
        return {
            "MERAPI_SYSFS_ROOT": str(self.sys),
            "MERAPI_DEV_ROOT": str(self.dev),
            "MERAPI_KERNEL_CONFIG": str(self.config),
            "MERAPI_MODULES_ROOT": str(self.folder / "modules"),
            "MERAPI_SOCKET": str(self.folder / "device.sock"),
            "MERAPI_STATE": str(self.folder / "state/windows.json"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }

    def run(self, *arguments, **more):
        return merapi(*arguments, env=self.env, **more)

    def write(self, name, value):
        path = self.sys / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def module(self, name):
        (self.sys / "module" / name).mkdir()

    def program(self, name, body):
        """A stand-in; `body` is shell and sees the tree as $SYS and /dev as $DEV."""
        path = self.bin / name
        path.write_text(
            f"#!/bin/sh\nSYS={self.sys}\nDEV={self.dev}\n"
            f'echo "{name} $*" >> {self.folder}/calls\n'
            f"if [ -f {self.folder}/{name}.fail ]; then cat {self.folder}/{name}.fail >&2; exit 1; fi\n{body}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def fail(self, name, words):
        (self.folder / f"{name}.fail").write_text(f"{words}\n")

    def calls(self):
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def changes(self):
        return [call for call in self.calls() if not call.startswith("cxl list")]

    def expander(self, name, volatile=512 << 20, persistent=0, driver="cxl_mem", slot="0000:0d:00", serial="0x1"):
        base = f"devices/pci0000:0c/{slot}.0/{name}"
        self.write(f"{base}/ram/size", hex(volatile))
        self.write(f"{base}/pmem/size", hex(persistent))
        self.write(f"{base}/serial", serial)
        self.write(f"{base}/numa_node", "0")
        if driver:
            drivers = self.sys / "bus/cxl/drivers" / driver
            drivers.mkdir(parents=True, exist_ok=True)
            (self.sys / base / "driver").symlink_to(drivers)
        (self.sys / "bus/cxl/devices" / name).symlink_to(self.sys / base)

    def region(
        self,
        name,
        targets,
        mode="ram",
        size=512 << 20,
        committed=1,
        start=0x100000000,
        place=0,
        decoder=0,
        endpoint=2,
    ):
        """`place`: where it begins in its expander, whose port is `endpoint`; each region there has a decoder."""
        base = f"devices/platform/ACPI0017:00/root0/decoder0.0/{name}"
        for key, value in {
            "mode": mode,
            "resource": hex(start),
            "size": hex(size),
            "interleave_ways": len(targets),
            "interleave_granularity": 256,
            "commit": committed,
        }.items():
            self.write(f"{base}/{key}", value)
        for i, memory in enumerate(targets):
            target = f"decoder{i + endpoint}.{decoder}"
            port = f"devices/platform/ACPI0017:00/root0/endpoint{i + endpoint}"
            (self.sys / port / target).mkdir(parents=True)
            self.write(f"{port}/{target}/dpa_resource", hex(place))
            if not (self.sys / port / "uport").is_symlink():
                (self.sys / port / "uport").symlink_to((self.sys / "bus/cxl/devices" / memory).resolve())
            (self.sys / "bus/cxl/devices" / target).symlink_to(self.sys / port / target)
            self.write(f"{base}/target{i}", target)
        (self.sys / "bus/cxl/devices" / name).symlink_to(self.sys / base)

    def dax(
        self,
        name,
        size=512 << 20,
        align=2 << 20,
        driver="device_dax",
        region="region0",
        mode=0o600,
        extents=1,
        start=0x100000000,
    ):
        inner = f"{region}/dax_region0" if region else "hmem.0"
        base = f"devices/platform/ACPI0017:00/root0/decoder0.0/{inner}/{name}"
        self.write(f"{base}/size", size)
        self.write(f"{base}/align", align)
        self.write(f"{base}/target_node", 1)
        self.write(f"{base}/resource", hex(start))
        self.write(f"{base}/mapping", "")
        for i in range(extents):
            self.write(f"{base}/mapping{i}/start", "0x0")
        self.driver(base, driver)
        link = self.sys / "bus/dax/devices" / name
        if not link.is_symlink():
            link.symlink_to(self.sys / base)
        node = self.dev / name
        node.write_bytes(b"")
        node.chmod(mode)

    def function(self, name="merapi0", memory=512 << 20, slot="0000:0d:00", traces=None):
        """The PCI function of a tracer, normally in the slot of the expander that expander() makes. It traces that many
        bytes, normally all. Returns a function that reads an attribute."""
        pci = f"devices/pci0000:0c/{slot}.1"
        for key, value in {
            "memory_bytes": memory,
            "window_offset": 0,
            "window_bytes": memory if traces is None else traces,
            "interrupts": 7,
            "engines": 2,
        }.items():
            self.write(f"{pci}/{key}", value)
        (self.sys / f"class/misc/{name}").mkdir(parents=True)
        (self.sys / f"class/misc/{name}/device").symlink_to(self.sys / pci)
        (self.dev / name).write_bytes(b"")
        return lambda key: int((self.sys / pci / key).read_text())

    def driver(self, base, name):
        link = self.sys / base / "driver"
        link.unlink(missing_ok=True)
        if name:
            drivers = self.sys / "bus/dax/drivers" / name
            drivers.mkdir(parents=True, exist_ok=True)
            link.symlink_to(drivers)


def devices_of(env):
    """The pids that the runs recorded."""
    try:
        return [int(line.split()[0]) for line in Path(env["MERAPI_SOCKET"] + ".runs/devices").read_text().splitlines()]
    except FileNotFoundError:
        return []


def device_of(env):
    """The pid that the runs recorded, None when there is no device."""
    return next(iter(devices_of(env)), None)


def hold(start, device):
    """A live host: a probe that traces and then neither reads completions nor ends."""
    probe = start(binary("device_probe"), f"device:{device.socket}", "--hold")
    probe.wait_line("tracing")
    return probe
