// SPDX-License-Identifier: Apache-2.0
//
// Heaps as large as the tracer can address with few objects in them: their offsets, limits, sizes and the areas of
// their windows use every bit that an address has. What a trace must leave behind is found by walking the objects
// themselves, not the window.
#ifndef MERAPI_SIM_RTL_TEST_WIDE_HEAP_H_
#define MERAPI_SIM_RTL_TEST_WIDE_HEAP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "sim/test/random.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::rtl::test {

struct WideObject {
  uint64_t offset = 0, words = 0, klass_word = 0;
  uint8_t kind = 0;  // MERAPI_SHAPE_KIND_NONE: without a shape
  std::vector<uint64_t> references;
};

// What a trace must leave behind and count.
struct WideResult {
  std::set<uint64_t> marked, newly, deferred, klasses;  // heap offsets; klass words
  std::map<uint64_t, uint64_t> live;                    // region: words
  uint64_t live_words = 0, scanned = 0, read = 0, nulls = 0, outside = 0, above = 0;
};

class WideHeap {
 public:
  // heap_log2: of the heap's bytes, at most 40. The window is as large as windows may be (kWindowBytes), in memory of
  // its own or in `memory`.
  static constexpr uint64_t kWindowBytes = UINT64_C(1) << 42;
  WideHeap(uint64_t seed, uint8_t heap_log2, uint8_t region_log2,
           const std::shared_ptr<merapi::sim::test::Mapping>& memory = nullptr);

  merapi::sim::test::Window& window() { return *window_; }
  const std::vector<WideObject>& objects() const { return objects_; }
  // Marked by the host, in regions of `swept`; and what it gives by GREY.
  const std::set<uint64_t>& roots() const { return roots_; }
  const std::vector<uint32_t>& swept() const { return swept_; }
  const std::vector<uint64_t>& greys() const { return greys_; }
  WideResult trace() const;
  uint64_t address(uint64_t offset) const { return window_->shape.heap_base + offset; }
  uint32_t region_of(uint64_t offset) const { return uint32_t(offset >> window_->shape.region_log2); }

 private:
  struct Klass {
    merapi_shape shape{};
    std::vector<merapi_ref_block> blocks;
  };
  void make_klasses();
  Klass& add_klass(uint8_t kind);
  void place_all();
  bool place(uint64_t offset, const Klass& klass);
  void set_limits();
  void write_references();
  uint64_t some_address();
  bool below(uint64_t offset) const;
  uint64_t align(uint64_t n) const {
    uint64_t a = uint64_t{1} << window_->shape.alignment_log2;
    return (n + a - 1) / a * a;
  }

  merapi::sim::test::Random random_;
  std::unique_ptr<merapi::sim::test::Window> window_;
  std::vector<Klass> klasses_;
  std::vector<WideObject> objects_;
  std::map<uint64_t, uint64_t> taken_;  // offset: end
  std::map<uint64_t, size_t> at_;
  std::set<uint64_t> roots_;
  std::vector<uint32_t> swept_;
  std::vector<uint64_t> greys_;
};

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_WIDE_HEAP_H_
