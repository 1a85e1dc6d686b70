// SPDX-License-Identifier: Apache-2.0
#include "tracer_function.h"

#include <linux/pci_regs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "merapi/contract.h"

namespace merapi::pci {
namespace {

constexpr uint32_t kMagicValue = 0x4950524d;  // "MRPI"
constexpr uint8_t kExpressCap = 0x40, kMsixCap = 0x80, kPowerCap = 0x90;
constexpr uint8_t kD0 = 0, kD3hot = 3;
constexpr uint32_t kTableBar = 2, kPendingOffset = 0x800;
// How long the watcher relies on a wake-up before it looks by itself.
constexpr uint64_t kLookUs = 1000;

void put16(uint8_t* at, uint32_t value) {
  at[0] = uint8_t(value);
  at[1] = uint8_t(value >> 8);
}

void put32(uint8_t* at, uint32_t value) {
  put16(at, value);
  put16(at + 2, value >> 16);
}

void set_low(uint64_t* whole, uint32_t value) { *whole = (*whole & ~uint64_t{UINT32_MAX}) | value; }
void set_high(uint64_t* whole, uint32_t value) { *whole = (*whole & UINT32_MAX) | uint64_t{value} << 32; }

}  // namespace

TracerFunction::TracerFunction(Window& window, Engine& engine, std::string path)
    : window_(window), engine_(engine), path_(std::move(path)) {
  vectors_.fill(-1);
  make_config();
  thread_ = std::thread([this] { watch(); });
}

TracerFunction::~TracerFunction() {
  {
    std::lock_guard<std::mutex> hold(lock_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (uint32_t v = 0; v < kVectors; v++) set_vector(v, -1);
}

void TracerFunction::make_config() {
  uint8_t* c = config_.data();
  config_.fill(0);
  put16(c + PCI_VENDOR_ID, kVendor);
  put16(c + PCI_DEVICE_ID, kDevice);
  put16(c + PCI_STATUS, PCI_STATUS_CAP_LIST);
  c[PCI_REVISION_ID] = MERAPI_VERSION_MAJOR;
  put16(c + PCI_CLASS_DEVICE, 0x1200);  // processing accelerator
  put16(c + PCI_SUBSYSTEM_VENDOR_ID, kVendor);
  put16(c + PCI_SUBSYSTEM_ID, kDevice);
  c[PCI_CAPABILITY_LIST] = kExpressCap;
  c[kExpressCap] = PCI_CAP_ID_EXP;
  c[kExpressCap + 1] = kMsixCap;
  put16(c + kExpressCap + PCI_EXP_FLAGS, 2);  // version 2, endpoint
  put32(c + kExpressCap + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER | PCI_EXP_DEVCAP_FLR);
  put32(c + kExpressCap + PCI_EXP_LNKCAP, 0x11);  // 2.5 GT/s, one lane: what the virtual port has
  put16(c + kExpressCap + PCI_EXP_LNKSTA, 0x11);
  c[kMsixCap] = PCI_CAP_ID_MSIX;
  c[kMsixCap + 1] = kPowerCap;
  put16(c + kMsixCap + PCI_MSIX_FLAGS, kVectors - 1);
  put32(c + kMsixCap + PCI_MSIX_TABLE, kTableBar);
  put32(c + kMsixCap + PCI_MSIX_PBA, kPendingOffset | kTableBar);
  c[kPowerCap] = PCI_CAP_ID_PM;
  put16(c + kPowerCap + PCI_PM_PMC, 3);  // version 3, D0 and D3 alone; it wakes nobody
}

void TracerFunction::read_config(uint64_t offset, uint8_t* data, uint32_t bytes) const {
  memset(data, 0xff, bytes);
  if (offset < kConfigBytes && bytes <= kConfigBytes - offset) memcpy(data, config_.data() + offset, bytes);
}

void TracerFunction::write_config(uint64_t offset, const uint8_t* data, uint32_t bytes) {
  // A guest asks for a function reset here; the client passes it on like any other write.
  const uint64_t control = kExpressCap + PCI_EXP_DEVCTL + 1u;
  if (offset <= control && control < offset + bytes && (data[control - offset] & (PCI_EXP_DEVCTL_BCR_FLR >> 8)) != 0) {
    reset();
    return;
  }
  // What it knows is lost in D3hot: it wakes as after a reset.
  const uint64_t power = kPowerCap + PCI_PM_CTRL;
  if (offset <= power && power < offset + bytes) {
    const uint8_t to = data[power - offset] & PCI_PM_CTRL_STATE_MASK;
    if (to == kD0 && config_[power] == kD3hot) {
      reset();
      return;
    }
    if (to == kD0 || to == kD3hot) config_[power] = to;
  }
  for (uint32_t i = 0; i < bytes && offset + i < kConfigBytes; i++) {
    const uint64_t at = offset + i;
    uint8_t mask = 0;
    if (at == PCI_COMMAND) mask = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    if (at == PCI_COMMAND + 1) mask = PCI_COMMAND_INTX_DISABLE >> 8;
    // Base addresses of BAR 0 and BAR 2, both of 4 KiB, 32 bits: the upper 20 bits are theirs.
    for (uint64_t bar : {PCI_BASE_ADDRESS_0, PCI_BASE_ADDRESS_2}) {
      if (at == bar + 1) mask = 0xf0;
      if (at == bar + 2 || at == bar + 3) mask = 0xff;
    }
    if (at == kMsixCap + PCI_MSIX_FLAGS + 1u) mask = (PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL) >> 8;
    if (at == kExpressCap + PCI_EXP_DEVCTL || at == kExpressCap + PCI_EXP_DEVCTL + 1u) mask = 0x7f;
    if (at == PCI_INTERRUPT_LINE) mask = 0xff;
    config_[at] = uint8_t((config_[at] & ~mask) | (data[i] & mask));
  }
}

void TracerFunction::read_register(uint64_t offset, uint8_t* data, uint32_t bytes) const {
  uint32_t value = 0;
  {
    std::lock_guard<std::mutex> hold(lock_);
    switch (offset) {
      case kMagic:
        value = kMagicValue;
        break;
      case kVersion:
        value = uint32_t(MERAPI_VERSION_MAJOR) << 16 | MERAPI_VERSION_MINOR;
        break;
      case kSizeLow:
        value = uint32_t(window_.memory_bytes());
        break;
      case kSizeHigh:
        value = uint32_t(window_.memory_bytes() >> 32);
        break;
      case kStatus:
        value = (engine_.running() ? 1u : 0u) | (armed_ ? 2u : 0u);
        break;
      case kSent:
        value = sent_;
        break;
      case kStarts:
        value = engine_.started();
        break;
      case kOffsetLow:
        value = uint32_t(offset_);
        break;
      case kOffsetHigh:
        value = uint32_t(offset_ >> 32);
        break;
      case kLengthLow:
        value = uint32_t(length_);
        break;
      case kLengthHigh:
        value = uint32_t(length_ >> 32);
        break;
      case kDoorbell:
      case kArm:
      case kReset:
        break;
      default:
        value = UINT32_MAX;
    }
  }
  memset(data, 0xff, bytes);
  if (bytes == sizeof value) memcpy(data, &value, sizeof value);
}

void TracerFunction::write_register(uint64_t offset, const uint8_t* data, uint32_t bytes) {
  uint32_t value = 0;
  if (bytes != sizeof value) return;
  memcpy(&value, data, sizeof value);
  if (offset == kDoorbell && window_.bytes() != 0) window_.ring();
  if (offset == kArm) arm(value);
  if (offset == kReset && value == 1) restart();
  std::lock_guard<std::mutex> hold(lock_);
  if (offset == kOffsetLow) set_low(&offset_, value);
  if (offset == kOffsetHigh) set_high(&offset_, value);
  if (offset == kLengthLow) set_low(&length_, value);
  if (offset == kLengthHigh) set_high(&length_, value);
}

void TracerFunction::set_vector(uint32_t vector, int fd) {
  std::lock_guard<std::mutex> hold(lock_);
  if (vectors_[vector] >= 0) close(vectors_[vector]);
  vectors_[vector] = fd;
}

void TracerFunction::reset() {
  {
    std::lock_guard<std::mutex> hold(lock_);
    offset_ = length_ = 0;
  }
  restart();
  make_config();
}

void TracerFunction::restart() {
  {
    std::lock_guard<std::mutex> hold(lock_);
    armed_ = false;
    sent_ = 0;
    window_.move(offset_, length_);
    offset_ = window_.offset();
    length_ = window_.bytes();
    const bool whole = length_ == window_.memory_bytes();
    engine_.trace(length_ == 0 ? ""
                  : whole      ? path_
                               : path_ + "@" + std::to_string(offset_) + "+" + std::to_string(length_));
  }
}

void TracerFunction::send() {
  armed_ = false;
  sent_++;
  if (vectors_[0] < 0) return;
  // The client may have sent any descriptor. Waiting for one that is full would hold everybody who wants the lock.
  const uint64_t one = 1;
  pollfd room{vectors_[0], POLLOUT, 0};
  if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0)
    fprintf(stderr, "merapi-pci-front: interrupt: the client's descriptor takes none\n");
  else if (write(vectors_[0], &one, sizeof one) != sizeof one)
    perror("merapi-pci-front: interrupt");
}

void TracerFunction::arm(uint32_t seen) {
  {
    std::lock_guard<std::mutex> hold(lock_);
    if (window_.bytes() == 0) return;  // no news
    // Another thread of the host armed before and saw less: what it waits for is there.
    if (armed_ && window_.event() != seen_) send();
    armed_ = true;
    seen_ = seen;
  }
  changed_.notify_all();
}

// An event between the host's last look and ARM is not lost: the host says what it has seen, and the comparison is
// here.
void TracerFunction::watch() {
  std::unique_lock<std::mutex> hold(lock_);
  for (;;) {
    changed_.wait(hold, [this] { return armed_ || ending_; });
    if (ending_) return;
    const uint32_t seen = seen_;
    hold.unlock();
    const uint32_t now = window_.wait_event(seen, kLookUs);
    hold.lock();
    // Armed anew or disarmed in the meantime: what was waited for is not what is wanted now.
    if (!armed_ || seen_ != seen || now == seen) continue;
    send();
  }
}

}  // namespace merapi::pci
