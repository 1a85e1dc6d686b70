// SPDX-License-Identifier: Apache-2.0
//
// A host whose caches the device does not see, as operations for merapi_set_ops. Stores stay in the cache until they
// are written back, loads hit lines that may be stale, and a write-back writes the whole line, stale neighbours
// included. The host's own mapping is taken away while the model is in place: an access that goes round the
// operations is a fault.
#ifndef MERAPI_TEST_HOST_CACHE_H
#define MERAPI_TEST_HOST_CACHE_H

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "merapi/merapi.h"

namespace merapi_test {

class HostCache {
 public:
  // `memory`: what the device sees, a second mapping of the window whose metadata the host has at `host`.
  HostCache(void* host, void* memory, size_t bytes);
  ~HostCache();
  merapi_ops Ops();

  // What to leave out, to show that the tests notice.
  bool publish_writes_back = true;
  bool get_drops = true;
  bool invalidate_drops = true;

  std::function<void()> on_get = [] {};  // the device's chance to work
  std::vector<std::string> errors;       // for instance: dropping a line that was never written back

 private:
  struct Line {
    std::array<uint8_t, MERAPI_LINE_BYTES> bytes;
    bool dirty = false;
  };
  uint64_t Offset(const void* address) const;
  Line& Cached(uint64_t line);
  void WriteBack(uint64_t line);
  void Put(void* destination, const void* source, size_t bytes);
  void Publish(void* destination, uint64_t value, size_t bytes);
  void Get(void* destination, const void* source, size_t bytes);
  void Invalidate(const void* address, size_t bytes);
  void WriteBackRange(const void* address, size_t bytes);

  uint8_t *host_, *memory_;
  size_t bytes_;
  std::map<uint64_t, Line> lines_;
  bool in_get_ = false;
};

}  // namespace merapi_test

#endif  // MERAPI_TEST_HOST_CACHE_H
