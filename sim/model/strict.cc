// SPDX-License-Identifier: Apache-2.0
//
// Strict mode at idle: what the contract's invariants say of bitmap, live table and counters when nothing is held.
// The closure itself cannot be checked here, since mutators change fields meanwhile; that is the tests' part.
#include "sim/model/tracer.h"

namespace merapi::sim {

Fault Tracer::check_idle() {
  auto internal = [](uint64_t at, uint64_t which) { return Fault{MERAPI_FAULT_INTERNAL, at, which}; };
  if (busy()) return internal(0, kIdleHolds);
  const Hot& h = hot_;
  if (h.references + slow_.submitted != h.nulls + slow_.outside + slow_.above + h.tested) {
    return internal(h.references, kReferenceBalance);
  }
  uint64_t bits = 0, live = 0;
  for (uint32_t r = 0; r < geometry_.region_count; r++) {
    live += load(geometry_.live[r]);
    RegionState state = regions_.state(r);
    if (state == RegionState::kUnopened || state == RegionState::kCommanded) continue;
    uint64_t start = regions_.start(r), limit = regions_.limit(r);
    // Free regions belong to the host: their bitmap lines are not read.
    if (limit == start) continue;
    WordSpan below = words_of(geometry_, start, limit);
    WordSpan all = words_of(geometry_, start, start + geometry_.region_bytes());
    for (uint64_t i = 0; i < all.count; i++) {
      uint64_t word = bitmap_[all.first + i];
      uint64_t allowed = i + 1 < below.count ? ~uint64_t{0} : i + 1 == below.count ? below.last_mask : 0;
      if ((word & ~allowed) != 0) {
        return internal(address((all.first + i) << (geometry_.alignment_log2 + 6)), kMarkedAboveLimit);
      }
      bits += uint64_t(__builtin_popcountll(word));
    }
  }
  // A host that reclaimed regions in a pause took marks and live words with them.
  if (slow_.limits_fell != 0) return {};
  if (bits != regions_.host_population() + h.marked) return internal(bits, kMarkBalance);
  if (live != h.live_words) return internal(live, kLiveBalance);
  return {};
}

}  // namespace merapi::sim
