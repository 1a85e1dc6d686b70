// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/age.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <unordered_map>

#include "sim/replay/live_heap.h"

namespace merapi::sim {
namespace {

class Ager {
 public:
  Ager(merapi_window* window, uint32_t bitmap, const AgeOptions& options)
      : heap_(window), bitmap_(bitmap), options_(options), random_(options.seed) {}

  AgeResult run(const merapi_answers* answers, std::vector<uint8_t> greys, AgedAnswers* aged) {
    choose();
    move();
    translate_references();
    translate_answers(answers, aged);
    move_greys(std::move(greys));
    return result_;
  }

 private:
  // Places of one size, so that regions and what lies below the limits are filled as before. Objects that may be
  // humongous stay.
  void choose() {
    std::unordered_map<uint64_t, std::vector<uint64_t>> by_size;
    const uint64_t region_words = (uint64_t{1} << heap_.config().region_log2) / 8;
    heap_.each_marked(bitmap_, [&](uint64_t offset) {
      result_.live++;
      uint64_t words = heap_.words(offset, heap_.shape(offset));
      if (words != 0 && words < region_words / 2) by_size[words].push_back(offset);
    });
    for (auto& [words, places] : by_size) {
      // Part of them, then a random order of that part.
      std::shuffle(places.begin(), places.end(), random_);
      places.resize(places.size() * options_.percent / 100);
      if (places.size() < 2) continue;
      std::vector<uint64_t> targets = places;
      std::shuffle(targets.begin(), targets.end(), random_);
      for (size_t i = 0; i < places.size(); i++) {
        if (places[i] == targets[i]) continue;
        moves_.push_back({places[i], targets[i], words});
        to_[places[i]] = targets[i];
      }
    }
    result_.moved = moves_.size();
  }

  void move() {
    std::vector<uint8_t> old(heap_.heap(), heap_.heap() + heap_.heap_bytes());
    for (const Move& m : moves_) std::memcpy(heap_.heap() + m.to, old.data() + m.from, m.words * 8);
  }

  uint64_t place(uint64_t offset) const {
    auto it = to_.find(offset);
    return it == to_.end() ? offset : it->second;
  }
  uint64_t address(uint64_t a) const {
    uint64_t base = heap_.config().heap_base;
    return a < base || a - base >= heap_.heap_bytes() ? a : base + place(a - base);
  }

  // The marks are those of the places, which the same set of objects fills as before.
  void translate_references() {
    heap_.each_marked(bitmap_, [&](uint64_t offset) {
      const merapi_shape* shape = heap_.shape(offset);
      heap_.each_run(offset, shape, [&](uint64_t from, uint64_t bytes) {
        for (uint64_t field = from; field < from + bytes; field += heap_.config().oop_bytes) {
          uint64_t old = heap_.reference(field);
          if (old == 0) continue;
          uint64_t now = address(old);
          if (now != old) heap_.set_reference(field, now);
        }
      });
    });
  }

  void translate_answers(const merapi_answers* in, AgedAnswers* out) {
    if (in == nullptr) return;
    std::vector<uint64_t> order(in->count);
    std::iota(order.begin(), order.end(), 0);
    auto key = [&](uint64_t i) { return in->is_klass[i] != 0 ? in->key[i] : address(in->key[i]); };
    std::sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
      return in->is_klass[a] != in->is_klass[b] ? in->is_klass[a] < in->is_klass[b] : key(a) < key(b);
    });
    for (uint64_t i : order) {
      out->key.push_back(key(i));
      out->is_klass.push_back(in->is_klass[i]);
      out->first.push_back(out->reference.size());
      for (uint64_t r = in->first[i]; r < in->first[i + 1]; r++) out->reference.push_back(address(in->reference[r]));
    }
    out->first.push_back(out->reference.size());
  }

  void move_greys(std::vector<uint8_t> greys) {
    auto bit = [&](std::vector<uint8_t>& bits, uint64_t offset) -> std::pair<uint8_t&, uint8_t> {
      uint64_t n = offset >> heap_.config().alignment_log2;
      return {bits[n / 8], uint8_t(1u << (n % 8))};
    };
    std::vector<uint8_t> aged = greys;
    for (const Move& m : moves_) {
      auto [byte, mask] = bit(greys, m.from);
      auto [target, target_mask] = bit(aged, m.to);
      target = (byte & mask) != 0 ? target | target_mask : target & uint8_t(~target_mask);
    }
    std::memcpy(heap_.bitmap(bitmap_), aged.data(), aged.size());
  }

  struct Move {
    uint64_t from, to, words;
  };
  LiveHeap heap_;
  const uint32_t bitmap_;
  const AgeOptions options_;
  std::mt19937_64 random_;
  std::vector<Move> moves_;
  std::unordered_map<uint64_t, uint64_t> to_;
  AgeResult result_;
};

}  // namespace

merapi_answers AgedAnswers::view() const {
  return {key.size(), key.data(), is_klass.data(), first.data(), reference.data()};
}

AgeResult age(merapi_window* window, uint32_t bitmap, const merapi_answers* answers, std::vector<uint8_t> greys,
              const AgeOptions& options, AgedAnswers* aged) {
  return Ager(window, bitmap, options).run(answers, std::move(greys), aged);
}

}  // namespace merapi::sim
