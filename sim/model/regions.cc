// SPDX-License-Identifier: Apache-2.0
#include "sim/model/regions.h"

#include <new>

namespace merapi::sim {

void HostBits::take(const uint64_t* words, uint64_t count, uint64_t last_mask) {
  clear();
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

void HostBits::clear() {
  index_ = {};
  bits_ = {};
  dense_ = {};
  cursor_ = 0;
  population_ = 0;
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
  uint32_t count = geometry->region_count;
  edges_.assign(count + 1, RegionEdge{0, ~uint64_t{0}});
  state_.assign(count, RegionState::kUnopened);
  host_.clear();
  chunk_shift_ = uint8_t(geometry->alignment_log2 + 6 + 6);
  uint64_t chunks = (geometry->heap_bytes >> chunk_shift_) + 1;
  if (flag_words_ != (chunks + 63) / 64 || flagged_ != 0) {
    flag_words_ = (chunks + 63) / 64;
    flags_.reset(static_cast<uint64_t*>(std::calloc(flag_words_, sizeof(uint64_t))));
    if (flags_ == nullptr) throw std::bad_alloc();
    flagged_ = 0;
  }
  host_population_ = 0;
  next_flag_word_ = 0;
}

Fault Regions::open(uint32_t region) {
  RegionState& state = state_[region];
  if (state != RegionState::kUnopened && state != RegionState::kCommanded) return {};
  uint64_t limit;
  if (Fault f = latch_limit(memory_, *geometry_, region, &limit)) return f;
  WordSpan span = words_of(*geometry_, start(region), limit);
  if (span.count != 0) {
    HostBits& host = host_[region];
    host.take(bitmap_ + span.first, span.count, span.last_mask);
    host_population_ += host.population();
  }
  lines_read_ += lines_of_words(span.first, span.first + span.count);
  edges_[region].limit = limit;
  if (state == RegionState::kCommanded) {
    edges_[region].leave_from = start(region);
    state = RegionState::kPending;
  } else {
    state = RegionState::kPlain;
  }
  return {};
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
  if (state_[region] == RegionState::kUnopened || state_[region] == RegionState::kCommanded) return {};
  uint64_t limit;
  if (Fault f = latch_limit(memory_, *geometry_, region, &limit)) return f;
  if (limit < edges_[region].limit) *fell = true;
  edges_[region].limit = limit;
  return {};
}

Fault Regions::refresh(bool* fell) {
  *fell = false;
  for (uint32_t r = 0; r < geometry_->region_count; r++) {
    if (Fault f = refresh_one(r, fell)) return f;
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
