// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/strip.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>
#include <vector>

#include "graph/object_graph.h"
#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"
#include "sim/replay/room.h"

namespace merapi::sim {
namespace {

// What is live, after a trace.
struct Live {
  std::vector<uint8_t> heap;               // what a trace reads, at its place; zeros elsewhere
  std::unordered_set<uint64_t> addresses;  // of deferred objects
  std::unordered_set<uint64_t> klasses;
};

Live read_by_a_trace(const graph::ObjectGraph& heap, uint32_t bitmap, StripResult* result) {
  Live live{.heap = std::vector<uint8_t>(heap.heap_bytes()), .addresses = {}, .klasses = {}};
  heap.marks(bitmap).each([&](uint64_t unit) {
    const uint64_t object = heap.offset_of_unit(unit);
    result->objects++;
    heap.read_by_a_trace(object, [&](uint64_t from, uint64_t bytes) {
      std::memcpy(&live.heap[from], heap.heap() + from, bytes);
      result->kept_bytes += bytes;
    });
    live.klasses.insert(heap.klass(object));
    if (graph::ObjectGraph::deferred(heap.shape_of(object))) live.addresses.insert(heap.config().heap_base + object);
  });
  return live;
}

// What the host would answer, of live objects and their klasses alone: those of others tell of dead objects.
class LiveAnswers {
 public:
  LiveAnswers(const merapi_answers* all, const Live& live) {
    first_.push_back(0);
    for (uint64_t i = 0; all != nullptr && i < all->count; i++) {
      if ((all->is_klass[i] != 0 ? live.klasses : live.addresses).count(all->key[i]) == 0) continue;
      key_.push_back(all->key[i]);
      is_klass_.push_back(all->is_klass[i]);
      reference_.insert(reference_.end(), all->reference + all->first[i], all->reference + all->first[i + 1]);
      first_.push_back(reference_.size());
    }
    answers_ = {key_.size(), key_.data(), is_klass_.data(), first_.data(), reference_.data()};
  }
  LiveAnswers(const LiveAnswers&) = delete;
  const merapi_answers* get() const { return &answers_; }

 private:
  std::vector<uint64_t> key_, first_, reference_;
  std::vector<uint8_t> is_klass_;
  merapi_answers answers_;
};

// All that a trace is not given: rings, live words, spilled greys, the other bitmap, and heap that is none of a region.
void clear_what_no_trace_reads(const graph::Window& window, const graph::ObjectGraph& heap, uint32_t bitmap) {
  const auto clear = [&](uint64_t offset, uint64_t bytes) {
    const int status = merapi_zero(window.get(), offset, bytes);
    if (status < 0) throw std::runtime_error("cannot clear the copy: " + std::string(std::strerror(-status)));
  };
  const merapi_area other = bitmap == 0 ? MERAPI_AREA_BITMAP1 : MERAPI_AREA_BITMAP0;
  for (const merapi_area area :
       {MERAPI_AREA_SUBMISSION, MERAPI_AREA_COMPLETION, MERAPI_AREA_LIVE, MERAPI_AREA_SPILL, other})
    clear(window.layout().area[area].offset, window.layout().area[area].size);
  const merapi_area_desc& all = window.layout().area[MERAPI_AREA_HEAP];
  clear(all.offset + heap.heap_bytes(), all.size - heap.heap_bytes());
}

}  // namespace

StripResult strip(const graph::Image& image, const std::string& path) {
  require_room_to_rewrite(image);
  const PrivateWindow own(image, private_model());
  const graph::Window& window = own.window();
  ReplayOptions checked;
  checked.check = true;
  ReplayResult replayed = replay(image, window, checked);
  if (!replayed.problem.empty()) throw std::runtime_error("the image does not replay: " + replayed.problem);

  StripResult result;
  Live live;
  {
    const graph::ObjectGraph heap(window);
    result.heap_bytes = heap.heap_bytes();
    live = read_by_a_trace(heap, image.bitmap(), &result);
  }
  // The trace has left marks and counters behind: start from the image again.
  window.load(image);
  const graph::ObjectGraph heap(window);
  std::copy(live.heap.begin(), live.heap.end(), heap.heap());
  clear_what_no_trace_reads(window, heap, image.bitmap());
  nlohmann::json text = {{"stripped", true}};
  if (replayed.g1_seconds > 0) text["g1_mark_ms"] = replayed.g1_seconds * 1e3;
  graph::save(window, path, image.bitmap(), LiveAnswers(image.answers(), live).get(), text.dump());
  return result;
}

}  // namespace merapi::sim
