/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libmerapi share. Nothing here is visible outside the library.
 */
#ifndef MERAPI_INTERNAL_H
#define MERAPI_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "merapi/merapi.h"

/* Locks on the window's file: the host's byte, and the first that is the device's (lock.c). */
enum { MERAPI_LOCK_HOST = 0, MERAPI_LOCK_DEVICE = 1 };

/* How a futex on the window reaches the other side: at once in one kernel; not at all through devdax (the other side is
 * a board or another kernel), where waiting falls back to looking again after growing slices of sleep. */
#define MERAPI_POLL_SLICE_MIN_NS UINT64_C(50000)
#define MERAPI_POLL_SLICE_MAX_NS UINT64_C(1000000)
/* Longer costs more than it saves where host and device process share processors: the waiting thread may hold the one
 * that the device needs to answer. */
#define MERAPI_SPIN_NS UINT64_C(8000)

struct merapi_transport {
  const char* name;
  /* Open `path` and set window->fd; `needed` is the size of the layout to come, 0 when it will be read. */
  int (*open)(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error);
  /* Find window->bytes and window->granularity; called with the host lock held (unless read-only). */
  int (*size)(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error);
  /* Make sure that a device could answer a handshake now: -ENODEV (nothing serves), -ETIMEDOUT (it does not accept).
   * NULL: nothing tells. */
  int (*connect)(struct merapi_window* window, struct merapi_error* error);
  /* Is the device known to be gone? NULL: nothing tells; see merapi_gone. */
  bool (*gone)(struct merapi_window* window);
  /* Why a device that was there went away, in words (static or window-owned storage). NULL: nothing more is known. */
  const char* (*farewell)(struct merapi_window* window);
  /* Why a device may not answer, beside being stopped, in words that go on after "is it stopped". NULL: nothing more.
   */
  const char* silence;
  /* A FUTEX_WAKE on the window reaches the other side. */
  bool futex;
  /* The memory is a devdax device: it can only be mapped, and nothing tells whether there still is a device behind. */
  bool devdax;
  /* Wake a device that sleeps; NULL: by futex, or not at all. */
  void (*ring)(struct merapi_window* window);
  /* Sleep until device_index.event differs from `seen`, at most timeout_ns; may return early. NULL: on a futex. */
  void (*wait)(struct merapi_window* window, uint32_t seen, uint64_t timeout_ns);
};
extern const struct merapi_transport merapi_transport_file;
extern const struct merapi_transport merapi_transport_dax;
extern const struct merapi_transport merapi_transport_pci;
extern const struct merapi_transport merapi_transport_device;

struct merapi_shape_state {
  uint32_t slots;
  uint32_t used, tombstones;
  uint64_t lines;       /* 64-byte lines of the extension area */
  uint64_t lines_used;  /* of those, taken */
  uint64_t hint;        /* where the search for free lines starts */
  uint64_t* line_taken; /* one bit per line */
};

/* What a forked child must not keep; first member of what it describes. */
struct merapi_held {
  struct merapi_held *next, **link; /* link NULL: not in the list */
  void (*forsake)(struct merapi_held*);
  bool forked; /* this is a child's copy */
};

struct merapi_window {
  struct merapi_held held;
  const struct merapi_transport* transport;
  char* path;
  int fd;
  bool readonly;
  bool created;         /* the file is new, and goes again when the window cannot be opened */
  uint64_t bytes;       /* as the transport tells */
  uint64_t granularity; /* mappings start and end at multiples of this */
  int connection;       /* device: the socket; pci: the tracer; -1 when there is none */
  char reason[96];      /* device: why the peer refused */

  struct merapi_layout layout;
  uint8_t* metadata; /* window offset 0 up to layout.metadata_bytes */
  size_t metadata_mapped;
  void* area_address[MERAPI_AREA_COUNT]; /* bitmaps and heap, when merapi_map_area was asked for them */
  size_t area_mapped[MERAPI_AREA_COUNT];

  struct merapi_ops ops;
  bool ops_replaced;
  uint8_t mode; /* enum coherence: how lines are handed over now; config.coherence once the window is open */
  struct merapi_config config;
  struct merapi_device_identity device;

  _Atomic uint64_t generation; /* the authority; the window holds a copy for the device */
  atomic_bool attached;
  _Atomic uint32_t doorbell; /* last value published */

  /* Submitting thread. */
  uint64_t submission_produced, submission_consumed_seen;
  uint32_t submission_entries;
  uint32_t cycle; /* last one handed out */
  /* Completing thread. */
  uint64_t completion_consumed, completion_produced_seen;
  uint32_t completion_entries;
  _Atomic uint32_t event_seen;
  /* Requesting thread. */
  uint32_t pause, resume, abort;

  pthread_mutex_t wait_lock; /* guards waiters and the window's `waiting` flag */
  unsigned waiters;

  struct merapi_shape_state shapes;
};

static inline bool merapi_gone(struct merapi_window* window) {
  if (window->held.forked) return true;
  return window->transport->gone != NULL && window->transport->gone(window);
}

/* --------------------------------------------------------- control page */

static inline struct merapi_identity* merapi_identity_of(const struct merapi_window* w) {
  return (struct merapi_identity*)(void*)w->metadata;
}
static inline struct merapi_config* merapi_config_of(const struct merapi_window* w) {
  return (struct merapi_config*)(void*)(w->metadata + MERAPI_CONFIG_OFFSET);
}
static inline struct merapi_directory* merapi_directory_of(const struct merapi_window* w) {
  return (struct merapi_directory*)(void*)(w->metadata + MERAPI_DIRECTORY_OFFSET);
}
static inline struct merapi_host_index* merapi_host_index_of(const struct merapi_window* w) {
  return (struct merapi_host_index*)(void*)(w->metadata + MERAPI_HOST_INDEX_OFFSET);
}
static inline struct merapi_host_request* merapi_host_request_of(const struct merapi_window* w) {
  return (struct merapi_host_request*)(void*)(w->metadata + MERAPI_HOST_REQUEST_OFFSET);
}
static inline struct merapi_device_identity* merapi_device_identity_of(const struct merapi_window* w) {
  return (struct merapi_device_identity*)(void*)(w->metadata + MERAPI_DEVICE_IDENTITY_OFFSET);
}
static inline struct merapi_device_index* merapi_device_index_of(const struct merapi_window* w) {
  return (struct merapi_device_index*)(void*)(w->metadata + MERAPI_DEVICE_INDEX_OFFSET);
}
static inline struct merapi_device_ack* merapi_device_ack_of(const struct merapi_window* w) {
  return (struct merapi_device_ack*)(void*)(w->metadata + MERAPI_DEVICE_ACK_OFFSET);
}
static inline struct merapi_idle_record* merapi_idle_record_of(const struct merapi_window* w) {
  return (struct merapi_idle_record*)(void*)(w->metadata + MERAPI_IDLE_RECORD_OFFSET);
}
static inline struct merapi_fault_record* merapi_fault_record_of(const struct merapi_window* w) {
  return (struct merapi_fault_record*)(void*)(w->metadata + MERAPI_FAULT_RECORD_OFFSET);
}
static inline struct merapi_counters* merapi_counters_of(const struct merapi_window* w) {
  return (struct merapi_counters*)(void*)(w->metadata + MERAPI_COUNTERS_OFFSET);
}
/* An area inside the metadata. */
static inline void* merapi_area_of(const struct merapi_window* w, enum merapi_area area) {
  return w->metadata + w->layout.area[area].offset;
}

/* -------------------------------------------------------- shared accesses */

static inline void merapi_put(struct merapi_window* w, void* to, const void* from, size_t bytes) {
  w->ops.put(w->ops.context, to, from, bytes);
}
static inline void merapi_get(struct merapi_window* w, void* to, const void* from, size_t bytes) {
  w->ops.get(w->ops.context, to, from, bytes);
}
static inline uint32_t merapi_get32(struct merapi_window* w, const uint32_t* from) {
  uint32_t value;
  w->ops.get(w->ops.context, &value, from, sizeof value);
  return value;
}
static inline uint64_t merapi_get64(struct merapi_window* w, const uint64_t* from) {
  uint64_t value;
  w->ops.get(w->ops.context, &value, from, sizeof value);
  return value;
}
static inline void merapi_publish32(struct merapi_window* w, uint32_t* to, uint32_t value) {
  w->ops.publish(w->ops.context, to, value, sizeof value);
}
static inline void merapi_publish64(struct merapi_window* w, uint64_t* to, uint64_t value) {
  w->ops.publish(w->ops.context, to, value, sizeof value);
}

/* fork.c */
/* Around what makes and closes descriptors (and mappings, which hold a file and its locks as well) and puts them where
 * the child finds them: no fork happens meanwhile. Neither waits for anybody in between, nor does what takes long, as
 * to unmap. A negative errno when there is no telling of forks (and still to be ended). */
int merapi_descriptors_begin(void);
void merapi_descriptors_end(void);
/* In between. `forsake` is called in the child, where it takes out what is the parent's. */
void merapi_hold(struct merapi_held* held, void (*forsake)(struct merapi_held*));
void merapi_let_go(struct merapi_held* held);
void merapi_forsake_fd(int* fd);
void merapi_forsake_memory(void* address, size_t bytes);
/* In between, for a mapping that is taken out of where the child finds it: from here on a child has nothing of it. */
void merapi_leave_memory(void* address, size_t bytes);
/* Afterwards: the address may be somebody else's at once. NULL is allowed in both. */
void merapi_unmap(void* address, size_t bytes);
/* Why there is no device. */
static inline int merapi_detached(const struct merapi_window* window) {
  return window->held.forked ? -ECHILD : -ENODEV;
}
/* 0, or -ECHILD and why. */
int merapi_own(const struct merapi_window* window, struct merapi_error* error);

/* ops.c: operations for a mapping in the given mode; NULL when this processor has none. */
const struct merapi_ops* merapi_mapping_ops(uint8_t coherence);
/* A test's model of the host's caches in place of the processor's, in both modes, from the first access on. */
extern const struct merapi_ops* (*merapi_ops_model)(uint8_t coherence);
/* Work in the given mode from here on (the operations stay when they were replaced). On the way to the non-coherent one
 * all metadata and bitmaps are written back and dropped, once: the device sees nothing of what was written before, and
 * no line of it may be evicted over what the device writes. */
int merapi_enter_mode(struct merapi_window* window, uint8_t coherence, struct merapi_error* error);

/* limit.c: the regions of `config` from number `first` on are free: their limits are their starts. */
void merapi_limits_to_starts(struct merapi_window* window, const struct merapi_config* config, uint32_t first);

/* error.c */
int merapi_fail(struct merapi_error* error, int code, const char* format, ...) __attribute__((format(printf, 3, 4)));

/* layout.c */
/* Check a directory read from somewhere untrusted against a window of `bytes`; fills `layout`. */
int merapi_layout_check(const struct merapi_directory* directory, const struct merapi_config* config, uint64_t bytes,
                        struct merapi_layout* layout, struct merapi_error* error);
/* Check a configuration against a layout. */
int merapi_config_check(const struct merapi_config* config, const struct merapi_layout* layout,
                        struct merapi_error* error);
/* A window, or one into which an image was being loaded, which takes the magic away for so long: by its identity and
 * the host's generation. */
static inline bool merapi_was_window(const struct merapi_identity* identity, uint64_t generation) {
  return identity->magic == MERAPI_MAGIC || (identity->magic == 0 && identity->version_major == MERAPI_VERSION_MAJOR &&
                                             identity->control_bytes == MERAPI_CONTROL_BYTES && generation % 2 == 1);
}

/* Check identity, configuration and directory in a copy of a control page. */
int merapi_control_check(const void* control, uint64_t bytes, struct merapi_layout* layout,
                         struct merapi_config* config, struct merapi_error* error);

/* lock.c: locks of open file descriptions; they end with the last descriptor of that description. */
int merapi_lock(int fd, uint64_t first, uint64_t bytes);
/* Does someone else hold it? 1 yes, 0 no, negative errno. */
int merapi_lock_held(int fd, uint64_t byte);

/* file.c */
/* A descriptor that was just made, under a number that is no standard stream's: where one of those is closed, what the
 * program prints would go into a window. The descriptor is closed on exec; -1 with errno, also of making it. */
int merapi_fd_above_stdio(int fd);
/* Flags of an open that neither waits for a pipe's other end nor takes a terminal: what it is, is seen afterwards. */
#define MERAPI_OPEN_ANYTHING (O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
/* A regular file is only laid out or served where it holds a window or nothing. -EPROTO otherwise. */
int merapi_file_check(int fd, const char* path, struct merapi_error* error);
/* -ENOSPC where a tmpfs could not even hold so much if it were empty. */
int merapi_file_fits(int fd, const char* path, uint64_t bytes, struct merapi_error* error);
int merapi_file_grow(int fd, const char* path, uint64_t bytes, struct merapi_error* error);
/* Open for reading and writing, making the file (0600) when there is none; a negative errno. */
int merapi_file_create(const char* path, bool* created);
/* Have memory or disk behind a range of the window before it is written through a mapping, where no error could tell
 * that there is none. -ENOSPC, -EDQUOT. */
int merapi_reserve(struct merapi_window* window, uint64_t offset, uint64_t bytes);
/* A run of pages that the window's file has data for: the one at or after `offset`; an empty one at `end` when there is
 * none. A hole must not be touched: a page of tmpfs that is only read through a mapping is allocated, and without room
 * for it the process dies. */
struct merapi_run {
  uint64_t start, end;
};
struct merapi_run merapi_next_run(const struct merapi_window* window, uint64_t offset, uint64_t end);
/* The same for a table of the window: a run of entries from number `first` on; those of holes are zero. */
struct merapi_run merapi_next_entries(const struct merapi_window* window, const struct merapi_area_desc* area,
                                      uint64_t first, uint64_t entry_bytes);

/* transport_dax.c */
/* Size and alignment of a devdax device as sysfs (mounted at `sysfs`, normally "/sys") tells them. */
int merapi_dax_probe(const char* sysfs, unsigned major, unsigned minor, uint64_t* bytes, uint64_t* alignment);

/* transport_device.c: the hand-over messages (docs/contract.md, "Handing a window over a socket"). */
#define MERAPI_HELLO_MAGIC UINT64_C(0x4F4C4C454850524D) /* "MRPHELLO" */
struct merapi_hello {
  uint64_t magic;
  uint16_t version_major, version_minor;
  uint32_t reserved;
};
struct merapi_hello_reply {
  uint64_t magic;
  int32_t status; /* 0 or a negative errno value: why the window is not served */
  uint32_t pid;
};
bool merapi_hung_up(int fd);

/* attach.c: before a window's contents are replaced, see that a device of its former life has ended its writes. The
 * generation is odd afterwards. -EBUSY when that device is there and does not answer. */
int merapi_quiesce(struct merapi_window* window, struct merapi_error* error);

/* wait.c */
uint64_t merapi_now_ns(void);
/* The time timeout_us from now on; a timeout that no clock holds is some thirty years. */
uint64_t merapi_deadline_ns(uint64_t timeout_us);
void merapi_pause_instruction(void);
/* Sleep while *word == expected, at most timeout_ns. */
void merapi_futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns);
void merapi_futex_wake(uint32_t* word);
/* Wait until ready(window, argument) or the deadline: a short spin when `spin`, then sleeping on device_index.event in
 * slices of at most slice_ns. Returns what ready returned last. */
bool merapi_wait_until(struct merapi_window* window, bool (*ready)(struct merapi_window*, uint64_t), uint64_t argument,
                       uint64_t deadline_ns, bool spin, uint64_t slice_ns);

/* shape.c: rebuild the host's knowledge of a table that is already there; release it. */
int merapi_shape_adopt(struct merapi_window* window, struct merapi_error* error);
void merapi_shape_release(struct merapi_window* window);

/* window.c: adopt what the control page says, with the layout, configuration and metadata that are set. */
int merapi_window_adopt(struct merapi_window* window, struct merapi_error* error);
/* Map a range for a while, which no child has; NULL on error. */
void* merapi_window_map(struct merapi_window* window, uint64_t offset, uint64_t length, size_t* mapped);
/* Between merapi_descriptors_begin and _end, for a mapping that is put where the child finds it. */
void* merapi_window_map_listed(struct merapi_window* window, uint64_t offset, uint64_t length, size_t* mapped);
struct merapi_mapping {
  void* address; /* NULL: there is none */
  size_t bytes;
};
struct merapi_mappings {
  struct merapi_mapping metadata, area[MERAPI_AREA_COUNT];
};
/* Between merapi_descriptors_begin and _end: the window has no mappings any more, and no child has them. */
struct merapi_mappings merapi_leave_mappings(struct merapi_window* window);
/* Afterwards. */
void merapi_unmap_left(const struct merapi_mappings* left);

static inline bool merapi_is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }
static inline uint64_t merapi_round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

#endif /* MERAPI_INTERNAL_H */
