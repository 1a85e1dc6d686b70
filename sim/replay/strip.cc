// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/strip.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "sim/replay/live_heap.h"
#include "sim/replay/private_device.h"
#include "sim/replay/replay.h"

namespace merapi::sim {
namespace {

struct CloseWindow {
  void operator()(merapi_window* window) const { merapi_close(window); }
};
using Window = std::unique_ptr<merapi_window, CloseWindow>;

Window open_for(merapi_image* image, const PrivateDevice& device) {
  merapi_error error{};
  merapi_geometry geometry{};
  merapi_image_geometry(image, &geometry);
  merapi_window* made = nullptr;
  int flags = MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE;
  if (merapi_open(device.window_name().c_str(), &geometry, flags, &made, &error) < 0) {
    throw std::runtime_error(error.message);
  }
  return Window(made);
}

// Heap contents that a trace reads, at their places; zeros elsewhere.
std::vector<uint8_t> read_by_a_trace(LiveHeap* live, uint32_t bitmap, StripResult* result) {
  const merapi_config& config = live->config();
  std::vector<uint8_t> kept(live->heap_bytes());
  auto keep = [&](uint64_t from, uint64_t bytes) {
    if (from > kept.size() || bytes > kept.size() - from) throw std::runtime_error("an object ends beyond the heap");
    std::memcpy(&kept[from], live->heap() + from, bytes);
    result->kept_bytes += bytes;
  };
  live->each_marked(bitmap, [&](uint64_t object) {
    result->objects++;
    const merapi_shape* shape = live->shape(object);
    bool array =
        shape != nullptr && (shape->kind == MERAPI_SHAPE_KIND_OBJ_ARRAY || shape->kind == MERAPI_SHAPE_KIND_PRIM_ARRAY);
    keep(object + 8, config.klass_bytes + (array ? 4u : 0u));
    if (shape != nullptr && shape->kind == MERAPI_SHAPE_KIND_MIRROR) keep(object + config.mirror_size_offset, 4);
    live->each_run(object, shape, keep);
  });
  return kept;
}

}  // namespace

StripResult strip(merapi_image* image, const std::string& path) {
  DeviceOptions options;
  options.engine = "model";
  PrivateDevice device(merapi_image_window_bytes(image), options);
  Window window = open_for(image, device);
  ReplayOptions checked;
  checked.check = true;
  ReplayResult replayed = replay(image, window.get(), checked);
  if (!replayed.problem.empty()) throw std::runtime_error("the image does not replay: " + replayed.problem);

  StripResult result;
  std::vector<uint8_t> kept;
  {
    LiveHeap live(window.get());
    result.heap_bytes = live.heap_bytes();
    kept = read_by_a_trace(&live, merapi_image_bitmap(image), &result);
  }
  // The trace has left marks and counters behind: start from the image again.
  merapi_error error{};
  if (merapi_image_load(image, window.get(), &error) < 0) throw std::runtime_error(error.message);
  std::copy(kept.begin(), kept.end(), LiveHeap(window.get()).heap());
  nlohmann::json text = {{"stripped", true}};
  if (replayed.g1_seconds > 0) text["g1_mark_ms"] = replayed.g1_seconds * 1e3;
  if (merapi_image_save(window.get(), path.c_str(), merapi_image_bitmap(image), merapi_image_answers(image),
                        text.dump().c_str(), &error) < 0) {
    throw std::runtime_error(error.message);
  }
  return result;
}

}  // namespace merapi::sim
