// SPDX-License-Identifier: Apache-2.0
//
// The library against a device that sees none of the host's caches. The device is stepped whenever the host looks.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "host_cache.h"
#include "stepped.h"

extern "C" int merapi_control_check(const void* control, uint64_t bytes, merapi_layout* layout, merapi_config* config,
                                    merapi_error* error);

namespace merapi_test {
namespace {

class Coherence : public Stepped {
 protected:
  void SetUp() override {
    cache_ = std::make_unique<HostCache>(path_);
    Stepped::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    cache_->on_get = [this] { device_->Poll(); };
    device_->notify = [] {};
    device_->identity.coherence = MERAPI_COHERENCE_NON_COHERENT;
    device_->on_submission = [this](const merapi_submission& s) {
      for (uint64_t word : s.payload)
        if (word != s.arg) device_->errors.push_back("stale payload in submission " + std::to_string(s.arg));
    };
    ASSERT_EQ(Configure(), 0) << error_.message;
  }
  int Configure() {
    merapi_config config;
    merapi_get_config(window_, &config);
    config.coherence = MERAPI_COHERENCE_NON_COHERENT;
    return merapi_configure(window_, &config, &error_);
  }
  void Close() {
    merapi_close(window_);
    window_ = nullptr;
    cache_->Unmapped();
  }
  int Open(const merapi_geometry* geometry, uint32_t flags) {
    return merapi_open(("file:" + path_).c_str(), geometry, flags, &window_, &error_);
  }
  uint64_t AnsweredGeneration() {
    return reinterpret_cast<const merapi_device_index*>(static_cast<const uint8_t*>(merapi_lease_base(lease_)) +
                                                        MERAPI_DEVICE_INDEX_OFFSET)
        ->generation;
  }
  const uint64_t* Limits() { return reinterpret_cast<const uint64_t*>(Memory(MERAPI_AREA_LIMITS)); }
  const uint8_t* Memory(enum merapi_area area) {
    return static_cast<const uint8_t*>(merapi_lease_base(lease_)) + merapi_layout_of(window_)->area[area].offset;
  }
  // Submissions with a payload that names its entry, round and round the ring.
  void SubmitSome(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
      merapi_submission entry{};
      entry.opcode = MERAPI_OP_GREY;
      entry.arg = i + 1;
      for (uint64_t& word : entry.payload) word = entry.arg;
      for (int tries = 0; tries < 100 && merapi_submit(window_, &entry, 1) == 0; tries++) merapi_doorbell(window_);
    }
    merapi_doorbell(window_);
    while (device_->Poll()) {
    }
  }
  std::unique_ptr<HostCache> cache_;
};

// What was written before the mode was known is in memory once it is.
TEST_F(Coherence, AFormattedWindowReachesTheDevice) {
  EXPECT_EQ(cache_->Dirty(), std::vector<uint64_t>{});
  const auto* control = static_cast<const uint8_t*>(merapi_lease_base(lease_));
  merapi_layout layout;
  merapi_config config;
  EXPECT_EQ(merapi_control_check(control, merapi_window_bytes(window_), &layout, &config, &error_), 0)
      << error_.message;
  EXPECT_EQ(config.coherence, MERAPI_COHERENCE_NON_COHERENT);
  ASSERT_EQ(merapi_attach(window_, 2000000, &error_), 0) << error_.message;
  SubmitSome(3);
  EXPECT_EQ(device_->submissions.size(), 3u);
  EXPECT_TRUE(device_->errors.empty()) << device_->errors[0];
  EXPECT_TRUE(cache_->errors.empty()) << cache_->errors[0];
}

TEST_F(Coherence, EveryLineIsHandedOverOnceOnTheWayToNonCoherent) {
  merapi_config config;
  merapi_get_config(window_, &config);
  config.coherence = MERAPI_COHERENCE_COHERENT;
  ASSERT_EQ(merapi_configure(window_, &config, &error_), 0) << error_.message;
  merapi_limit_set(window_, 3, 0x300008);
  EXPECT_EQ(Limits()[3], 0x300000u);
  auto* marks = static_cast<uint8_t*>(merapi_map_area(window_, MERAPI_AREA_BITMAP1));
  marks[4096] = 1;
  cache_->outside.clear();
  ASSERT_EQ(Configure(), 0) << error_.message;
  EXPECT_EQ(cache_->Dirty(), std::vector<uint64_t>{});
  EXPECT_EQ(Limits()[3], 0x300008u);
  // Bitmap 0 is a hole, which stays one.
  const merapi_area_desc& bitmap = merapi_layout_of(window_)->area[MERAPI_AREA_BITMAP1];
  ASSERT_EQ(cache_->outside.size(), 1u);
  const auto [offset, bytes] = cache_->outside[0];
  EXPECT_TRUE(offset >= bitmap.offset && offset <= bitmap.offset + 4096 && offset + bytes >= bitmap.offset + 8192 &&
              offset + bytes <= bitmap.offset + bitmap.size)
      << offset << ", " << bytes;
  ASSERT_EQ(Configure(), 0) << error_.message;
  EXPECT_EQ(cache_->outside.size(), 1u);
}

TEST_F(Coherence, AWindowIsOpenedAgainBesideItsDevice) {
  ASSERT_EQ(merapi_attach(window_, 2000000, &error_), 0) << error_.message;
  SubmitSome(5);
  merapi_limit_set(window_, 3, 0x300008);
  const uint64_t before = AnsweredGeneration();
  Close();
  ASSERT_EQ(Open(nullptr, 0), 0) << error_.message;
  EXPECT_GT(AnsweredGeneration(), before);  // the device has ended its writes
  EXPECT_EQ(merapi_limit_get(window_, 3), 0x300008u);
  EXPECT_EQ(cache_->Dirty(), std::vector<uint64_t>{});
  ASSERT_EQ(merapi_attach(window_, 2000000, &error_), 0) << error_.message;
  SubmitSome(5);
  EXPECT_EQ(device_->submissions.size(), 5u);
  EXPECT_TRUE(cache_->errors.empty()) << cache_->errors[0];
}

TEST_F(Coherence, ANewWindowLeavesNothingToEvictOverTheDevicesLines) {
  ASSERT_EQ(merapi_attach(window_, 2000000, &error_), 0) << error_.message;
  SubmitSome(5);
  device_->Live(3, 103);
  device_->Idle(7);
  const uint64_t before = AnsweredGeneration();
  uint64_t asked = 0;  // the last generation that the device answered: then what it wrote is cleared
  cache_->on_get = [&] {
    device_->Poll();
    asked = std::max(asked, AnsweredGeneration());
  };
  Close();
  const merapi_geometry geometry = SmallGeometry();
  ASSERT_EQ(Open(&geometry, MERAPI_OPEN_FORMAT), 0) << error_.message;
  EXPECT_GT(asked, before);
  EXPECT_EQ(AnsweredGeneration(), 0u);
  EXPECT_EQ(cache_->Dirty(), std::vector<uint64_t>{});
  ASSERT_EQ(Configure(), 0) << error_.message;
  EXPECT_EQ(cache_->Dirty(), std::vector<uint64_t>{});
  ASSERT_EQ(merapi_attach(window_, 2000000, &error_), 0) << error_.message;
  SubmitSome(5);
  device_->Live(3, 104);
  device_->Idle(9);
  cache_->Evict();
  EXPECT_EQ(merapi_idle(window_, 9), 1);
  EXPECT_EQ(AnsweredGeneration(), merapi_generation(window_));
  EXPECT_EQ(merapi_live_get(window_, 3), 104u);
  EXPECT_TRUE(cache_->errors.empty()) << cache_->errors[0];
}

// The mode of a loaded window is the image's, and what is loaded is handed over in it, the heap included.
TEST_F(Coherence, ALoadedWindowReachesTheDevice) {
  merapi_limit_set(window_, 3, 0x300008);
  static_cast<uint8_t*>(merapi_map_area(window_, MERAPI_AREA_HEAP))[70] = 1;
  const std::string saved = folder_ / "saved.mwi";
  // Saving reads the host's mapping, which the model takes away: it looks at the window through another.
  Close();
  cache_.reset();
  ASSERT_EQ(Open(nullptr, MERAPI_OPEN_READONLY), 0) << error_.message;
  ASSERT_EQ(merapi_image_save(window_, saved.c_str(), 0, nullptr, nullptr, &error_), 0) << error_.message;
  merapi_close(window_);
  window_ = nullptr;
  cache_ = std::make_unique<HostCache>(folder_ / "other");
  merapi_image* image = nullptr;
  ASSERT_EQ(merapi_image_open(saved.c_str(), &image, &error_), 0) << error_.message;
  merapi_geometry geometry;
  merapi_image_geometry(image, &geometry);
  ASSERT_EQ(merapi_open(("file:" + (folder_ / "other")).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE,
                        &window_, &error_),
            0)
      << error_.message;
  cache_->remaps = true;
  EXPECT_EQ(merapi_image_load(image, window_, &error_), 0) << error_.message;
  merapi_image_close(image);
  EXPECT_EQ(cache_->Dirty(), std::vector<uint64_t>{});
  merapi_config config;
  merapi_get_config(window_, &config);
  EXPECT_EQ(config.coherence, MERAPI_COHERENCE_NON_COHERENT);
  EXPECT_EQ(merapi_limit_get(window_, 3), 0x300008u);
  const uint64_t byte = merapi_layout_of(window_)->area[MERAPI_AREA_HEAP].offset + 70;
  EXPECT_TRUE(std::any_of(cache_->outside.begin(), cache_->outside.end(),
                          [&](const auto& range) { return byte >= range.first && byte < range.first + range.second; }));
  EXPECT_TRUE(cache_->errors.empty()) << cache_->errors[0];
}

TEST_F(Coherence, RingsCarryEverything) {
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;
  SubmitSome(100);
  EXPECT_EQ(device_->submissions.size(), 100u);
  EXPECT_TRUE(device_->errors.empty()) << device_->errors[0];
  uint32_t received = 0;
  for (uint32_t i = 0; i < 100; i++) {
    merapi_completion entry{};
    entry.arg = i;
    entry.payload[5] = i * UINT64_C(0x100000001);
    ASSERT_TRUE(device_->Complete(entry));
    if (i % 7 != 0) continue;
    merapi_completion out[16];
    const int got = merapi_complete(window_, out, 16);
    ASSERT_GT(got, 0);
    for (int k = 0; k < got; k++, received++) {
      EXPECT_EQ(out[k].arg, received);
      EXPECT_EQ(out[k].payload[5], received * UINT64_C(0x100000001));
    }
  }
  EXPECT_TRUE(cache_->errors.empty()) << cache_->errors[0];
}

TEST_F(Coherence, RequestsIdleAndFaultsAreSeen) {
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;
  for (int i = 0; i < 5; i++) {
    ASSERT_EQ(merapi_pause(window_, 1000000), 0);
    ASSERT_EQ(merapi_resume(window_), 0);
    ASSERT_EQ(merapi_abort(window_, 1000000), 0);
  }
  EXPECT_EQ(merapi_idle(window_, 3), 0);
  device_->Idle(3);
  EXPECT_EQ(merapi_idle(window_, 3), 1);
  EXPECT_EQ(merapi_fault_get(window_, nullptr), 0u);
  device_->Fault(MERAPI_FAULT_MEMORY, 64, 0);
  merapi_fault_record record;
  EXPECT_EQ(merapi_fault_get(window_, &record), static_cast<uint32_t>(MERAPI_FAULT_MEMORY));
  EXPECT_EQ(record.address, 64u);
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;  // and once more from the start
  SubmitSome(3);
  EXPECT_EQ(device_->submissions.size(), 3u);
  EXPECT_TRUE(cache_->errors.empty()) << cache_->errors[0];
}

TEST_F(Coherence, ShapesAndLimitsReachTheDevice) {
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;
  std::vector<merapi_ref_block> blocks(9);
  for (uint32_t i = 0; i < 9; i++) blocks[i] = {16 + 16 * i, 1};
  merapi_shape shape{};
  shape.klass_word = 0x1234560;
  shape.kind = MERAPI_SHAPE_KIND_INSTANCE;
  shape.size_words = 40;
  shape.block_count = 9;
  ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);
  const auto find = [&]() -> const merapi_shape* {
    const auto* table = reinterpret_cast<const merapi_shape*>(Memory(MERAPI_AREA_SHAPES));
    for (int i = 0; i < 64; i++)
      if (table[i].klass_word == shape.klass_word) return &table[i];
    return nullptr;
  };
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->size_words, 40u);
  EXPECT_EQ(std::memcmp(Memory(MERAPI_AREA_SHAPE_EXTENSION) + find()->extension, blocks.data(),
                        blocks.size() * sizeof blocks[0]),
            0);
  ASSERT_EQ(merapi_shape_remove(window_, shape.klass_word), 0);
  EXPECT_EQ(find(), nullptr);
  for (uint32_t region = 0; region < 8; region++) merapi_limit_set(window_, region, region << 20 | 8);
  const auto* limits = reinterpret_cast<const uint64_t*>(Memory(MERAPI_AREA_LIMITS));
  for (uint32_t region = 0; region < 8; region++) EXPECT_EQ(limits[region], region << 20 | 8);
}

// One line of the live table holds eight regions: clearing one must not bring back what the host once read of others.
TEST_F(Coherence, ClearingALiveWordKeepsItsNeighbours) {
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;
  const auto* live = reinterpret_cast<const uint64_t*>(Memory(MERAPI_AREA_LIVE));
  EXPECT_EQ(merapi_live_get(window_, 1), 0u);  // the line is cached now
  for (uint32_t region = 0; region < 8; region++) device_->Live(region, 100 + region);
  merapi_live_clear(window_, 2);
  for (uint32_t region = 0; region < 8; region++) EXPECT_EQ(live[region], region == 2 ? 0 : 100 + region);
  for (uint32_t region = 0; region < 8; region++)
    EXPECT_EQ(merapi_live_get(window_, region), region == 2 ? 0 : 100 + region);
}

// The tests above are only worth something if they fail when a step is left out.
TEST_F(Coherence, MissingWriteBackIsNoticed) {
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;
  cache_->publish_writes_back = false;
  SubmitSome(100);
  // The tail word is published and takes its line along, so the entries arrive; shapes' extension lines do not.
  std::vector<merapi_ref_block> blocks(9, {16, 1});
  for (uint32_t i = 0; i < 9; i++) blocks[i].offset = 16 + 16 * i;
  merapi_shape shape{};
  shape.klass_word = 0x1234560;
  shape.kind = MERAPI_SHAPE_KIND_INSTANCE;
  shape.size_words = 40;
  shape.block_count = 9;
  ASSERT_EQ(merapi_shape_put(window_, &shape, blocks.data()), 0);
  EXPECT_NE(std::memcmp(Memory(MERAPI_AREA_SHAPE_EXTENSION), blocks.data(), blocks.size() * sizeof blocks[0]), 0);
  cache_->publish_writes_back = true;
}

TEST_F(Coherence, MissingInvalidationIsNoticed) {
  merapi_fault_get(window_, nullptr);  // the host has the device's index line from now on
  cache_->get_drops = false;
  EXPECT_EQ(merapi_attach(window_, 20000, &error_), -ETIMEDOUT);
  cache_->get_drops = true;
  ASSERT_EQ(merapi_attach(window_, 10000000, &error_), 0) << error_.message;
  cache_->invalidate_drops = false;
  EXPECT_EQ(merapi_live_get(window_, 1), 0u);
  device_->Live(3, 103);
  merapi_live_clear(window_, 2);
  EXPECT_NE(reinterpret_cast<const uint64_t*>(Memory(MERAPI_AREA_LIVE))[3], 103u);
  cache_->invalidate_drops = true;
}

// The library's own operations for such a device: cache flushes. On a coherent machine they must at least be harmless.
TEST(Flush, OwnOperationsWork) {
  Folder folder;
  const std::string path = folder / "window";
  const merapi_geometry geometry = SmallGeometry();
  merapi_error error{};
  merapi_window* window = nullptr;
  ASSERT_EQ(merapi_open(("file:" + path).c_str(), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &window, &error),
            0);
  merapi_config config;
  merapi_get_config(window, &config);
  config.coherence = MERAPI_COHERENCE_NON_COHERENT;
  ASSERT_EQ(merapi_configure(window, &config, &error), 0) << error.message;
  merapi_lease* lease = nullptr;
  ASSERT_EQ(merapi_serve(path.c_str(), &lease, &error), 0) << error.message;
  {
    DeviceThread device(lease, [](ScriptedDevice& d) { d.identity.coherence = MERAPI_COHERENCE_NON_COHERENT; });
    ASSERT_EQ(merapi_attach(window, 10000000, &error), 0) << error.message;
    for (int i = 0; i < 100; i++) {
      merapi_submission entry{};
      while (merapi_submit(window, &entry, 1) == 0) merapi_doorbell(window);
    }
    ASSERT_EQ(merapi_pause(window, 0), 0);
    ASSERT_EQ(merapi_abort(window, 0), 0);
    merapi_limit_set(window, 1, 8);
    merapi_live_clear(window, 1);
    EXPECT_EQ(merapi_limit_get(window, 1), 8u);
    auto* heap = static_cast<uint8_t*>(merapi_map_area(window, MERAPI_AREA_HEAP));
    heap[70] = 1;
    merapi_write_back(window, heap, 100);
    merapi_invalidate(window, heap, 0);
    EXPECT_EQ(heap[70], 1);
    merapi_close(window);
  }
}

}  // namespace
}  // namespace merapi_test
