// SPDX-License-Identifier: Apache-2.0
//
// A window in plain memory and a small host for it, written from the contract alone: no code shared with any device.
// Host and device run in one thread, so that every interleaving can be chosen and replayed.
#ifndef MERAPI_SIM_TEST_WINDOW_FIXTURE_H_
#define MERAPI_SIM_TEST_WINDOW_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "merapi/merapi.h"

namespace merapi::sim::test {

// Memory of its own, zero at first; what is never touched costs nothing.
class Mapping {
 public:
  explicit Mapping(uint64_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void clear();
  void clear(uint64_t from, uint64_t size);  // whole pages
  uint8_t* base = nullptr;
  const uint64_t bytes;
};

struct WindowShape {
  uint8_t oop_bytes = 4;
  uint8_t klass_bytes = 4;
  uint8_t alignment_log2 = 3;
  uint8_t region_log2 = 16;
  uint8_t narrow_shift = 3;
  uint32_t regions = 16;
  uint64_t heap_base = UINT64_C(0x700000000);
  uint64_t narrow_base = 0;
  uint32_t mirror_size_offset = 32;
  uint32_t submission_entries = 64;
  uint32_t completion_entries = 64;
  uint32_t shape_slots = 1024;
  uint64_t spill_bytes = 4096;
  // Not 0: the areas lie scattered, in their usual order, over a window of 2^spread_log2 bytes.
  uint8_t spread_log2 = 0;
  uint64_t spread_seed = 0;
  // Not null: memory of the window's size, which is cleared; else the window has memory of its own.
  std::shared_ptr<Mapping> memory;
};

// A formatted window.
class Window {
 private:
  std::shared_ptr<Mapping> memory_;  // made before what points into it

 public:
  explicit Window(const WindowShape& shape);

  const WindowShape shape;
  uint8_t* base = nullptr;
  uint64_t bytes = 0;
  merapi_layout layout{};

  template <typename T>
  T* control(uint64_t offset) {
    return reinterpret_cast<T*>(base + offset);
  }
  uint8_t* area(int which) { return base + layout.area[which].offset; }
  uint8_t* heap() { return area(MERAPI_AREA_HEAP); }
  uint64_t* bitmap(int which) { return reinterpret_cast<uint64_t*>(area(MERAPI_AREA_BITMAP0 + which)); }
  uint64_t* limits() { return reinterpret_cast<uint64_t*>(area(MERAPI_AREA_LIMITS)); }
  uint64_t* live() { return reinterpret_cast<uint64_t*>(area(MERAPI_AREA_LIVE)); }
  merapi_config* config() { return control<merapi_config>(MERAPI_CONFIG_OFFSET); }
  merapi_directory* directory() { return control<merapi_directory>(MERAPI_DIRECTORY_OFFSET); }
  uint64_t heap_bytes() const { return uint64_t{shape.regions} << shape.region_log2; }
  uint64_t region_bytes() const { return uint64_t{1} << shape.region_log2; }
  // All of each region is in use.
  void fill_regions() {
    for (uint64_t r = 0; r < shape.regions; r++) limits()[r] = (r + 1) << shape.region_log2;
  }

  bool marked(int which, uint64_t offset) {
    uint64_t bit = offset >> shape.alignment_log2;
    return (bitmap(which)[bit / 64] >> (bit % 64) & 1) != 0;
  }
  void mark(int which, uint64_t offset) {
    uint64_t bit = offset >> shape.alignment_log2;
    bitmap(which)[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  // Put a shape into the table (and its blocks into the extension when there are more than four).
  void put_shape(merapi_shape shape, const std::vector<merapi_ref_block>& blocks = {});
  // A tombstone takes its place in the table; of its blocks in the extension nothing is left, and others may stand
  // there.
  void withdraw_shape(uint64_t klass_word);
  // Instances of so many words; arrays of references, as wide as the window's, behind a header.
  void put_instance(uint64_t klass_word, uint32_t size_words, const std::vector<merapi_ref_block>& blocks = {});
  void put_object_array(uint64_t klass_word, uint32_t header_bytes);
  // Zero, and nothing of it in memory.
  void clear_area(int which);
  // Control page and areas as they are now, each at its offset.
  std::unique_ptr<Mapping> copy();

 private:
  void spread();
  uint64_t extension_room(uint64_t size);

  uint64_t extension_used_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> extension_free_;  // of withdrawn shapes: offset, bytes
};

// The host's side of a window: rings, requests and what the device shows. Runs nothing by itself.
class WindowHost {
 public:
  explicit WindowHost(Window* w) : window(*w) {}

  // A new generation begins: the odd number that ends the old one, then (everything of the host reset) the even one.
  uint64_t end_generation();
  void begin_generation(uint64_t odd);
  bool generation_answered() const;

  void submit(merapi_submission entry);
  bool room() const;
  void begin(uint32_t bitmap);
  void command(uint8_t opcode, uint32_t arg, uint64_t first, uint64_t count);
  void trace(uint32_t first, uint32_t count) { command(MERAPI_OP_TRACE_REGION, first, count, 0); }
  void grey(const std::vector<uint64_t>& references);
  // A command that would be right without its flags, of which none is defined.
  void submit_with_flags(uint8_t opcode, uint8_t flags);
  // Up to `count` completions.
  std::vector<merapi_completion> complete(size_t count = ~size_t{0});
  bool idle() const;
  // What the device has published: submissions taken, events counted.
  uint64_t executed() const { return index()->submission_consumed; }
  uint32_t events() const { return index()->event; }
  uint64_t completed() const { return index()->completion_produced; }
  const merapi_fault_record& fault() const;
  uint32_t state() const;
  uint64_t counter(int which) const;
  // So that a device that sleeps looks at the host; what is asked for below does so by itself.
  void ring_doorbell();
  void request_pause();
  bool pause_acknowledged() const;
  void resume();
  bool resume_acknowledged() const;
  void abort();
  bool abort_acknowledged() const;

  Window& window;
  uint32_t cycle = 0;
  uint64_t produced = 0, consumed = 0;

 private:
  merapi_host_index* host() const { return window.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET); }
  merapi_host_request* request() const { return window.control<merapi_host_request>(MERAPI_HOST_REQUEST_OFFSET); }
  merapi_device_index* index() const { return window.control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET); }
  merapi_device_ack* ack() const { return window.control<merapi_device_ack>(MERAPI_DEVICE_ACK_OFFSET); }
};

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_WINDOW_FIXTURE_H_
