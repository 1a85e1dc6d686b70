/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracer of a Merapi expander: a PCI function with a doorbell and one
 * interrupt. Rings, indexes and status are in the memory that it traces, which
 * users map from the expander's dax device; nothing of them is known here.
 *
 * The registers are described in docs/emulation.md.
 */
#ifndef MERAPI_TRACER_H
#define MERAPI_TRACER_H

#include <linux/fs.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/types.h>
#include <linux/wait.h>

struct eventfd_ctx;

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

/* Whether registers can be reached. */
enum tracer_state {
	TRACER_READY,
	TRACER_AWAY, /* the function is being reset, or sleeps */
	TRACER_GONE, /* unbound, in error, silent, or refuses its bounds */
};

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
	 * Held for reading while a register is used, for writing while the
	 * state or the bounds change.
	 */
	struct rw_semaphore gate;
	enum tracer_state state;
	u64 window_offset;
	u64 window_bytes; /* 0: nothing is traced */
	void __iomem *registers;

	unsigned long open; /* bit 0, a lock: somebody has the device open */
	wait_queue_head_t wait;
	atomic_t interrupts; /* since the function was bound */
	atomic_t resets;     /* of the function, by whomever */

	/* Taken in the interrupt handler. Guards changes of what follows. */
	spinlock_t lock;
	u32 told_interrupts; /* that a read has told */
	int told_resets;
	struct eventfd_ctx *eventfd;
};

/* A register: -EIO while the function is away, and when it is gone. */
int tracer_write(struct tracer *t, u32 offset, u32 value);
int tracer_read(struct tracer *t, u32 offset, u32 *value);
/* A new engine; whoever waits is told that nothing will wake him any more. */
int tracer_restart(struct tracer *t);
/* Does it still answer? -EIO when not; it is gone then. */
int tracer_look(struct tracer *t);

/* Release of t->users. */
void tracer_free(struct kref *users);

/* tracer_file.c */
extern const struct file_operations tracer_file;

/* tracer_bounds.c */
extern const struct attribute_group *tracer_groups[];

u64 tracer_read64(struct tracer *t, u32 low);
/*
 * Tell the function what it may reach, of which a new engine begins; none with
 * 0 bytes. The gate is held, or nobody else is there.
 */
int tracer_program(struct tracer *t, u64 offset, u64 bytes);
/* The same, and they are the bounds from now on. */
int tracer_bound(struct tracer *t, u64 offset, u64 bytes);

#endif
