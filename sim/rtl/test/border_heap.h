// SPDX-License-Identifier: Apache-2.0
//
// Heaps at the borders of what the contract allows: objects that end with a region, a limit or the heap, arrays over
// many regions, klasses that share a home slot, shapes whose unused fields hold anything, narrow references of every
// base.
#ifndef MERAPI_SIM_RTL_TEST_BORDER_HEAP_H_
#define MERAPI_SIM_RTL_TEST_BORDER_HEAP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/test/random.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::rtl::test {

struct BorderObject {
  uint64_t at = 0, words = 0;  // offset in the heap
  size_t klass = 0;
  uint64_t length = 0;  // of an array
};

struct BorderKlass {
  merapi_shape shape{};
  std::vector<merapi_ref_block> blocks;
  bool has_shape = true;    // in the table
  uint64_t references = 0;  // of an instance
};

// One thing that is wrong with a heap.
struct PlantedFault {
  std::string what;
  std::function<void()> repair;  // null: nothing was found that could be spoiled
  uint64_t grey = 0;             // not 0: the fault is that the host submits this
  // What the contract leaves open: which object of a klass shows the fault, and what is told of it.
  bool same_address = true, same_detail = true;
  explicit operator bool() const { return repair != nullptr; }
};

class BorderHeap {
 public:
  using Random = merapi::sim::test::Random;
  static merapi::sim::test::WindowShape shape(Random* random);
  BorderHeap(merapi::sim::test::Window* window, Random* random);

  // Between cycles: limits anew.
  void set_limits();
  // Withdraw every shape and publish it again, elsewhere in the table and the extension.
  void publish(Random* random);
  PlantedFault plant();
  // An object's, or one that a device has to ignore.
  uint64_t any_address();
  // What the host submits for an object that it scans (by address), or for a klass word.
  std::vector<uint64_t> answer(uint64_t key);
  bool below(const BorderObject& o) const { return o.at < window_.limits()[region_of(o.at)]; }
  // Most objects are links of one chain.
  bool is_list() const { return topology_ == Topology::kList; }
  const std::vector<BorderObject>& objects() const { return objects_; }
  size_t klasses() const { return klasses_.size(); }

 private:
  // Where most references lead.
  enum class Topology { kSelf, kNext, kPrevious, kSameLine, kOneForAll, kFarAway, kAnywhere, kList };

  uint64_t step() const { return uint64_t{1} << window_.shape.alignment_log2; }
  uint64_t up(uint64_t n) const { return (n + step() - 1) / step() * step(); }
  uint64_t end_of(const BorderObject& o) const { return up(o.at + o.words * 8); }
  uint32_t region_of(uint64_t at) const { return uint32_t(at >> window_.shape.region_log2); }
  uint64_t start(uint64_t region) const { return region << window_.shape.region_log2; }
  uint64_t address(uint64_t offset) const { return window_.shape.heap_base + offset; }
  // Mark word, klass word.
  uint32_t fields() const { return 8u + window_.shape.klass_bytes; }
  merapi_shape* table() { return reinterpret_cast<merapi_shape*>(window_.area(MERAPI_AREA_SHAPES)); }

  // Klasses.
  uint64_t home(uint64_t klass_word) const;
  uint64_t near_the_others();
  uint64_t some_word();
  void make_blocks(BorderKlass* k);
  void make_klass(uint8_t kind);
  uint8_t some_kind();
  void make_klasses();

  // Their shapes.
  void empty_table(Random* random);
  bool put_blocks(const BorderKlass& k, merapi_shape* s, uint64_t* used);
  bool put_shape(const merapi_shape& s, Random* random);
  void put_shapes(Random* random);

  // Objects.
  uint64_t words_of(const BorderKlass& k, uint64_t length, uint64_t mirror) const;
  bool place(uint64_t at, size_t klass, uint64_t length, uint64_t most);
  bool place_over_regions(uint64_t at);
  bool place_some(uint64_t at, uint64_t border, bool straddle);
  bool place_exactly(uint64_t at, uint64_t bytes);
  void fill();
  uint64_t limit_beside(const std::vector<const BorderObject*>& objects, uint32_t region);

  // Their fields.
  static bool is_array(const merapi_shape& s) {
    return s.kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || s.kind == MERAPI_SHAPE_KIND_PRIM_ARRAY;
  }
  std::vector<uint64_t> fields_of(const BorderObject& o) const;
  uint64_t target(size_t from);
  uint64_t link_target(size_t from, bool down, bool is_link);
  // False, and null is stored, when no narrow reference says it.
  bool store(uint64_t field, uint64_t address);
  void write_fields();

  // Faults (border_fault.cc).
  PlantedFault overwrite(const char* what, void* at, const void* value, size_t bytes);
  PlantedFault crooked_reference();
  PlantedFault crooked_grey(const BorderObject& o);
  PlantedFault bad_length(const BorderObject& o);
  PlantedFault bad_mirror(const BorderObject& o);
  PlantedFault no_klass(const BorderObject& o);
  PlantedFault bad_shape(const BorderObject& o);
  PlantedFault bad_extension(const merapi_shape& s);
  PlantedFault bad_limit(const BorderObject& o);
  bool spoil_blocks(merapi_shape* s);

  merapi::sim::test::Window& window_;
  Random& random_;
  const Topology topology_;
  const uint64_t crowded_home_;
  std::vector<BorderKlass> klasses_;
  std::set<uint64_t> words_used_;
  std::vector<size_t> obj_arrays_, prim_arrays_;
  std::optional<size_t> link_klass_;  // of a list's links; none when no klass is fit for it
  std::vector<BorderObject> objects_;
  std::map<uint64_t, std::vector<uint64_t>> answers_;
  std::vector<uint64_t> ceiling_;  // of each region's limit
};

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_BORDER_HEAP_H_
