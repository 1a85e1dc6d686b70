// SPDX-License-Identifier: Apache-2.0
#include "sim/device/context.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "sim/device/engines.h"
#include "sim/device/scheduling.h"

namespace merapi::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookForHost = std::chrono::milliseconds(20);
constexpr uint64_t kLongestSleepUs = 100'000;
// The shortest that the kernel grants.
constexpr uint64_t kSchedulingSliceNs = 100'000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

std::thread start_thread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& e) {
    throw std::runtime_error(std::string("expected to start a thread for it, found: ") + strerror(e.code().value()) +
                             "; raise the limits of processes and memory ('ulimit -u', '-v', '-d'; pids.max of a "
                             "container)");
  }
}

}  // namespace

const char* end_name(Context::End end) {
  switch (end) {
    case Context::End::kRunning:
      return "running";
    case Context::End::kHostGone:
      return "host gone";
    case Context::End::kFault:
      return "fault";
    case Context::End::kStopped:
      return "stopped";
  }
  return "unknown";
}

Context::Context(const DeviceOptions& options, merapi_lease* lease, std::string name, std::function<void()> wake)
    : options_(options),
      lease_(lease),
      name_(std::move(name)),
      wake_(std::move(wake)),
      memory_{static_cast<uint8_t*>(merapi_lease_base(lease)), merapi_lease_bytes(lease)},
      guard_(std::in_place, memory_.base, memory_.bytes),
      thread_(start_thread([this] { run(); })) {}

Context::~Context() {
  stop();
  thread_.join();
}

EngineStatus Context::status() const {
  std::lock_guard<std::mutex> hold(status_lock_);
  return status_;
}

void Context::note(const EngineStatus& status) {
  std::lock_guard<std::mutex> hold(status_lock_);
  status_ = status;
}

void Context::run() {
  spdlog::info("{}: window of {} MiB", name_, memory_.bytes >> 20);
  if (options_.realtime) {
    if (int error = ask_for_realtime()) spdlog::warn("{}: not before ordinary threads: {}", name_, strerror(error));
  } else if (!ask_for_short_slice(kSchedulingSliceNs)) {
    spdlog::debug("{}: no short scheduling slice", name_);
  }
  End end = End::kFault;
  try {
    if (std::unique_ptr<Engine> engine = make(); engine != nullptr) {
      end = serve(engine.get());
      note(engine->status());
    }
  } catch (const std::exception& e) {
    spdlog::error("{}: {}", name_, e.what());
  }
  guard_.reset();
  merapi_lease_end(lease_);
  lease_ = nullptr;
  EngineStatus s = status();
  spdlog::info("{}: ended ({}); {} cycles, {} objects marked, {} faults", name_, end_name(end), s.cycles_begun,
               s.objects_marked, s.faults);
  end_.store(end, std::memory_order_release);
  wake_();
}

std::unique_ptr<Engine> Context::make() {
  try {
    std::unique_ptr<Engine> engine = make_engine(options_, memory_, this);
    engine_made_.set_value();
    return engine;
  } catch (const std::exception& e) {
    spdlog::error("{}: {}", name_, e.what());
    engine_made_.set_exception(std::current_exception());
    return nullptr;
  }
}

// An abort may have ended the cycle in the same step, but not what was recorded of the first fault of a generation.
uint32_t Context::cycle_of_fault(const EngineStatus& status, const EngineStatus& last) const {
  const auto* record = reinterpret_cast<const merapi_fault_record*>(memory_.base + MERAPI_FAULT_RECORD_OFFSET);
  const bool first = status.generation != last.generation || last.last_fault == MERAPI_FAULT_NONE;
  return first && record->code == status.last_fault ? record->cycle : status.cycle;
}

Context::End Context::serve(Engine* engine) {
  const auto spin = std::chrono::microseconds(options_.spin_us);
  auto idle_since = Clock::now();
  auto looked = idle_since;
  bool idle = false;
  EngineStatus last;
  while (!stop_.load(std::memory_order_relaxed)) {
    Step step = engine->step();
    EngineStatus status = engine->status();
    if (status.faults > last.faults) {
      spdlog::warn("{}: fault {} in cycle {}; waiting for an abort or a new handshake", name_,
                   merapi_fault_name(status.last_fault), cycle_of_fault(status, last));
    }
    if (status.generation != last.generation) spdlog::debug("{}: generation {}", name_, status.generation);
    if (status.cycle != last.cycle) spdlog::debug("{}: cycle {}", name_, status.cycle);
    last = status;
    if (step.next == Step::kEnded) {
      spdlog::error("{}: its memory is gone (file truncated, no space left, or a memory error)", name_);
      return End::kFault;
    }
    auto now = Clock::now();
    if (step.next != Step::kAgain && !idle) idle_since = now;
    idle = step.next != Step::kAgain;
    const bool spins = idle && now - idle_since < spin;
    const bool sleeps = idle && !spins;
    if (sleeps || now - looked >= kLookForHost) {
      looked = now;
      note(status);
      if (merapi_lease_gone(lease_)) return End::kHostGone;
    }
    if (spins) {
      for (int i = 0; i < 8; i++) relax();
    }
    if (!sleeps) continue;
    merapi_lease_sleep(lease_, engine->doorbell_seen(), std::min(step.sleep_us, kLongestSleepUs));
    idle = false;
  }
  return End::kStopped;
}

}  // namespace merapi::sim
