// SPDX-License-Identifier: Apache-2.0
// The expander's memory, the part of it that is the window, and the words of the window's control page that the PCI
// function needs: it wakes the engine and waits for its events.
#pragma once

#include <stdint.h>

#include <atomic>
#include <string>

namespace merapi::pci {

class Window {
 public:
  // Maps the file; the window is nothing of it yet. Throws std::runtime_error when there is none.
  explicit Window(const std::string& path);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Of the memory.
  uint64_t memory_bytes() const { return memory_bytes_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }
  // The window is another part of the memory from now on, or nothing of it (0 bytes). False, and nothing changes, when
  // it cannot be one: a window begins at a multiple of 2 MiB and has at least a control page.
  bool move(uint64_t offset, uint64_t bytes);

  // What follows is for a window that has bytes.

  // Wakes an engine that sleeps on host_index.doorbell, whose value the host has published already.
  void ring() const;

  // device_index.event as it is now.
  uint32_t event() const;

  // Waits until event() differs from `seen`, at most `microseconds`. Returns event().
  uint32_t wait_event(uint32_t seen, uint64_t microseconds) const;

 private:
  uint32_t* word(uint32_t at) const;

  uint8_t* base_ = nullptr;
  uint64_t memory_bytes_ = 0;
  std::atomic<uint64_t> offset_{0}, bytes_{0};
};

}  // namespace merapi::pci
