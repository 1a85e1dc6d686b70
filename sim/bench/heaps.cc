// SPDX-License-Identifier: Apache-2.0
#include "sim/bench/heaps.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace merapi::sim::bench {
namespace {

constexpr uint8_t kRegionLog2 = 20;

class Builder {
 public:
  Builder(uint64_t bytes, bool wide) : window(std::make_unique<SharedWindow>(bytes, kRegionLog2, wide)), wide_(wide) {}

  uint32_t instance(uint32_t bytes, std::vector<merapi_ref_block> blocks) {
    merapi_shape s{};
    s.klass_word = next_klass_ += 0x148;
    s.kind = MERAPI_SHAPE_KIND_INSTANCE;
    s.size_words = bytes / 8;
    s.block_count = uint32_t(blocks.size());
    std::copy(blocks.begin(), blocks.end(), s.block);
    window->put_shape(s);
    return uint32_t(s.klass_word);
  }
  uint32_t array(uint8_t kind, uint8_t element_log2) {
    merapi_shape s{};
    s.klass_word = next_klass_ += 0x148;
    s.kind = kind;
    s.header_bytes = 16;
    s.element_log2 = element_log2;
    if (kind == MERAPI_SHAPE_KIND_PRIM_ARRAY) s.flags = 1u << MERAPI_SHAPE_FLAG_QUIET;
    window->put_shape(s);
    return uint32_t(s.klass_word);
  }
  // Next free place for an object; objects of more than half a region start at a region, others do not cross one.
  uint64_t allocate(uint64_t bytes, uint32_t klass) {
    uint64_t region = uint64_t{1} << kRegionLog2;
    bytes = (bytes + 7) / 8 * 8;
    if ((top_ & (region - 1)) + bytes > region || bytes > region / 2) top_ = (top_ + region - 1) & ~(region - 1);
    uint64_t at = top_;
    top_ += bytes;
    if (bytes > region / 2) top_ = (top_ + region - 1) & ~(region - 1);
    uint64_t mark_word = 1;
    std::memcpy(window->heap() + at, &mark_word, 8);
    std::memcpy(window->heap() + at + 8, &klass, 4);
    return at;
  }
  uint64_t allocate_array(uint32_t length, uint32_t element_bytes, uint32_t klass) {
    uint64_t at = allocate(16 + uint64_t{length} * element_bytes, klass);
    std::memcpy(window->heap() + at + 12, &length, 4);
    return at;
  }
  uint32_t width() const { return wide_ ? 8 : 4; }
  // First field that a reference can have.
  uint32_t first() const { return wide_ ? 16 : 12; }
  uint32_t object(uint32_t references) const { return (first() + references * width() + 7) / 8 * 8; }
  Heap finish(std::string name, uint64_t objects, std::vector<uint64_t> roots, double g1) {
    window->set_top(top_);
    return {std::move(name), objects, g1, std::move(roots), std::move(window)};
  }

  std::unique_ptr<SharedWindow> window;

 private:
  bool wide_;
  uint32_t next_klass_ = 0x800000;
  uint64_t top_ = 0;
};

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

constexpr uint64_t kSlack = 64 << 20;

// Node { Node next; long value; }
Heap list(const std::string& name, uint64_t n, bool wide) {
  Builder b(n * 32 + kSlack, wide);
  uint32_t bytes = b.object(1) + 8;
  uint32_t klass = b.instance(bytes, {{b.first(), 1}});
  std::vector<uint64_t> at(n);
  for (uint64_t& a : at) a = b.allocate(bytes, klass);
  if (name == "list-down") std::reverse(at.begin(), at.end());
  if (name == "list-shuffled") {
    for (uint64_t i = n; i > 1; i--) std::swap(at[i - 1], at[mix(i) % i]);
  }
  for (uint64_t i = 0; i + 1 < n; i++) b.window->store_reference(at[i] + b.first(), at[i + 1]);
  double g1 = n == 10'000'000 && name != "list-shuffled" ? 0.16 : 0;
  return b.finish(name, n, {at[0]}, g1);
}

// HashMap<Integer, String>: table, Node { int hash; K key; V value; Node next; }, Integer, String, byte[].
Heap hashmap(uint64_t n, bool wide) {
  Builder b(n * 136 + kSlack + n * 32, wide);
  uint32_t w = b.width(), refs = wide ? 16 : 16;
  uint32_t node_bytes = (refs + 3 * w + 7) / 8 * 8;
  uint32_t node = b.instance(node_bytes, {{refs, 3}});
  uint32_t integer = b.instance(16, {});
  uint32_t string_at = wide ? 16 : 12, string_bytes = wide ? 32 : 24;
  uint32_t string = b.instance(string_bytes, {{string_at, 1}});
  uint32_t bytes = b.array(MERAPI_SHAPE_KIND_PRIM_ARRAY, 0);
  uint32_t table_klass = b.array(MERAPI_SHAPE_KIND_OBJ_ARRAY, wide ? 3 : 2);
  uint32_t map = b.instance(48, {{wide ? 24u : 28u, 1}});
  uint32_t slots = 1;
  while (slots * UINT64_C(3) / 4 < n) slots *= 2;
  uint64_t table = b.allocate_array(slots, w, table_klass);
  uint64_t root = b.allocate(48, map);
  b.window->store_reference(root + (wide ? 24 : 28), table);
  std::vector<uint64_t> last(slots, 0);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t key = b.allocate(16, integer);
    uint64_t text = b.allocate_array(uint32_t(std::to_string(i).size() + 1), 1, bytes);
    uint64_t value = b.allocate(string_bytes, string);
    b.window->store_reference(value + string_at, text);
    uint64_t entry = b.allocate(node_bytes, node);
    b.window->store_reference(entry + refs, key);
    b.window->store_reference(entry + refs + w, value);
    uint64_t slot = (i ^ i >> 16) & (slots - 1);
    b.window->store_reference(last[slot] == 0 ? table + 16 + slot * w : last[slot] + refs + 2 * w, entry);
    last[slot] = entry;
  }
  return b.finish("hashmap", 4 * n + 2, {root}, n == 5'000'000 ? 0.42 : 0);
}

// Node { Node a, b; } with random targets; reached through an array of all, or from one node.
Heap graph(const std::string& name, uint64_t n, bool wide) {
  Builder b(n * 48 + kSlack, wide);
  uint32_t bytes = b.object(2), w = b.width();
  uint32_t klass = b.instance(bytes, {{b.first(), 2}});
  uint32_t array = b.array(MERAPI_SHAPE_KIND_OBJ_ARRAY, wide ? 3 : 2);
  bool from_one = name == "graph-from-one";
  uint64_t all = from_one ? 0 : b.allocate_array(uint32_t(n), w, array);
  std::vector<uint64_t> at(n);
  for (uint64_t& a : at) a = b.allocate(bytes, klass);
  for (uint64_t i = 0; i < n; i++) {
    if (!from_one) b.window->store_reference(all + 16 + i * w, at[i]);
    b.window->store_reference(at[i] + b.first(), at[mix(2 * i + 1) % n]);
    b.window->store_reference(at[i] + b.first() + w, at[mix(2 * i + 2) % n]);
  }
  return b.finish(name, n + 1, {from_one ? at[n / 2] : all}, n == 10'000'000 ? 1.9 : 0);
}

Heap tree(uint64_t n, bool wide) {
  Builder b(n * 32 + kSlack, wide);
  uint32_t bytes = b.object(2), w = b.width();
  uint32_t klass = b.instance(bytes, {{b.first(), 2}});
  std::vector<uint64_t> at(n);
  for (uint64_t& a : at) a = b.allocate(bytes, klass);
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t c = 0; c < 2; c++) {
      if (2 * i + 1 + c < n) b.window->store_reference(at[i] + b.first() + c * w, at[2 * i + 1 + c]);
    }
  }
  return b.finish("tree", n, {at[0]}, 0);
}

}  // namespace

const std::vector<std::string>& heap_names() {
  static const std::vector<std::string> kNames = {"list-up", "list-down",      "list-shuffled", "hashmap",
                                                  "graph",   "graph-from-one", "tree"};
  return kNames;
}

Heap make_heap(const std::string& name, uint64_t objects, bool wide_oops) {
  if (name.rfind("list-", 0) == 0) return list(name, objects, wide_oops);
  if (name == "hashmap") return hashmap(objects, wide_oops);
  if (name.rfind("graph", 0) == 0) return graph(name, objects, wide_oops);
  if (name == "tree") return tree(objects, wide_oops);
  throw std::invalid_argument("expected one of the heap names, found " + name);
}

}  // namespace merapi::sim::bench
