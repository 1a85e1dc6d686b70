# SPDX-License-Identifier: Apache-2.0
"""merapi doctor: each failure that users meet, with its remedy."""

import gzip
import os
import signal
import socket as sockets

import pytest
from cli_harness import FOUND, OK, MockSystem, binary, merapi, merapi_of_nobody
from native_fixtures import stop_process


def finding(done, check):
    found = [one for one in done.json() if one["check"] == check]
    assert len(found) == 1, f"{check}: {done.out}"
    return found[0]


def test_healthy(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0")
    done = system.run("doctor", "--json")
    problems = [one for one in done.json() if one["verdict"] == "problem"]
    others = [one for one in problems if one["check"].startswith("window file:")]  # of tests beside this one
    assert problems == others
    assert done.status == OK or others, done.err
    assert finding(done, "dax dax0.0")["verdict"] == "ok"


def test_another_device_is_not_the_one_of_runs(window_file, folder, start):
    """A device that serves something else: a run would start its own."""
    served = start(binary("merapi-device"), "--model", "--window", window_file)
    served.wait_line("ready")
    env = {"MERAPI_SOCKET": str(folder / "s")}
    assert finding(merapi("doctor", "--json", env=env), "device process")["found"].startswith(f"none at {folder}/s;")


def test_device_process_that_is_stopped(folder, start):
    """The kernel lets others connect to it all the same."""
    env = {"MERAPI_SOCKET": str(folder / "s")}
    served = start(binary("merapi-device"), "--model", "--socket", folder / "s")
    served.wait_line("ready")
    one = finding(merapi("doctor", "--json", env=env), "device process")
    assert (one["verdict"], one["found"]) == ("ok", f"listens at {folder}/s")
    stop_process(served.pid)
    done = merapi("doctor", "--json", env=env)
    os.kill(served.pid, signal.SIGCONT)
    assert done.status == FOUND
    one = finding(done, "device process")
    assert one["verdict"] == "problem"
    assert one["found"] == f"process {served.pid} at {folder}/s is stopped: it traces nothing"
    assert one["remedy"] == f"kill -CONT {served.pid}"


def test_a_place_for_the_socket_that_another_file_has(folder):
    """It was said to be a socket that 'merapi run' replaces, which refuses it."""
    (folder / "file").touch()
    for path in (folder / "file", folder, "/dev/null"):
        done = merapi("doctor", "--json", env={"MERAPI_SOCKET": str(path)})
        one = finding(done, "device process")
        assert (done.status, one["verdict"]) == (FOUND, "problem")
        assert one["found"] == f"expected a socket or nothing at {path}, found another kind of file"
        assert "MERAPI_SOCKET" in one["remedy"]
    long = folder / ("s" * 107)
    one = finding(merapi("doctor", "--json", env={"MERAPI_SOCKET": str(long)}), "device process")
    assert one["found"].startswith("expected a socket path of at most 107 characters")
    # What a device that was killed leaves is replaced.
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as left:
        left.bind(str(folder / "s"))
    one = finding(merapi("doctor", "--json", env={"MERAPI_SOCKET": str(folder / "s")}), "device process")
    assert (one["verdict"], one["found"]) == ("note", f"a socket without a process at {folder}/s")


def test_a_place_for_the_socket_that_runs_refuse(folder, java):
    """It was said that 'merapi run' starts a device there."""
    runtime = folder / "runtime"
    (runtime / "merapi").mkdir(parents=True)
    (runtime / "merapi").chmod(0o777)
    (folder / "s.runs").touch()
    places = {
        "into which nobody else writes, found one that is open to others": {"XDG_RUNTIME_DIR": str(runtime)},
        f"folder of your own at {folder}/s.runs, into": {"MERAPI_SOCKET": str(folder / "s")},
        f"cannot make {folder}/gone/none: No such": {"MERAPI_SOCKET": str(folder / "gone" / "none" / "s")},
    }
    for found, place in places.items():
        env = {"MERAPI_SOCKET": "", **place}
        done = merapi("doctor", "--json", env=env)
        one = finding(done, "device process")
        assert (done.status, one["verdict"]) == (FOUND, "problem") and found in one["found"], one
        refused = merapi("run", "--", java, env=env)
        assert refused.status == 125 and one["found"] in refused.err, refused.err
    # A folder that is not there yet is made, here by nobody.
    done = merapi("doctor", "--json", env={"MERAPI_SOCKET": str(folder / "new" / "s")})
    assert finding(done, "device process")["found"].startswith("none at ") and not (folder / "new").exists()


def problem(system, check, remedy):
    done = system.run("doctor", "--json")
    assert done.status == FOUND
    one = finding(done, check)
    assert one["verdict"] == "problem", one
    assert remedy in one["remedy"], one
    # People see the same.
    text = system.run("doctor")
    assert text.status == FOUND
    assert one["found"] in text.out and one["remedy"] in text.out


def test_auto_online_trap(system):
    system.write("devices/system/memory/auto_online_blocks", "online_movable")
    system.module("kmem")
    problem(system, "auto-online", "memhp_default_state=offline")


def test_auto_online_without_kmem_is_harmless(system):
    system.write("devices/system/memory/auto_online_blocks", "online")
    assert finding(system.run("doctor", "--json"), "auto-online")["verdict"] == "ok"


def test_onlined_as_system_memory(system):
    system.dax("dax0.0", driver="kmem", region=None)
    problem(system, "dax dax0.0", "daxctl reconfigure-device -m devdax -f dax0.0")


def test_wrong_alignment(system):
    system.dax("dax0.0", align=1 << 30, region=None)
    problem(system, "dax dax0.0", "create-device -a 2M")


def test_no_permission(folder):
    system = MockSystem(folder)
    system.dax("dax0.0", region=None, mode=0)
    done = merapi_of_nobody(folder, "doctor", "--json", env=system.env)
    assert done.status == FOUND, done.err
    one = finding(done, "dax dax0.0")
    assert one["verdict"] == "problem" and "no permission" in one["found"]
    assert "--owner" in one["remedy"]


def test_missing_module(system):
    system.expander("mem0")
    (system.sys / "module/dax_cxl").rmdir()
    problem(system, "modules", "modprobe dax_cxl")


def test_missing_kernel_option(system):
    system.expander("mem0")
    system.config.write_text(system.config.read_text().replace("CONFIG_DEV_DAX_CXL=m\n", ""))
    problem(system, "kernel options", "6.12")


@pytest.mark.parametrize("name, why", [("/", "Is a directory"), ("/dev/zero", "File too large"), ("/no/c", "No such")])
def test_kernel_options_that_cannot_be_read(system, name, why):
    """A folder was taken for a configuration without options, and what has no end was read without end."""
    system.expander("mem0")
    done = merapi("doctor", "--json", env={**system.env, "MERAPI_KERNEL_CONFIG": name}, timeout=30)
    one = finding(done, "kernel options")
    assert one["verdict"] == "note"
    assert f"no configuration at {name}: {why}" in one["found"] and "MERAPI_KERNEL_CONFIG" in one["remedy"]


def test_kernel_options_that_are_compressed(system):
    """All of them were told to be missing."""
    system.expander("mem0")
    system.config.write_bytes(gzip.compress(system.config.read_bytes()))
    one = finding(system.run("doctor", "--json"), "kernel options")
    assert one["verdict"] == "note"
    assert one["found"] == f"expected text at {system.config}, found it compressed (gzip)"
    assert one["remedy"] == f"zcat {system.config} > FILE, and set MERAPI_KERNEL_CONFIG to FILE"


def test_kernel_options_that_the_kernel_itself_has(system, tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(system.config.read_bytes()))
    env = {**system.env, "MERAPI_KERNEL_CONFIG": "/no/config", "MERAPI_PROC_ROOT": str(tmp_path / "proc")}
    one = finding(merapi("doctor", "--json", env=env), "kernel options")
    assert one["verdict"] == "note" and one["found"].startswith("no configuration at /no/config")
    assert one["remedy"] == f"zcat {tmp_path}/proc/config.gz > FILE, and set MERAPI_KERNEL_CONFIG to FILE"


def test_expander_without_driver(system):
    system.expander("mem0", driver=None)
    problem(system, "expander mem0", "modprobe cxl_mem")


def test_interleaved_region(system):
    system.expander("mem0")
    system.expander("mem1")
    system.region("region0", ["mem0", "mem1"])
    problem(system, "region region0", "whole objects")


def test_region_not_committed(system):
    system.expander("mem0")
    system.region("region0", ["mem0"], committed=0)
    problem(system, "region region0", "cxl enable-region region0")


def test_device_of_another_coherence_mode(system, window_file, start):
    device = start(binary("merapi-device"), "--model", "--coherence", "non-coherent", "--window", window_file)
    device.wait_line("ready")
    # A host meets it and leaves again.
    assert merapi("reset", window_file).status != OK
    one = finding(system.run("doctor", "--json"), f"window file:{window_file}")
    assert one["verdict"] == "problem"
    assert "prepared for coherent, device is non_coherent" in one["found"]
    assert "coherent" in one["remedy"]


def test_device_in_use_is_told(system):
    system.dax("dax0.0", region=None)
    with open(system.dev / "dax0.0"):
        one = finding(system.run("doctor", "--json"), "dax dax0.0")
    assert one["verdict"] == "note"
    assert str(os.getpid()) in one["found"]


@pytest.fixture
def traced(system):
    """An expander with a window, free room, and a tracer. Returns the system and what sets the tracer's bounds."""
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0", size=384 << 20)
    system.function(traces=384 << 20)

    def bound(offset, length):
        system.write("class/misc/merapi0/device/window_offset", offset)
        system.write("class/misc/merapi0/device/window_bytes", length)

    return system, bound


def test_what_a_tracer_is_bounded_to(traced):
    """A host opens tracer and dax device by their names, and no one compared their places."""
    system, bound = traced
    look = "tracer merapi0"
    one = finding(system.run("doctor", "--json"), look)
    assert (one["verdict"], one["found"]) == ("ok", "traces 384 MiB from 0 B of mem0 on (dax0.0)")
    bound(0, 128 << 20)
    assert finding(system.run("doctor", "--json"), look)["verdict"] == "ok"
    for offset, length, verdict, words in (
        (128 << 20, 256 << 20, "problem", "traces 256 MiB from 128 MiB of mem0 on, where no dax device begins"),
        (0, 512 << 20, "problem", "traces 512 MiB from 0 B of mem0 on, more than dax0.0 has"),
        (0, 0, "note", "traces nothing"),
    ):
        bound(offset, length)
        one = finding(system.run("doctor", "--json"), look)
        assert (one["verdict"], one["found"], one["remedy"]) == (verdict, words, "merapi provision dax0.0")
    # What it says mends it.
    assert system.run("provision", "dax0.0").status == OK
    assert finding(system.run("doctor", "--json"), look)["verdict"] == "ok"


def test_a_tracer_whose_windows_went_otherwise(traced):
    """As by cxl destroy-region: it reaches what is the system's or somebody's next."""
    system, _ = traced
    for path in ("bus/dax/devices/dax0.0", "bus/cxl/devices/region0"):
        (system.sys / path).unlink()
    one = finding(system.run("doctor", "--json"), "tracer merapi0")
    assert one["verdict"] == "problem" and one["found"].endswith("where no dax device begins")
    assert one["remedy"] == "merapi provision mem0"


def test_a_tracer_whose_place_cannot_be_told(traced):
    """Physical addresses are root's."""
    system, _ = traced
    system.write("bus/dax/devices/dax0.0/resource", 0)
    one = finding(system.run("doctor", "--json"), "tracer merapi0")
    assert one["verdict"] == "note" and "as root" in one["remedy"]


def test_a_tracer_that_does_not_answer(traced):
    system, _ = traced
    (system.sys / "class/misc/merapi0/device/engines").unlink()
    done = system.run("doctor", "--json")
    one = finding(done, "tracer merapi0")
    assert done.status == FOUND
    assert (one["verdict"], one["found"]) == ("problem", "does not answer") and "0000:0d:00.1" in one["remedy"]
