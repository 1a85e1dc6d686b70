// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "scripted_device.h"

namespace merapi_test {
namespace {

bool InMetadata(int area) {
  return area != MERAPI_AREA_BITMAP0 && area != MERAPI_AREA_BITMAP1 && area != MERAPI_AREA_HEAP;
}

void ExpectSound(const merapi_geometry& geometry, const merapi_layout& layout) {
  for (int i = 0; i < static_cast<int>(MERAPI_AREA_COUNT); i++) {
    const merapi_area_desc& a = layout.area[i];
    if (a.size == 0) continue;
    EXPECT_EQ(a.offset % (InMetadata(i) ? MERAPI_AREA_ALIGNMENT : MERAPI_MAPPED_ALIGNMENT), 0u) << i;
    EXPECT_GE(a.offset, MERAPI_CONTROL_BYTES);
    EXPECT_LE(a.offset + a.size, layout.window_bytes);
    if (InMetadata(i)) {
      EXPECT_LE(a.offset + a.size, layout.metadata_bytes);
    }
    for (int j = 0; j < i; j++) {
      const merapi_area_desc& b = layout.area[j];
      EXPECT_TRUE(b.size == 0 || a.offset >= b.offset + b.size || b.offset >= a.offset + a.size) << i << " " << j;
    }
  }
  EXPECT_EQ(layout.area[MERAPI_AREA_HEAP].size, geometry.heap_bytes);
  EXPECT_GE(layout.area[MERAPI_AREA_BITMAP0].size * 8, geometry.heap_bytes >> geometry.alignment_log2);
  EXPECT_EQ(layout.window_bytes % MERAPI_MAPPED_ALIGNMENT, 0u);
}

TEST(Layout, AreasAreApartAlignedAndInside) {
  for (uint8_t region : {16, 20, 22, 25, 30, 36})
    for (uint8_t alignment : {3, 4, 6, 8})
      for (uint64_t regions : {1, 3, 17, 1000}) {
        if (region < alignment + 9) continue;
        merapi_geometry geometry{};
        geometry.region_log2 = region;
        geometry.alignment_log2 = alignment;
        geometry.heap_bytes = regions << region;
        merapi_layout layout;
        merapi_error error{};
        ASSERT_EQ(merapi_layout_compute(&geometry, &layout, &error), 0) << error.message;
        ExpectSound(geometry, layout);
      }
}

TEST(Layout, DefaultsAreThoseOfTheHeader) {
  merapi_geometry geometry{};
  geometry.region_log2 = 25;
  geometry.alignment_log2 = 3;
  geometry.heap_bytes = UINT64_C(4) << 30;
  merapi_layout layout;
  ASSERT_EQ(merapi_layout_compute(&geometry, &layout, nullptr), 0);
  EXPECT_EQ(layout.area[MERAPI_AREA_SUBMISSION].size, 1024u * 64);
  EXPECT_EQ(layout.area[MERAPI_AREA_COMPLETION].size, 4096u * 64);
  EXPECT_EQ(layout.area[MERAPI_AREA_SHAPES].size, 131072u * 64);
}

TEST(Layout, SpillAreaHoldsTheGreysOfGraphs) {
  // The JVM's own choice of regions for such heaps.
  const struct {
    uint64_t heap_mib, region_log2, spill_kib;
  } cases[] = {{4, 20, 64},     {8, 20, 128},          {128, 20, 2048},       {256, 20, 4096},
               {900, 20, 9248}, {2048, 20, 18 * 1024}, {4096, 21, 34 * 1024}, {1 << 20, 25, 8 << 20 | 2048}};
  for (const auto& c : cases) {
    merapi_geometry geometry{};
    geometry.region_log2 = static_cast<uint8_t>(c.region_log2);
    geometry.alignment_log2 = 3;
    geometry.heap_bytes = c.heap_mib << 20;
    merapi_layout layout;
    ASSERT_EQ(merapi_layout_compute(&geometry, &layout, nullptr), 0);
    EXPECT_EQ(layout.area[MERAPI_AREA_SPILL].size, c.spill_kib << 10) << c.heap_mib;
    // Beyond heap and bitmaps, which every collector has: at most 1 % of the heap plus 16 MiB; of these heaps also with
    // the gaps between areas.
    const uint64_t beyond = layout.window_bytes - geometry.heap_bytes - 2 * layout.area[MERAPI_AREA_BITMAP0].size;
    EXPECT_LE(beyond, geometry.heap_bytes / 100 + (UINT64_C(16) << 20)) << c.heap_mib;
  }
}

TEST(Layout, ImpossibleGeometriesAreRefusedInWords) {
  const merapi_geometry good = SmallGeometry();
  struct Case {
    const char* what;
    void (*spoil)(merapi_geometry*);
  };
  const Case cases[] = {
      {"heap", [](merapi_geometry* g) { g->heap_bytes = 0; }},
      {"heap", [](merapi_geometry* g) { g->heap_bytes += 4096; }},
      {"heap", [](merapi_geometry* g) { g->heap_bytes = UINT64_C(1) << 62; }},
      {"region", [](merapi_geometry* g) { g->region_log2 = 15; }},
      {"region", [](merapi_geometry* g) { g->region_log2 = 37; }},
      {"alignment", [](merapi_geometry* g) { g->alignment_log2 = 2; }},
      {"alignment", [](merapi_geometry* g) { g->alignment_log2 = 9; }},
      {"lines", [](merapi_geometry* g) { g->region_log2 = 16, g->alignment_log2 = 8; }},
      {"submission", [](merapi_geometry* g) { g->submission_entries = 96; }},
      {"submission", [](merapi_geometry* g) { g->submission_entries = MERAPI_TABLE_ENTRIES_MIN / 2; }},
      {"completion", [](merapi_geometry* g) { g->completion_entries = MERAPI_TABLE_ENTRIES_MIN / 2; }},
      {"completion", [](merapi_geometry* g) { g->completion_entries = 2 * MERAPI_TABLE_ENTRIES_MAX; }},
      {"shape", [](merapi_geometry* g) { g->shape_slots = MERAPI_TABLE_ENTRIES_MIN / 2; }},
      {"shape", [](merapi_geometry* g) { g->shape_slots = 2 * MERAPI_TABLE_ENTRIES_MAX; }},
      {"spill", [](merapi_geometry* g) { g->spill_bytes = 100; }},
  };
  for (const Case& c : cases) {
    merapi_geometry geometry = good;
    c.spoil(&geometry);
    merapi_layout layout;
    merapi_error error{};
    EXPECT_EQ(merapi_layout_compute(&geometry, &layout, &error), -EINVAL) << c.what;
    EXPECT_NE(std::strstr(error.message, c.what), nullptr) << error.message;
    EXPECT_NE(std::strstr(error.message, "expected"), nullptr) << error.message;
  }
}

TEST(Names, AreThoseOfTheContractOrUnknown) {
  EXPECT_STREQ(merapi_fault_name(MERAPI_FAULT_NONE), "none");
  EXPECT_STREQ(merapi_fault_name(MERAPI_FAULT_INTERNAL), "internal");
  EXPECT_STREQ(merapi_fault_name(MERAPI_FAULT_INTERNAL + 1), "unknown");
  EXPECT_STREQ(merapi_fault_name(UINT32_MAX), "unknown");
  EXPECT_STREQ(merapi_kind_name(MERAPI_DEVICE_KIND_BOARD), "board");
  EXPECT_STREQ(merapi_kind_name(99), "unknown");
  EXPECT_EQ(merapi_abi(), MERAPI_ABI);
  EXPECT_STRNE(merapi_version(), "");
}

}  // namespace
}  // namespace merapi_test
