// SPDX-License-Identifier: Apache-2.0
#include "sim/model/completions.h"

#include <cstddef>

namespace merapi::sim {

void Completions::reset(const Rings& rings) {
  ring_ = rings.completion;
  entries_ = rings.completion_entries;
  produced_ = 0;
  consumed_ = 0;
  news_ = false;
  drop();
  begin(0);
}

void Completions::begin(uint32_t cycle) {
  flush();
  cycle_ = cycle;
  forget_counts();
}

void Completions::drop() {
  for (Batch& b : batch_) b.count = 0;
  waiting_.clear();
  waiting_at_ = 0;
}

void Completions::seal(Batch& batch) {
  merapi_completion entry{};
  bool seen = &batch == &batch_[kSeen];
  entry.type = seen ? MERAPI_COMP_SHAPE_SEEN : MERAPI_COMP_DEFER;
  entry.flags = &batch == &batch_[kUnsized] ? 1u << MERAPI_DEFER_FLAG_UNSIZED : 0;
  entry.count = uint16_t(batch.count);
  entry.cycle = cycle_;
  for (uint32_t i = 0; i < batch.count; i++) entry.payload[i] = batch.payload[i];
  batch.count = 0;
  if (twice_ && !seen) waiting_.push_back(entry);
  waiting_.push_back(entry);
}

bool Completions::flush() {
  bool any = partial();
  // A klass goes before the objects that showed it: its holder is then visited first.
  for (int kind : {kSeen, kDefer, kUnsized}) {
    if (batch_[kind].count != 0) seal(batch_[kind]);
  }
  return any;
}

void Completions::post(merapi_completion entry) {
  flush();
  waiting_.push_back(entry);
}

Fault Completions::look() {
  uint64_t consumed = load(control_.host->completion_consumed);
  if (consumed < consumed_ || consumed > produced_) return {MERAPI_FAULT_RING_OVERRUN, consumed, produced_};
  consumed_ = consumed;
  return {};
}

Fault Completions::drain() {
  if (!full()) return {};
  if (Fault f = look()) return f;
  bool wrote = false;
  while (waiting_at_ != waiting_.size() && produced_ - consumed_ < entries_) {
    write(waiting_[waiting_at_++]);
    wrote = true;
  }
  if (!full()) {
    waiting_.clear();
    waiting_at_ = 0;
  }
  if (wrote) {
    store(control_.index->completion_produced, produced_);
    news_ = true;
  }
  return {};
}

void Completions::write(const merapi_completion& entry) {
  merapi_completion* slot = &ring_[produced_ & (entries_ - 1)];
  constexpr size_t kTail = offsetof(merapi_completion, sequence);
  __builtin_memcpy(slot, &entry, kTail);
  uint64_t tail = uint64_t{uint32_t(produced_ + 1)} | uint64_t{entry.cycle} << 32;
  __atomic_store_n(reinterpret_cast<uint64_t*>(reinterpret_cast<uint8_t*>(slot) + kTail), tail, __ATOMIC_RELEASE);
  produced_++;
}

}  // namespace merapi::sim
