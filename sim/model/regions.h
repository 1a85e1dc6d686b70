// SPDX-License-Identifier: Apache-2.0
//
// Per-region state of a cycle: the limit, which marks the sweep may still be left with, and which marks are the
// host's. The reasons are in tracer.h. Of a heap that is reserved and not in use a region costs some bytes and its
// chunks none: a cycle begins within the time that a host waits for a sign of life.
#ifndef MERAPI_SIM_MODEL_REGIONS_H_
#define MERAPI_SIM_MODEL_REGIONS_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/model/geometry.h"

namespace merapi::sim {

// Mark bits that were set when a region was opened, by bitmap word relative to the region's first. Stored sparse or
// dense, whichever is smaller: at most 1/64 of the region's bytes.
class HostBits {
 public:
  void take(const uint64_t* words, uint64_t count, uint64_t last_mask);
  void clear();
  // Bits of `word`. Calls must come with ascending words after rewind().
  uint64_t at(uint32_t word) {
    if (!dense_.empty()) return word < dense_.size() ? dense_[word] : 0;
    while (cursor_ < index_.size() && index_[cursor_] < word) cursor_++;
    return cursor_ < index_.size() && index_[cursor_] == word ? bits_[cursor_] : 0;
  }
  void rewind() { cursor_ = 0; }
  uint64_t population() const { return population_; }

 private:
  std::vector<uint32_t> index_;
  std::vector<uint64_t> bits_;
  std::vector<uint64_t> dense_;
  size_t cursor_ = 0;
  uint64_t population_ = 0;
};

// What the loop reads for every reference; one more entry than regions, with limit 0, for references outside.
struct RegionEdge {
  uint64_t limit = 0;       // heap offset; 0 while the region is unopened
  uint64_t leave_from = 0;  // a newly marked object at or above this is found by the sweep; ~0: by nobody
};

enum class RegionState : uint8_t {
  kUnopened,   // nothing marked here by the device, bitmap not read
  kCommanded,  // unopened, and a TRACE_REGION for it waits
  kPlain,      // opened without a command: new marks are pushed
  kPending,    // opened under a command: new marks are left for the sweep
  kHostOnly,   // opened first, commanded later: the sweep looks at the host's bits alone
  kSwept,      // every grey of the host was found
};

class Regions {
 public:
  // A new cycle: everything unopened. The geometry must outlive the cycle.
  void begin(const WindowMemory& memory, const Geometry* geometry, uint64_t* bitmap);

  // Read the region's limit and its bits, unless that was done. `state` becomes kPlain or kPending.
  Fault open(uint32_t region);
  // A TRACE_REGION was accepted for it.
  void command(uint32_t region);
  void swept(uint32_t region);
  // Read the limits of opened regions again (after a pause); `fell` says whether one did.
  Fault refresh(bool* fell);
  // The same for one region.
  Fault refresh_one(uint32_t region, bool* fell);

  RegionEdge* edges() { return edges_.data(); }
  RegionState state(uint32_t region) const { return state_[region]; }
  HostBits& host_bits(uint32_t region) { return host_[region]; }
  uint64_t start(uint32_t region) const { return uint64_t{region} << geometry_->region_log2; }
  uint64_t limit(uint32_t region) const { return edges_[region].limit; }

  // Chunks: what is swept again when greys had to be dropped. 64 bitmap words each.
  void flag_chunk(uint64_t offset) {
    uint64_t chunk = offset >> chunk_shift_;
    uint64_t bit = uint64_t{1} << (chunk & 63);
    if ((flags_[chunk >> 6] & bit) == 0) {
      flags_[chunk >> 6] |= bit;
      flagged_++;
    }
  }
  uint64_t flagged() const { return flagged_; }
  // Bits of the host in all opened regions.
  uint64_t host_population() const { return host_population_; }
  // Lines of the bitmap read by opening regions.
  uint64_t lines_read() const { return lines_read_; }
  void forget_counts() { lines_read_ = 0; }
  // Take any flagged chunk: its first heap offset and its length in bytes. Only when flagged() != 0.
  void take_chunk(uint64_t* offset, uint64_t* bytes);

 private:
  WindowMemory memory_;
  const Geometry* geometry_ = nullptr;
  uint64_t* bitmap_ = nullptr;
  std::vector<RegionEdge> edges_;
  std::vector<RegionState> state_;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::unordered_map<uint32_t, HostBits> host_;  // of opened regions
  std::unique_ptr<uint64_t[], Free> flags_;      // untouched pages cost nothing
  uint64_t flag_words_ = 0;
  uint64_t flagged_ = 0;
  uint64_t host_population_ = 0;
  uint64_t lines_read_ = 0;
  size_t next_flag_word_ = 0;
  uint8_t chunk_shift_ = 0;
};

// Words that cover [start, limit) of a region and the mask of the last one. 0 words when empty.
struct WordSpan {
  uint64_t first = 0;  // index in the bitmap
  uint64_t count = 0;
  uint64_t last_mask = 0;
};
WordSpan words_of(const Geometry& geometry, uint64_t start, uint64_t limit);

// Lines that words [first, end) of a bitmap touch.
inline uint64_t lines_of_words(uint64_t first, uint64_t end) {
  constexpr uint64_t kLineWords = MERAPI_LINE_BYTES / sizeof(uint64_t);
  return end > first ? (end - 1) / kLineWords - first / kLineWords + 1 : 0;
}

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_REGIONS_H_
