// SPDX-License-Identifier: Apache-2.0
#include "graph/closure.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "graph/names.h"

namespace merapi::graph {
namespace {

class Walk {
 public:
  Walk(const ObjectGraph& graph, uint32_t bitmap, const Answers& answers, const ObjectVisitor& visit)
      : graph_(graph),
        answers_(answers),
        visit_(visit),
        out_{graph.marks(bitmap), graph.bitmap(bitmap), std::vector<uint64_t>(graph.config().region_count), {}, {}} {}

  Closure run() {
    out_.greys.each([this](uint64_t unit) {
      scan(graph_.offset_of_unit(unit));
      while (!stack_.empty()) {
        const uint64_t object = stack_.back();
        stack_.pop_back();
        scan(object);
      }
    });
    out_.klasses.assign(seen_.begin(), seen_.end());
    std::sort(out_.klasses.begin(), out_.klasses.end());
    std::sort(out_.deferred.begin(), out_.deferred.end());
    return std::move(out_);
  }

 private:
  void offer(uint64_t address) {
    uint64_t offset;
    if (graph_.traced(address, &offset) && out_.marked.set(graph_.unit_of(offset))) stack_.push_back(offset);
  }

  void scan(uint64_t object) {
    const uint64_t klass = graph_.klass(object);
    const Shape* shape = graph_.shape(klass);
    if (visit_) visit_(object, klass, shape);
    if (!out_.greys.get(graph_.unit_of(object))) {
      out_.objects++;
      if (shape != nullptr) out_.live_words[graph_.region_of(object)] += graph_.bytes(object, *shape) / 8;
    }
    if (shape != nullptr && shape->reported() && seen_.insert(klass).second)
      for (const uint64_t address : answers_.of(klass, true)) offer(address);
    if (ObjectGraph::deferred(shape)) {
      out_.deferred.push_back(object);
      for (const uint64_t address : answers_.of(graph_.config().heap_base + object, false)) offer(address);
      return;
    }
    graph_.fields(object, *shape, [this](uint64_t field) {
      out_.references++;
      offer(graph_.reference(field));
    });
  }

  const ObjectGraph& graph_;
  const Answers& answers_;
  const ObjectVisitor& visit_;
  Closure out_;
  std::unordered_set<uint64_t> seen_;
  std::vector<uint64_t> stack_;
};

std::vector<uint64_t> on_one_side(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  std::vector<uint64_t> differing;
  std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(differing));
  return differing;
}

}  // namespace

Answers::Range Answers::of(uint64_t key, bool is_klass) const {
  if (answers_ == nullptr) return {};
  uint64_t low = 0, high = answers_->count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const bool middle_klass = answers_->is_klass[middle] != 0;
    const bool less = middle_klass != is_klass ? !middle_klass : answers_->key[middle] < key;
    if (less) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == answers_->count || answers_->key[low] != key || (answers_->is_klass[low] != 0) != is_klass) return {};
  return {answers_->reference + answers_->first[low], answers_->reference + answers_->first[low + 1], true};
}

Closure close_over(const ObjectGraph& graph, uint32_t bitmap, const Answers& answers, const ObjectVisitor& visit) {
  return Walk(graph, bitmap, answers, visit).run();
}

Difference compare(const Window& window, const ObjectGraph& graph, uint32_t bitmap, const Closure& expected,
                   const std::vector<uint64_t>& klasses, const std::vector<uint64_t>& deferred) {
  Difference d;
  const auto note = [&d](const std::string& text) {
    if (d.first.empty()) d.first = text;
  };
  const uint64_t base = graph.config().heap_base;
  const Bits marks = graph.bitmap(bitmap);
  for (uint64_t w = 0; w < marks.words(); w++) {
    const uint64_t missed = expected.marked.word(w) & ~marks.word(w), more = marks.word(w) & ~expected.marked.word(w);
    d.missed += uint64_t(std::popcount(missed));
    d.unexpected += uint64_t(std::popcount(more));
    if ((missed | more) != 0)
      note("object " + hex(base + graph.offset_of_unit(w * 64 + uint64_t(std::countr_zero(missed | more)))) +
           (missed != 0 ? " is reachable and not marked" : " is marked and not reachable"));
  }
  for (uint32_t region = 0; region < graph.config().region_count; region++) {
    const uint64_t live = merapi_live_get(window.get(), region);
    if (live == expected.live_words[region]) continue;
    d.live++;
    note("region " + std::to_string(region) + ": expected " + std::to_string(expected.live_words[region]) +
         " live words, found " + std::to_string(live));
  }
  const std::vector<uint64_t> other_klasses = on_one_side(expected.klasses, klasses);
  d.klasses = other_klasses.size();
  if (d.klasses != 0) note("klass word " + hex(other_klasses.front()) + " was reported by one side only");
  std::vector<uint64_t> addresses;
  for (const uint64_t offset : expected.deferred) addresses.push_back(base + offset);
  const std::vector<uint64_t> other_deferred = on_one_side(addresses, deferred);
  d.deferred = other_deferred.size();
  if (d.deferred != 0) note("object " + hex(other_deferred.front()) + " was deferred by one side only");
  return d;
}

}  // namespace merapi::graph
