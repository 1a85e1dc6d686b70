// SPDX-License-Identifier: Apache-2.0
#include "sim/model/regions.h"

#include <algorithm>
#include <utility>

namespace merapi::sim {

void HostBits::take(const uint64_t* words, uint64_t count, uint64_t last_mask) {
  auto word = [&](uint64_t i) { return i + 1 == count ? words[i] & last_mask : words[i]; };
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint64_t any = words[i] | words[i + 1] | words[i + 2] | words[i + 3] | words[i + 4] | words[i + 5] | words[i + 6] |
                   words[i + 7];
    if (any == 0) continue;
    for (uint64_t j = i; j < i + 8; j++) {
      if (uint64_t w = word(j)) {
        index_.push_back(uint32_t(j));
        bits_.push_back(w);
      }
    }
  }
  for (; i < count; i++) {
    if (uint64_t w = word(i)) {
      index_.push_back(uint32_t(i));
      bits_.push_back(w);
    }
  }
  for (uint64_t w : bits_) population_ += uint64_t(__builtin_popcountll(w));
  if (index_.size() * 12 > count * 8) {
    dense_.assign(count, 0);
    for (size_t k = 0; k < index_.size(); k++) dense_[index_[k]] = bits_[k];
    index_ = {};
    bits_ = {};
  }
}

WordSpan words_of(const Geometry& g, uint64_t start, uint64_t limit) {
  WordSpan span;
  int shift = g.alignment_log2 + 6;
  span.first = start >> shift;
  if (limit <= start) return span;
  uint64_t last_bit = ((limit - 1) >> g.alignment_log2) & 63;
  span.count = ((limit - 1) >> shift) - span.first + 1;
  span.last_mask = last_bit == 63 ? ~uint64_t{0} : (uint64_t{1} << (last_bit + 1)) - 1;
  return span;
}

void Regions::begin(const WindowMemory& memory, const Geometry* geometry, uint64_t* bitmap) {
  memory_ = memory;
  geometry_ = geometry;
  bitmap_ = bitmap;
  edges_.begin(uint64_t{geometry->region_count} + 1);
  state_.begin(geometry->region_count);
  chunk_shift_ = uint8_t(geometry->alignment_log2 + 6 + 6);
  flag_words_ = ((geometry->heap_bytes >> chunk_shift_) + 1 + 63) / 64;
  flags_.begin(flag_words_);
  region_pieces_log2_ = 0;
  while (piece_words() << region_pieces_log2_ < geometry->region_words()) region_pieces_log2_++;
  rewind_host();
  opening_ = {};
  flagged_ = 0;
  host_population_ = 0;
  next_flag_word_ = 0;
}

bool Regions::clear_some() {
  constexpr int kPieces = 1024;
  for (int i = 0; i < kPieces && !host_.empty(); i++) host_.erase(host_.begin());
  return host_.empty() && edges_.clear_some() && state_.clear_some() && flags_.clear_some();
}

Fault Regions::open(uint32_t region, bool* open) {
  *open = is_open(region);
  if (*open) return {};
  Opening opening{region, 0, 0};
  if (Fault f = latch_limit(memory_, *geometry_, region, &opening.limit)) return f;
  if (words_of(*geometry_, start(region), opening.limit).count > pieces_at_once_ * piece_words()) return {};
  return open_part(&opening, pieces_at_once_ * piece_words(), open);
}

Fault Regions::open_some(uint32_t region, bool* open) {
  *open = is_open(region);
  if (*open) return {};
  if (opening_.region != region) {
    Opening opening{region, 0, 0};
    if (Fault f = latch_limit(memory_, *geometry_, region, &opening.limit)) return f;
    opening_ = opening;
  }
  if (Fault f = open_part(&opening_, kPiecesOfAPart * piece_words(), open)) return f;
  if (*open) opening_ = {};
  return {};
}

Fault Regions::open_part(Opening* opening, uint64_t most, bool* open) {
  const uint32_t region = opening->region;
  const WordSpan span = words_of(*geometry_, start(region), opening->limit);
  const uint64_t end = std::min(span.count, opening->words + most);
  lines_read_ += lines_of_words(span.first + opening->words, span.first + end);
  for (uint64_t at = opening->words; at < end; at += piece_words()) {
    const uint64_t count = std::min(piece_words(), end - at);
    HostBits bits;
    bits.take(bitmap_ + span.first + at, count, at + count == span.count ? span.last_mask : ~uint64_t{0});
    if (bits.population() == 0) continue;
    host_population_ += bits.population();
    host_.emplace(first_piece(region) + (at >> piece_log2_), std::move(bits));
  }
  opening->words = end;
  *open = end == span.count;
  if (!*open) return {};
  RegionState& state = state_[region];
  const bool commanded = state == RegionState::kCommanded;
  edges_[region] = {opening->limit, commanded ? start(region) : ~uint64_t{0}};
  state = commanded ? RegionState::kPending : RegionState::kPlain;
  return {};
}

bool Regions::has_host_bits(uint32_t region) const {
  auto piece = host_.lower_bound(first_piece(region));
  return piece != host_.end() && piece->first < first_piece(region) + (uint64_t{1} << region_pieces_log2_);
}

void Regions::forget_host_bits(uint32_t region) {
  const uint64_t first = first_piece(region);
  host_.erase(host_.lower_bound(first), host_.lower_bound(first + (uint64_t{1} << region_pieces_log2_)));
  rewind_host();
}

void Regions::look_up(uint64_t piece) {
  piece_at_ = piece;
  auto found = host_.find(piece);
  piece_found_ = found != host_.end() ? &found->second : nullptr;
  if (piece_found_ != nullptr) piece_found_->rewind();
}

void Regions::command(uint32_t region) {
  RegionState& state = state_[region];
  if (state == RegionState::kUnopened) state = RegionState::kCommanded;
  if (state == RegionState::kPlain) state = RegionState::kHostOnly;
}

void Regions::swept(uint32_t region) {
  state_[region] = RegionState::kSwept;
  edges_[region].leave_from = ~uint64_t{0};
}

Fault Regions::refresh_one(uint32_t region, bool* fell) {
  if (!is_open(region)) return {};
  uint64_t limit;
  if (Fault f = latch_limit(memory_, *geometry_, region, &limit)) return f;
  if (limit < edges_[region].limit) *fell = true;
  edges_[region].limit = limit;
  return {};
}

Fault Regions::refresh_some(uint32_t* next, bool* fell) {
  constexpr uint32_t kRegions = 16384;
  if (*next == 0 && opening_.region != ~0u) {
    uint64_t limit;
    if (Fault f = latch_limit(memory_, *geometry_, opening_.region, &limit)) return f;
    if (limit != opening_.limit) {
      // Its bits may have gone with it; the host clears none of another region.
      const uint64_t first = first_piece(opening_.region);
      const uint64_t end = first + (uint64_t{1} << region_pieces_log2_);
      for (auto i = host_.lower_bound(first); i != host_.end() && i->first < end; i++) {
        host_population_ -= i->second.population();
      }
      forget_host_bits(opening_.region);
      opening_ = {};
    }
  }
  const uint32_t end = *next + std::min(kRegions, geometry_->region_count - *next);
  for (; *next != end; ++*next) {
    if (Fault f = refresh_one(*next, fell)) return f;
  }
  return {};
}

void Regions::take_chunk(uint64_t* offset, uint64_t* bytes) {
  while (flags_[next_flag_word_] == 0) next_flag_word_ = (next_flag_word_ + 1) % flag_words_;
  uint64_t word = flags_[next_flag_word_];
  uint64_t chunk = next_flag_word_ * 64 + uint64_t(__builtin_ctzll(word));
  flags_[next_flag_word_] = word & (word - 1);
  flagged_--;
  *offset = chunk << chunk_shift_;
  *bytes = uint64_t{1} << chunk_shift_;
}

}  // namespace merapi::sim
