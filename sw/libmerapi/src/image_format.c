/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement and checksums of an image file, for writer and reader alike.
 */
#include <string.h>

#include "image.h"

#define SECTION_MAX (UINT64_C(1) << 56)
#define FNV_BASIS UINT64_C(0xCBF29CE484222325)
#define FNV_PRIME UINT64_C(0x100000001B3)

/* Advance *at by count entries; false when that is absurd. */
static bool section(uint64_t* at, uint64_t* start, uint64_t count, uint64_t entry) {
  *start = *at;
  if (count > SECTION_MAX / entry || *at > SECTION_MAX) return false;
  *at += count * entry;
  return true;
}

bool merapi_image_place(const struct merapi_image_header* header, struct merapi_image_sections* s) {
  uint64_t at = sizeof *header;
  if (header->answer_count >= SECTION_MAX) return false;
  if (!section(&at, &s->extents, header->extent_count, sizeof(struct merapi_image_extent)) ||
      !section(&at, &s->keys, header->answer_count, 8) || !section(&at, &s->firsts, header->answer_count + 1, 8) ||
      !section(&at, &s->references, header->reference_count, 8) ||
      !section(&at, &s->is_klass, header->answer_count, 1) || !section(&at, &s->text, header->text_bytes, 1))
    return false;
  at = merapi_round_up(at, MERAPI_IMAGE_PAGE);
  if (!section(&at, &s->payload, header->page_count, MERAPI_IMAGE_PAGE)) return false;
  s->end = at;
  return true;
}

void merapi_checksum_start(struct merapi_checksum* sum) {
  for (int i = 0; i < 8; i++) sum->lane[i] = FNV_BASIS;
  sum->bytes = 0;
}

void merapi_checksum_add(struct merapi_checksum* sum, const void* data, size_t bytes) {
  const uint8_t* from = data;
  uint64_t word[8];
  sum->bytes += bytes;
  for (; bytes >= sizeof word; bytes -= sizeof word, from += sizeof word) {
    memcpy(word, from, sizeof word);
    for (int i = 0; i < 8; i++) sum->lane[i] = (sum->lane[i] ^ word[i]) * FNV_PRIME;
  }
  if (bytes == 0) return;
  memset(word, 0, sizeof word);
  memcpy(word, from, bytes);
  for (size_t i = 0; i < (bytes + 7) / 8; i++) sum->lane[i] = (sum->lane[i] ^ word[i]) * FNV_PRIME;
}

uint64_t merapi_checksum_end(const struct merapi_checksum* sum) {
  uint64_t result = FNV_BASIS;
  for (int i = 0; i < 8; i++) result = (result ^ sum->lane[i]) * FNV_PRIME;
  return (result ^ sum->bytes) * FNV_PRIME;
}

uint64_t merapi_checksum_of(const void* data, size_t bytes) {
  struct merapi_checksum sum;
  merapi_checksum_start(&sum);
  merapi_checksum_add(&sum, data, bytes);
  return merapi_checksum_end(&sum);
}

uint64_t merapi_image_sum_with(const uint8_t* file, const struct merapi_image_header* header,
                               const struct merapi_image_sections* s, const char* json) {
  enum { kPiece = 64 };
  const uint64_t end = s->text + header->text_bytes, length = strlen(json);
  struct merapi_checksum sum;
  merapi_checksum_start(&sum);
  for (uint64_t at = sizeof *header, next; at < s->payload; at = next) {
    next = s->payload - at < kPiece ? s->payload : at + kPiece;
    uint8_t piece[kPiece];
    memcpy(piece, file + at, next - at);
    for (uint64_t i = at < s->text ? s->text : at; i < next && i < end; i++)
      piece[i - at] = i - s->text < length ? (uint8_t)json[i - s->text] : i + 1 < end ? ' ' : 0;
    merapi_checksum_add(&sum, piece, next - at);
  }
  return merapi_checksum_end(&sum);
}
