// SPDX-License-Identifier: Apache-2.0
// The words of a window's control page that the PCI function needs: it wakes the engine and waits for its events.
#pragma once

#include <stdint.h>

#include <string>

namespace merapi::pci {

class Window {
 public:
  // Maps the control page of the file. Throws std::runtime_error when there is none.
  explicit Window(const std::string& path);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  uint64_t bytes() const { return bytes_; }

  // Wakes an engine that sleeps on host_index.doorbell, whose value the host has published already.
  void ring() const;

  // device_index.event as it is now.
  uint32_t event() const;

  // Waits until event() differs from `seen`, at most `microseconds`. Returns event().
  uint32_t wait_event(uint32_t seen, uint64_t microseconds) const;

 private:
  uint32_t* word(uint32_t offset) const;

  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace merapi::pci
