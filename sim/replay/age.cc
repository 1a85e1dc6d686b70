// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/age.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <unordered_map>

namespace merapi::sim {
namespace {

class Ager {
 public:
  Ager(const graph::Window& window, uint32_t bitmap, const AgeOptions& options)
      : heap_(window), bitmap_(bitmap), options_(options), random_(options.seed) {}

  AgeResult run(const merapi_answers* answers, const graph::Bits& greys, AgedAnswers* aged) {
    choose();
    move();
    translate_references();
    translate_answers(answers, aged);
    move_greys(greys);
    return result_;
  }

 private:
  // Places of one size, so that regions and what lies below the limits are filled as before. Objects that may be
  // humongous stay.
  void choose() {
    std::unordered_map<uint64_t, std::vector<uint64_t>> by_size;
    const uint64_t region_bytes = uint64_t{1} << heap_.config().region_log2;
    heap_.marks(bitmap_).each([&](uint64_t unit) {
      result_.live++;
      const uint64_t offset = heap_.offset_of_unit(unit);
      const graph::Shape* shape = heap_.shape_of(offset);
      const uint64_t bytes = shape == nullptr ? 0 : heap_.bytes(offset, *shape);
      if (bytes != 0 && bytes < region_bytes / 2) by_size[bytes / 8].push_back(offset);
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
        moves_.push_back({places[i], targets[i], words * 8});
        to_[places[i]] = targets[i];
      }
    }
    result_.moved = moves_.size();
  }

  void move() {
    std::vector<uint8_t> old(heap_.heap(), heap_.heap() + heap_.heap_bytes());
    for (const Move& m : moves_) std::memcpy(heap_.heap() + m.to, old.data() + m.from, m.bytes);
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
    heap_.marks(bitmap_).each([&](uint64_t unit) {
      const uint64_t object = heap_.offset_of_unit(unit);
      const graph::Shape* shape = heap_.shape_of(object);
      if (shape == nullptr) return;
      heap_.fields(object, *shape, [&](uint64_t field) {
        const uint64_t old = heap_.reference(field), now = old == 0 ? 0 : address(old);
        if (now != old) heap_.set_reference(field, now);
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

  void move_greys(const graph::Bits& greys) {
    graph::Bits aged = greys;
    for (const Move& m : moves_) {
      const uint64_t to = heap_.unit_of(m.to);
      if (greys.get(heap_.unit_of(m.from))) {
        aged.set(to);
      } else {
        aged.clear(to);
      }
    }
    heap_.set_bitmap(bitmap_, aged);
  }

  struct Move {
    uint64_t from, to, bytes;
  };
  const graph::ObjectGraph heap_;
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

AgeResult age(const graph::Window& window, uint32_t bitmap, const merapi_answers* answers, const graph::Bits& greys,
              const AgeOptions& options, AgedAnswers* aged) {
  return Ager(window, bitmap, options).run(answers, greys, aged);
}

}  // namespace merapi::sim
