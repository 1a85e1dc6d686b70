// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/strip.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "graph/object_graph.h"
#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"
#include "sim/replay/room.h"

namespace merapi::sim {
namespace {

// Heap contents that a trace reads, at their places; zeros elsewhere.
std::vector<uint8_t> read_by_a_trace(const graph::ObjectGraph& heap, uint32_t bitmap, StripResult* result) {
  std::vector<uint8_t> kept(heap.heap_bytes());
  heap.marks(bitmap).each([&](uint64_t unit) {
    result->objects++;
    heap.read_by_a_trace(heap.offset_of_unit(unit), [&](uint64_t from, uint64_t bytes) {
      std::memcpy(&kept[from], heap.heap() + from, bytes);
      result->kept_bytes += bytes;
    });
  });
  return kept;
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
  std::vector<uint8_t> kept;
  {
    const graph::ObjectGraph heap(window);
    result.heap_bytes = heap.heap_bytes();
    kept = read_by_a_trace(heap, image.bitmap(), &result);
  }
  // The trace has left marks and counters behind: start from the image again.
  window.load(image);
  std::copy(kept.begin(), kept.end(), graph::ObjectGraph(window).heap());
  nlohmann::json text = {{"stripped", true}};
  if (replayed.g1_seconds > 0) text["g1_mark_ms"] = replayed.g1_seconds * 1e3;
  graph::save(window, path, image.bitmap(), image.answers(), text.dump());
  return result;
}

}  // namespace merapi::sim
