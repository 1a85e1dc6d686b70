# SPDX-License-Identifier: Apache-2.0
"""An expander of which windows are made by subdivision, as a mock sysfs tree, and what daxctl makes of it."""

SUBDIVIDE = """
case "$1" in
  create-device)
    d=$(dirname $(readlink -f $SYS/bus/dax/devices/dax0.0))/dax0.1
    mkdir -p $d/mapping0 $EXTRA; : > $d/mapping; echo $5 > $d/size; echo 2097152 > $d/align
    echo 0x118000000 > $d/resource
    ln -s $SYS/bus/dax/drivers/device_dax $d/driver; ln -s $d $SYS/bus/dax/devices/dax0.1; : > $DEV/dax0.1;;
  destroy-device) rm $SYS/bus/dax/devices/dax0.1 $DEV/dax0.1;;
esac
"""


# As the kernel, which lets a device shrink that nobody has.
SHRINK = """
[ "$1" != reconfigure-device ] || echo $3 > $SYS/bus/dax/devices/$4/size
"""


def divide(system):
    system.expander("mem0")
    system.region("region0", ["mem0"])
    system.dax("dax0.0")
    system.free = "devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax_region/available_size"
    system.write(system.free, 256 << 20)
    system.program("daxctl", SUBDIVIDE + SHRINK)
    return system


# As SUBDIVIDE, under the next number, and as slow as a kernel.
NEXT = """
[ "$1" = create-device ] || exit 0
sleep 0.5
n=1; until mkdir $DEV/taken.$n; do n=$((n + 1)); done 2>/dev/null
d=$(dirname $(readlink -f $SYS/bus/dax/devices/dax0.0))/dax0.$n
mkdir -p $d/mapping0; echo $5 > $d/size; echo 2097152 > $d/align; echo 0x118000000 > $d/resource
ln -s $SYS/bus/dax/drivers/device_dax $d/driver; : > $DEV/dax0.$n; ln -s $d $SYS/bus/dax/devices/dax0.$n
sleep 0.5
"""


def another_region(system):
    """region1, with dax1.0, in the second half of the expander."""
    system.region("region1", ["mem0"], place=512 << 20, decoder=1, start=0x200000000)
    system.dax("dax1.0", region="region1", start=0x200000000)
    system.write("devices/platform/ACPI0017:00/root0/decoder0.0/region1/dax_region0/dax_region/available_size", 0)
