// SPDX-License-Identifier: Apache-2.0
//
// A device small enough to be told what to do: it follows the contract's order in handshake, rings and requests,
// and each step can be left out or done wrong by a test. It traces nothing.
#ifndef MERAPI_TEST_SCRIPTED_DEVICE_H
#define MERAPI_TEST_SCRIPTED_DEVICE_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "merapi/merapi.h"

namespace merapi_test {

// What the handshake says; a test changes what it wants wrong.
merapi_device_identity DefaultIdentity();

class ScriptedDevice {
 public:
  // Works on the memory of `base`; the window's layout is read from its directory.
  explicit ScriptedDevice(void* base) : base_(static_cast<uint8_t*>(base)) {}

  // One step each; true when there was something to do.
  bool PollGeneration();   // answer a new generation, or end a revoked one
  bool PollRequests();     // acknowledge abort, pause and resume
  bool PollSubmissions();  // consume at most one entry; calls on_submission
  bool Poll();             // one of each, in this order

  // Push a completion (sequence filled in); false when the ring is full.
  bool Complete(merapi_completion entry);
  // Write an idle record for the entries consumed so far.
  void Idle(uint32_t cycle);
  void ClearIdle();
  void Fault(uint32_t code, uint64_t address, uint64_t detail);
  void Live(uint32_t region, uint64_t words);

  merapi_device_identity identity = DefaultIdentity();
  bool answer = true;                    // answer handshakes
  uint32_t refusal = MERAPI_FAULT_NONE;  // fault recorded before a handshake is answered
  bool acknowledge = true;               // acknowledge requests
  uint32_t sequence_error = 0;           // added to the sequence of completions
  uint64_t index_error = 0;              // added to the published index of completions
  std::function<void(const merapi_submission&)> on_submission = [](const merapi_submission&) {};
  std::function<void()> notify = [] {};

  std::vector<merapi_submission> submissions;  // as consumed
  std::vector<std::string> errors;             // what a device would fault for

  uint64_t generation() const { return generation_; }
  bool attached() const { return attached_; }
  bool paused() const { return paused_; }
  uint32_t doorbell() const;

 private:
  template <typename T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  uint8_t* base_;
  uint64_t generation_ = 0;
  bool attached_ = false, paused_ = false;
  uint64_t consumed_ = 0, produced_ = 0;
  merapi_area_desc submission_{}, completion_{};
};

// A scripted device in a thread of its own on a lease: over the socket or a file.
class DeviceThread {
 public:
  DeviceThread(
      merapi_lease* lease, std::function<void(ScriptedDevice&)> prepare = [](ScriptedDevice&) {});
  ~DeviceThread();
  ScriptedDevice& device() { return device_; }
  merapi_lease* lease() { return lease_; }
  std::atomic<uint64_t> sleeps{0};

 private:
  merapi_lease* lease_;
  ScriptedDevice device_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A fresh folder under the test's temporary directory, removed with its contents at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The smallest that there are.
constexpr int kRingEntries = MERAPI_TABLE_ENTRIES_MIN;

// 8 MiB heap, 1 MiB regions, 8-byte alignment, small rings.
merapi_geometry SmallGeometry();

}  // namespace merapi_test

#endif  // MERAPI_TEST_SCRIPTED_DEVICE_H
