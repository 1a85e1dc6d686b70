/* SPDX-License-Identifier: Apache-2.0
 *
 * pci:TRACER,MEMORY, a devdax device whose tracer has a PCI function with a driver: doorbell and completions go through
 * that, everything else through the memory as with dax:. The driver's file is window->connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "internal.h"
#include "merapi/tracer_device.h"

static int pci_open(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  char* const comma = strchr(window->path, ',');
  if (comma == NULL || comma == window->path || comma[1] == '\0')
    return merapi_fail(error, -EINVAL,
                       "expected a tracer and its memory, as in pci:/dev/merapi0,/dev/dax0.0, found 'pci:%s'",
                       window->path);
  char* const memory = strdup(comma + 1);
  if (memory == NULL) return merapi_fail(error, -ENOMEM, "out of memory");
  *comma = '\0';
  /* Who only looks leaves the tracer to its host. */
  int code = 0;
  if (!window->readonly) {
    window->connection = merapi_fd_above_stdio(open(window->path, O_RDWR | O_CLOEXEC));
    if (window->connection < 0) {
      code = errno;
      merapi_fail(error, -code, "expected a tracer at %s that is free, found: %s%s", window->path, strerror(code),
                  code == EBUSY ? "; another process has it open" : "");
    }
  }
  free(window->path);
  window->path = memory;
  return code != 0 ? -code : merapi_transport_dax.open(window, needed, flags, error);
}

/* Bounds come from the driver, never from the window; the memory must hold them. */
static int pci_size(struct merapi_window* window, uint64_t needed, uint32_t flags, struct merapi_error* error) {
  const int status = merapi_transport_dax.size(window, needed, flags, error);
  if (status < 0 || window->connection < 0) return status;
  struct merapi_tracer_info info;
  if (ioctl(window->connection, MERAPI_TRACER_INFO, &info) < 0)
    return merapi_fail(error, -errno, "expected a tracer's device before the comma of the name, found: %s",
                       strerror(errno));
  if (info.window_bytes == 0)
    return merapi_fail(error, -ENOTSUP,
                       "expected a tracer that is bounded to %s, found one that traces nothing yet; 'merapi provision' "
                       "bounds it, or window_offset and window_bytes of its PCI function in sysfs do",
                       window->path);
  if (info.window_bytes > window->bytes)
    return merapi_fail(error, -ENOTSUP,
                       "expected a tracer of at most the %" PRIu64 " bytes of %s, found one of %" PRIu64
                       " bytes from byte %" PRIu64 " of an expander on; 'merapi provision' bounds it to a window",
                       window->bytes, window->path, (uint64_t)info.window_bytes, (uint64_t)info.window_offset);
  window->bytes = info.window_bytes;
  return 0;
}

static int pci_connect(struct merapi_window* window, struct merapi_error* error) {
  struct merapi_tracer_info info;
  if (ioctl(window->connection, MERAPI_TRACER_INFO, &info) == 0) return 0;
  return merapi_fail(error, -ENODEV, "the tracer of %s is gone: %s", window->path, strerror(errno));
}

static bool pci_gone(struct merapi_window* window) {
  struct pollfd poller = {.fd = window->connection};
  return window->connection >= 0 && poll(&poller, 1, 0) > 0 && (poller.revents & (POLLHUP | POLLERR)) != 0;
}

/* Failures of both show as a device that does not answer, which is handled wherever one may be. */
static void pci_ring(struct merapi_window* window) { (void)ioctl(window->connection, MERAPI_TRACER_DOORBELL); }

static void pci_wait(struct merapi_window* window, uint32_t seen, uint64_t timeout_ns) {
  struct merapi_tracer_wait how = {.seen = seen, .nanoseconds = timeout_ns};
  if (ioctl(window->connection, MERAPI_TRACER_WAIT, &how) == 0 || errno == ETIMEDOUT || errno == EINTR) return;
  /* No interrupt to wait for: look again after a while. */
  uint32_t never = 0;
  merapi_futex_wait(&never, 0, timeout_ns < MERAPI_POLL_SLICE_MAX_NS ? timeout_ns : MERAPI_POLL_SLICE_MAX_NS);
}

const struct merapi_transport merapi_transport_pci = {
    .name = "pci",
    .open = pci_open,
    .size = pci_size,
    .connect = pci_connect,
    .gone = pci_gone,
    .silence = ", or bounded to another part of the expander, which 'merapi doctor' tells",
    .devdax = true,
    .ring = pci_ring,
    .wait = pci_wait,
};
