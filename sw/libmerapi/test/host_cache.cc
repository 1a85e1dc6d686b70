// SPDX-License-Identifier: Apache-2.0
#include "host_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

// The library's own, compiled as C.
extern "C" const merapi_ops* (*merapi_ops_model)(uint8_t coherence);

namespace merapi_test {

namespace {
HostCache* model = nullptr;
}  // namespace

HostCache::HostCache(std::string path) : path_(std::move(path)), coherent_(Ops(true)), non_coherent_(Ops(false)) {
  if (model != nullptr) std::abort();
  model = this;
  merapi_ops_model = [](uint8_t coherence) -> const merapi_ops* {
    return coherence == MERAPI_COHERENCE_NON_COHERENT ? &model->non_coherent_ : &model->coherent_;
  };
}

HostCache::~HostCache() {
  model = nullptr;
  merapi_ops_model = nullptr;
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

merapi_ops HostCache::Ops(bool coherent) {
  merapi_ops ops{};
  ops.context = this;
  if (coherent) {
    ops.put = [](void* self, void* to, const void* from, size_t n) {
      static_cast<HostCache*>(self)->Store(to, from, n, false);
    };
    ops.publish = [](void* self, void* to, uint64_t value, size_t n) {
      static_cast<HostCache*>(self)->Store(to, &value, n, false);
    };
    ops.get = [](void* self, void* to, const void* from, size_t n) {
      static_cast<HostCache*>(self)->Get(to, from, n, false);
    };
    ops.invalidate = ops.write_back = [](void*, const void*, size_t) {};
    return ops;
  }
  ops.put = [](void* self, void* to, const void* from, size_t n) {
    static_cast<HostCache*>(self)->Store(to, from, n, true);
  };
  ops.publish = [](void* self, void* to, uint64_t value, size_t n) {
    static_cast<HostCache*>(self)->Publish(to, value, n);
  };
  ops.get = [](void* self, void* to, const void* from, size_t n) {
    static_cast<HostCache*>(self)->Get(to, from, n, static_cast<HostCache*>(self)->get_drops);
  };
  ops.invalidate = [](void* self, const void* at, size_t n) { static_cast<HostCache*>(self)->Invalidate(at, n); };
  ops.write_back = [](void* self, const void* at, size_t n) { static_cast<HostCache*>(self)->WriteBackRange(at, n); };
  return ops;
}

// Of an address in any mapping of the window; the first mapping of its start becomes the metadata's.
uint64_t HostCache::Offset(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto host = reinterpret_cast<uintptr_t>(host_);
  if (!remaps && host_ != nullptr && at >= host && at < host + bytes_) return at - host;
  struct stat file;
  if (stat(path_.c_str(), &file) != 0) std::abort();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t start, end;
    uint64_t offset, inode;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %" SCNu64, &start, &end, &offset,
                    &inode) != 4 ||
        at < start || at >= end || inode != file.st_ino)
      continue;
    if (memory_ == nullptr) {
      const int fd = open(path_.c_str(), O_RDWR | O_CLOEXEC);
      memory_bytes_ = static_cast<size_t>(file.st_size);
      void* memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      close(fd);
      if (memory == MAP_FAILED) std::abort();
      memory_ = static_cast<uint8_t*>(memory);
    }
    if (offset == 0 && host_ == nullptr) {
      host_ = reinterpret_cast<uint8_t*>(start);
      bytes_ = end - start;
      if (mprotect(host_, bytes_, PROT_NONE) != 0) std::abort();
    }
    return offset + (at - start);
  }
  std::abort();
}

std::vector<uint64_t> HostCache::Dirty() const {
  std::vector<uint64_t> dirty;
  for (const auto& [number, line] : lines_)
    if (line.dirty) dirty.push_back(number);
  return dirty;
}

void HostCache::Evict() {
  for (const auto& [number, line] : lines_) WriteBack(number);
  lines_.clear();
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
  at->second.dirty = at->second.put = false;
}

void HostCache::Store(void* destination, const void* source, size_t bytes, bool put) {
  uint64_t offset = Offset(destination);
  const auto* from = static_cast<const uint8_t*>(source);
  while (bytes > 0) {
    const size_t within = offset % MERAPI_LINE_BYTES;
    const size_t part = std::min(bytes, MERAPI_LINE_BYTES - within);
    Line& line = Cached(offset / MERAPI_LINE_BYTES);
    std::memcpy(line.bytes.data() + within, from, part);
    line.dirty = true;
    if (put) line.put = true;
    offset += part;
    from += part;
    bytes -= part;
  }
}

void HostCache::Publish(void* destination, uint64_t value, size_t bytes) {
  const uint64_t own = Offset(destination) / MERAPI_LINE_BYTES;
  if (publish_writes_back) {
    for (auto& [line, content] : lines_)
      if (content.put) WriteBack(line);
  }
  Store(destination, &value, bytes, true);
  WriteBack(own);
}

void HostCache::Get(void* destination, const void* source, size_t bytes, bool drop) {
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
    if (drop && at != lines_.end() && !at->second.dirty) lines_.erase(at);
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
  if (offset >= bytes_) outside.emplace_back(offset, bytes);
  for (uint64_t line = offset / MERAPI_LINE_BYTES; line <= (offset + bytes - 1) / MERAPI_LINE_BYTES; line++)
    WriteBack(line);
}

}  // namespace merapi_test
