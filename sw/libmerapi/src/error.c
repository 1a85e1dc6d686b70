/* SPDX-License-Identifier: Apache-2.0
 *
 * Versions, names and error messages.
 */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

int merapi_abi(void) { return MERAPI_ABI; }

const char* merapi_version(void) { return MERAPI_LIBRARY_VERSION; }

const char* merapi_fault_name(uint32_t code) {
  static const char* const names[] = {
      [MERAPI_FAULT_NONE] = "none",
      [MERAPI_FAULT_BAD_MAGIC] = "bad magic",
      [MERAPI_FAULT_BAD_VERSION] = "bad version",
      [MERAPI_FAULT_BAD_CONFIG] = "bad configuration",
      [MERAPI_FAULT_BAD_COMMAND] = "bad command",
      [MERAPI_FAULT_BAD_SEQUENCE] = "bad sequence",
      [MERAPI_FAULT_RING_OVERRUN] = "ring overrun",
      [MERAPI_FAULT_BAD_REFERENCE] = "bad reference",
      [MERAPI_FAULT_BAD_OBJECT] = "bad object",
      [MERAPI_FAULT_BAD_SHAPE] = "bad shape",
      [MERAPI_FAULT_MEMORY] = "memory error",
      [MERAPI_FAULT_GUARD] = "write outside the device's areas",
      [MERAPI_FAULT_TRUNCATED] = "window truncated",
      [MERAPI_FAULT_INTERNAL] = "internal",
  };
  if (code >= sizeof names / sizeof names[0]) return "unknown";
  return names[code];
}

const char* merapi_kind_name(uint32_t kind) {
  static const char* const names[] = {
      [MERAPI_DEVICE_KIND_NONE] = "none",
      [MERAPI_DEVICE_KIND_MODEL] = "model",
      [MERAPI_DEVICE_KIND_RTL] = "rtl",
      [MERAPI_DEVICE_KIND_BOARD] = "board",
  };
  if (kind >= sizeof names / sizeof names[0]) return "unknown";
  return names[kind];
}

int merapi_fail(struct merapi_error* error, int code, const char* format, ...) {
  if (error != NULL) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
  }
  return code;
}
