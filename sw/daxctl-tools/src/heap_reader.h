// SPDX-License-Identifier: Apache-2.0
//
// The object graph of a window as docs/contract.md describes it, walked on the CPU without a device: what `verify`
// compares a device with and what `export` writes. Only for windows that nobody changes meanwhile.
#ifndef MERAPI_DAXCTL_TOOLS_HEAP_READER_H_
#define MERAPI_DAXCTL_TOOLS_HEAP_READER_H_

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "window.h"

namespace merapi::cli {

// What an image's host would answer. Empty without an image.
class Answers {
 public:
  Answers() = default;
  explicit Answers(const merapi_answers* answers) : answers_(answers) {}
  // References of a deferred object (by address) or of a klass' holder; empty when there is no answer.
  std::vector<uint64_t> of(uint64_t key, bool is_klass) const;

 private:
  const merapi_answers* answers_ = nullptr;  // sorted by (is_klass, key)
};

struct Shape {
  merapi_shape shape;
  std::vector<merapi_ref_block> blocks;
};

// A bit for each unit of object alignment.
class Bits {
 public:
  explicit Bits(uint64_t count) : words_((count + 63) / 64) {}
  bool get(uint64_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  // True when it was 0.
  bool set(uint64_t i) {
    const uint64_t bit = UINT64_C(1) << (i % 64);
    const bool fresh = (words_[i / 64] & bit) == 0;
    words_[i / 64] |= bit;
    return fresh;
  }
  uint64_t word(uint64_t w) const { return words_[w]; }
  void set_word(uint64_t w, uint64_t value) { words_[w] = value; }
  uint64_t words() const { return words_.size(); }

 private:
  std::vector<uint64_t> words_;
};

class HeapReader {
 public:
  // Throws when the window's configuration makes no sense.
  explicit HeapReader(const Window& window);

  const merapi_config& config() const { return config_; }
  uint64_t heap_bytes() const { return heap_bytes_; }
  uint64_t units() const { return heap_bytes_ >> config_.alignment_log2; }
  uint64_t offset_of_unit(uint64_t unit) const { return unit << config_.alignment_log2; }
  uint64_t unit_of(uint64_t offset) const { return offset >> config_.alignment_log2; }
  uint64_t limit(uint64_t offset) const { return limits_[offset >> config_.region_log2]; }

  uint64_t klass(uint64_t object) const;
  // nullptr: the klass has no shape.
  const Shape* shape(uint64_t klass_word) const;
  // Bytes of an object with this shape.
  uint64_t bytes(uint64_t object, const merapi_shape& shape) const;
  uint32_t array_length(uint64_t object) const;
  // Visits the heap offset of each reference field of an object that a tracer scans itself.
  void fields(uint64_t object, const Shape& shape, const std::function<void(uint64_t field)>& visit) const;
  // The address in a field.
  uint64_t reference(uint64_t field) const;
  static bool deferred(const Shape* shape) {
    return shape == nullptr || shape->shape.kind >= MERAPI_SHAPE_KIND_REFERENCE;
  }
  // Is it an object of this heap below its region's limit? Gives its offset.
  bool traced(uint64_t address, uint64_t* offset) const;

  // The marks of a bitmap below the limits.
  Bits marks(uint32_t bitmap) const;

 private:
  void need(uint64_t object, uint64_t bytes) const;

  merapi_config config_;
  uint64_t heap_bytes_;
  const Window& window_;
  const uint8_t* heap_;
  const uint64_t* limits_;
  mutable std::unordered_map<uint64_t, std::unique_ptr<Shape>> shapes_;
};

// What a complete trace of all regions leaves behind.
struct Closure {
  Bits greys;                        // marked before
  Bits marked;                       // and after
  std::vector<uint64_t> live_words;  // by region: of the objects that were not marked before and have a shape
  std::vector<uint64_t> klasses;     // klass words to be reported, in order of discovery
  uint64_t objects = 0;              // newly marked
  uint64_t deferred = 0;
  uint64_t references = 0;  // fields read
};

// Called once for each object reached, in no particular order.
using ObjectVisitor = std::function<void(uint64_t offset, uint64_t klass, const Shape* shape)>;

Closure close_over(const HeapReader& heap, uint32_t bitmap, const Answers& answers, const ObjectVisitor& visit = {});

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_HEAP_READER_H_
