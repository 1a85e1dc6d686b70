// SPDX-License-Identifier: Apache-2.0
//
// When a host gives up a trace. The device works whenever its host looks, and has filled the completion ring by then:
// however fast the host is, there is something to read.
#include "graph/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sw/libmerapi/test/scripted_device.h"

namespace merapi::graph {
namespace {

using merapi_test::ScriptedDevice;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kKlass = 0x1000, kKlasses = 32;
// A host that has not given up by then does not.
constexpr auto kMost = std::chrono::seconds(10);

class Trace : public testing::Test {
 protected:
  Trace() : window_("file:" + path_, &geometry_, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE) {
    merapi_get_config(window_.get(), &config_);
    for (uint64_t i = 0; i < kKlasses; i++) {
      merapi_shape shape{};
      shape.klass_word = kKlass + i;
      shape.kind = MERAPI_SHAPE_KIND_INSTANCE;
      shape.size_words = 2;
      EXPECT_EQ(merapi_shape_put(window_.get(), &shape, nullptr), 0);
    }
    EXPECT_EQ(merapi_serve(path_.c_str(), &lease_, nullptr), 0);
    // A mapping of its own: it is there when the device is gone.
    const int file = open(path_.c_str(), O_RDWR | O_CLOEXEC);
    memory_ = mmap(nullptr, window_.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    EXPECT_NE(memory_, MAP_FAILED);
    device_.emplace(memory_);
    device_->on_submission = [this](const merapi_submission& entry) { cycle_ = entry.cycle; };
    merapi_ops ops{};
    ops.context = this;
    ops.put = [](void*, void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); };
    ops.publish = [](void*, void* to, uint64_t value, size_t bytes) { memcpy(to, &value, bytes); };
    ops.get = [](void* self, void* to, const void* from, size_t bytes) {
      static_cast<Trace*>(self)->work();
      memcpy(to, from, bytes);
    };
    ops.invalidate = ops.write_back = [](void*, const void*, size_t) {};
    merapi_set_ops(window_.get(), &ops);
  }
  ~Trace() override {
    merapi_set_ops(window_.get(), nullptr);
    merapi_revoke(window_.get());
    end_device();
    munmap(memory_, window_.bytes());
  }

  void end_device() {
    if (lease_ != nullptr) merapi_lease_end(lease_);
    lease_ = nullptr;
  }

  // One look of the host.
  void work() {
    device_->Poll();
    if (cycle_ == 0 || device_->paused()) return;
    if (Clock::now() - start_ > kMost) {
      endless_ = true;
      return;
    }
    while (waiting_ || (waiting_ = next_())) {
      if (!device_->Complete(*waiting_)) return;
      waiting_.reset();
    }
  }

  merapi_completion completion(uint8_t type, uint64_t value = 0) const {
    merapi_completion entry{};
    entry.type = type;
    entry.count = type == MERAPI_COMP_DONE ? 0 : 1;
    entry.arg = type == MERAPI_COMP_DONE ? MERAPI_OP_TRACE_REGION : 0;
    entry.payload[0] = value;
    entry.cycle = cycle_;
    return entry;
  }
  uint64_t object(uint64_t number) const { return config_.heap_base + 8 * (number % (geometry_.heap_bytes / 8)); }

  // Trace while the device fills the ring with what `next` makes, as long as it makes something.
  void trace_with(const std::function<std::optional<merapi_completion>()>& next, const TraceOptions& options) {
    next_ = next;
    waiting_.reset();
    cycle_ = 0;
    start_ = Clock::now();
    trace(window_, Answers(), options, &result_);
  }
  // The error that such a trace ends with.
  Error failure(const std::function<std::optional<merapi_completion>()>& next, const TraceOptions& options) {
    try {
      trace_with(next, options);
    } catch (const Error& error) {
      EXPECT_FALSE(endless_) << "not before the device had nothing more to say";
      return error;
    }
    ADD_FAILURE() << "the trace ended";
    return Error(0, "");
  }

  merapi_test::Folder folder_;
  const std::string path_ = folder_ / "window";
  const merapi_geometry geometry_ = merapi_test::SmallGeometry();
  const Window window_;
  merapi_config config_{};
  merapi_lease* lease_ = nullptr;
  void* memory_ = nullptr;
  std::optional<ScriptedDevice> device_;
  std::function<std::optional<merapi_completion>()> next_;
  std::optional<merapi_completion> waiting_;  // for room in the ring
  uint32_t cycle_ = 0;                        // that the device was told of
  Clock::time_point start_;
  bool endless_ = false;
  TraceResult result_;
};

bool says(const Error& error, const char* words) { return std::string(error.what()).find(words) != std::string::npos; }

TEST_F(Trace, ItsTimeIsOverThoughThereIsMoreToRead) {
  TraceOptions options;
  options.timeout_seconds = 0.05;
  uint64_t number = 0;
  const Error error = failure([&] { return completion(MERAPI_COMP_DEFER, object(number++)); }, options);
  EXPECT_EQ(error.code, -ETIMEDOUT);
  EXPECT_TRUE(says(error, "expected the trace to end within 0.05 s")) << error.what();
  EXPECT_GT(result_.deferred.size(), 0u);
}

TEST_F(Trace, ADeviceThatIsGoneIsNoticedThoughThereIsMoreToRead) {
  TraceOptions options;
  options.patience_us = 60'000'000;
  int entries = 0;
  const auto next = [&] {
    if (++entries == 1000) end_device();
    return completion(MERAPI_COMP_DONE);
  };
  const Error error = failure(next, options);
  EXPECT_EQ(error.code, -ENODEV);
  EXPECT_TRUE(says(error, "the device went away while it traced")) << error.what();
}

// What was said before, or cannot be, is no sign of life.
TEST_F(Trace, WhatIsNotNewIsNoNews) {
  TraceOptions options;
  options.patience_us = 20'000;
  uint64_t number = 0;
  const auto of_another_cycle = [](merapi_completion entry) {
    entry.cycle--;
    return entry;
  };
  const std::vector<std::pair<const char*, std::function<merapi_completion()>>> cases = {
      {"the answer to a command", [&] { return completion(MERAPI_COMP_DONE); }},
      {"an object", [&] { return completion(MERAPI_COMP_DEFER, object(7)); }},
      {"a klass", [&] { return completion(MERAPI_COMP_SHAPE_SEEN, kKlass); }},
      {"what was of another cycle", [&] { return of_another_cycle(completion(MERAPI_COMP_DEFER, object(number++))); }},
      {"places in objects", [&] { return completion(MERAPI_COMP_DEFER, object(number++) + 4); }},
      {"places outside of the heap",
       [&] { return completion(MERAPI_COMP_DEFER, object(0) + geometry_.heap_bytes + 8 * number++); }},
      {"klasses without a shape", [&] { return completion(MERAPI_COMP_SHAPE_SEEN, kKlass + kKlasses + number++); }},
      {"entries of no type", [&] { return completion(0x7F, object(number++)); }},
  };
  for (const auto& [what, next] : cases) {
    SCOPED_TRACE(what);
    const Error error = failure(next, options);
    EXPECT_EQ(error.code, -ETIMEDOUT);
    EXPECT_TRUE(says(error, "the device makes no progress")) << error.what();
    if (HasFailure()) return;
  }
}

// A device whose counters stand still, as long as it has something new to say now and then.
TEST_F(Trace, WhatIsNewIsNews) {
  TraceOptions options;
  options.patience_us = 500'000;
  for (const uint8_t type : {MERAPI_COMP_DEFER, MERAPI_COMP_SHAPE_SEEN}) {
    uint64_t said = 0;
    bool idle = false;
    const auto next = [&]() -> std::optional<merapi_completion> {
      const uint64_t due = uint64_t((Clock::now() - start_) / std::chrono::milliseconds(50));
      if (said == kKlasses) {
        if (!std::exchange(idle, true)) device_->Idle(cycle_);
        return std::nullopt;
      }
      if (said <= due) said++;
      return completion(type, type == MERAPI_COMP_DEFER ? object(said - 1) : kKlass + said - 1);
    };
    trace_with(next, options);
    EXPECT_EQ(type == MERAPI_COMP_DEFER ? result_.deferred.size() : result_.klasses.size(), kKlasses);
  }
}

}  // namespace
}  // namespace merapi::graph
