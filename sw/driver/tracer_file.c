// SPDX-License-Identifier: GPL-2.0-only
/*
 * The character device of a tracer: one user at a time, who rings, and is told
 * of interrupts.
 */
#include <linux/bitops.h>
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/poll.h>
#include <linux/uaccess.h>

#include <merapi/tracer_device.h>

#include "tracer.h"

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

	if (test_and_set_bit_lock(0, &t->open))
		return -EBUSY;
	kref_get(&t->users);
	t->told_interrupts = atomic_read(&t->interrupts);
	t->told_resets = atomic_read(&t->resets);
	file->private_data = t;
	return stream_open(inode, file);
}

static int tracer_release(struct inode *inode, struct file *file)
{
	struct tracer *t = file->private_data;

	tracer_set_eventfd(t, NULL);
	/* What this user started must not write behind the next one's back. */
	tracer_restart(t);
	clear_bit_unlock(0, &t->open);
	kref_put(&t->users, tracer_free);
	return 0;
}

static bool tracer_gone(struct tracer *t)
{
	return READ_ONCE(t->state) == TRACER_GONE;
}

static u32 tracer_news(struct tracer *t)
{
	return (u32)atomic_read(&t->interrupts) - READ_ONCE(t->told_interrupts);
}

/* No interrupt comes of what was armed before. */
static bool tracer_was_reset(struct tracer *t)
{
	return atomic_read(&t->resets) != READ_ONCE(t->told_resets);
}

static __poll_t tracer_poll(struct file *file, poll_table *table)
{
	struct tracer *t = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &t->wait, table);
	if (tracer_news(t) || tracer_was_reset(t))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (tracer_gone(t))
		mask |= EPOLLERR | EPOLLHUP;
	return mask;
}

static ssize_t tracer_read_news(struct file *file, char __user *to,
				size_t bytes, loff_t *offset)
{
	struct tracer *t = file->private_data;
	int before = atomic_read(&t->resets);
	int resets, status;
	bool reset;
	u32 news;

	if (bytes < sizeof(news))
		return -EINVAL;
	for (;;) {
		spin_lock_irq(&t->lock);
		news = tracer_news(t);
		WRITE_ONCE(t->told_interrupts, t->told_interrupts + news);
		resets = atomic_read(&t->resets);
		/* Each of several reads is told of a reset that comes meanwhile. */
		reset = resets != t->told_resets || resets != before;
		if (!news)
			WRITE_ONCE(t->told_resets, resets);
		spin_unlock_irq(&t->lock);
		if (news)
			break;
		if (reset || tracer_gone(t))
			return -EIO;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		status = wait_event_interruptible(t->wait, tracer_news(t) ||
						  atomic_read(&t->resets) != resets);
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
		return tracer_look(t) ?: -ETIMEDOUT;
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
	/* Whoever is gone by now may have signalled the former one. */
	return eventfd && tracer_gone(t) ? -EIO : 0;
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
		return tracer_restart(t);
	default:
		return -ENOTTY;
	}
}

const struct file_operations tracer_file = {
	.owner = THIS_MODULE,
	.open = tracer_open,
	.release = tracer_release,
	.read = tracer_read_news,
	.poll = tracer_poll,
	.unlocked_ioctl = tracer_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
