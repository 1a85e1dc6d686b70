// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_RTL_TEST_AREA_COUNTER_H_
#define MERAPI_SIM_RTL_TEST_AREA_COUNTER_H_

#include <cstdint>

#include "sim/test/random_trace.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::rtl::test {

// Counts lines by the area that they lie in.
class AreaCounter {
 public:
  explicit AreaCounter(merapi::sim::test::Window* window) : window_(*window) {}
  void begin(uint32_t bitmap) {
    bitmap_ = bitmap;
    counts_ = {};
  }
  void count(uint64_t address, bool write) {
    auto add = [write](merapi::sim::test::Accesses* a) { (write ? a->writes : a->reads)++; };
    add(&counts_.all);
    for (int i = 0; i < int(MERAPI_AREA_COUNT); i++) {
      const merapi_area_desc& area = window_.layout.area[i];
      if (area.offset == 0 || address < area.offset || address - area.offset >= area.size) continue;
      add(&counts_.area[i]);
      if (i == MERAPI_AREA_BITMAP0 + int(bitmap_)) add(&counts_.cycle_bitmap);
    }
  }
  const merapi::sim::test::AreaAccesses& counts() const { return counts_; }

 private:
  const merapi::sim::test::Window& window_;
  uint32_t bitmap_ = 0;
  merapi::sim::test::AreaAccesses counts_;
};

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_AREA_COUNTER_H_
