// SPDX-License-Identifier: Apache-2.0
#include "sim/test/window_fixture.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "sim/test/random.h"

namespace merapi::sim::test {

Mapping::Mapping(uint64_t n) : bytes(n) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("cannot map a test window");
  base = static_cast<uint8_t*>(p);
}

Mapping::~Mapping() { munmap(base, bytes); }

void Mapping::clear() { clear(0, bytes); }

void Mapping::clear(uint64_t from, uint64_t size) {
  if (madvise(base + from, size, MADV_DONTNEED) != 0) throw std::runtime_error("cannot clear a test window");
}

Window::Window(const WindowShape& s) : shape(s) {
  merapi_geometry g{};
  g.heap_bytes = heap_bytes();
  g.region_log2 = s.region_log2;
  g.alignment_log2 = s.alignment_log2;
  g.submission_entries = s.submission_entries;
  g.completion_entries = s.completion_entries;
  g.shape_slots = s.shape_slots;
  g.spill_bytes = s.spill_bytes;
  merapi_error error{};
  if (merapi_layout_compute(&g, &layout, &error) < 0) throw std::runtime_error(error.message);
  if (s.spread_log2 != 0) spread();
  bytes = layout.window_bytes;
  memory_ = s.memory ? s.memory : std::make_shared<Mapping>(bytes);
  if (memory_->bytes != bytes) throw std::runtime_error("the memory has not the window's size");
  memory_->clear();
  base = memory_->base;

  std::copy(std::begin(layout.area), std::end(layout.area), directory()->area);
  merapi_config c{};
  c.heap_base = s.heap_base;
  c.narrow_oop_base = s.narrow_base;
  c.narrow_oop_shift = s.narrow_shift;
  c.oop_bytes = s.oop_bytes;
  c.klass_bytes = s.klass_bytes;
  c.alignment_log2 = s.alignment_log2;
  c.region_log2 = s.region_log2;
  c.coherence = MERAPI_COHERENCE_COHERENT;
  c.mirror_size_offset = s.mirror_size_offset;
  c.region_count = s.regions;
  *config() = c;
  auto* identity = control<merapi_identity>(MERAPI_IDENTITY_OFFSET);
  identity->version_major = MERAPI_VERSION_MAJOR;
  identity->version_minor = MERAPI_VERSION_MINOR;
  identity->control_bytes = MERAPI_CONTROL_BYTES;
  identity->window_bytes = bytes;
  identity->magic = MERAPI_MAGIC;
  for (uint32_t r = 0; r < s.regions; r++) limits()[r] = uint64_t{r} << s.region_log2;
}

void Window::clear_area(int which) {
  constexpr uint64_t kPage = 4096;
  const uint64_t size = layout.area[which].size, pages = size / kPage * kPage;
  if (pages != 0) memory_->clear(layout.area[which].offset, pages);
  std::memset(area(which) + pages, 0, size - pages);
}

void Window::spread() {
  uint64_t whole = uint64_t{1} << shape.spread_log2;
  if (layout.window_bytes > whole) throw std::runtime_error("the areas do not fit into the window");
  std::vector<merapi_area_desc*> areas;
  for (merapi_area_desc& a : layout.area) {
    if (a.offset != 0) areas.push_back(&a);
  }
  std::sort(areas.begin(), areas.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  Random random(shape.spread_seed);
  std::vector<uint64_t> gaps(areas.size());
  for (uint64_t& gap : gaps) gap = random.below((whole - layout.window_bytes) / MERAPI_MAPPED_ALIGNMENT + 1);
  std::sort(gaps.begin(), gaps.end());
  for (size_t i = 0; i < areas.size(); i++) areas[i]->offset += gaps[i] * MERAPI_MAPPED_ALIGNMENT;
  layout.window_bytes = whole;
}

std::unique_ptr<Mapping> Window::copy() {
  auto out = std::make_unique<Mapping>(bytes);
  std::memcpy(out->base, base, MERAPI_CONTROL_BYTES);
  for (const merapi_area_desc& a : layout.area) std::memcpy(out->base + a.offset, base + a.offset, a.size);
  return out;
}

uint64_t Window::extension_room(uint64_t size) {
  for (auto& [offset, bytes] : extension_free_) {
    if (bytes < size) continue;
    bytes -= size;
    return std::exchange(offset, offset + size);
  }
  if (extension_used_ + size > layout.area[MERAPI_AREA_SHAPE_EXTENSION].size) throw std::runtime_error("extension");
  extension_used_ += size;
  return extension_used_ - size;
}

void Window::withdraw_shape(uint64_t klass_word) {
  auto* table = reinterpret_cast<merapi_shape*>(area(MERAPI_AREA_SHAPES));
  const uint64_t slots = layout.area[MERAPI_AREA_SHAPES].size / sizeof(merapi_shape);
  merapi_shape* s = std::find_if(table, table + slots, [=](auto& x) { return x.klass_word == klass_word; });
  if (s == table + slots) return;
  if (s->block_count > MERAPI_SHAPE_INLINE_BLOCKS) {
    const uint64_t size = (s->block_count * sizeof(merapi_ref_block) + 63) / 64 * 64;
    std::memset(area(MERAPI_AREA_SHAPE_EXTENSION) + s->extension, 0xa5, size);
    extension_free_.push_back({s->extension, size});
  }
  std::memset(s, 0xa5, sizeof *s);
  s->klass_word = MERAPI_SHAPE_KEY_TOMBSTONE;
}

void Window::put_shape(merapi_shape s, const std::vector<merapi_ref_block>& blocks) {
  s.block_count = uint32_t(blocks.size());
  if (blocks.size() <= MERAPI_SHAPE_INLINE_BLOCKS) {
    std::copy(blocks.begin(), blocks.end(), s.block);
  } else {
    const uint64_t size = blocks.size() * sizeof(merapi_ref_block);
    s.extension = extension_room((size + 63) / 64 * 64);
    std::memcpy(area(MERAPI_AREA_SHAPE_EXTENSION) + s.extension, blocks.data(), size);
  }
  uint64_t slots = layout.area[MERAPI_AREA_SHAPES].size / sizeof(merapi_shape);
  int log2 = __builtin_ctzll(slots);
  auto* table = reinterpret_cast<merapi_shape*>(area(MERAPI_AREA_SHAPES));
  uint32_t folded = uint32_t(s.klass_word ^ s.klass_word >> 32);
  uint64_t home = uint32_t(folded * MERAPI_SHAPE_HASH_MULTIPLIER) >> (32 - log2);
  for (uint32_t i = 0; i < MERAPI_SHAPE_PROBE_LIMIT; i++) {
    merapi_shape* slot = &table[(home + i) % slots];
    if (slot->klass_word == MERAPI_SHAPE_KEY_EMPTY || slot->klass_word == s.klass_word ||
        slot->klass_word == MERAPI_SHAPE_KEY_TOMBSTONE) {
      *slot = s;
      return;
    }
  }
  throw std::runtime_error("no slot for a shape: choose other klass words or more slots");
}

void Window::put_instance(uint64_t klass_word, uint32_t size_words, const std::vector<merapi_ref_block>& blocks) {
  merapi_shape s{};
  s.klass_word = klass_word;
  s.kind = MERAPI_SHAPE_KIND_INSTANCE;
  s.size_words = size_words;
  put_shape(s, blocks);
}

void Window::put_object_array(uint64_t klass_word, uint32_t header_bytes) {
  merapi_shape s{};
  s.klass_word = klass_word;
  s.kind = MERAPI_SHAPE_KIND_OBJ_ARRAY;
  s.element_log2 = shape.oop_bytes == 8 ? 3 : 2;
  s.header_bytes = header_bytes;
  put_shape(s);
}

uint64_t WindowHost::end_generation() {
  uint64_t odd = host()->generation | 1;
  host()->generation = odd;
  return odd;
}

void WindowHost::begin_generation(uint64_t odd) {
  std::memset(request(), 0, sizeof *request());
  host()->submission_produced = 0;
  host()->completion_consumed = 0;
  window.clear_area(MERAPI_AREA_COMPLETION);
  produced = consumed = 0;
  host()->generation = odd + 1;
}

bool WindowHost::generation_answered() const { return index()->generation == host()->generation; }

bool WindowHost::room() const { return produced - index()->submission_consumed < window.shape.submission_entries; }

void WindowHost::submit(merapi_submission e) {
  if (!room()) throw std::runtime_error("submission ring full");
  e.sequence = uint32_t(produced + 1);
  auto* ring = reinterpret_cast<merapi_submission*>(window.area(MERAPI_AREA_SUBMISSION));
  ring[produced % window.shape.submission_entries] = e;
  host()->submission_produced = ++produced;
  ring_doorbell();
}

void WindowHost::begin(uint32_t bitmap) {
  cycle++;
  command(MERAPI_OP_BEGIN_CYCLE, bitmap, 0, 0);
}

void WindowHost::command(uint8_t opcode, uint32_t arg, uint64_t first, uint64_t count) {
  merapi_submission e{};
  e.opcode = opcode;
  e.arg = arg;
  e.payload[0] = first;
  e.payload[1] = count;
  e.cycle = cycle;
  submit(e);
}

void WindowHost::submit_with_flags(uint8_t opcode, uint8_t flags) {
  merapi_submission e{};
  e.opcode = opcode;
  e.flags = flags;
  e.cycle = cycle + (opcode == MERAPI_OP_BEGIN_CYCLE);
  if (opcode == MERAPI_OP_TRACE_REGION) e.payload[0] = 1;
  if (opcode == MERAPI_OP_GREY) e.count = 1;
  if (opcode == MERAPI_OP_CLEAR_BITMAP) e.arg = 1, e.payload[1] = 1;
  submit(e);
}

void WindowHost::grey(const std::vector<uint64_t>& references) {
  for (size_t i = 0; i < references.size(); i += MERAPI_ENTRY_WORDS) {
    merapi_submission e{};
    e.opcode = MERAPI_OP_GREY;
    e.count = uint16_t(std::min<size_t>(MERAPI_ENTRY_WORDS, references.size() - i));
    for (size_t j = 0; j < e.count; j++) e.payload[j] = references[i + j];
    e.cycle = cycle;
    submit(e);
  }
}

std::vector<merapi_completion> WindowHost::complete(size_t count) {
  std::vector<merapi_completion> out;
  auto* ring = reinterpret_cast<merapi_completion*>(window.area(MERAPI_AREA_COMPLETION));
  while (consumed != index()->completion_produced && out.size() < count) {
    out.push_back(ring[consumed % window.shape.completion_entries]);
    if (out.back().sequence != uint32_t(consumed + 1)) throw std::runtime_error("a completion is torn");
    const merapi_completion& c = out.back();
    if (c.type == MERAPI_COMP_DONE && (c.payload[3] | c.payload[4] | c.payload[5]) != 0) {
      throw std::runtime_error("a completion's unused words are not zero");
    }
    consumed++;
  }
  host()->completion_consumed = consumed;
  return out;
}

bool WindowHost::idle() const {
  auto* r = window.control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  return r->idle == 1 && r->cycle == cycle && r->consumed == produced && r->produced == consumed;
}

const merapi_fault_record& WindowHost::fault() const {
  return *window.control<merapi_fault_record>(MERAPI_FAULT_RECORD_OFFSET);
}
uint32_t WindowHost::state() const { return index()->state; }
uint64_t WindowHost::counter(int which) const {
  return window.control<merapi_counters>(MERAPI_COUNTERS_OFFSET)->value[which];
}

void WindowHost::ring_doorbell() { host()->doorbell++; }
void WindowHost::request_pause() {
  request()->pause++;
  ring_doorbell();
}
bool WindowHost::pause_acknowledged() const { return ack()->pause == request()->pause; }
void WindowHost::resume() {
  request()->resume = request()->pause;
  ring_doorbell();
}
bool WindowHost::resume_acknowledged() const { return ack()->resume == request()->resume; }
void WindowHost::abort() {
  request()->abort++;
  request()->resume = request()->pause;
  ring_doorbell();
}
bool WindowHost::abort_acknowledged() const { return ack()->abort == request()->abort; }

}  // namespace merapi::sim::test
