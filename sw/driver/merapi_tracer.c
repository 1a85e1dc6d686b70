// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tracer of a Merapi expander: a PCI function with a doorbell and one
 * interrupt. Rings, indexes and status are in the memory that it traces, which
 * users map from the expander's dax device; nothing of them is known here.
 *
 * The registers are described in docs/emulation.md.
 */
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include <merapi/tracer_device.h>

#define TRACER_VENDOR		0x1234
#define TRACER_DEVICE		0x4d52
#define TRACER_MAGIC		0x4950524d /* "MRPI" */
#define TRACER_VERSION_MAJOR	1

#define REG_MAGIC		0x00
#define REG_VERSION		0x04
#define REG_SIZE_LOW		0x08
#define REG_SIZE_HIGH		0x0c
#define REG_DOORBELL		0x10
#define REG_ARM			0x14
#define REG_RESET		0x20
#define REG_STARTS		0x24
#define REG_OFFSET_LOW		0x28
#define REG_OFFSET_HIGH		0x2c
#define REG_LENGTH_LOW		0x30
#define REG_LENGTH_HIGH		0x34

/*
 * Lives until the function is unbound and the last file is closed, whichever
 * is later.
 */
struct tracer {
	struct kref users;
	struct miscdevice misc;
	char name[16];
	int number;
	u64 memory_bytes; /* of the expander */
	u32 version;

	/*
	 * Guards registers against unbinding: NULL from then on. Held for
	 * writing while the bounds change.
	 */
	struct rw_semaphore gate;
	u64 window_offset;
	u64 window_bytes;
	void __iomem *registers;

	unsigned long open; /* bit 0: somebody has the device open */
	wait_queue_head_t wait;
	atomic_t interrupts; /* since the function was bound */
	atomic_t resets;     /* of the function, by whomever */

	/* Guards what follows; taken in the interrupt handler. */
	spinlock_t lock;
	u32 told; /* interrupts that a read has told */
	struct eventfd_ctx *eventfd;
};

static DEFINE_IDA(tracer_numbers);

static void tracer_free(struct kref *users)
{
	struct tracer *t = container_of(users, struct tracer, users);

	ida_free(&tracer_numbers, t->number);
	kfree(t);
}

static irqreturn_t tracer_interrupt(int irq, void *data)
{
	struct tracer *t = data;

	atomic_inc(&t->interrupts);
	spin_lock(&t->lock);
	if (t->eventfd)
		eventfd_signal(t->eventfd);
	spin_unlock(&t->lock);
	wake_up_interruptible_all(&t->wait);
	return IRQ_HANDLED;
}

/* -EIO when the function is gone. */
static int tracer_write(struct tracer *t, u32 offset, u32 value)
{
	int status = -EIO;

	down_read(&t->gate);
	if (t->registers) {
		iowrite32(value, t->registers + offset);
		status = 0;
	}
	up_read(&t->gate);
	return status;
}

static int tracer_read(struct tracer *t, u32 offset, u32 *value)
{
	int status = -EIO;

	down_read(&t->gate);
	if (t->registers) {
		*value = ioread32(t->registers + offset);
		status = 0;
	}
	up_read(&t->gate);
	return status;
}

static void tracer_set_eventfd(struct tracer *t, struct eventfd_ctx *eventfd)
{
	spin_lock_irq(&t->lock);
	swap(t->eventfd, eventfd);
	spin_unlock_irq(&t->lock);
	if (eventfd)
		eventfd_ctx_put(eventfd);
}

static int tracer_open(struct inode *inode, struct file *file)
{
	struct tracer *t =
		container_of(file->private_data, struct tracer, misc);

	if (test_and_set_bit(0, &t->open))
		return -EBUSY;
	kref_get(&t->users);
	t->told = atomic_read(&t->interrupts);
	file->private_data = t;
	return stream_open(inode, file);
}

static int tracer_release(struct inode *inode, struct file *file)
{
	struct tracer *t = file->private_data;

	tracer_set_eventfd(t, NULL);
	/* What this user started must not write behind the next one's back. */
	tracer_write(t, REG_RESET, 1);
	clear_bit(0, &t->open);
	kref_put(&t->users, tracer_free);
	return 0;
}

static u32 tracer_news(struct tracer *t)
{
	return (u32)atomic_read(&t->interrupts) - READ_ONCE(t->told);
}

static __poll_t tracer_poll(struct file *file, poll_table *table)
{
	struct tracer *t = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &t->wait, table);
	if (tracer_news(t))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (!READ_ONCE(t->registers))
		mask |= EPOLLERR | EPOLLHUP;
	return mask;
}

static ssize_t tracer_read_news(struct file *file, char __user *to,
				size_t bytes, loff_t *offset)
{
	struct tracer *t = file->private_data;
	u32 news;
	int status;

	if (bytes < sizeof(news))
		return -EINVAL;
	for (;;) {
		spin_lock_irq(&t->lock);
		news = tracer_news(t);
		t->told += news;
		spin_unlock_irq(&t->lock);
		if (news)
			break;
		if (!READ_ONCE(t->registers))
			return -EIO;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		status = wait_event_interruptible(t->wait, tracer_news(t) ||
						  !READ_ONCE(t->registers));
		if (status)
			return status;
	}
	return put_user(news, (u32 __user *)to) ?: sizeof(news);
}

static long tracer_wait(struct tracer *t,
			const struct merapi_tracer_wait *how)
{
	/*
	 * The count is read before the function is armed: an interrupt that
	 * comes at once is not missed.
	 */
	int interrupts = atomic_read(&t->interrupts);
	int resets = atomic_read(&t->resets);
	ktime_t limit;
	long status;

	if (how->reserved)
		return -EINVAL;
	status = tracer_write(t, REG_ARM, how->seen);
	if (status)
		return status;
	limit = ns_to_ktime(min_t(u64, how->nanoseconds, KTIME_MAX));
	status = wait_event_interruptible_hrtimeout(t->wait,
						    atomic_read(&t->interrupts) != interrupts ||
						    atomic_read(&t->resets) != resets,
						    limit);
	if (status == -ETIME)
		return -ETIMEDOUT;
	if (status)
		return -EINTR;
	return atomic_read(&t->resets) == resets ? 0 : -EIO;
}

static long tracer_info(struct tracer *t, void __user *argument)
{
	struct merapi_tracer_info info = { .version = t->version };
	int status = tracer_read(t, REG_STARTS, &info.engines);

	if (status)
		return status;
	down_read(&t->gate);
	info.window_offset = t->window_offset;
	info.window_bytes = t->window_bytes;
	up_read(&t->gate);
	return copy_to_user(argument, &info, sizeof(info)) ? -EFAULT : 0;
}

static long tracer_take_eventfd(struct tracer *t, void __user *argument)
{
	struct eventfd_ctx *eventfd = NULL;
	s32 fd;

	if (copy_from_user(&fd, argument, sizeof(fd)))
		return -EFAULT;
	if (fd >= 0) {
		eventfd = eventfd_ctx_fdget(fd);
		if (IS_ERR(eventfd))
			return PTR_ERR(eventfd);
	}
	tracer_set_eventfd(t, eventfd);
	return 0;
}

static long tracer_ioctl(struct file *file, unsigned int command,
			 unsigned long argument)
{
	struct tracer *t = file->private_data;
	void __user *data = (void __user *)argument;
	struct merapi_tracer_wait how;
	u32 seen;

	switch (command) {
	case MERAPI_TRACER_INFO:
		return tracer_info(t, data);
	case MERAPI_TRACER_DOORBELL:
		return tracer_write(t, REG_DOORBELL, 1);
	case MERAPI_TRACER_ARM:
		if (copy_from_user(&seen, data, sizeof(seen)))
			return -EFAULT;
		return tracer_write(t, REG_ARM, seen);
	case MERAPI_TRACER_WAIT:
		if (copy_from_user(&how, data, sizeof(how)))
			return -EFAULT;
		return tracer_wait(t, &how);
	case MERAPI_TRACER_EVENTFD:
		return tracer_take_eventfd(t, data);
	case MERAPI_TRACER_RESET:
		return tracer_write(t, REG_RESET, 1);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations tracer_file = {
	.owner = THIS_MODULE,
	.open = tracer_open,
	.release = tracer_release,
	.read = tracer_read_news,
	.poll = tracer_poll,
	.unlocked_ioctl = tracer_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static u64 tracer_read64(struct tracer *t, u32 low)
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
static int tracer_bound(struct tracer *t, u64 offset, u64 bytes)
{
	tracer_write64(t, REG_OFFSET_LOW, offset);
	tracer_write64(t, REG_LENGTH_LOW, bytes);
	iowrite32(1, t->registers + REG_RESET);
	if (tracer_read64(t, REG_OFFSET_LOW) != offset ||
	    tracer_read64(t, REG_LENGTH_LOW) != bytes)
		return -EINVAL;
	t->window_offset = offset;
	t->window_bytes = bytes;
	return 0;
}

/* Not under a user: what it maps and what is traced would differ. */
static int tracer_move(struct tracer *t, const u64 *offset, const u64 *bytes)
{
	int status = -EIO;

	if (test_and_set_bit(0, &t->open))
		return -EBUSY;
	down_write(&t->gate);
	if (t->registers)
		status = tracer_bound(t, offset ? *offset : t->window_offset,
				      bytes ? *bytes : t->window_bytes);
	up_write(&t->gate);
	clear_bit(0, &t->open);
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
ATTRIBUTE_GROUPS(tracer);

static int tracer_identify(struct tracer *t, struct device *device)
{
	u32 magic = ioread32(t->registers + REG_MAGIC);

	if (magic != TRACER_MAGIC)
		return dev_err_probe(device, -ENODEV,
				     "expected a tracer (%#x), found %#x\n",
				     TRACER_MAGIC, magic);
	t->version = ioread32(t->registers + REG_VERSION);
	if (t->version >> 16 != TRACER_VERSION_MAJOR)
		return dev_err_probe(device, -ENODEV,
				     "expected contract %u, found %u.%u\n",
				     TRACER_VERSION_MAJOR, t->version >> 16,
				     t->version & 0xffff);
	t->memory_bytes = tracer_read64(t, REG_SIZE_LOW);
	/* All of it until the administrator says otherwise. */
	if (tracer_bound(t, 0, t->memory_bytes))
		return dev_err_probe(device, -ENODEV,
				     "expected to trace %#llx bytes, found that the function refuses\n",
				     t->memory_bytes);
	return 0;
}

static int tracer_start(struct tracer *t, struct pci_dev *pdev)
{
	int status = pcim_enable_device(pdev);

	if (status)
		return dev_err_probe(&pdev->dev, status, "cannot enable\n");
	status = pcim_iomap_regions(pdev, BIT(0), KBUILD_MODNAME);
	if (status)
		return dev_err_probe(&pdev->dev, status, "cannot map BAR 0\n");
	t->registers = pcim_iomap_table(pdev)[0];
	status = tracer_identify(t, &pdev->dev);
	if (status)
		return status;
	pci_set_master(pdev);
	status = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);
	if (status < 0)
		return dev_err_probe(&pdev->dev, status, "no interrupt\n");
	return devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 0),
				tracer_interrupt, 0, t->name, t);
}

static void tracer_put(void *data)
{
	struct tracer *t = data;

	kref_put(&t->users, tracer_free);
}

static int tracer_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct tracer *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int status;

	if (!t)
		return -ENOMEM;
	t->number = ida_alloc(&tracer_numbers, GFP_KERNEL);
	if (t->number < 0) {
		status = t->number;
		kfree(t);
		return status;
	}
	kref_init(&t->users);
	init_rwsem(&t->gate);
	init_waitqueue_head(&t->wait);
	spin_lock_init(&t->lock);
	snprintf(t->name, sizeof(t->name), "merapi%d", t->number);
	/* The first resource: given back after the interrupt is. */
	status = devm_add_action_or_reset(&pdev->dev, tracer_put, t);
	if (status)
		return status;
	status = tracer_start(t, pdev);
	if (status)
		return status;
	t->misc.minor = MISC_DYNAMIC_MINOR;
	t->misc.name = t->name;
	t->misc.fops = &tracer_file;
	t->misc.parent = &pdev->dev;
	pci_set_drvdata(pdev, t);
	status = misc_register(&t->misc);
	if (status)
		return dev_err_probe(&pdev->dev, status, "no /dev/%s\n",
				     t->name);
	dev_info(&pdev->dev, "%s traces %llu MiB\n", t->name,
		 t->memory_bytes >> 20);
	return 0;
}

static void tracer_wake_all(struct tracer *t)
{
	atomic_inc(&t->resets);
	wake_up_interruptible_all(&t->wait);
}

static void tracer_remove(struct pci_dev *pdev)
{
	struct tracer *t = pci_get_drvdata(pdev);

	misc_deregister(&t->misc);
	down_write(&t->gate);
	WRITE_ONCE(t->registers, NULL);
	up_write(&t->gate);
	tracer_wake_all(t);
}

/* The function has forgotten that it was armed, and its bounds. */
static void tracer_reset_done(struct pci_dev *pdev)
{
	struct tracer *t = pci_get_drvdata(pdev);

	down_write(&t->gate);
	if (t->registers && tracer_bound(t, t->window_offset, t->window_bytes))
		dev_err(&pdev->dev, "cannot bound the tracer after a reset\n");
	up_write(&t->gate);
	tracer_wake_all(t);
}

static const struct pci_error_handlers tracer_errors = {
	.reset_done = tracer_reset_done,
};

static const struct pci_device_id tracer_ids[] = {
	{ PCI_DEVICE(TRACER_VENDOR, TRACER_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, tracer_ids);

static struct pci_driver tracer_driver = {
	.name = KBUILD_MODNAME,
	.id_table = tracer_ids,
	.probe = tracer_probe,
	.remove = tracer_remove,
	.err_handler = &tracer_errors,
	.dev_groups = tracer_groups,
};
module_pci_driver(tracer_driver);

MODULE_DESCRIPTION("Tracer of a Merapi expander");
MODULE_LICENSE("GPL");
