/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only WITH Classpath-exception-2.0
 *
 * libmerapi: the host's side of the contract (contract.h, docs/contract.md).
 *
 * A window is one contiguous range of device memory that one host (a JVM) and
 * one tracer context share. This library lays a window out, opens it over one
 * of its transports, and moves commands, completions, shapes, limits and live
 * words through it. It never interprets heap objects.
 *
 * Threads: merapi_submit and merapi_complete may run in one thread while
 * merapi_pause/resume/abort/revoke run in another; each function by itself is
 * for one thread at a time. Shape and limit functions are for one thread at a time.
 *
 * Errors: functions return 0 or a count on success and a negative errno value
 * otherwise; those that take a `struct merapi_error *` (may be NULL) also say
 * in words what was expected, what was found and what to do next.
 */
#ifndef MERAPI_H
#define MERAPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merapi/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MERAPI_API __attribute__((visibility("default")))

/* Incremented when a function or a structure of this header changes. */
#define MERAPI_ABI 2

struct merapi_window; /* opaque */

/* What was expected, what was found and what to do, whole; of names that are too long for it (paths) the middle is left
 * out. */
struct merapi_error {
  char message[1024];
};

/* ABI version of the loaded library (compare with MERAPI_ABI). */
MERAPI_API int merapi_abi(void);
/* Version of the library as text, for instance "0.1.0". Static storage. */
MERAPI_API const char* merapi_version(void);
/* Name of a fault code or device kind; "unknown" if there is none. Static storage. */
MERAPI_API const char* merapi_fault_name(uint32_t code);
MERAPI_API const char* merapi_kind_name(uint32_t kind);

/* ---------------------------------------------------------------- layout */

/* What a host needs of a window. Zero in a field marked (0: default) picks the default. */
struct merapi_geometry {
  uint64_t heap_bytes;         /* multiple of the region size */
  uint8_t region_log2;         /* log2 of the region size in bytes */
  uint8_t alignment_log2;      /* log2 of the object alignment */
  uint32_t submission_entries; /* power of two (0: 1024) */
  uint32_t completion_entries; /* power of two (0: 4096) */
  uint32_t shape_slots;        /* power of two (0: 131072) */
  uint64_t spill_bytes;        /* multiple of 4096 (0: heap/64, at most heap/128 + 2 MiB, at least 64 KiB) */
};

struct merapi_layout {
  struct merapi_area_desc area[MERAPI_AREA_COUNT]; /* by enum merapi_area */
  uint64_t metadata_bytes;                         /* control page up to the end of the last area that is neither
                                                      bitmap nor heap; contiguous from offset 0 */
  uint64_t window_bytes;                           /* smallest window that holds all areas */
};

/* Compute where everything goes: control page and small areas first (metadata), then both bitmaps and
 * the heap at multiples of MERAPI_MAPPED_ALIGNMENT. -EINVAL when the geometry is impossible. */
MERAPI_API int merapi_layout_compute(const struct merapi_geometry* geometry, struct merapi_layout* layout,
                                     struct merapi_error* error);

/* ------------------------------------------------------------ transports */

enum merapi_open_flags {
  MERAPI_OPEN_FORMAT = 1,   /* lay the window out anew for `geometry` (needs exclusive use); a file forgets the
                             * heap before, up to its end, where its file system makes holes */
  MERAPI_OPEN_READONLY = 2, /* inspect only; no lock is taken */
  MERAPI_OPEN_CREATE = 4,   /* file: make the file, or make it larger, when needed */
};

/* Open a window by name:
 *   file:PATH    a file (best on tmpfs) that `merapi-device --window PATH` serves
 *   dax:PATH     a devdax character device, e.g. dax:/dev/dax0.0
 *   pci:TRACER,MEMORY
 *                the same memory behind a tracer's PCI function: TRACER is its character device (/dev/merapi0, of the
 *                driver in sw/driver), whose interrupt ends waits; what of MEMORY, a devdax device, belongs to the
 *                window is the driver's word. One host at a time has the tracer; closing the window resets it
 *   device:PATH  the unix socket of a device process; the window is made on demand and given to the
 *                device, again after each of its restarts; it is gone when its last user is
 * A PATH alone is classified by what it is. device: always lays out. With MERAPI_OPEN_FORMAT, `geometry` says what to
 * lay out and the window must be large enough: its heap is then empty, with the start of each region as its limit;
 * without it the layout is read from the window and checked. A host holds an exclusive lock while it has the window
 * open. A file is laid out only where it is new, is a window or holds zeros (the first 64 MiB that are no hole are
 * looked at); a file that this call made is removed when it fails. Errors: -ENOENT no such file, -ENODEV not a window
 * transport, -EBUSY another host has it or a stopped device still serves it, -ENOSPC too small (or no room for its
 * tables, or a tmpfs smaller than the window), -EPROTO not a window, a foreign version or a file of something else,
 * -EINVAL bad name or geometry, others from the system. */
MERAPI_API int merapi_open(const char* name, const struct merapi_geometry* geometry, uint32_t flags,
                           struct merapi_window** window, struct merapi_error* error);
/* Revokes the device (if attached), unlocks and unmaps. NULL is allowed.
 *
 * A child of fork(2) has nothing of its parent's windows (nor of leases and listeners, below): descriptors are closed,
 * zero memory of its own is where they were mapped, and calls that return a status fail with -ECHILD. It calls this to
 * free what is left. */
MERAPI_API void merapi_close(struct merapi_window* window);

MERAPI_API const struct merapi_layout* merapi_layout_of(const struct merapi_window* window);
/* What the window was opened over, also by its path alone: "device", "file", "dax" or "pci". Static storage. */
MERAPI_API const char* merapi_transport_name(const struct merapi_window* window);
/* Size of the window as the transport tells it. */
MERAPI_API uint64_t merapi_window_bytes(const struct merapi_window* window);
/* Map `length` bytes at window offset `offset` over the addresses from `address` on (replacing whatever is
 * mapped there; all arguments page-aligned, 2 MiB-aligned for devdax). The mapping is shared, stays when the window
 * is closed, and is not in children (MADV_DONTFORK). -EINVAL when outside the window. */
MERAPI_API int merapi_map_fixed(struct merapi_window* window, uint64_t offset, uint64_t length, void* address);
/* Map an area anywhere (read-write, or read-only for a window opened so); unmapped by merapi_close. NULL on error. */
MERAPI_API void* merapi_map_area(struct merapi_window* window, enum merapi_area area);
/* Fill a range of the window with zero bytes, giving memory back to the system where the transport can. */
MERAPI_API int merapi_zero(struct merapi_window* window, uint64_t offset, uint64_t length);

/* ------------------------------------------------------------- coherence */

/* Operations of a transport on lines that host and device share. `put` copies payload into the window, `publish`
 * stores one naturally aligned 4- or 8-byte word after everything put before is visible to the device,
 * `get` copies out after dropping stale copies, `invalidate` only drops, `write_back` makes a range of host stores
 * visible to the device. Replaceable for tests (a host-cache model) and for transports without a mapping. */
struct merapi_ops {
  void* context;
  void (*put)(void* context, void* destination, const void* source, size_t bytes);
  void (*publish)(void* context, void* destination, uint64_t value, size_t bytes);
  void (*get)(void* context, void* destination, const void* source, size_t bytes);
  void (*invalidate)(void* context, const void* address, size_t bytes);
  void (*write_back)(void* context, const void* address, size_t bytes);
};
/* Replace the window's operations (copied); NULL restores the transport's own. */
MERAPI_API void merapi_set_ops(struct merapi_window* window, const struct merapi_ops* ops);
/* Write back / invalidate an address range of the host (no-ops in coherent mode). */
MERAPI_API void merapi_write_back(struct merapi_window* window, const void* address, size_t bytes);
MERAPI_API void merapi_invalidate(struct merapi_window* window, const void* address, size_t bytes);

/* ------------------------------------------------------ attach and revoke */

/* Publish the configuration that BEGIN_CYCLE latches (copied to the control page; areas come from the layout). Only
 * outside cycles. Limits of regions stay where these do; those of new regions, or of all when the size of a region or
 * the alignment changes, are the regions' starts. -EINVAL when a field is out of the contract's range. When it makes
 * the window non-coherent, all metadata that was written before is written back. */
MERAPI_API int merapi_configure(struct merapi_window* window, const struct merapi_config* config,
                                struct merapi_error* error);
MERAPI_API void merapi_get_config(const struct merapi_window* window, struct merapi_config* config);

/* Handshake: start a new generation with empty rings and wait up to timeout_us for a device to answer it. For device:
 * names this also connects again when the device process went away. -ENODEV no device (nothing serves the window),
 * -ETIMEDOUT it did not answer, -EPROTO it speaks another version or refuses the window, -ENOTSUP coherence mode
 * differs from config.coherence, -ENOSPC it sees less of the window than the layout needs. After an error the window is
 * revoked (odd generation). */
MERAPI_API int merapi_attach(struct merapi_window* window, uint64_t timeout_us, struct merapi_error* error);
/* End the generation without the device's help: whatever it does later, its answers are not looked at, and a
 * device that obeys the contract stops touching the window. Never blocks. */
MERAPI_API void merapi_revoke(struct merapi_window* window);
/* Is there a generation that a device has answered and that was not revoked? */
MERAPI_API bool merapi_attached(const struct merapi_window* window);
MERAPI_API uint64_t merapi_generation(const struct merapi_window* window);
/* Copy of what the device said of itself at the last handshake. */
MERAPI_API void merapi_device_info(const struct merapi_window* window, struct merapi_device_identity* identity);
/* How long to wait for an acknowledgement of this device, in microseconds: what it stated at the last handshake, or
 * what hardware states where it stated nothing. */
MERAPI_API uint64_t merapi_patience_us(const struct merapi_window* window);

/* ------------------------------------------------------------------ rings */

/* A cycle id never used in this window before. */
MERAPI_API uint32_t merapi_next_cycle(struct merapi_window* window);
/* Write up to `count` entries (opcode, flags, count, arg, payload and cycle are the caller's; sequence is filled in)
 * and publish them. Returns how many fitted (0: ring full); never blocks. -EBADMSG when the device's index is
 * impossible (treat it as broken), -ENODEV when it is gone besides, or when not attached. */
MERAPI_API int merapi_submit(struct merapi_window* window, const struct merapi_submission* entries, int count);
/* Entries that fit now; negative like merapi_submit. */
MERAPI_API int merapi_submission_room(struct merapi_window* window);
/* Wake the device if it sleeps. Called once after a batch of submissions; cheap when it is awake. */
MERAPI_API void merapi_doorbell(struct merapi_window* window);
/* Copy out and free up to `count` completions. Returns how many (0: none). -EBADMSG when an entry below the device's
 * index has a wrong sequence number or the index is impossible: treat the device as broken. -ENODEV when it is gone
 * besides, or when not attached. */
MERAPI_API int merapi_complete(struct merapi_window* window, struct merapi_completion* entries, int count);
/* 1: the device is idle in `cycle`, has consumed everything submitted, and every completion was read. Otherwise 0. */
MERAPI_API int merapi_idle(struct merapi_window* window, uint32_t cycle);
/* Sleep until the device has news (completion, idle, fault, acknowledgement) or timeout_us passed. Does not spin.
 * Returns 1 for news, 0 for timeout. News is what came after the last merapi_complete began; unread completions and the
 * end of the generation are news too. */
MERAPI_API int merapi_wait(struct merapi_window* window, uint64_t timeout_us);
/* First fault of this generation; returns its code (MERAPI_FAULT_NONE: none). `record` may be NULL. */
MERAPI_API uint32_t merapi_fault_get(struct merapi_window* window, struct merapi_fault_record* record);
MERAPI_API uint32_t merapi_device_state(struct merapi_window* window);
MERAPI_API uint64_t merapi_counter(struct merapi_window* window, enum merapi_counter counter);
/* A sum of counters that differs between two pauses of a cycle when the device got on between them (contract, section
 * 10). An equal one says nothing while completions come. */
MERAPI_API uint64_t merapi_progress(struct merapi_window* window);
/* True when the process or driver behind the window is known to be gone (socket closed, lock free). */
MERAPI_API bool merapi_device_gone(struct merapi_window* window);

/* --------------------------------------------------- pause, resume, abort */

/* Request a pause and wait for its acknowledgement, at most the device's patience (timeout_us 0) or timeout_us.
 * 0: paused; the host owns bitmap and live words until merapi_resume. -ETIMEDOUT: revoke. -ENODEV: not attached, or
 * the device is gone (merapi_device_gone): revoke, too. */
MERAPI_API int merapi_pause(struct merapi_window* window, uint64_t timeout_us);
/* Let the device go on. Does not wait. */
MERAPI_API int merapi_resume(struct merapi_window* window);
/* Drop the cycle and all submissions; waits like merapi_pause. Completions of the cycle may still be read and must be
 * ignored. Also ends a pause. */
MERAPI_API int merapi_abort(struct merapi_window* window, uint64_t timeout_us);

/* --------------------------------------------------------- shapes, limits */

/* Publish or replace the shape of shape->klass_word; the same shape again changes nothing, a different one may replace
 * it only between cycles or while paused, like a withdrawal (`extension` is the library's to fill; `blocks` holds
 * shape->block_count blocks and may be NULL when 0). -ENOSPC: no slot within the probe limit or no extension room; the
 * klass then has no shape, which is slower and never wrong. -EINVAL: the fields contradict each other. */
MERAPI_API int merapi_shape_put(struct merapi_window* window, const struct merapi_shape* shape,
                                const struct merapi_ref_block* blocks);
/* Withdraw. Only between cycles or while paused; INVALIDATE_SHAPES must follow before tracing goes on (BEGIN_CYCLE
 * does it too). -ENOENT: there is none. */
MERAPI_API int merapi_shape_remove(struct merapi_window* window, uint64_t klass_word);
/* Copy of the shape, -ENOENT if none. `blocks` (may be NULL) receives up to max_blocks. */
MERAPI_API int merapi_shape_get(struct merapi_window* window, uint64_t klass_word, struct merapi_shape* shape,
                                struct merapi_ref_block* blocks, uint32_t max_blocks);
/* Withdraw all; only between cycles. */
MERAPI_API void merapi_shape_clear(struct merapi_window* window);
struct merapi_shape_usage {
  uint32_t slots, used, tombstones;
  uint64_t extension_bytes, extension_used;
};
MERAPI_API void merapi_shape_usage(struct merapi_window* window, struct merapi_shape_usage* usage);

/* A region that the configuration does not have is ignored and reads as 0. Limits are byte offsets in the heap. Only
 * between cycles or while paused, except to lower one to its region's start for a region that holds no marked object.
 */
MERAPI_API void merapi_limit_set(struct merapi_window* window, uint32_t region, uint64_t limit);
MERAPI_API uint64_t merapi_limit_get(struct merapi_window* window, uint32_t region);
/* Heap words marked by the device in this region (read at hand-back or while paused). */
MERAPI_API uint64_t merapi_live_get(struct merapi_window* window, uint32_t region);
/* Forget them: only while paused (eager reclaim of the region). */
MERAPI_API void merapi_live_clear(struct merapi_window* window, uint32_t region);

/* ----------------------------------------------------------------- images */

/* A saved window: one sparse file that replays without the program that made it. Beside the window's contents it
 * carries what its host would answer: the outgoing references of each deferred object and of each klass's holder
 * (docs/contract.md, "Saved windows"), and a text in JSON (how long stock marking took, where it was captured, ...). */
struct merapi_answers {
  uint64_t count;            /* answers */
  const uint64_t* key;       /* count object addresses (DEFER) or klass words (SHAPE_SEEN) */
  const uint8_t* is_klass;   /* count: 1 when the key is a klass word */
  const uint64_t* first;     /* count + 1 indexes into reference */
  const uint64_t* reference; /* first[count] references (addresses) */
};

/* A file that is to appear under its name when it is complete, for its owner alone (0600). It is written under a new
 * name beside `path`, or beside the file that a link at `path` leads to, which it gets when it is complete where the
 * file system has files without a name: then nothing is left of a writer that is killed. A pipe or character device at
 * `path` is written in place, in order, and stays what it is; anything else is refused (-EINVAL). A pipe that nobody
 * reads is waited for some 2 s (-ENXIO). So is a file that the process has open already (/dev/stdout, /dev/fd/N,
 * /proc/self/fd/N), from where its descriptor stands; one that is not open for writing is an error (-EBADF). */
struct merapi_output; /* opaque */
MERAPI_API int merapi_output_open(const char* path, struct merapi_output** output, struct merapi_error* error);
MERAPI_API int merapi_output_fd(const struct merapi_output* output); /* to write to */
/* Is what is (or will be) written at `path` the file, pipe or device behind the descriptor `fd`? What is printed there
 * would end up in the output. */
MERAPI_API bool merapi_output_is(const char* path, int fd);
/* A pipe, a character device or what was open: what was written cannot be gone back to. */
MERAPI_API bool merapi_output_in_place(const struct merapi_output* output);
/* Complete: replaces the file, and is on the disk before it has the name. Ends `output`, also with an error; then what
 * was at the path is still there, unless it was the folder alone that could not be written (-EIO, say). */
MERAPI_API int merapi_output_commit(struct merapi_output* output, struct merapi_error* error);
/* Given up: removes what was written, as far as it was not in place. NULL is allowed. */
MERAPI_API void merapi_output_abandon(struct merapi_output* output);

/* Save the window of `window` to `path` (see merapi_output_open), which is not the window's own file (-EINVAL). The
 * device must be paused, detached or idle. Pages of zeros, and those between the areas, are not stored. `answers` and
 * `json` may be NULL; `bitmap` is the one that holds the greys. */
MERAPI_API int merapi_image_save(struct merapi_window* window, const char* path, uint32_t bitmap,
                                 const struct merapi_answers* answers, const char* json, struct merapi_error* error);

/* Replace the text of a saved image in place. It must fit into the room of the text that the image was saved with
 * (blanks at its end are such room), else -ENOSPC and the image is unchanged. When it is interrupted, or cannot write,
 * the image has its old text, this one, or "{}". */
MERAPI_API int merapi_image_annotate(const char* path, const char* json, struct merapi_error* error);

struct merapi_image; /* opaque */
MERAPI_API int merapi_image_open(const char* path, struct merapi_image** image, struct merapi_error* error);
MERAPI_API void merapi_image_close(struct merapi_image* image);
MERAPI_API uint64_t merapi_image_window_bytes(const struct merapi_image* image);
MERAPI_API uint32_t merapi_image_bitmap(const struct merapi_image* image);
/* JSON text, zero-terminated, owned by the image. */
MERAPI_API const char* merapi_image_json(const struct merapi_image* image);
/* Owned by the image; sorted by (is_klass, key). */
MERAPI_API const struct merapi_answers* merapi_image_answers(const struct merapi_image* image);
/* Read and check the contents, which merapi_image_open leaves alone: -EBADMSG the image is damaged. For callers that
 * open the window with MERAPI_OPEN_FORMAT, which destroys what is there before merapi_image_load could refuse. What was
 * found good is not read again. */
MERAPI_API int merapi_image_check(struct merapi_image* image, struct merapi_error* error);
/* Write the image's contents into an open window of at least its size (made with MERAPI_OPEN_CREATE, for instance);
 * the window then has the image's layout and configuration. What merapi_map_area returned before is no longer mapped.
 * -EBUSY while a device is attached, -ENOSPC too small, -EBADMSG the image is damaged (the window is untouched) or is
 * written by somebody meanwhile (the window is none then, as wherever writing it fails). */
MERAPI_API int merapi_image_load(struct merapi_image* image, struct merapi_window* window, struct merapi_error* error);
/* Geometry to open a window of the image's size with. */
MERAPI_API void merapi_image_geometry(const struct merapi_image* image, struct merapi_geometry* geometry);

/* ------------------------------------------------------- the device's side */

/* For device processes (sim/): give out windows over a unix socket and take part in a window's locks. */
struct merapi_listener;
/* Listen at `path` (a stale socket of a dead process is replaced; -EADDRINUSE when a live one has it). */
MERAPI_API int merapi_listen(const char* path, struct merapi_listener** listener, struct merapi_error* error);
MERAPI_API int merapi_listener_fd(const struct merapi_listener* listener); /* poll for input */
MERAPI_API void merapi_listener_close(struct merapi_listener* listener);

struct merapi_lease; /* one window given to this device; owns its mapping */
/* Take the next window offered at the socket (non-blocking, -EAGAIN) or open the file or devdax device `path`. The
 * device lock is held until the lease ends; -EBUSY when another device serves the window, and a second device waits
 * for nobody. Without descriptors or memory to serve another window no host is accepted: -EMFILE, -ENFILE, -ENOMEM or
 * -ENOBUFS, and hosts wait for a later call. After every other error one host was refused: -ECONNREFUSED for want of
 * descriptors or memory, -ETIMEDOUT when it said no hello for some seconds. */
MERAPI_API int merapi_accept(struct merapi_listener* listener, struct merapi_lease** lease, struct merapi_error* error);
MERAPI_API int merapi_serve(const char* path, struct merapi_lease** lease, struct merapi_error* error);
/* A window that is a part of the file or device: `bytes` (0: up to the end) from `offset`, a multiple of 2 MiB, on, as
 * with several windows on one expander. -EINVAL when it does not lie inside, -EBUSY when it overlaps another one. A
 * part may hold anything; a whole file that is neither a window nor zeros (as for merapi_open) is refused: -EPROTO. */
MERAPI_API int merapi_serve_part(const char* path, uint64_t offset, uint64_t bytes, struct merapi_lease** lease,
                                 struct merapi_error* error);
/* As merapi_serve_part, of a file that is made when there is none, and made at least `size` bytes large once the device
 * lock is held; a device stays as it is. -ENOSPC where a tmpfs is smaller. A file that this call made is removed when
 * it fails. */
MERAPI_API int merapi_serve_made(const char* path, uint64_t size, uint64_t offset, uint64_t bytes,
                                 struct merapi_lease** lease, struct merapi_error* error);
MERAPI_API void merapi_lease_end(struct merapi_lease* lease);
/* Whole window, mapped read-write; size as the file or driver tells. */
MERAPI_API void* merapi_lease_base(const struct merapi_lease* lease);
MERAPI_API uint64_t merapi_lease_bytes(const struct merapi_lease* lease);
/* Host's connection (poll: readable or hang-up means that the host is gone); -1 for files. */
MERAPI_API int merapi_lease_fd(const struct merapi_lease* lease);
/* True once the host is gone for good (socket closed). Files outlive their hosts: always false. */
MERAPI_API bool merapi_lease_gone(const struct merapi_lease* lease);
/* Sleep until the host rings the doorbell (or the generation or a request changes), or timeout_us passed. `seen` is the
 * doorbell value read before the last look at the rings. */
MERAPI_API void merapi_lease_sleep(struct merapi_lease* lease, uint32_t seen, uint64_t timeout_us);
/* Tell the host that there is news (increments device_index.event and wakes it if it waits). */
MERAPI_API void merapi_lease_notify(struct merapi_lease* lease);

#ifdef __cplusplus
}
#endif

#endif /* MERAPI_H */
