// SPDX-License-Identifier: Apache-2.0
//
// What BEGIN_CYCLE latches: configuration and directory, copied once, checked against each other and against the
// size of the lease. After a successful latch the window's copy is not looked at again.
#ifndef MERAPI_SIM_MODEL_GEOMETRY_H_
#define MERAPI_SIM_MODEL_GEOMETRY_H_

#include <cstdint>

#include "sim/model/window.h"

namespace merapi::sim {

struct Rings {
  merapi_submission* submission = nullptr;
  merapi_completion* completion = nullptr;
  uint64_t submission_entries = 0;
  uint64_t completion_entries = 0;
  merapi_area_desc submission_area{}, completion_area{};
};

struct Geometry {
  uint64_t heap_base = 0;
  uint64_t heap_bytes = 0;
  // heap offset of a narrow reference n: (n << shift) + delta (mod 2^64); of a wide one: n + delta.
  uint64_t delta = 0;
  uint8_t shift = 0;
  uint8_t oop_bytes = 4;
  uint8_t klass_bytes = 4;
  uint8_t alignment_log2 = 3;
  uint8_t region_log2 = 20;
  uint32_t region_count = 0;
  uint32_t mirror_size_offset = 0;

  const uint8_t* heap = nullptr;
  const uint64_t* limits = nullptr;
  uint64_t* live = nullptr;
  uint64_t* bitmap[2] = {nullptr, nullptr};
  const merapi_shape* shapes = nullptr;
  uint32_t shape_slots_log2 = 0;
  const uint8_t* extension = nullptr;
  uint64_t extension_bytes = 0;
  uint64_t* spill = nullptr;
  uint64_t spill_words = 0;

  uint64_t alignment_mask() const { return (uint64_t{1} << alignment_log2) - 1; }
  uint64_t region_bytes() const { return uint64_t{1} << region_log2; }
  // Bitmap words per region: a multiple of 8, since a region's marks fill whole lines.
  uint64_t region_words() const { return region_bytes() >> (alignment_log2 + 6); }
};

// Latch the ring areas (at a handshake). BAD_CONFIG names the directory field.
Fault latch_rings(const WindowMemory& memory, Rings* rings);

// Latch and check everything. `rings` are those of the handshake; their areas must not have moved. `coherence` is the
// mode that the device offers.
Fault latch_geometry(const WindowMemory& memory, const Rings& rings, uint8_t coherence, Geometry* geometry);

// Read and check one entry of the limit table: within its region (both ends included) and aligned.
Fault latch_limit(const WindowMemory& memory, const Geometry& geometry, uint32_t region, uint64_t* limit);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_GEOMETRY_H_
