/* SPDX-License-Identifier: Apache-2.0
 *
 * A saved window as a file. The header holds counts only; where the sections are follows from them, so there is no
 * offset that could lie:
 *
 *   header        128 bytes
 *   extents       extent_count   x {u64 window offset, u64 pages}   ascending, apart, the first at offset 0
 *   keys          answer_count   x u64     sorted by (is_klass, key)
 *   firsts        answer_count+1 x u64     indexes into the references; starts with 0, ends with reference_count
 *   references    reference_count x u64
 *   is_klass      answer_count   x u8
 *   text          text_bytes, the last of them zero
 *   (zeros up to a multiple of 4096)
 *   payload       the extents' pages in order
 */
#ifndef MERAPI_IMAGE_H
#define MERAPI_IMAGE_H

#include <sys/types.h>

#include "internal.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "windows and images are little-endian"
#endif

#define MERAPI_IMAGE_MAGIC UINT64_C(0x474D49504152454D) /* "MERAPIMG" */
#define MERAPI_IMAGE_VERSION 1u
#define MERAPI_IMAGE_PAGE UINT64_C(4096)
/* Of a window so much is mapped at a time, and of that so much copied. */
#define MERAPI_IMAGE_MAPPED (UINT64_C(64) << 20)
#define MERAPI_IMAGE_COPIED (UINT64_C(1) << 20)

struct merapi_image_header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t window_bytes; /* of the saved layout: a multiple of MERAPI_MAPPED_ALIGNMENT */
  uint64_t extent_count;
  uint64_t page_count; /* sum of the extents' pages */
  uint64_t answer_count;
  uint64_t reference_count;
  uint64_t text_bytes;
  uint32_t bitmap;
  uint32_t reserved0;
  uint64_t tables_checksum;  /* of everything between header and payload */
  uint64_t payload_checksum; /* of the payload */
  uint64_t reserved1[4];
  uint64_t header_checksum; /* of the bytes before it */
};
_Static_assert(sizeof(struct merapi_image_header) == 128, "image header");
_Static_assert(offsetof(struct merapi_image_header, header_checksum) == 120, "image header");

struct merapi_image_extent {
  uint64_t offset; /* in the window, a multiple of 4096 */
  uint64_t pages;
};

/* Where the sections are in the file. */
struct merapi_image_sections {
  uint64_t extents, keys, firsts, references, is_klass, text, payload, end;
};
/* False when the counts are absurd (a section beyond 2^56). */
bool merapi_image_place(const struct merapi_image_header* header, struct merapi_image_sections* sections);

/* Checksum of a byte stream in pieces: FNV-1a over little-endian 64-bit words, eight lanes (word i goes to lane i mod
 * 8), the last word padded with zeros; the result is the FNV-1a over the lanes and the length. Finds damage, not
 * malice.
 */
struct merapi_checksum {
  uint64_t lane[8];
  uint64_t bytes;
};
void merapi_checksum_start(struct merapi_checksum* sum);
/* All pieces but the last must be multiples of 64 bytes. */
void merapi_checksum_add(struct merapi_checksum* sum, const void* data, size_t bytes);
uint64_t merapi_checksum_end(const struct merapi_checksum* sum);
uint64_t merapi_checksum_of(const void* data, size_t bytes);

/* The text that an image has while it is rewritten, and room behind it. */
#define MERAPI_IMAGE_NO_TEXT "{}"
/* The sum of the tables of a mapped file with `json` as their text, whatever text stands there: blanks behind it, which
 * are nothing in JSON, and a zero. It is shorter than header->text_bytes. */
uint64_t merapi_image_sum_with(const uint8_t* file, const struct merapi_image_header* header,
                               const struct merapi_image_sections* sections, const char* json);

/* A fuzzer cannot guess checksums; everything behind them must hold without. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
#define MERAPI_CHECKSUMS_COUNT false
#else
#define MERAPI_CHECKSUMS_COUNT true
#endif

struct merapi_image {
  const uint8_t* file; /* mapped read-only, for the payload: somebody may write it meanwhile */
  uint64_t file_bytes;
  dev_t device; /* with inode: which file it is, whatever its name names later */
  ino_t inode;
  uint8_t* own; /* copy of the file up to the end of the control page, the payload's first: what was checked is used */
  char* path;
  struct merapi_image_header header;
  struct merapi_image_sections sections;
  bool payload_good; /* its checksum was looked at */
  const char* text;  /* in the file, or MERAPI_IMAGE_NO_TEXT: its writer was interrupted */
  struct merapi_answers answers;
  struct merapi_layout layout;
  struct merapi_config config;
};

#endif /* MERAPI_IMAGE_H */
