# SPDX-License-Identifier: Apache-2.0
"""merapi provision and release against a mock sysfs tree."""

import json
import os

import pytest
from cli_harness import ABSENT, BUSY, DENIED, FOUND, OK, USAGE, merapi

# What a kernel does when cxl makes a region on mem0: the region, its decoder, and the dax device appear.
CREATE_REGION = """
case "$1" in
  list) echo '[{"decoder":"decoder0.0","volatile_capable":true,"pmem_capable":true,"nr_targets":1}]';;
  create-region)
    base=$SYS/devices/platform/ACPI0017:00/root0
    region=$base/decoder0.0/region0
    mkdir -p $region/dax_region0/dax0.0 $base/endpoint2/decoder2.0
    ln -s $SYS/devices/pci0000:0c/0000:0d:00.0/mem0 $base/endpoint2/uport
    ln -s $base/endpoint2/decoder2.0 $SYS/bus/cxl/devices/decoder2.0
    echo ram > $region/mode; echo 0x20000000 > $region/size; echo 1 > $region/interleave_ways
    echo 1 > $region/commit; echo decoder2.0 > $region/target0
    echo 536870912 > $region/dax_region0/dax0.0/size; echo 2097152 > $region/dax_region0/dax0.0/align
    mkdir -p $SYS/bus/dax/drivers/device_dax
    ln -s $SYS/bus/dax/drivers/device_dax $region/dax_region0/dax0.0/driver
    ln -s $region $SYS/bus/cxl/devices/region0
    ln -s $region/dax_region0/dax0.0 $SYS/bus/dax/devices/dax0.0
    : > $DEV/dax0.0;;
  destroy-region) rm -rf $SYS/bus/cxl/devices/region0 $SYS/bus/dax/devices/dax0.0 $DEV/dax0.0;;
esac
"""


@pytest.fixture
def bare(system):
    system.expander("mem0")
    system.program("cxl", CREATE_REGION)
    return system


def test_from_bare_then_nothing_then_back(bare):
    done = bare.run("provision", "--json")
    assert done.status == OK, done.err
    result = done.json()
    assert result["window"] == f"dax:{bare.dev}/dax0.0"
    assert result["bytes"] == 512 << 20
    assert result["changed"]
    assert bare.changes() == ["cxl create-region -m -t ram -w 1 -d decoder0.0 mem0"]
    # Again, by every name it has: found, nothing done.
    for name in ("mem0", "region0", "dax0.0", "/dev/dax0.0"):
        again = bare.run("provision", name, "--json")
        assert again.status == OK, again.err
        assert again.json()["window"] == result["window"]
        assert not again.json()["changed"]
    assert len(bare.changes()) == 1
    assert bare.run("release", "mem0").status == OK
    assert bare.changes()[1:] == ["cxl disable-region region0", "cxl destroy-region region0"]
    # Released already: says so, changes nothing.
    done = bare.run("release", "mem0", "--json")
    assert done.status == OK and not done.json()["changed"]
    assert bare.run("provision", "mem0").status == OK


@pytest.mark.parametrize(
    "owner", ("", ":", "no-such-user", "0:no-such-group", "0:", ":0", "-1", "0x0", "4294967295", "4294967296")
)
def test_owner_that_nobody_is_changes_nothing(bare, owner):
    done = bare.run("provision", "mem0", "--owner", owner)
    assert done.status == USAGE, done
    assert "expected" in done.err and owner in done.err
    assert bare.calls() == []


def test_owner_by_number(bare):
    """Also of a user and a group without names, where this one may give files away."""
    user, group = (1234567, 7654321) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    done = bare.run("provision", "mem0", "--owner", f"{user}:{group}")
    assert done.status == OK, done
    node = (bare.dev / "dax0.0").stat()
    assert (node.st_uid, node.st_gid) == (user, group)
    assert bare.run("provision", "mem0", "--owner", str(user)).status == OK
    assert (bare.dev / "dax0.0").stat().st_uid == user


WINDOWS = (
    ("decoder0.0", 1, 0),  # full
    ("decoder0.1", 2, 1 << 30),  # two host bridges take turns
    ("decoder0.2", 1, 1 << 30),
)


def decoders(windows):
    return json.dumps(
        [
            {"decoder": name, "volatile_capable": True, "interleave_ways": ways, "max_available_extent": room}
            for name, ways, room in windows
        ]
    )


def test_a_window_with_room_that_leads_to_the_expander_alone(bare):
    bare.program(
        "cxl", CREATE_REGION.replace("  list) echo", f"  list) echo '{decoders(WINDOWS)}'; exit;;\n  other) echo")
    )
    assert bare.run("provision", "mem0").status == OK
    assert bare.changes() == ["cxl create-region -m -t ram -w 1 -d decoder0.2 mem0"]


def test_windows_that_interleave_host_bridges_are_refused(bare):
    bare.program("cxl", f"echo '{decoders(WINDOWS[:2])}'")
    done = bare.run("provision", "mem0")
    assert done.status == ABSENT
    assert "decoder0.1" in done.err and "whole objects" in done.err
    assert bare.changes() == []


def test_expander_without_a_driver(system):
    system.expander("mem0", driver=None)
    done = system.run("provision", "mem0", "--patience", "0.2")
    assert done.status == ABSENT
    assert "cxl_mem" in done.err
    assert system.changes() == []


def test_region_refused_by_the_kernel(bare):
    bare.fail("cxl", "cxl region: create_region: region0: failed to commit decode: No such device or address")
    done = bare.run("provision", "mem0")
    assert done.status not in (OK, USAGE)
    assert "failed to commit decode" in done.err
    assert "-hypervisor" in done.err


def test_region_refused_for_want_of_permission(bare):
    bare.fail("cxl", "cxl region: cmd_create_region: created 0 regions: Permission denied")
    done = bare.run("provision", "mem0")
    assert done.status == DENIED
    assert "root" in done.err


def test_interleaved_region_is_refused(system):
    system.expander("mem0")
    system.expander("mem1")
    system.region("region0", ["mem0", "mem1"])
    system.dax("dax0.0")
    for name in ("mem0", "mem1", "region0", "dax0.0"):
        done = system.run("provision", name)
        assert done.status == ABSENT, name
        assert "interleaved over 2" in done.err and "whole objects" in done.err
    assert system.changes() == []


def test_interleaved_pmem_region_is_refused(system):
    system.write("bus/nd/devices/region5/size", 1 << 30)
    system.write("bus/nd/devices/region5/mappings", 2)
    done = system.run("provision", "region5")
    assert done.status == ABSENT
    assert "interleaved over 2" in done.err


def test_pmem_region_gets_a_devdax_namespace(system):
    system.write("bus/nd/devices/region5/size", 1 << 30)
    system.write("bus/nd/devices/region5/mappings", 1)
    system.program(
        "ndctl",
        "d=$SYS/devices/ndbus0/region5/dax5.0; mkdir -p $d $SYS/bus/dax/drivers/device_dax\n"
        "echo 1056964608 > $d/size; echo 2097152 > $d/align\n"
        "ln -s $SYS/bus/dax/drivers/device_dax $d/driver; ln -s $d $SYS/bus/dax/devices/dax5.0; : > $DEV/dax5.0",
    )
    done = system.run("provision", "region5", "--json")
    assert done.status == OK, done.err
    assert done.json()["window"] == f"dax:{system.dev}/dax5.0"
    assert system.changes() == ["ndctl create-namespace -m devdax -a 2M -r region5"]
    assert not system.run("provision", "region5", "--json").json()["changed"]


def test_pmem_namespace_is_released(system):
    system.write("bus/nd/devices/region5/size", 1 << 30)
    system.write("bus/nd/devices/region5/mappings", 1)
    system.program(
        "ndctl",
        """[ "$1" != list ] || echo '[{"dev":"namespace5.0","mode":"devdax"},{"dev":"namespace5.1","mode":"fsdax"}]'""",
    )
    done = system.run("release", "region5", "--json")
    assert done.status == OK, done.err
    assert system.changes() == ["ndctl list -N -r region5", "ndctl destroy-namespace -f namespace5.0"]
    assert done.json()["did"] == ["ndctl destroy-namespace -f namespace5.0"]


@pytest.mark.parametrize("others", ['{"dev":"namespace3.1","mode":"fsdax"}', '{"dev":"namespace3.1","mode":"raw"}'])
def test_a_region_with_somebody_s_data_stays(system, others):
    """Its devdax namespaces went, and then the region around all others, mounted ones too."""
    system.expander("mem0", volatile=0, persistent=1 << 30)
    system.region("region0", ["mem0"], mode="pmem", size=1 << 30)
    system.write("bus/nd/devices/region3/size", 1 << 30)
    system.write("bus/nd/devices/region3/mappings", 1)
    system.write("bus/nd/devices/region3/resource", "0x100000000")
    system.program("ndctl", f"""[ "$1" != list ] || echo '[{{"dev":"namespace3.0","mode":"devdax"}},{others}]'""")
    done = system.run("release", "mem0")
    assert done.status == BUSY and "found namespace3.1 of mode" in done.err, done
    assert system.changes() == ["ndctl list -N -r region3"]


def test_the_region_that_was_made_is_gone_on_with(system):
    """Beside another one of the expander it was the last by its number, here the persistent one."""
    system.expander("mem0", volatile=512 << 20, persistent=512 << 20)
    system.region("region1", ["mem0"], mode="pmem", place=512 << 20, decoder=1, start=0x200000000)
    system.region("region0", ["mem0"])
    hidden = system.sys / "bus/cxl/devices/region0"
    kept = hidden.readlink()
    hidden.unlink()
    system.program("cxl", f'[ "$1" != create-region ] || ln -s {kept} {hidden}')
    system.dax("dax0.0")
    done = system.run("provision", "mem0", "--type", "ram", "--json")
    assert done.status == OK and done.json()["window"] == f"dax:{system.dev}/dax0.0", done
    assert [call for call in system.changes() if call.startswith("ndctl")] == []


def test_a_refusal_is_explained_by_what_was_asked(system):
    """Whatever lacked an address was told of QEMU's processors."""
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0", mode=0o600)
    system.write("devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax_region/available_size", 1 << 30)
    system.fail("daxctl", "error creating devices: No such device or address")
    done = system.run("create-window", "dax0.0", "--size", "128M")
    assert "No such device or address" in done.err and "hypervisor" not in done.err
    assert "contiguous room" in done.err
    (system.sys / "bus/cxl/devices/region0").unlink()
    (system.sys / "bus/dax/devices/dax0.0").unlink()
    system.fail("cxl", "cxl region: create_region: failed to commit decode: No such device or address")
    assert "start QEMU with -cpu max,-hypervisor" in system.run("provision", "mem0").err


def test_persistent_expander(system):
    """Its region is met again as the pmem region at the same physical address."""
    system.expander("mem0", volatile=0, persistent=1 << 30)
    system.region("region0", ["mem0"], mode="pmem", size=1 << 30)
    system.write("bus/nd/devices/region3/size", 1 << 30)
    system.write("bus/nd/devices/region3/mappings", 1)
    system.write("bus/nd/devices/region3/resource", "0x100000000")
    done = system.run("provision", "mem0", "--patience", "0.1")
    assert system.changes() == ["ndctl create-namespace -m devdax -a 2M -r region3"]
    assert done.status == ABSENT, "the mock makes no device"


def test_onlined_as_system_memory_is_taken_back(system):
    system.dax("dax0.0", driver="kmem", region=None)
    system.program(
        "daxctl",
        "mkdir -p $SYS/bus/dax/drivers/device_dax\n"
        "d=$(readlink -f $SYS/bus/dax/devices/dax0.0); rm $d/driver; ln -s $SYS/bus/dax/drivers/device_dax $d/driver",
    )
    done = system.run("provision", "dax0.0", "--json")
    assert done.status == OK, done.err
    assert system.changes() == ["daxctl reconfigure-device -m devdax -f dax0.0"]


def test_onlined_as_system_memory_and_kept_by_the_kernel(system):
    system.dax("dax0.0", driver="kmem", region=None)
    system.fail("daxctl", "dax0.0: unable to offline memory")
    done = system.run("provision", "dax0.0")
    assert done.status not in (OK, USAGE)
    assert "memhp_default_state=offline" in done.err


def test_wrong_alignment(system):
    system.dax("dax0.0", align=1 << 30, region=None)
    done = system.run("provision", "dax0.0")
    assert done.status == ABSENT
    assert "1 GiB" in done.err and "2 MiB" in done.err


def test_missing_module(bare):
    (bare.sys / "module/dax_cxl").rmdir()
    bare.fail("modprobe", "modprobe: FATAL: Module dax_cxl not found")
    done = bare.run("provision", "mem0")
    assert done.status == ABSENT
    assert "dax_cxl" in done.err
    assert bare.changes() == ["modprobe dax_cxl"]


def test_missing_program(bare):
    (bare.bin / "cxl").unlink()
    done = merapi("provision", "mem0", env={**bare.env, "PATH": str(bare.bin)})
    assert done.status == ABSENT
    assert "install" in done.err


def test_device_node_missing(system):
    system.dax("dax0.0", region=None)
    (system.dev / "dax0.0").unlink()
    done = system.run("provision", "dax0.0")
    assert done.status == ABSENT
    assert "udev" in done.err


def test_busy_device_is_not_released(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0")
    with open(system.dev / "dax0.0"):
        done = system.run("release", "mem0")
    assert done.status == BUSY
    assert str(os.getpid()) in done.err
    assert system.changes() == []


def test_tracer_beside_the_expander_is_bounded(system):
    """By name of the window that it is to trace; the second time changes nothing."""
    system.expander("mem0")
    system.region("region0", ["mem0"])
    bounds = system.function()
    system.dax("dax0.0", size=384 << 20)
    system.dax("dax0.1", size=128 << 20, start=0x100000000 + (384 << 20))
    done = system.run("provision", "mem0", "--json").json()
    assert done["did"] == ["bounded merapi0 to 384 MiB from 0 B of mem0 on (dax0.0)"]
    assert (bounds("window_offset"), bounds("window_bytes")) == (0, 384 << 20)
    assert not system.run("provision", "mem0", "--json").json()["changed"]
    assert system.run("provision", "dax0.1").status == OK
    assert (bounds("window_offset"), bounds("window_bytes")) == (384 << 20, 128 << 20)
    assert system.run("provision", "dax0.0").status == OK
    assert (bounds("window_offset"), bounds("window_bytes")) == (0, 384 << 20)


def test_tracer_without_a_window_gets_one(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0", size=384 << 20)
    bounds = system.function(traces=0)
    system.write("devices/pci0000:0c/0000:0d:00.1/window_offset", 256 << 20)  # of one that is gone
    assert system.run("provision", "mem0", "--json").json()["did"]
    assert (bounds("window_offset"), bounds("window_bytes")) == (0, 384 << 20)


def test_tracer_traces_nothing_of_what_was_released(system):
    """The kernel may make system memory of it."""
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0")
    system.program("cxl", "")
    bounds, other = system.function(), system.function("merapi1", slot="0000:0e:00")
    with open(system.dev / "merapi0"):
        done = system.run("release", "mem0")
    assert done.status == BUSY and "merapi0, a tracer that reaches region0, found" in done.err
    assert system.changes() == [] and bounds("window_bytes") == 512 << 20
    done = system.run("release", "mem0", "--json").json()
    assert done["did"][0] == "bounded merapi0 to nothing" and len(done["did"]) == 3
    assert (bounds("window_bytes"), other("window_bytes")) == (0, 512 << 20)


def test_tracer_of_another_slot_is_left(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0", size=384 << 20)
    bounds = system.function(slot="0000:0e:00")
    assert not system.run("provision", "mem0", "--json").json()["changed"]
    assert bounds("window_bytes") == 512 << 20


@pytest.mark.parametrize("dpa", (None, "", "ffff", "-1", "0xffffffffffffffff"))
def test_tracer_is_not_bounded_to_a_guess(system, dpa):
    """Where a region lies in its expander is the decoder's word: a place that was assumed may be another window."""
    system.expander("mem0")
    system.region("region0", ["mem0"])
    bounds = system.function()
    system.dax("dax0.0", size=384 << 20, start=0x100000000 + (64 << 20))
    told = (system.sys / "bus/cxl/devices/decoder2.0").resolve() / "dpa_resource"
    told.unlink() if dpa is None else told.write_text(dpa)
    done = system.run("provision", "mem0", "--json")
    assert done.status == OK, done.err
    assert (bounds("window_offset"), bounds("window_bytes")) == (0, 512 << 20)
    assert any("merapi0: left as it is" in line and "dpa_resource" in line for line in done.json()["found"])


@pytest.mark.parametrize("ways", ("4294967295", "18446744073709551615"))
def test_region_over_more_expanders_than_there_are(system, ways):
    """They were looked for one by one, for hours."""
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.write("bus/cxl/devices/region0/interleave_ways", ways)
    done = system.run("provision", "mem0", timeout=60)
    assert done.status == ABSENT and f"interleaved over {ways}" in done.err
    assert f"{ways} way(s)" in system.run("list", timeout=60).out
    assert system.run("doctor", timeout=60).status == FOUND
    assert system.changes() == []


@pytest.mark.parametrize("ways", ("", "-1", "4294967297 ", "18446744073709551616", "one", "\0"))
def test_region_without_a_number_of_expanders(system, ways):
    """Cut to 32 bits, or to what stands in front, some of these are 1."""
    system.region("region0", ["mem0"])
    system.dax("dax0.0")
    system.write("bus/cxl/devices/region0/interleave_ways", ways)
    for name in ("region0", "dax0.0"):
        done = system.run("provision", name, "--patience", "0", timeout=60)
        assert done.status == ABSENT
        assert "interleave" in done.err and "cxl destroy-region region0" in done.err
    assert system.run("doctor", timeout=60).status == FOUND
    assert system.changes() == []


def test_pmem_region_of_unknown_devices(system):
    system.write("bus/nd/devices/region5/size", 1 << 30)
    done = system.run("provision", "region5")
    assert done.status == ABSENT and "region5 without a number in mappings" in done.err
    assert system.changes() == []


def test_folders_that_are_no_dax_devices(system):
    system.write("bus/dax/devices/dax/size", 1 << 30)
    system.write("bus/dax/devices/dax_other/size", 1 << 30)
    assert system.run("list", "--json").json()["dax"] == []
    for verb in ("provision", "release", "destroy-window"):
        done = system.run(verb, "dax_other")
        assert done.status == ABSENT and ("found nothing" in done.err or "expected a window" in done.err)


@pytest.mark.parametrize(
    "listing",
    (
        '[{"decoder": 3, "volatile_capable": true}]',
        '[{"decoder": "decoder0.0", "volatile_capable": "yes"}, 5, null]',
        '[{"decoder": "decoder0.0", "volatile_capable": true, "nr_targets": "x", "max_available_extent": "1 GiB"}]',
        "[" * 10000,
        "",
    ),
)
def test_listing_of_another_form(bare, listing):
    """cxl chooses then, or what it says is passed on."""
    (bare.folder / "listing").write_text(listing)
    bare.program("cxl", CREATE_REGION.replace("  list) echo", f"  list) cat {bare.folder}/listing;;\n  other) echo"))
    done = bare.run("provision", "mem0")
    assert done.status == OK, done.err
    assert len(bare.changes()) == 1


def test_nothing_of_that_name(system):
    assert system.run("provision", "mem7").status == ABSENT
    assert system.run("release", "mem7").status == ABSENT
    assert system.run("provision").status == ABSENT


def test_several_expanders_need_a_name(system):
    system.expander("mem0")
    system.expander("mem1")
    done = system.run("provision")
    assert done.status == USAGE
    assert "mem0, mem1" in done.err
