// SPDX-License-Identifier: Apache-2.0
//
// Per-region state of a cycle: the limit, which marks the sweep may still be left with, and which marks are the
// host's. The reasons are in tracer.h. A region that nothing touches costs nothing, and nothing here goes over all
// regions, or over a region of any size, in one piece: a host waits for a pause as long as the device's patience.
#ifndef MERAPI_SIM_MODEL_REGIONS_H_
#define MERAPI_SIM_MODEL_REGIONS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "sim/model/geometry.h"
#include "sim/model/lazy_table.h"

namespace merapi::sim {

// Mark bits of a piece of the bitmap that were set when its region was opened, by bitmap word relative to the piece's
// first. Stored sparse or dense, whichever is smaller: at most 1/64 of the heap's bytes.
class HostBits {
 public:
  void take(const uint64_t* words, uint64_t count, uint64_t last_mask);
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
  uint64_t limit = 0;  // heap offset; 0 while the region is unopened
  // A newly marked object at or above this is found by the sweep; ~0: by nobody. Nothing while the region is unopened.
  uint64_t leave_from = 0;
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
  Regions(uint8_t piece_log2, uint32_t pieces_at_once) : piece_log2_(piece_log2), pieces_at_once_(pieces_at_once) {}

  // A new cycle: everything unopened once clear_some() has said so, and nothing else is called before. The geometry
  // must outlive the cycle.
  void begin(const WindowMemory& memory, const Geometry* geometry, uint64_t* bitmap);
  bool clear_some();

  bool is_open(uint32_t region) const {
    return state_[region] != RegionState::kUnopened && state_[region] != RegionState::kCommanded;
  }
  // Read the region's limit and its bits, if these are not too many; `open` says whether that was done, now or before.
  // `state` is then kPlain or kPending.
  Fault open(uint32_t region, bool* open);
  // Likewise some of the bits of a large region. Of one such region at a time: until `open`.
  Fault open_some(uint32_t region, bool* open);
  // A TRACE_REGION was accepted for it.
  void command(uint32_t region);
  void swept(uint32_t region);
  // Read the limits of opened regions from `*next` on again (after a pause), some of them; `fell` becomes true if one
  // did. The first part is also that of a region which is being opened: with another limit that begins again.
  Fault refresh_some(uint32_t* next, bool* fell);
  // The same for one region.
  Fault refresh_one(uint32_t region, bool* fell);

  RegionEdge* edges() { return edges_.data(); }
  RegionState state(uint32_t region) const { return state_[region]; }
  // Whether the host had marked anything in an opened region.
  bool has_host_bits(uint32_t region) const;
  // The host's bits of a word of that region. Calls must come with ascending words after rewind_host().
  uint64_t host_word(uint32_t region, uint64_t word) {
    const uint64_t piece = first_piece(region) + (word >> piece_log2_);
    if (piece != piece_at_) look_up(piece);
    return piece_found_ != nullptr ? piece_found_->at(uint32_t(word & (piece_words() - 1))) : 0;
  }
  void rewind_host() { piece_at_ = ~uint64_t{0}; }
  void forget_host_bits(uint32_t region);
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
  const uint8_t piece_log2_;
  const uint32_t pieces_at_once_;
  WindowMemory memory_;
  const Geometry* geometry_ = nullptr;
  uint64_t* bitmap_ = nullptr;
  // Of a region with more pieces than are read at once.
  static constexpr uint64_t kPiecesOfAPart = 4;
  // A large region that is being opened: its limit, and the words that were read.
  struct Opening {
    uint32_t region = ~0u;
    uint64_t limit = 0, words = 0;
  };

  Fault open_part(Opening* opening, uint64_t most, bool* open);
  uint64_t piece_words() const { return uint64_t{1} << piece_log2_; }
  void look_up(uint64_t piece);
  uint64_t first_piece(uint32_t region) const { return uint64_t{region} << region_pieces_log2_; }

  LazyTable<RegionEdge> edges_;
  LazyTable<RegionState> state_;
  LazyTable<uint64_t> flags_;
  uint64_t flag_words_ = 0;
  uint64_t flagged_ = 0;
  std::map<uint64_t, HostBits> host_;  // by piece, those of a region behind each other; only what has bits
  uint8_t region_pieces_log2_ = 0;
  uint64_t piece_at_ = ~uint64_t{0};
  HostBits* piece_found_ = nullptr;
  Opening opening_;
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
