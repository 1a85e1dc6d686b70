// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/reached.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

namespace merapi::sim::rtl::test {
namespace {

constexpr uint32_t kEntries = 1 << 16;  // of a completion ring: more than a test fills

struct Points {
  std::set<std::string> names;
  ~Points() {
    const char* path = std::getenv("MERAPI_REACHED");
    if (path == nullptr) return;
    std::ofstream out(path, std::ios::app);
    for (const std::string& name : names) out << name << "\n";
  }
};

Points& points() {
  static Points p;
  return p;
}

}  // namespace

void reached(const std::string& kind, uint64_t which) { points().names.insert(kind + " " + std::to_string(which)); }

void reached_window(merapi::sim::test::Window* w) {
  auto* counters = w->control<merapi_counters>(MERAPI_COUNTERS_OFFSET);
  for (uint64_t i = 0; i < MERAPI_COUNTER_COUNT; i++) {
    if (counters->value[i] != 0) reached("counter", i);
  }
  reached("fault", w->control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET)->code);
  reached("state", w->control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET)->state);
  auto* ring = reinterpret_cast<merapi_completion*>(w->area(MERAPI_AREA_COMPLETION));
  for (uint32_t i = 0; i < std::min(w->shape.completion_entries, kEntries); i++) {
    if (ring[i].sequence != 0) reached("completion", ring[i].type);
  }
}

}  // namespace merapi::sim::rtl::test
