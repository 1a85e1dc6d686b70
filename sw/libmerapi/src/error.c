/* SPDX-License-Identifier: Apache-2.0
 *
 * Versions, names and error messages.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* Does the byte go on with a character (UTF-8)? There are at most three such in one. */
static bool goes_on(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* The place of the character that the byte at `at` is of. */
static size_t character_at(const char* text, size_t at) {
  for (int i = 0; i < 3 && at > 0 && goes_on(text[at]); i++) at--;
  return at;
}

/* Makes the text at most `most` bytes long. What is long in a message is a path, which may be in it twice; what was
 * found and what to do stand behind it. So the longest words lose their middle. */
static void shorten(char* text, size_t most) {
  static const char kLeftOut[] = "...";
  enum { WORD_LEAST = 64, LEFT_OUT = sizeof kLeftOut - 1 };
  for (size_t length = strlen(text); length > most; length = strlen(text)) {
    size_t word = 0, bytes = 0;
    for (size_t at = 0; at < length;) {
      const size_t here = strcspn(text + at, " ");
      if (here > bytes) word = at, bytes = here;
      at += here + strspn(text + at + here, " ");
    }
    if (bytes <= WORD_LEAST) {
      text[character_at(text, most)] = '\0';
      return;
    }
    const size_t fitting = length - most < bytes ? bytes - (length - most) : 0;
    const size_t kept = (fitting > WORD_LEAST ? fitting : WORD_LEAST) - LEFT_OUT;
    const size_t head = character_at(text, word + kept / 2);
    size_t tail = word + bytes - kept / 2;
    for (int i = 0; i < 3 && goes_on(text[tail]); i++) tail++;
    memmove(text + head + LEFT_OUT, text + tail, length - tail + 1);
    memcpy(text + head, kLeftOut, LEFT_OUT);
  }
}

int merapi_fail(struct merapi_error* error, int code, const char* format, ...) {
  if (error != NULL) {
    char text[2 * PATH_MAX + sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    shorten(text, sizeof error->message - 1);
    memcpy(error->message, text, strlen(text) + 1);
  }
  return code;
}
