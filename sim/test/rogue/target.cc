// SPDX-License-Identifier: Apache-2.0
#include "sim/test/rogue/target.h"

#include <cstring>
#include <unordered_set>

namespace merapi::rogue {

bool Target::look() {
  return !sim::latch_rings(memory_, &rings_) &&
         !sim::latch_geometry(memory_, rings_, MERAPI_COHERENCE_COHERENT, &geometry_);
}

// The newest BEGIN_CYCLE in the submission ring names it.
uint32_t Target::bitmap() const {
  uint64_t consumed = sim::load(control.index->submission_consumed);
  uint64_t oldest = consumed > rings_.submission_entries ? consumed - rings_.submission_entries : 0;
  for (uint64_t i = consumed; i > oldest; i--) {
    const merapi_submission& entry = rings_.submission[(i - 1) & (rings_.submission_entries - 1)];
    if (entry.opcode == MERAPI_OP_BEGIN_CYCLE) return entry.arg & 1;
  }
  return 0;
}

merapi_completion Target::harmless() const { return entry(MERAPI_COMP_DONE, 0); }

merapi_completion Target::entry(uint8_t type, uint64_t value) const {
  merapi_completion made{};
  made.type = type;
  made.count = type == MERAPI_COMP_DONE || type == MERAPI_COMP_FAULT ? 0 : 1;
  made.payload[0] = value;
  made.cycle = cycle;
  return made;
}

void Target::write(uint64_t index, merapi_completion entry, uint32_t sequence) {
  entry.sequence = sequence;
  std::memcpy(&rings_.completion[index & (rings_.completion_entries - 1)], &entry, sizeof entry);
}

void Target::push(const merapi_completion& entry) {
  uint64_t at = produced();
  write(at, entry, static_cast<uint32_t>(at + 1));
  publish(at + 1);
}

void Target::publish(uint64_t produced) {
  sim::store(control.index->completion_produced, produced);
  notify();
}

void Target::chat() {
  uint64_t at = produced();
  uint64_t end = at + room() - 1;
  if (at == end) return;
  for (; at != end; at++) write(at, harmless(), static_cast<uint32_t>(at + 1));
  publish(end);
}

uint64_t Target::find_unmarked(const std::function<bool(uint64_t offset)>& wanted) const {
  const uint64_t* bits = geometry_.bitmap[bitmap()];
  for (uint32_t region = 0; region < geometry_.region_count; region++) {
    uint64_t start = uint64_t{region} << geometry_.region_log2;
    for (uint64_t at = start; at < sim::load(geometry_.limits[region]); at += geometry_.alignment_mask() + 1) {
      uint64_t bit = at >> geometry_.alignment_log2;
      if ((sim::load(bits[bit >> 6]) >> (bit & 63) & 1) == 0 && wanted(at)) return geometry_.heap_base + at;
    }
  }
  return 0;
}

uint64_t Target::unmarked() const {
  return find_unmarked([](uint64_t) { return true; });
}

uint64_t Target::inside(uint32_t beyond) const {
  std::unordered_set<uint32_t> shapes;
  for (uint64_t i = 0; i < uint64_t{1} << geometry_.shape_slots_log2; i++) {
    shapes.insert(static_cast<uint32_t>(sim::load(geometry_.shapes[i].klass_word)));
  }
  shapes.erase(0);
  const uint64_t step = geometry_.alignment_mask() + 1;
  auto klass_word = [this](uint64_t offset) {
    uint32_t word;
    std::memcpy(&word, geometry_.heap + offset + 8, sizeof word);
    return word;
  };
  return find_unmarked([&](uint64_t at) {
    if (at < step || at + 2 * step > geometry_.heap_bytes) return false;
    const uint32_t word = klass_word(at);
    return shapes.count(word - beyond) != 0 && klass_word(at - step) == word && klass_word(at + step) == word;
  });
}

void Target::mark(uint64_t address) {
  if (address == 0) return;
  const uint64_t bit = (address - geometry_.heap_base) >> geometry_.alignment_log2;
  uint64_t& word = geometry_.bitmap[bitmap()][bit >> 6];
  sim::store(word, sim::load(word) | uint64_t{1} << (bit & 63));
}

void Target::claim_idle(uint64_t consumed, uint64_t produced) {
  sim::store(control.idle->idle, 0u);
  sim::store(control.idle->consumed, consumed);
  sim::store(control.idle->produced, produced);
  sim::store(*reinterpret_cast<uint64_t*>(control.idle), uint64_t{cycle} | uint64_t{1} << 32);
  notify();
}

}  // namespace merapi::rogue
