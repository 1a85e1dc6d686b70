/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * The character device of a tracer's PCI function (/dev/merapi0, ...), between the driver in sw/driver and libmerapi.
 *
 * One process at a time has it open. The last close resets the tracer. The window itself is mapped from the expander's
 * dax device. What the tracer may reach is set by the administrator alone (window_offset and window_bytes of the PCI
 * function in sysfs, while nobody has the device open) and told by MERAPI_TRACER_INFO.
 *
 * What needs the function fails with EIO while it is being reset, and for ever when it is gone.
 */
#ifndef MERAPI_TRACER_DEVICE_H_
#define MERAPI_TRACER_DEVICE_H_

#include <linux/ioctl.h>
#include <linux/types.h>

struct merapi_tracer_info {
  __u32 version;       /* of the contract: major << 16 | minor */
  __u32 engines;       /* started so far: a change means a fresh one */
  __u64 window_offset; /* what it traces: from this byte of the expander's memory on, */
  __u64 window_bytes;  /* so many */
};

struct merapi_tracer_wait {
  __u32 seen;        /* value of device_index.event that was seen */
  __u32 reserved;    /* 0 */
  __u64 nanoseconds; /* at most so long */
};

#define MERAPI_TRACER_TYPE 0xb7
#define MERAPI_TRACER_INFO _IOR(MERAPI_TRACER_TYPE, 0, struct merapi_tracer_info)
/* Wake the tracer; host_index.doorbell has been published before. */
#define MERAPI_TRACER_DOORBELL _IO(MERAPI_TRACER_TYPE, 1)
/*
 * Ask for one interrupt, to be sent when device_index.event differs from the argument, at once if it does already.
 * Told by poll (POLLIN), by read (how many interrupts since the last one, as a __u32), and by the eventfd.
 *
 * A reset, by whomever, ends that: poll tells POLLIN until a read has failed with EIO, and the eventfd is signalled.
 * So it is when the function goes; poll tells POLLERR and POLLHUP then, and every read without news fails with EIO.
 */
#define MERAPI_TRACER_ARM _IOW(MERAPI_TRACER_TYPE, 2, __u32)
/*
 * Arm, and sleep until an interrupt arrives. 0, ETIMEDOUT, EINTR, or EIO when the function was reset or is gone. Any
 * number of threads may wait; an interrupt wakes all of them.
 */
#define MERAPI_TRACER_WAIT _IOW(MERAPI_TRACER_TYPE, 3, struct merapi_tracer_wait)
/* Signal this eventfd for each interrupt, each reset and the function's end; -1: none any more. */
#define MERAPI_TRACER_EVENTFD _IOW(MERAPI_TRACER_TYPE, 4, __s32)
/* Disarm, end the engine, start another one. */
#define MERAPI_TRACER_RESET _IO(MERAPI_TRACER_TYPE, 5)

#endif
