// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a tracer may reach, and the attributes of its PCI function in sysfs.
 */
#include <linux/bitops.h>
#include <linux/device.h>
#include <linux/kstrtox.h>

#include "tracer.h"

u64 tracer_read64(struct tracer *t, u32 low)
{
	return ioread32(t->registers + low) |
	       (u64)ioread32(t->registers + low + 4) << 32;
}

static void tracer_write64(struct tracer *t, u32 low, u64 value)
{
	iowrite32((u32)value, t->registers + low);
	iowrite32(value >> 32, t->registers + low + 4);
}

/*
 * Nobody else tells the tracer what it may reach: not its user, and nothing
 * that lies in the memory. The registers read as what is in force.
 */
int tracer_program(struct tracer *t, u64 offset, u64 bytes)
{
	tracer_write64(t, REG_OFFSET_LOW, offset);
	tracer_write64(t, REG_LENGTH_LOW, bytes);
	iowrite32(1, t->registers + REG_RESET);
	if (tracer_read64(t, REG_OFFSET_LOW) != offset ||
	    tracer_read64(t, REG_LENGTH_LOW) != bytes)
		return -EINVAL;
	return 0;
}

int tracer_bound(struct tracer *t, u64 offset, u64 bytes)
{
	int status = tracer_program(t, offset, bytes);

	if (status)
		return status;
	/* Shown without the gate. */
	WRITE_ONCE(t->window_offset, offset);
	WRITE_ONCE(t->window_bytes, bytes);
	return 0;
}

/* Not under a user: what it maps and what is traced would differ. */
static int tracer_move(struct tracer *t, const u64 *offset, const u64 *bytes)
{
	int status = -EIO;

	if (test_and_set_bit_lock(0, &t->open))
		return -EBUSY;
	down_write(&t->gate);
	if (t->state == TRACER_READY)
		status = tracer_bound(t, offset ? *offset : t->window_offset,
				      bytes ? *bytes : t->window_bytes);
	up_write(&t->gate);
	clear_bit_unlock(0, &t->open);
	return status;
}

/* For those who look without opening: the device has one user at a time. */
static ssize_t memory_bytes_show(struct device *device,
				 struct device_attribute *attribute, char *text)
{
	struct tracer *t = dev_get_drvdata(device);

	return sysfs_emit(text, "%llu\n", t->memory_bytes);
}
static DEVICE_ATTR_RO(memory_bytes);

static ssize_t window_offset_show(struct device *device,
				  struct device_attribute *attribute,
				  char *text)
{
	struct tracer *t = dev_get_drvdata(device);

	return sysfs_emit(text, "%llu\n", READ_ONCE(t->window_offset));
}

static ssize_t window_offset_store(struct device *device,
				   struct device_attribute *attribute,
				   const char *text, size_t length)
{
	u64 offset;
	int status = kstrtou64(text, 0, &offset);

	if (!status)
		status = tracer_move(dev_get_drvdata(device), &offset, NULL);
	return status ?: length;
}
static DEVICE_ATTR_RW(window_offset);

static ssize_t window_bytes_show(struct device *device,
				 struct device_attribute *attribute, char *text)
{
	struct tracer *t = dev_get_drvdata(device);

	return sysfs_emit(text, "%llu\n", READ_ONCE(t->window_bytes));
}

static ssize_t window_bytes_store(struct device *device,
				  struct device_attribute *attribute,
				  const char *text, size_t length)
{
	u64 bytes;
	int status = kstrtou64(text, 0, &bytes);

	if (!status)
		status = tracer_move(dev_get_drvdata(device), NULL, &bytes);
	return status ?: length;
}
static DEVICE_ATTR_RW(window_bytes);

static ssize_t interrupts_show(struct device *device,
			       struct device_attribute *attribute, char *text)
{
	struct tracer *t = dev_get_drvdata(device);

	return sysfs_emit(text, "%u\n", (u32)atomic_read(&t->interrupts));
}
static DEVICE_ATTR_RO(interrupts);

static ssize_t engines_show(struct device *device,
			    struct device_attribute *attribute, char *text)
{
	struct tracer *t = dev_get_drvdata(device);
	u32 engines;
	int status = tracer_read(t, REG_STARTS, &engines);

	return status ? status : sysfs_emit(text, "%u\n", engines);
}
static DEVICE_ATTR_RO(engines);

static struct attribute *tracer_attrs[] = {
	&dev_attr_memory_bytes.attr,
	&dev_attr_window_offset.attr,
	&dev_attr_window_bytes.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_engines.attr,
	NULL,
};

static const struct attribute_group tracer_group = {
	.attrs = tracer_attrs,
};

const struct attribute_group *tracer_groups[] = {
	&tracer_group,
	NULL,
};
