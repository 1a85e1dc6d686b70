// SPDX-License-Identifier: Apache-2.0
//
// SIGBUS inside a window. A file may be truncated under the device (or tmpfs may be full, or a page may be poisoned).
// The handler puts private zero pages where the memory is gone and notes what happened, so that the thread that
// touched it goes on, finds the note at its next look and ends its context; other windows are not concerned. A SIGBUS
// outside every window is for the handler that was there before, or the default action.
#ifndef MERAPI_SIM_DEVICE_MEMORY_GUARD_H_
#define MERAPI_SIM_DEVICE_MEMORY_GUARD_H_

#include <atomic>
#include <cstdint>

namespace merapi::sim {

class MemoryGuard {
 public:
  // Installs the handler with the first guard. Throws std::runtime_error when too many windows are guarded.
  MemoryGuard(uint8_t* base, uint64_t bytes);
  // The mapping may go away only after this.
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

  // enum merapi_fault of the first error and its window offset; MERAPI_FAULT_NONE when there was none. Clears it.
  uint32_t take(uint64_t* offset);

 private:
  int slot_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_MEMORY_GUARD_H_
