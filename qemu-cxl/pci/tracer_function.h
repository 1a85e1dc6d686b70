// SPDX-License-Identifier: Apache-2.0
// The tracer as a PCI function: configuration space, registers and interrupts.
//
// BAR 0, 4 KiB, 32-bit registers (docs/emulation.md). Nothing of rings or indexes is here: they live in the window.
//
//   0x00 MAGIC      ro  "MRPI"
//   0x04 VERSION    ro  contract version, major << 16 | minor
//   0x08 SIZE_LOW   ro  bytes of the expander's memory
//   0x0c SIZE_HIGH  ro
//   0x10 DOORBELL   wo  any write wakes the engine; the host has published host_index.doorbell before
//   0x14 ARM        wo  the value of device_index.event that the host has seen; vector 0 is sent once when the event
//                       differs from it, at once if it does already, and the function is not armed any more
//   0x18 STATUS     ro  bit 0 the engine runs, bit 1 armed
//   0x1c SENT       ro  interrupts sent since the last reset
//   0x20 RESET      wo  1: disarm, end the engine and start a new one, none without a window
//   0x24 STARTS     ro  engines started so far
//   0x28 OFFSET_LOW   rw  the window: from this byte of the memory on, a multiple of 2 MiB; 0 at first
//   0x2c OFFSET_HIGH  rw
//   0x30 LENGTH_LOW   rw  so many bytes of it; 0, no window, at first. Both are taken by RESET; what does not lie
//   inside 0x34 LENGTH_HIGH  rw  the memory is dropped then, and they read as what is in force
//
// BAR 2, 4 KiB: MSI-X table and pending bits, which the virtual machine monitor keeps.
#pragma once

#include <stdint.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine.h"
#include "window.h"

namespace merapi::pci {

constexpr uint32_t kVectors = 1;
constexpr uint32_t kBarBytes = 4096;
constexpr uint32_t kConfigBytes = 4096;
// Vendor of QEMU's own devices and a device number of no other one.
constexpr uint16_t kVendor = 0x1234;
constexpr uint16_t kDevice = 0x4d52;

enum Register : uint32_t {
  kMagic = 0x00,
  kVersion = 0x04,
  kSizeLow = 0x08,
  kSizeHigh = 0x0c,
  kDoorbell = 0x10,
  kArm = 0x14,
  kStatus = 0x18,
  kSent = 0x1c,
  kReset = 0x20,
  kStarts = 0x24,
  kOffsetLow = 0x28,
  kOffsetHigh = 0x2c,
  kLengthLow = 0x30,
  kLengthHigh = 0x34,
};

class TracerFunction {
 public:
  // `path` is the file of the memory, for the engine.
  TracerFunction(Window& window, Engine& engine, std::string path);
  ~TracerFunction();

  void read_config(uint64_t offset, uint8_t* data, uint32_t bytes) const;
  void write_config(uint64_t offset, const uint8_t* data, uint32_t bytes);
  // Registers are read and written whole; anything else reads as ones and writes nothing.
  void read_register(uint64_t offset, uint8_t* data, uint32_t bytes) const;
  void write_register(uint64_t offset, const uint8_t* data, uint32_t bytes);
  // Takes `fd` (an eventfd, -1: none) for a vector; the former one is closed.
  void set_vector(uint32_t vector, int fd);
  // Function reset, and the way from D3hot to D0: as RESET without a window, and configuration space as at the start.
  void reset();

 private:
  void make_config();
  // With the bounds that were written.
  void restart();
  void arm(uint32_t seen);
  // Sends the interrupt; with the lock held.
  void send();
  void watch();

  Window& window_;
  Engine& engine_;
  const std::string path_;
  std::array<uint8_t, kConfigBytes> config_{};
  mutable std::mutex lock_;
  std::condition_variable changed_;
  bool armed_ = false, ending_ = false;
  uint32_t seen_ = 0, sent_ = 0;
  uint64_t offset_ = 0, length_ = 0;  // as written
  std::array<int, kVectors> vectors_;
  std::thread thread_;
};

}  // namespace merapi::pci
