// SPDX-License-Identifier: Apache-2.0
//
// The completion side: batches of DEFER and SHAPE_SEEN, entries that wait for room, and the ring itself.
// Nothing is lost when the ring is full: sealed entries wait here, full() becomes true, and the tracer stops before
// the next object. How many can wait is bounded by what one object or one dropped spill block can cause.
#ifndef MERAPI_SIM_MODEL_COMPLETIONS_H_
#define MERAPI_SIM_MODEL_COMPLETIONS_H_

#include <cstdint>
#include <vector>

#include "sim/model/geometry.h"
#include "sim/model/window.h"

namespace merapi::sim {

class Completions {
 public:
  // `twice`: for tests of hosts, each DEFER is repeated.
  explicit Completions(Control control, bool twice = false) : control_(control), twice_(twice) {}

  // A handshake: empty ring at index 0.
  void reset(const Rings& rings);
  // A new cycle: what the old one still holds goes out under its own id.
  void begin(uint32_t cycle);
  void forget_counts() { deferred = shapes_seen = 0; }
  // Abort: batches and waiting entries are dropped.
  void drop();

  // `unsized`: the device could not add the object's words, the host must. Such objects travel in entries of their own.
  void defer(uint64_t address, bool unsized) {
    Batch& b = batch_[unsized ? kUnsized : kDefer];
    b.payload[b.count++] = address;
    deferred++;
    if (b.count == MERAPI_ENTRY_WORDS) seal(b);
  }
  void seen(uint64_t klass_word) {
    Batch& b = batch_[kSeen];
    b.payload[b.count++] = klass_word;
    shapes_seen++;
    if (b.count == MERAPI_ENTRY_WORDS) seal(b);
  }
  // Seal all partial batches. Returns whether there was one.
  bool flush();
  bool partial() const { return batch_[0].count + batch_[1].count + batch_[2].count != 0; }

  // `entry` needs type, arg, payload and cycle; sequence is filled in. It goes behind everything batched so far.
  void post(merapi_completion entry);

  // Read how far the host is. A fault when its index is impossible: it moved backwards, or beyond what was written.
  Fault look();
  // The same if entries wait, and write as many of them as there is room for.
  Fault drain();
  // Entries wait for room.
  bool full() const { return waiting_at_ != waiting_.size(); }
  uint64_t produced() const { return produced_; }
  // Written since the last call?
  bool take_news() {
    bool news = news_;
    news_ = false;
    return news;
  }

  uint64_t deferred = 0;
  uint64_t shapes_seen = 0;

 private:
  enum { kDefer, kUnsized, kSeen };
  struct Batch {
    uint64_t payload[MERAPI_ENTRY_WORDS];
    uint32_t count = 0;
  };
  void seal(Batch& batch);
  void write(const merapi_completion& entry);

  Control control_;
  bool twice_;
  merapi_completion* ring_ = nullptr;
  uint64_t entries_ = 0;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  uint32_t cycle_ = 0;
  bool news_ = false;
  Batch batch_[3];
  std::vector<merapi_completion> waiting_;
  size_t waiting_at_ = 0;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_COMPLETIONS_H_
