// SPDX-License-Identifier: Apache-2.0
//
// Random heaps for tests: every shape kind, every layout the contract allows, references chosen to hurt.
#ifndef MERAPI_SIM_TEST_HEAP_MAKER_H_
#define MERAPI_SIM_TEST_HEAP_MAKER_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "sim/test/random.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::test {

struct MadeObject {
  uint64_t offset = 0;
  uint64_t words = 0;
  uint64_t klass_word = 0;
  bool below_limit = false;
  bool primitive = false;
  bool humongous = false;
};

// kList: the first regions hold little but elements of one klass, linked by one field in order of their addresses or
// against it, now and then with a link to anywhere.
enum class Topology { kRandom, kChainUp, kChainDown, kNear, kHub, kList };

class HeapMaker {
 public:
  HeapMaker(Window* window, Random* random, Topology topology);

  // Klasses, objects, limits, fields. Marks nothing.
  void make();
  // The host's greys: mark about `percent` of the objects below their limits in bitmap `which`, at most `most`.
  void mark_some(uint32_t which, uint32_t percent, size_t most = ~size_t{0});

  // While no device believes a shape: one of those that make() has published is withdrawn, comes back, or is replaced
  // by another one of the same objects, with its references in other blocks or for the host to scan.
  void redefine();
  // One of those that redefine() left without a shape has its first one again; this needs no pause.
  void publish_again();

  // Any address that a reference field or a GREY may hold: null, valid, at limits, outside.
  uint64_t any_address();
  // What a host would answer for a deferred object or a seen klass; the same each time it is asked.
  std::vector<uint64_t> answer(uint64_t key);

  // Heap offsets of an object's reference fields, and whether they are the device's to read: the object is an instance
  // or an array with a shape.
  std::vector<uint64_t> fields_of(const MadeObject& object) const;
  bool is_scanned(const MadeObject& object) const;
  uint64_t load_reference(uint64_t field) const;
  // Null when it is an address that a narrow reference cannot hold.
  void store_reference(uint64_t field, uint64_t address);
  // Whether objects of this klass word have a shape when no redefine() has made it otherwise, and it is to be reported.
  bool is_reported(uint64_t klass_word) const;

  const std::vector<MadeObject>& objects() const { return objects_; }
  const MadeObject* object_at(uint64_t offset) const;

 private:
  struct Klass {
    merapi_shape shape{};
    std::vector<merapi_ref_block> blocks;
    bool has_shape = true;
  };
  void make_klasses();
  Klass& add_klass(uint8_t kind);
  void spread_blocks(Klass* klass, uint32_t count, uint32_t most);
  void fill_region(uint32_t region);
  uint32_t humongous(uint32_t region);
  uint64_t place(uint64_t offset, const Klass& klass, uint64_t length);
  uint64_t array_words(const Klass& klass, uint64_t length) const;
  void set_limits();
  void write_fields();
  bool in_list(uint32_t region) const { return topology_ == Topology::kList && region < 2; }
  bool in_list(const MadeObject& object) const;
  void link_list();
  uint64_t target(size_t from);
  uint64_t align(uint64_t bytes) const;
  uint64_t address(uint64_t offset) const { return window_.shape.heap_base + offset; }

  Window& window_;
  Random& random_;
  Topology topology_;
  std::vector<Klass> klasses_;
  std::set<size_t> withdrawn_;  // of these, without a shape until it is published again
  size_t element_ = 0;          // the list's klass
  std::map<uint64_t, size_t> by_word_;
  std::vector<MadeObject> objects_;
  std::vector<size_t> below_;  // indexes of objects below their limits
  std::map<uint64_t, size_t> at_;
  std::map<uint64_t, std::vector<uint64_t>> answers_;
  std::vector<uint64_t> region_top_;
};

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_HEAP_MAKER_H_
