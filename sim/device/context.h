// SPDX-License-Identifier: Apache-2.0
//
// One window: its lease, its engine and the thread that runs it. Ends when the host is gone, when its memory is gone,
// or when asked to; then the window is given back. Contexts share nothing.
#ifndef MERAPI_SIM_DEVICE_CONTEXT_H_
#define MERAPI_SIM_DEVICE_CONTEXT_H_

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "merapi/merapi.h"
#include "sim/device/memory_guard.h"
#include "sim/device/options.h"
#include "sim/engine/engine.h"

namespace merapi::sim {

class Context : private EngineHost {
 public:
  enum class End { kRunning, kHostGone, kFault, kStopped };

  // Owns the lease. `wake` is called, by the context's thread, when it has ended by itself.
  Context(const DeviceOptions& options, merapi_lease* lease, std::string name, std::function<void()> wake);
  // Waits until the engine is there. Throws what was thrown instead of one. Once.
  void wait_for_engine() { engine_made_.get_future().get(); }
  // Asks the thread to stop and waits for it (at most its longest sleep, 100 ms).
  ~Context() override;

  void stop() { stop_.store(true, std::memory_order_relaxed); }
  bool ended() const { return end_.load(std::memory_order_acquire) != End::kRunning; }
  End end() const { return end_.load(std::memory_order_acquire); }
  const std::string& name() const { return name_; }
  uint64_t bytes() const { return memory_.bytes; }
  EngineStatus status() const;

 private:
  void notify() override { merapi_lease_notify(lease_); }
  uint32_t take_memory_fault(uint64_t* offset) override { return guard_->take(offset); }
  void run();
  std::unique_ptr<Engine> make();  // null: it could not be made, which was told
  End serve(Engine* engine);
  void note(const EngineStatus& status);
  uint32_t cycle_of_fault(const EngineStatus& status, const EngineStatus& last) const;

  const DeviceOptions options_;
  merapi_lease* lease_;
  const std::string name_;
  const std::function<void()> wake_;
  WindowMemory memory_;
  std::optional<MemoryGuard> guard_;  // ends before the mapping does
  std::atomic<bool> stop_{false};
  std::atomic<End> end_{End::kRunning};
  mutable std::mutex status_lock_;
  EngineStatus status_;
  std::promise<void> engine_made_;
  std::thread thread_;
};

const char* end_name(Context::End end);

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_CONTEXT_H_
