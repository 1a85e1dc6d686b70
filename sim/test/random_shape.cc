// SPDX-License-Identifier: Apache-2.0
#include "sim/test/random_shape.h"

#include <algorithm>

namespace merapi::sim::test {
namespace {

// The largest window that every device takes.
constexpr uint8_t kWindowLog2 = 42;

}  // namespace

WindowShape random_shape(Random* r, bool large_spill) {
  WindowShape s;
  s.oop_bytes = r->percent(60) ? 4 : 8;
  s.klass_bytes = r->percent(60) ? 4 : 8;
  s.alignment_log2 = r->percent(50) ? 3 : uint8_t(r->between(3, 8));
  // The contract asks for regions whose marks fill whole lines.
  s.region_log2 = std::max(uint8_t(r->between(16, 18)), uint8_t(s.alignment_log2 + 9));
  s.regions = uint32_t(r->between(1, 20));
  s.mirror_size_offset = uint32_t(8 + s.klass_bytes + 4 * r->below(8));
  s.narrow_shift = r->percent(70) ? std::min<uint8_t>(s.alignment_log2, 5) : uint8_t(r->below(4));
  s.spill_bytes = r->percent(50) && !large_spill ? kSmallSpill : 1 << 20;
  if (r->percent(30)) {
    s.spread_log2 = uint8_t(r->between(32, kWindowLog2));
    s.spread_seed = r->next();
  }
  uint64_t step = uint64_t{1} << s.alignment_log2;
  switch (r->below(4)) {
    case 0:  // base 0, as HotSpot does when the heap lies low
      s.heap_base = (UINT64_C(0x10000000) + r->below(1000) * step) << (s.narrow_shift == 0 ? 0 : 1);
      break;
    case 1:  // base just below the heap
      s.heap_base = UINT64_C(0x7f0000000000) + r->below(1000) * 0x10000;
      s.narrow_base = s.heap_base - 0x1000;
      break;
    case 2: {  // anywhere in the address space
      uint64_t most = ~uint64_t{0} - (uint64_t{s.regions} << s.region_log2) - (uint64_t{1} << 47);
      s.heap_base = (r->next() % most + (UINT64_C(1) << 40)) & ~(step * 0x10000 - 1);
      s.narrow_base = s.heap_base - 0x1000;
      break;
    }
    default:  // base at the heap: its first object cannot be referenced by a narrow reference
      s.heap_base = UINT64_C(0x600000000) + r->below(1000) * 0x10000;
      s.narrow_base = s.heap_base;
  }
  return s;
}

}  // namespace merapi::sim::test
