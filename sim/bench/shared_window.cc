// SPDX-License-Identifier: Apache-2.0
#include "sim/bench/shared_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace merapi::sim::bench {

SharedWindow::SharedWindow(uint64_t heap_bytes, uint8_t region_log2, bool wide_oops)
    : wide_(wide_oops), region_log2_(region_log2) {
  regions_ = uint32_t((heap_bytes + (uint64_t{1} << region_log2) - 1) >> region_log2);
  merapi_geometry g{};
  g.heap_bytes = uint64_t{regions_} << region_log2;
  g.region_log2 = region_log2;
  g.alignment_log2 = 3;
  merapi_error error{};
  if (merapi_layout_compute(&g, &layout_, &error) < 0) throw std::runtime_error(error.message);
  fd_ = memfd_create("model-bench", MFD_CLOEXEC);
  if (fd_ < 0 || ftruncate(fd_, off_t(layout_.window_bytes)) != 0) throw std::runtime_error("cannot make a memfd");
  void* p = mmap(nullptr, layout_.window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (p == MAP_FAILED) throw std::runtime_error("cannot map the window");
  host_ = static_cast<uint8_t*>(p);
  remap_device();

  std::copy(std::begin(layout_.area), std::end(layout_.area), control<merapi_directory>(MERAPI_DIRECTORY_OFFSET)->area);
  merapi_config c{};
  c.heap_base = kHeapBase;
  c.narrow_oop_shift = 3;
  c.oop_bytes = wide_ ? 8 : 4;
  c.klass_bytes = 4;
  c.alignment_log2 = 3;
  c.region_log2 = region_log2;
  c.coherence = MERAPI_COHERENCE_COHERENT;
  c.mirror_size_offset = 32;
  c.region_count = regions_;
  *control<merapi_config>(MERAPI_CONFIG_OFFSET) = c;
  merapi_identity identity{};
  identity.magic = MERAPI_MAGIC;
  identity.version_major = MERAPI_VERSION_MAJOR;
  identity.version_minor = MERAPI_VERSION_MINOR;
  identity.control_bytes = MERAPI_CONTROL_BYTES;
  identity.window_bytes = layout_.window_bytes;
  *control<merapi_identity>(MERAPI_IDENTITY_OFFSET) = identity;
}

SharedWindow::~SharedWindow() {
  munmap(host_, layout_.window_bytes);
  if (device_ != nullptr) munmap(device_, layout_.window_bytes);
  close(fd_);
}

void SharedWindow::remap_device() {
  if (device_ != nullptr) munmap(device_, layout_.window_bytes);
  void* p = mmap(nullptr, layout_.window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (p == MAP_FAILED) throw std::runtime_error("cannot map the window");
  device_ = static_cast<uint8_t*>(p);
}

void SharedWindow::put_shape(const merapi_shape& shape) {
  uint64_t slots = layout_.area[MERAPI_AREA_SHAPES].size / 64;
  auto* table = reinterpret_cast<merapi_shape*>(host_ + layout_.area[MERAPI_AREA_SHAPES].offset);
  uint32_t folded = uint32_t(shape.klass_word ^ shape.klass_word >> 32);
  uint64_t home = uint32_t(folded * MERAPI_SHAPE_HASH_MULTIPLIER) >> (32 - __builtin_ctzll(slots));
  while (table[home % slots].klass_word != 0) home++;
  table[home % slots] = shape;
}

void SharedWindow::store_reference(uint64_t field, uint64_t target) {
  uint64_t address = kHeapBase + target;
  uint32_t narrow = uint32_t(address >> 3);
  if (wide_) {
    std::memcpy(heap() + field, &address, 8);
  } else {
    std::memcpy(heap() + field, &narrow, 4);
  }
}

void SharedWindow::set_top(uint64_t top) {
  auto* limits = reinterpret_cast<uint64_t*>(host_ + layout_.area[MERAPI_AREA_LIMITS].offset);
  for (uint64_t r = 0; r < regions_; r++) {
    uint64_t start = r << region_log2_, end = (r + 1) << region_log2_;
    limits[r] = std::clamp(top, start, end);
  }
}

void SharedWindow::clear_bitmap() {
  std::memset(host_ + layout_.area[MERAPI_AREA_BITMAP0].offset, 0, uint64_t{regions_} << (region_log2_ - 6));
}

void SharedWindow::mark(uint64_t offset) {
  auto* words = reinterpret_cast<uint64_t*>(host_ + layout_.area[MERAPI_AREA_BITMAP0].offset);
  words[offset >> 9] |= uint64_t{1} << (offset >> 3 & 63);
}

}  // namespace merapi::sim::bench
