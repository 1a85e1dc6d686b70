// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI function of a tracer: binding, registers, interrupt, reset.
 */
#include <linux/eventfd.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm.h>
#include <linux/slab.h>

#include "tracer.h"

#define TRACER_VENDOR		0x1234
#define TRACER_DEVICE		0x4d52
#define TRACER_MAGIC		0x4950524d /* "MRPI" */
#define TRACER_VERSION_MAJOR	1

static DEFINE_IDA(tracer_numbers);

void tracer_free(struct kref *users)
{
	kfree(container_of(users, struct tracer, users));
}

/* One more of `what`, by each way to be told of it. */
static void tracer_tell(struct tracer *t, atomic_t *what)
{
	unsigned long flags;

	atomic_inc(what);
	spin_lock_irqsave(&t->lock, flags);
	if (t->eventfd)
		eventfd_signal(t->eventfd);
	spin_unlock_irqrestore(&t->lock, flags);
	wake_up_interruptible_all(&t->wait);
}

static irqreturn_t tracer_interrupt(int irq, void *data)
{
	struct tracer *t = data;

	tracer_tell(t, &t->interrupts);
	return IRQ_HANDLED;
}

int tracer_write(struct tracer *t, u32 offset, u32 value)
{
	int status = -EIO;

	down_read(&t->gate);
	if (t->state == TRACER_READY) {
		iowrite32(value, t->registers + offset);
		status = 0;
	}
	up_read(&t->gate);
	return status;
}

/*
 * With the gate held. What is read of a function that went without a word is
 * all ones. Comes behind what was written.
 */
static bool tracer_answers(struct tracer *t)
{
	return ioread32(t->registers + REG_MAGIC) == TRACER_MAGIC;
}

/* It did not answer. A reset, or binding it again, makes it ready. */
static void tracer_silent(struct tracer *t)
{
	bool news = false;

	down_write(&t->gate);
	if (t->state == TRACER_READY) {
		news = true;
		WRITE_ONCE(t->state, TRACER_GONE);
		dev_err(t->misc.parent,
			"does not answer, and is not used any more\n");
	}
	up_write(&t->gate);
	if (news)
		tracer_tell(t, &t->resets);
}

int tracer_read(struct tracer *t, u32 offset, u32 *value)
{
	bool silent = false;
	int status = -EIO;

	down_read(&t->gate);
	if (t->state == TRACER_READY) {
		*value = ioread32(t->registers + offset);
		silent = PCI_POSSIBLE_ERROR(*value) && !tracer_answers(t);
		if (!silent)
			status = 0;
	}
	up_read(&t->gate);
	if (silent)
		tracer_silent(t);
	return status;
}

int tracer_look(struct tracer *t)
{
	u32 magic;

	return tracer_read(t, REG_MAGIC, &magic);
}

int tracer_restart(struct tracer *t)
{
	bool silent = false;
	int status = -EIO;

	down_read(&t->gate);
	if (t->state == TRACER_READY) {
		iowrite32(1, t->registers + REG_RESET);
		silent = !tracer_answers(t);
		if (!silent)
			status = 0;
	}
	up_read(&t->gate);
	if (silent)
		tracer_silent(t);
	else if (!status)
		tracer_tell(t, &t->resets);
	return status;
}

/* No register is reached from now on, and nothing is traced. */
static void tracer_leave(struct pci_dev *pdev, enum tracer_state state)
{
	struct tracer *t = pci_get_drvdata(pdev);

	down_write(&t->gate);
	if (t->state == TRACER_READY && !pci_channel_offline(pdev))
		tracer_program(t, 0, 0);
	WRITE_ONCE(t->state, state);
	up_write(&t->gate);
}

/* The function has forgotten that it was armed, and its bounds. */
static void tracer_return(struct pci_dev *pdev)
{
	struct tracer *t = pci_get_drvdata(pdev);
	int status;

	down_write(&t->gate);
	status = tracer_bound(t, t->window_offset, t->window_bytes);
	WRITE_ONCE(t->state, status ? TRACER_GONE : TRACER_READY);
	up_write(&t->gate);
	if (status)
		dev_err(&pdev->dev, "refuses its bounds, and is not used any more\n");
	else
		pci_save_state(pdev); /* what was saved is used once */
	tracer_tell(t, &t->resets);
}

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
	/*
	 * Nothing until the administrator says which part of it is a window:
	 * the rest may be the system's own memory.
	 */
	if (tracer_bound(t, 0, 0))
		return dev_err_probe(device, -ENODEV,
				     "expected to trace nothing at first, found that the function refuses\n");
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
	status = devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 0),
				  tracer_interrupt, 0, t->name, t);
	if (status)
		return dev_err_probe(&pdev->dev, status, "no interrupt\n");
	pci_save_state(pdev); /* for tracer_slot_reset */
	return 0;
}

/* The number is the function's; who has the old file open needs none. */
static void tracer_put(void *data)
{
	struct tracer *t = data;

	ida_free(&tracer_numbers, t->number);
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
	dev_info(&pdev->dev, "%s, beside %llu MiB\n", t->name,
		 t->memory_bytes >> 20);
	return 0;
}

/* The last close does not reset it any more. */
static void tracer_lose(struct pci_dev *pdev)
{
	struct tracer *t = pci_get_drvdata(pdev);

	tracer_leave(pdev, TRACER_GONE);
	tracer_tell(t, &t->resets);
}

static void tracer_remove(struct pci_dev *pdev)
{
	struct tracer *t = pci_get_drvdata(pdev);

	misc_deregister(&t->misc);
	tracer_lose(pdev);
}

/* Until it is done, registers read as ones and take nothing. */
static void tracer_reset_prepare(struct pci_dev *pdev)
{
	tracer_leave(pdev, TRACER_AWAY);
}

/* A function that wakes from D3hot, or had no power, was reset. */
static int tracer_suspend(struct device *device)
{
	tracer_leave(to_pci_dev(device), TRACER_AWAY);
	return 0;
}

static int tracer_resume(struct device *device)
{
	tracer_return(to_pci_dev(device));
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(tracer_sleep, tracer_suspend, tracer_resume);

/*
 * Of whatever is behind the same port: the expander does not recover unless
 * the tracer does. Gone until then, since nobody says when it fails.
 */
static pci_ers_result_t tracer_error_detected(struct pci_dev *pdev,
					      pci_channel_state_t state)
{
	tracer_lose(pdev);
	switch (state) {
	case pci_channel_io_normal:
		return PCI_ERS_RESULT_CAN_RECOVER;
	case pci_channel_io_frozen:
		return PCI_ERS_RESULT_NEED_RESET;
	default:
		return PCI_ERS_RESULT_DISCONNECT;
	}
}

static pci_ers_result_t tracer_slot_reset(struct pci_dev *pdev)
{
	pci_restore_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

static const struct pci_error_handlers tracer_errors = {
	.error_detected = tracer_error_detected,
	.slot_reset = tracer_slot_reset,
	.resume = tracer_return,
	.reset_prepare = tracer_reset_prepare,
	.reset_done = tracer_return,
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
	.shutdown = tracer_lose,
	.err_handler = &tracer_errors,
	.dev_groups = tracer_groups,
	.driver.pm = pm_sleep_ptr(&tracer_sleep),
};
module_pci_driver(tracer_driver);

MODULE_DESCRIPTION("Tracer of a Merapi expander");
MODULE_LICENSE("GPL");
