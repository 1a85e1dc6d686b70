// SPDX-License-Identifier: Apache-2.0
//
// Typed views of the control page and the memory order that the contract asks for. Every read of a host-written
// field goes through load(): the host may change it at any time, so it is read once and then checked.
#ifndef MERAPI_SIM_MODEL_WINDOW_H_
#define MERAPI_SIM_MODEL_WINDOW_H_

#include <atomic>
#include <cstdint>

#include "merapi/contract.h"
#include "sim/engine/engine.h"

namespace merapi::sim {

template <typename T>
inline T load(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_ACQUIRE);
}

template <typename T>
inline void store(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_RELEASE);
}

// Plain pointers into the control page of a window.
struct Control {
  merapi_identity* identity;
  merapi_config* config;
  merapi_directory* directory;
  merapi_host_index* host;
  merapi_host_request* request;
  merapi_device_identity* device;
  merapi_device_index* index;
  merapi_device_ack* ack;
  merapi_idle_record* idle;
  merapi_fault_record* fault;
  merapi_counters* counters;

  explicit Control(uint8_t* base)
      : identity(at<merapi_identity>(base, MERAPI_IDENTITY_OFFSET)),
        config(at<merapi_config>(base, MERAPI_CONFIG_OFFSET)),
        directory(at<merapi_directory>(base, MERAPI_DIRECTORY_OFFSET)),
        host(at<merapi_host_index>(base, MERAPI_HOST_INDEX_OFFSET)),
        request(at<merapi_host_request>(base, MERAPI_HOST_REQUEST_OFFSET)),
        device(at<merapi_device_identity>(base, MERAPI_DEVICE_IDENTITY_OFFSET)),
        index(at<merapi_device_index>(base, MERAPI_DEVICE_INDEX_OFFSET)),
        ack(at<merapi_device_ack>(base, MERAPI_DEVICE_ACK_OFFSET)),
        idle(at<merapi_idle_record>(base, MERAPI_IDLE_RECORD_OFFSET)),
        fault(at<merapi_fault_record>(base, MERAPI_FAULT_RECORD_OFFSET)),
        counters(at<merapi_counters>(base, MERAPI_COUNTERS_OFFSET)) {}

 private:
  template <typename T>
  static T* at(uint8_t* base, uint64_t offset) {
    return reinterpret_cast<T*>(base + offset);
  }
};

// Why a context stops: enum merapi_fault with its address and detail.
struct Fault {
  uint32_t code = MERAPI_FAULT_NONE;
  uint64_t address = 0;
  uint64_t detail = 0;
  explicit operator bool() const { return code != MERAPI_FAULT_NONE; }
};

// Details of MERAPI_FAULT_INTERNAL: which invariant failed.
enum InternalDetail : uint64_t {
  kMarkedAboveLimit = 1,  // a mark bit at or above its region's limit
  kReferenceBalance = 2,  // references read and submitted != null + outside + above + marked + newly marked
  kMarkBalance = 3,       // bits found in the bitmap != bits of the host + bits turned
  kLiveBalance = 4,       // live table != live words counted
  kGreyUnmarked = 5,      // a grey whose mark bit is clear
  kIdleHolds = 7,         // about to be idle while something is held
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_WINDOW_H_
