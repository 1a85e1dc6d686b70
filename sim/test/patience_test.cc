// SPDX-License-Identifier: Apache-2.0
//
// How long the model works between two looks at its host, with the largest of everything that memory has room for:
// processor time of its thread, the shortest of several attempts, since what else runs here can only make it longer.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/model/clock.h"
#include "sim/test/machine.h"

namespace merapi::sim::test {
namespace {

// Of PATIENCE_MODEL_US the rest is for machines that are slower, or have other work.
constexpr uint64_t kMostNs = uint64_t{MERAPI_PATIENCE_MODEL_US} * 1000 / 3;
constexpr uint32_t kKlass = 0x1000;
constexpr int kAttempts = 5;

class Patience : public testing::Test {
 protected:
  // What each piece takes in the best of several attempts; one if that is good.
  void attempt(const std::function<void()>& body) {
    std::map<std::string, uint64_t> best;
    for (int i = 0; i < kAttempts && !HasFailure(); i++) {
      body();
      bool good = true;
      for (const auto& [what, ns] : longest_of_) {
        auto at = best.emplace(what, ns).first;
        at->second = std::min(at->second, ns);
        good = good && at->second < kMostNs;
      }
      longest_of_.clear();
      if (good) break;
    }
    for (const auto& [what, ns] : best) EXPECT_LT(ns, kMostNs) << what << ": ns in one piece";
  }
  void TearDown() override { EXPECT_TRUE(longest_of_.empty()) << "outside of attempt() nobody looks at it"; }
  void build(WindowShape shape) {
    machine_.reset();
    window_.reset();
    window_ = std::make_unique<Window>(shape);
    machine_ = std::make_unique<Machine>(window_.get(), TracerOptions{});
    machine_->on_memory_look = [this] {
      const uint64_t now = cpu_ns();
      longest_ = std::max(longest_, now - looked_);
      looked_ = now;
    };
    ASSERT_TRUE(machine_->attach());
  }
  // What the device does until `done` and how long it did not look at the host.
  void run(const char* what, const std::function<bool()>& done) {
    longest_ = 0;
    for (int i = 0; i < 10'000'000 && !done(); i++) {
      looked_ = cpu_ns();
      machine_->step();
      longest_ = std::max(longest_, cpu_ns() - looked_);
      machine_->complete();
    }
    EXPECT_TRUE(done()) << what;
    EXPECT_EQ(machine_->fault().code, uint32_t(MERAPI_FAULT_NONE)) << what;
    longest_of_[what] = std::max(longest_of_[what], longest_);
  }
  void run_until_idle(const char* what) {
    run(what, [this] { return machine_->idle(); });
  }
  void pause(const char* what) {
    machine_->request_pause();
    run(what, [this] { return machine_->pause_acknowledged(); });
  }
  void resume(const char* what) {
    machine_->resume();
    run(what, [this] { return machine_->resume_acknowledged(); });
  }

  template <typename T>
  void put(uint64_t offset, T value) {
    std::memcpy(window_->heap() + offset, &value, sizeof value);
  }

  std::unique_ptr<Window> window_;
  std::unique_ptr<Machine> machine_;
  uint64_t looked_ = 0, longest_ = 0;
  std::map<std::string, uint64_t> longest_of_;  // ns, of one attempt
};

TEST_F(Patience, ManyRegions) {
  attempt([&] {
    WindowShape shape;
    shape.oop_bytes = 8;
    shape.regions = 1u << 23;
    build(shape);
    for (uint32_t regions : {1u << 10, 1u << 22, shape.regions}) {
      window_->config()->region_count = regions;
      machine_->begin(0);
      machine_->trace(0, regions);
      run_until_idle("a cycle of more regions");
    }
    machine_->begin(0);
    run_until_idle("a cycle");
    machine_->trace(0, shape.regions);
    run_until_idle("a trace of all regions");
    pause("a pause");
    resume("a resume");
    machine_->begin(1);
    run_until_idle("the next cycle");
    machine_->abort();
    run("an abort", [this] { return machine_->abort_acknowledged(); });
    machine_->command(MERAPI_OP_CLEAR_BITMAP, 0, 0, shape.regions);
    run("a clear", [this] { return machine_->executed() == machine_->produced && machine_->complete().empty(); });
    machine_->begin(0);
    machine_->trace(0, shape.regions);
    run_until_idle("a cycle after that");
  });
}

TEST_F(Patience, ALargeRegion) {
  attempt([&] {
    WindowShape shape;
    shape.oop_bytes = 8;
    shape.regions = 2;
    shape.region_log2 = 35;
    for (int marks : {0, 1, 2}) {
      build(shape);
      window_->put_instance(kKlass, 4);
      window_->fill_regions();
      const uint64_t words = window_->region_bytes() / 8 / 64;
      const uint64_t step = marks == 1 ? 64 : 1;
      for (uint64_t i = 0; marks != 0 && i < words / 2; i += step) window_->bitmap(0)[i] = 1;
      machine_->begin(0);
      run_until_idle("begin");
      put(512 + 8, kKlass);
      machine_->grey({shape.heap_base + 512});
      run_until_idle("a reference into a large region");
      EXPECT_TRUE(window_->marked(0, 512) || marks == 2);
      pause("a pause");
      resume("a resume");
    }
  });
}

// A pause in which the host frees the large region that is being opened: nothing of it is marked, its bits are not
// those that were read.
TEST_F(Patience, ALargeRegionThatFallsWhileItIsOpened) {
  attempt([&] {
    WindowShape shape;
    shape.oop_bytes = 8;
    shape.regions = 2;
    shape.region_log2 = 32;
    build(shape);
    window_->put_instance(kKlass, 4);
    window_->fill_regions();
    const uint64_t second = window_->region_bytes();
    put(second + 8, kKlass);
    put(8, kKlass);
    for (bool falls : {false, true}) {
      ASSERT_TRUE(machine_->attach());
      window_->clear_area(MERAPI_AREA_BITMAP0);
      window_->mark(0, second + 64);
      machine_->begin(0);
      run_until_idle("begin");
      machine_->grey({shape.heap_base + second});
      machine_->command(MERAPI_OP_FENCE, 0, 0, 0);
      uint64_t looks = 0;
      auto look = machine_->on_memory_look;
      // The pause is asked for while the device is at it.
      machine_->on_memory_look = [&] {
        if (++looks == 20) machine_->request_pause();
      };
      run("a pause", [&] { return looks > 20 && machine_->pause_acknowledged(); });
      machine_->on_memory_look = look;
      EXPECT_FALSE(window_->marked(0, second));
      if (falls) {
        window_->limits()[1] = second;
        window_->clear_area(MERAPI_AREA_BITMAP0);
      }
      resume("a resume");
      run_until_idle("the rest");
      EXPECT_EQ(window_->marked(0, second), !falls);
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFS_ABOVE_LIMIT), falls);
      machine_->trace(0, 2);
      if (!falls) put(second + 64 + 8, kKlass);
      run_until_idle("a trace");
    }
  });
}

TEST_F(Patience, ManyKlasses) {
  attempt([&] {
    WindowShape shape;
    shape.oop_bytes = 8;
    shape.regions = 1024;
    shape.shape_slots = 1 << 21;
    shape.completion_entries = 4096;
    build(shape);
    const uint64_t count = 1'000'000;
    window_->fill_regions();
    for (uint64_t i = 0; i < count; i++) {
      const uint32_t klass = uint32_t(0x10000 + 8 * i);
      window_->put_instance(klass, 4, {{16, 1}});
      put(32 * i + 8, klass);
      put(32 * i + 16, i + 1 < count ? shape.heap_base + 32 * (i + 1) : 0);
    }
    machine_->begin(0);
    machine_->grey({shape.heap_base});
    const size_t before = mallinfo2().uordblks;
    run_until_idle("a list of many klasses");
    EXPECT_LT(mallinfo2().uordblks - before, size_t{80} << 20) << "what was dropped is still there";
    pause("a pause");
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    resume("a resume");
    run_until_idle("invalidate");
    machine_->begin(1);
    run_until_idle("the next cycle");
  });
}

// Of blocks that ascend more would be of objects that a device need not know.
TEST_F(Patience, ManyBlocks) {
  attempt([&] {
    constexpr uint32_t kMost = 1 << 22;
    for (uint32_t count : {kMost, kMost + 1}) {
      WindowShape shape;
      shape.regions = 4096;
      shape.shape_slots = 1 << 22;
      build(shape);
      window_->fill_regions();
      std::vector<merapi_ref_block> blocks;
      for (uint32_t i = 0; i < count; i++) blocks.push_back({12 + 4 * i, 1});
      window_->put_instance(kKlass, (12 + 4 * count + 7) / 8, blocks);
      put(8, kKlass);
      machine_->begin(0);
      machine_->grey({shape.heap_base});
      run_until_idle("an object of many blocks");
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_SHAPE_ABSENT), count > kMost);
      EXPECT_EQ(machine_->counter(MERAPI_COUNTER_REFERENCES_READ), count > kMost ? 0 : count);
    }
  });
}

}  // namespace
}  // namespace merapi::sim::test
