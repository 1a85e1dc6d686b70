// SPDX-License-Identifier: Apache-2.0
#include "host_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace merapi_test {

HostCache::HostCache(void* host, void* memory, size_t bytes)
    : host_(static_cast<uint8_t*>(host)), memory_(static_cast<uint8_t*>(memory)), bytes_(bytes) {
  if (mprotect(host_, bytes_, PROT_NONE) != 0) std::abort();
}

HostCache::~HostCache() { mprotect(host_, bytes_, PROT_READ | PROT_WRITE); }

merapi_ops HostCache::Ops() {
  merapi_ops ops{};
  ops.context = this;
  ops.put = [](void* self, void* to, const void* from, size_t n) { static_cast<HostCache*>(self)->Put(to, from, n); };
  ops.publish = [](void* self, void* to, uint64_t value, size_t n) {
    static_cast<HostCache*>(self)->Publish(to, value, n);
  };
  ops.get = [](void* self, void* to, const void* from, size_t n) { static_cast<HostCache*>(self)->Get(to, from, n); };
  ops.invalidate = [](void* self, const void* at, size_t n) { static_cast<HostCache*>(self)->Invalidate(at, n); };
  ops.write_back = [](void* self, const void* at, size_t n) { static_cast<HostCache*>(self)->WriteBackRange(at, n); };
  return ops;
}

uint64_t HostCache::Offset(const void* address) const {
  const auto offset = static_cast<uint64_t>(static_cast<const uint8_t*>(address) - host_);
  if (offset >= bytes_) std::abort();
  return offset;
}

HostCache::Line& HostCache::Cached(uint64_t line) {
  const auto [at, fresh] = lines_.try_emplace(line);
  if (fresh) std::memcpy(at->second.bytes.data(), memory_ + line * MERAPI_LINE_BYTES, MERAPI_LINE_BYTES);
  return at->second;
}

void HostCache::WriteBack(uint64_t line) {
  const auto at = lines_.find(line);
  if (at == lines_.end() || !at->second.dirty) return;
  std::memcpy(memory_ + line * MERAPI_LINE_BYTES, at->second.bytes.data(), MERAPI_LINE_BYTES);
  at->second.dirty = false;
}

void HostCache::Put(void* destination, const void* source, size_t bytes) {
  uint64_t offset = Offset(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  while (bytes > 0) {
    const size_t within = offset % MERAPI_LINE_BYTES;
    const size_t part = std::min(bytes, MERAPI_LINE_BYTES - within);
    Line& line = Cached(offset / MERAPI_LINE_BYTES);
    std::memcpy(line.bytes.data() + within, from, part);
    line.dirty = true;
    offset += part;
    from += part;
    bytes -= part;
  }
}

void HostCache::Publish(void* destination, uint64_t value, size_t bytes) {
  const uint64_t own = Offset(destination) / MERAPI_LINE_BYTES;
  if (publish_writes_back) {
    for (auto& [line, content] : lines_)
      if (content.dirty) WriteBack(line);
  }
  Put(destination, &value, bytes);
  WriteBack(own);
}

void HostCache::Get(void* destination, const void* source, size_t bytes) {
  if (!in_get_) {
    in_get_ = true;
    on_get();
    in_get_ = false;
  }
  uint64_t offset = Offset(source);
  auto* to = static_cast<uint8_t*>(destination);
  while (bytes > 0) {
    const size_t within = offset % MERAPI_LINE_BYTES;
    const size_t part = std::min(bytes, MERAPI_LINE_BYTES - within);
    const uint64_t number = offset / MERAPI_LINE_BYTES;
    const auto at = lines_.find(number);
    if (get_drops && at != lines_.end() && !at->second.dirty) lines_.erase(at);
    std::memcpy(to, Cached(number).bytes.data() + within, part);
    offset += part;
    to += part;
    bytes -= part;
  }
}

void HostCache::Invalidate(const void* address, size_t bytes) {
  if (!invalidate_drops || bytes == 0) return;
  const uint64_t offset = Offset(address);
  for (uint64_t line = offset / MERAPI_LINE_BYTES; line <= (offset + bytes - 1) / MERAPI_LINE_BYTES; line++) {
    const auto at = lines_.find(line);
    if (at == lines_.end()) continue;
    if (at->second.dirty) errors.push_back("line " + std::to_string(line) + " dropped before it was written back");
    lines_.erase(at);
  }
}

void HostCache::WriteBackRange(const void* address, size_t bytes) {
  if (bytes == 0) return;
  const uint64_t offset = Offset(address);
  for (uint64_t line = offset / MERAPI_LINE_BYTES; line <= (offset + bytes - 1) / MERAPI_LINE_BYTES; line++)
    WriteBack(line);
}

}  // namespace merapi_test
