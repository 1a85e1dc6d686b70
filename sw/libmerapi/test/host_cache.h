// SPDX-License-Identifier: Apache-2.0
//
// A host whose caches the device does not see. The model takes the place of the library's own operations, in both modes
// and from the first access to a window on. Stores stay in the cache until they are written back, loads hit lines that
// may be stale, and a write-back writes the whole line, stale neighbours included. Lines outlive the mapping and the
// window that they were stored through. In coherent mode nothing is ever written back. The host's own mapping of the
// metadata is taken away: an access that goes round the operations is a fault.
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
  // Of the host of the window file at `path`, which need not exist yet. One at a time.
  explicit HostCache(std::string path);
  ~HostCache();

  // The window was closed, its addresses may become others'.
  void Unmapped() { host_ = nullptr; }
  // The library maps the window anew: every mapping counts, and none is taken away.
  bool remaps = false;
  // Lines with stores that memory does not have: any may be evicted at any time.
  std::vector<uint64_t> Dirty() const;
  void Evict();

  // What to leave out, to show that the tests notice.
  bool publish_writes_back = true;
  bool get_drops = true;
  bool invalidate_drops = true;

  std::function<void()> on_get = [] {};                // the device's chance to work
  std::vector<std::string> errors;                     // for instance: dropping a line that was never written back
  std::vector<std::pair<uint64_t, uint64_t>> outside;  // written back outside the metadata: window offset, bytes

 private:
  struct Line {
    std::array<uint8_t, MERAPI_LINE_BYTES> bytes;
    bool dirty = false;
    bool put = false;  // dirty by a put in non-coherent mode, which the next publish hands over
  };
  merapi_ops Ops(bool coherent);
  uint64_t Offset(const void* address);
  Line& Cached(uint64_t line);
  void WriteBack(uint64_t line);
  void Store(void* destination, const void* source, size_t bytes, bool put);
  void Publish(void* destination, uint64_t value, size_t bytes);
  void Get(void* destination, const void* source, size_t bytes, bool drop);
  void Invalidate(const void* address, size_t bytes);
  void WriteBackRange(const void* address, size_t bytes);

  std::string path_;
  merapi_ops coherent_, non_coherent_;
  uint8_t *host_ = nullptr, *memory_ = nullptr;  // the host's mapping of the metadata; what the device sees
  size_t bytes_ = 0, memory_bytes_ = 0;
  std::map<uint64_t, Line> lines_;
  bool in_get_ = false;
};

}  // namespace merapi_test

#endif  // MERAPI_TEST_HOST_CACHE_H
