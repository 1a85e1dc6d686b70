# SPDX-License-Identifier: Apache-2.0
"""A virtual machine of ours: starts QEMU, runs commands in the guest, ends it."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import prepare
import topology as topologies
from children import die_with_parent, end
from pci_front import PciFront

# Guest memory besides the expanders: the initramfs, the JVM's own memory and what is cached of the shares.
GUEST_MIB = 1536
# Defences against speculation cost an emulated processor much and protect nothing here; the rest saves boot time.
KERNEL_WORDS = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr nowatchdog audit=0 tsc=reliable no_timer_check "
    "cryptomgr.notests random.trust_cpu=on rcupdate.rcu_expedited=1 8250.nr_uarts=1"
)
# What the guest's time follows: the time of day, or its instructions, each of which then takes 2^2 ns. The latter is
# for a machine so busy that a guest would spend the little it gets on timers that have run ahead; it boots slowly.
NANOSECONDS_SHIFT = 2
CLOCKS = ("real", "instructions")
ACCELERATORS = {"tcg": ["-accel", "tcg,thread=single", "-cpu", "max"], "kvm": ["-accel", "kvm", "-cpu", "host"]}
# A boot takes some four seconds of one processor; on a machine that is busy otherwise it gets a small share of one.
BOOT_SECONDS = 600
EXPANDERS_SECONDS = 60
SEPARATOR = b"\x1e"
# Memory of an expander is a file in memory: on a disk every change of it would be written back.
SHARED_MEMORY = Path("/dev/shm")
# Of a folder there: locked while its launcher lives.
LOCK = "launcher"


class GuestError(Exception):
    """The guest did not start, ended, or said nothing; the text says what was expected and found."""


def remove_left():
    """Remove what dead launchers left in shared memory: the folders whose lock nobody holds. Who shares the memory from
    another container sees no process of this one."""
    for folder in SHARED_MEMORY.glob("merapi-qemu-*"):
        with contextlib.suppress(OSError), open(folder / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def check_room(wanted):
    """An error unless shared memory has room for all that expanders may hold: without, QEMU ends during a run. What
    dead launchers left takes none."""
    remove_left()
    if not os.access(SHARED_MEMORY, os.W_OK):
        raise GuestError(f"expected a folder in memory, {SHARED_MEMORY}, that can be written, found none")
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < wanted:
        raise GuestError(
            f"expected {wanted >> 20} MiB free in {SHARED_MEMORY} for the expanders' memory, found {free >> 20} MiB; "
            f"make it larger (mount -o remount,size=SIZE {SHARED_MEMORY}; for a container --shm-size=SIZE)"
        )


def private_folder(wanted):
    """A folder in shared memory for the agent's socket and the expanders, which may come to `wanted` bytes. Returns the
    folder and an open file, locked while its launcher lives."""
    check_room(wanted)
    # Under its name only when it is locked.
    made = Path(tempfile.mkdtemp(prefix=".merapi-qemu-", dir=SHARED_MEMORY))
    lock = (made / LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    folder = made.rename(SHARED_MEMORY / f"merapi-qemu-{os.getpid()}-{made.name.rpartition('-')[2]}")
    return str(folder), lock


class Machine:
    """A running guest with its expanders. Use as a context manager: QEMU and its sockets are gone at the end.

    `shares` maps the tags jdk, apps, native (the merapi command is there) and out to folders. `folder` gets console.log
    and qemu.log.
    `clock`: what the guest's time follows, of CLOCKS. `tracer`: the device that traces the first expander from behind a
    PCI function in the same slot, as arguments of PciFront; without it the caller starts what traces.
    `hidden`: the guest does not see that it is one.
    """

    def __init__(
        self,
        name,
        folder,
        shares,
        expander_bytes,
        shell=False,
        clock="real",
        tracer=None,
        accelerator="tcg",
        boot_seconds=BOOT_SECONDS,
        hidden=True,
    ):
        if name not in topologies.TOPOLOGIES:
            known = ", ".join(topologies.TOPOLOGIES)
            raise GuestError(f"expected a topology of {known}, found '{name}'")
        self.topology, self.folder, self.shares = topologies.TOPOLOGIES[name], Path(folder), shares
        self.expander_bytes, self.shell, self.tracer, self.front = expander_bytes, shell, tracer, None
        self.clock, self.accelerator, self.boot_seconds, self.hidden = clock, accelerator, boot_seconds, hidden
        self.process, self.channel, self.rest, self.number = None, None, b"", 0
        self.ready_s, self.guest_ready_s = None, None

    def files(self):
        """The expanders' files, mem0 first."""
        return topologies.backing_files(self.topology, self.private)

    def command(self):
        cpu = ["-machine", "q35,cxl=on", *ACCELERATORS[self.accelerator], "-smp", "1"]
        # Where the kernel sees that it runs in a virtual machine it refuses regions: it cannot write caches back there.
        if self.hidden:
            cpu[-3] += ",-hypervisor"
        slots = (self.topology.expanders + 1) * self.expander_bytes >> 20
        words = KERNEL_WORDS + (" merapi.shell" if self.shell else "")
        if self.clock == "instructions":
            cpu += ["-icount", f"shift={NANOSECONDS_SHIFT},sleep=on"]
        options = [*cpu, "-m", f"{GUEST_MIB}M,maxmem={GUEST_MIB + slots + 1024}M,slots=4", "-nodefaults"]
        options += ["-no-user-config", "-display", "none", "-no-reboot", "-kernel", prepare.VMLINUX]
        options += ["-initrd", prepare.INITRAMFS, "-append", words]
        if self.shell:
            # Ctrl-C is the guest's; mux: Ctrl-A x ends QEMU, whatever the guest does.
            options += ["-chardev", "stdio,id=console,mux=on,signal=off", "-serial", "chardev:console"]
        else:
            console = topologies.value(self.folder / "console.log")
            options += ["-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"]
        options += ["-device", "virtio-serial-pci", "-chardev"]
        options += [f"socket,id=agent,path={topologies.value(self.private)}/agent,server=on,wait=off", "-device"]
        options += ["virtserialport,chardev=agent,name=merapi.agent"]
        options += ["-qmp", f"unix:{topologies.value(self.private)}/monitor,server=on,wait=off"]
        for tag, path in self.shares.items():
            shared, mode = topologies.value(path), "" if tag == "out" else ",readonly=on"
            options += ["-virtfs", f"local,path={shared},mount_tag={tag},security_model=none,multidevs=remap{mode}"]
        options += topologies.arguments(self.topology, self.private, self.expander_bytes)
        if self.front is not None:
            options += self.front.qemu_options()
        return [str(x) for x in [*prepare.qemu_command(), *options]]

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.private, self.lock = private_folder(self.topology.expanders * self.expander_bytes)
        (self.folder / "console.log").unlink(missing_ok=True)
        topologies.make_backing(self.topology, self.private, self.expander_bytes)
        self.log = (self.folder / "qemu.log").open("w")
        try:
            if self.tracer is not None:
                where = {"folder": self.folder, "window": self.files()[0], "socket": f"{self.private}/tracer"}
                self.front = PciFront(**self.tracer, **where).__enter__()
            self.begin = time.monotonic()
            self.process = subprocess.Popen(
                self.command(),
                stdin=None if self.shell else subprocess.DEVNULL,
                stdout=None if self.shell else self.log,
                stderr=self.log,
                start_new_session=not self.shell,
                preexec_fn=die_with_parent,
            )
            self.connect(10)
            self.wait_agent(self.boot_seconds)
        except BaseException:
            self.__exit__()
            raise
        return self

    def seconds(self):
        """Since QEMU was launched."""
        return time.monotonic() - self.begin

    def cpu_seconds(self):
        """What QEMU has taken of the processors; on a machine shared with others the clock tells more about them."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def why(self):
        """The end of what QEMU and the guest's console said."""
        text = (self.folder / "qemu.log").read_text(errors="replace").strip()
        with contextlib.suppress(FileNotFoundError):
            text += "\n" + (self.folder / "console.log").read_text(errors="replace").strip()
        return "\n".join(text.splitlines()[-20:])

    def connect(self, seconds):
        self.channel = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.channel.connect(f"{self.private}/agent")
                return
            except (FileNotFoundError, ConnectionRefusedError):
                if self.process.poll() is not None:
                    raise GuestError(f"QEMU ended with status {self.process.returncode}\n{self.why()}") from None
                if time.monotonic() > deadline:
                    raise GuestError(f"QEMU did not listen within {seconds} s; see {self.log.name}") from None
                time.sleep(0.05)

    @contextlib.contextmanager
    def open_channel(self, doing):
        """What the system says of the agent's channel when QEMU is gone, as a GuestError."""
        try:
            yield
        except OSError:
            raise GuestError(f"the guest ended during: {doing}\n{self.why()}") from None

    def lines(self, deadline, doing):
        """Lines from the agent until `deadline` (monotonic seconds)."""
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                yield line
            wait = deadline - time.monotonic()
            if wait <= 0:
                raise GuestError(f"the guest did not finish in time: {doing}\n{self.why()}")
            if self.process.poll() is not None:
                raise GuestError(f"QEMU ended (status {self.process.returncode}) during: {doing}\n{self.why()}")
            if select.select([self.channel], [], [], min(wait, 1.0))[0]:
                with self.open_channel(doing):
                    block = self.channel.recv(65536)
                    if not block:
                        raise ConnectionResetError
                self.rest += block

    def wait_agent(self, seconds):
        for line in self.lines(time.monotonic() + seconds, "boot"):
            if line.startswith(SEPARATOR + b"ready "):
                self.ready_s, self.guest_ready_s = self.seconds(), float(line.split()[1])
                return

    def run(self, command, seconds=60, on_line=None):
        """Run a shell command in the guest. Returns (status, output); `on_line` gets each line as it comes."""
        if "\n" in command:
            raise ValueError("expected a command of one line")
        self.number += 1
        with self.open_channel(command):
            self.channel.sendall(f"{self.number} {command}\n".encode())
        mark, output = SEPARATOR + str(self.number).encode() + b" ", []
        for line in self.lines(time.monotonic() + seconds, command):
            # A command whose output does not end in a newline has the mark behind it.
            text, found, status = line.partition(mark)
            if text or not found:
                output.append(text.decode(errors="replace").rstrip("\r"))
                if on_line:
                    on_line(output[-1])
            if found:
                return int(status), "\n".join(output)
        raise AssertionError("unreachable: lines() ends by an exception")

    def check(self, command, seconds=60):
        """Run a command that must succeed. Returns its output."""
        status, output = self.run(command, seconds)
        if status:
            raise GuestError(f"in the guest '{command}' ended with status {status}\n{output}")
        return output

    def monitor(self, *commands):
        """Tell QEMU's monitor commands of QMP, (name, arguments) each. Returns what it answered."""
        monitor, answers = socket.socket(socket.AF_UNIX), []
        monitor.connect(f"{self.private}/monitor")
        with monitor, monitor.makefile("rw") as stream:
            stream.readline()  # greeting
            for name, arguments in (("qmp_capabilities", {}), *commands):
                stream.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
                stream.flush()
                while "return" not in (answer := json.loads(stream.readline())):
                    if "error" in answer:
                        raise GuestError(f"QEMU refused {name}: {answer['error']['desc']}")
                answers.append(answer["return"])
        return answers[1:]

    def reset(self):
        """Press the reset button, and wait until the guest has booted once more."""
        # Otherwise a reset ends QEMU, as it should when a guest's kernel panics.
        self.monitor(("set-action", {"reboot": "reset"}), ("system_reset", {}))
        self.rest = b""
        self.wait_agent(self.boot_seconds)

    def provision(self):
        """Make ready windows of the expanders by the merapi command. Returns a dictionary for each, in order."""
        deadline = time.monotonic() + EXPANDERS_SECONDS
        while len(expanders := self.merapi("list")["expanders"]) < self.topology.expanders:
            if time.monotonic() > deadline:
                raise GuestError(f"expected {self.topology.expanders} expanders in the guest, found {expanders}")
        windows = []
        # The guest numbers expanders as it meets them; the serial number tells which one this is.
        for one in sorted(expanders, key=lambda one: int(one["serial"], 0)):
            ready = self.merapi(f"provision {one['expander']}")
            windows.append(
                {
                    "device": ready["window"].removeprefix("dax:"),
                    "bytes": ready["bytes"],
                    "alignment": ready["align"],
                    "memdev": one["expander"],
                    "expander": int(one["serial"], 0) - 1,
                    "changed": ready["changed"],
                }
            )
        return windows

    def merapi(self, arguments):
        """What the merapi command says in JSON."""
        # What a remedy says goes to standard error, which the agent mixes in.
        status, output = self.run(
            f"merapi {arguments} --json 2>/run/merapi.err || {{ s=$?; cat /run/merapi.err; exit $s; }}"
        )
        if status:
            raise GuestError(f"in the guest 'merapi {arguments}' ended with status {status}\n{output}")
        return json.loads(output)

    def __exit__(self, *_):
        if self.process is not None:
            end(self.process, 5)
        if self.channel is not None:
            self.channel.close()
        if self.front is not None:
            self.front.__exit__()
        self.log.close()
        shutil.rmtree(self.private, ignore_errors=True)
        self.lock.close()
