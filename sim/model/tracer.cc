// SPDX-License-Identifier: Apache-2.0
#include "sim/model/tracer.h"

#include <algorithm>
#include <utility>

namespace merapi::sim {
namespace {

constexpr uint64_t kNoObject = ~uint64_t{0};
// Greys moved to or from the spill area, or dropped, at once: short enough for the pause budget even when each of
// them misses the cache.
constexpr uint64_t kBlock = 256;
constexpr size_t kMaxPartials = 1024;
// Regions that are told at once that they are commanded.
constexpr uint32_t kToldAtOnce = 4096;

}  // namespace

Tracer::Tracer(const WindowMemory& memory, const TracerOptions& options, Completions* completions)
    : memory_(memory),
      options_(options),
      completions_(completions),
      regions_(options.piece_log2, options.pieces_at_once) {
  options_.stack_entries = std::max(options_.stack_entries, 2u);
  stack_.reset(new uint64_t[options_.stack_entries]);  // untouched pages cost nothing
  partials_.reserve(64);
}

void Tracer::begin(const Geometry& geometry, uint32_t bitmap) {
  drop();
  geometry_ = geometry;
  bitmap_ = geometry_.bitmap[bitmap];
  loops_ = choose(geometry_, options_.strict);
  shapes_.begin(&geometry_);
  regions_.begin(memory_, &geometry_, bitmap_);
  forget_counts();
}

bool Tracer::clear_some() {
  if (!regions_.clear_some()) return false;
  edges_ = regions_.edges();
  return true;
}

void Tracer::forget_counts() {
  static_cast<Counts&>(hot_) = {};
  slow_ = {};
  regions_.forget_counts();
}

void Tracer::drop() {
  slow_.swept_lines += segment_lines();
  const Counts counts = hot_;
  hot_ = {};
  static_cast<Counts&>(hot_) = counts;
  partials_.clear();
  spilled_ = 0;
  slices_.clear();
  slices_swept_ = slices_told_ = 0;
  waiting_.clear();
  wanted_ = kNoRegion;
  in_segment_ = false;
  segment_has_host_ = false;
  segment_edge_ = &no_edge_;
  chunk_at_ = chunk_end_ = 0;
  check_stale_ = refresh_fell_ = false;
  fault_ = {};
}

void Tracer::fail(uint32_t code, uint64_t address, uint64_t detail) {
  if (!fault_) fault_ = {code, address, detail};
  hot_.work = 0;
}

// A full completion ring ends the run after the current object.
void Tracer::check_room() {
  if (!completions_->full()) return;
  if (Fault f = completions_->drain()) return fail(f.code, f.address, f.detail);
  if (completions_->full()) hot_.work = 0;
}

// ------------------------------------------------------------ references

void Tracer::submit(uint64_t address) {
  if (shapes_.too_many()) shapes_.invalidate();  // a host that submits without end may leave no time to run()
  slow_.submitted++;
  if (address == 0) {
    hot_.nulls++;
    return;
  }
  if (hot_.references_tail - hot_.references_head >= kReferenceQueue / 2) loops_.settle(*this);
  enqueue_reference(address - geometry_.heap_base, kNoObject);
}

void Tracer::enqueue_reference(uint64_t offset, uint64_t object) {
  if (offset >= geometry_.heap_bytes) {
    slow_.outside++;
    return;
  }
  if ((offset & geometry_.alignment_mask()) != 0) {
    return fail(MERAPI_FAULT_BAD_REFERENCE, address(offset), object == kNoObject ? 0 : address(object));
  }
  uint32_t region = uint32_t(offset >> geometry_.region_log2);
  bool open;
  if (Fault f = regions_.open(region, &open)) return fail(f.code, f.address, f.detail);
  if (!open) {
    waiting_.push_back(offset);
    hot_.work = 0;
    return;
  }
  if (offset >= edges_[region].limit) {
    slow_.above++;
    return;
  }
  __builtin_prefetch(&bitmap_[offset >> (geometry_.alignment_log2 + 6)], 1, 3);
  references_[hot_.references_tail++ & (kReferenceQueue - 1)] = offset;
}

Tracer::Exit Tracer::settle() { return loops_.settle(*this); }

Tracer::Exit Tracer::run(int64_t work) {
  if (fault_) return Exit::kFault;
  // Held pointers into the shapes are of one run.
  if (shapes_.too_many()) shapes_.invalidate();
  mark_commanded();
  if (waits()) {
    open_some();
    return fault_ ? Exit::kFault : Exit::kBudget;
  }
  hot_.work = work;
  return loops_.run(*this);
}

// A part of the region that is waited for. When that is open, what waits for it goes on.
void Tracer::open_some() {
  const uint32_t region = wanted_ != kNoRegion ? wanted_ : uint32_t(waiting_.front() >> geometry_.region_log2);
  bool open;
  if (Fault f = regions_.open_some(region, &open)) return fail(f.code, f.address, f.detail);
  if (!open) return;
  if (region == wanted_) wanted_ = kNoRegion;
  std::vector<uint64_t> references;
  references.swap(waiting_);
  for (uint64_t offset : references) {
    if (hot_.references_tail - hot_.references_head >= kReferenceQueue / 2) loops_.settle(*this);
    enqueue_reference(offset, kNoObject);
  }
}

// --------------------------------------------------------------- objects

uint64_t Tracer::klass_word(uint64_t offset) const {
  const uint8_t* at = geometry_.heap + offset + 8;
  if (geometry_.klass_bytes == 8) return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_RELAXED);
  return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_RELAXED);
}

// The shape of a grey, or null when there is none: then everything due for the object has been done.
const Shape* Tracer::slow_shape(uint64_t grey) {
  uint64_t object = grey & ~kCounted;
  uint64_t klass = klass_word(object);
  if (klass == MERAPI_SHAPE_KEY_EMPTY) {
    fail(MERAPI_FAULT_BAD_OBJECT, address(object), 0);
    return nullptr;
  }
  slow_.shape_misses++;
  Shapes::Result r{Shapes::Found::kAbsent, nullptr, false};
  if (klass != MERAPI_SHAPE_KEY_TOMBSTONE && !options_.forgetful) r = shapes_.lookup(klass);
  if (r.report) completions_->seen(klass);
  if (r.found == Shapes::Found::kBad) {
    fail(MERAPI_FAULT_BAD_SHAPE, klass, r.kind);
  } else if (r.found == Shapes::Found::kAbsent) {
    slow_.shape_absent++;
    completions_->defer(address(object), (grey & kCounted) == 0);
  }
  check_room();
  return r.shape;
}

uint64_t Tracer::object_words(uint64_t object, const Shape& s) const {
  const uint8_t* p = geometry_.heap + object;
  auto fetch = [p](uint64_t at) {
    return __atomic_load_n(reinterpret_cast<const uint32_t*>(p + at), __ATOMIC_RELAXED);
  };
  switch (s.path) {
    case Path::kObjArray:
    case Path::kPrimArray: {
      if (object + 8 + geometry_.klass_bytes + sizeof(uint32_t) > geometry_.heap_bytes) return 0;
      uint32_t value = fetch(8 + geometry_.klass_bytes);
      if (value >> 31 != 0) return ~uint64_t{0};
      uint64_t bytes = s.header_bytes + (uint64_t{value} << s.element_log2);
      return ((bytes + geometry_.alignment_mask()) & ~geometry_.alignment_mask()) / 8;
    }
    case Path::kMirror:
      if (object + geometry_.mirror_size_offset + sizeof(uint32_t) > geometry_.heap_bytes) return 0;
      return fetch(geometry_.mirror_size_offset);
    default:
      return s.size_words;
  }
}

bool Tracer::account(uint64_t grey, uint64_t words) {
  uint64_t object = grey & ~kCounted;
  if (words - 1 >= (geometry_.heap_bytes - object) / 8) {
    fail(MERAPI_FAULT_BAD_OBJECT, address(object), words);
    return false;
  }
  if ((grey & kCounted) == 0) {
    geometry_.live[object >> geometry_.region_log2] += words;
    hot_.live_words += words;
  }
  return true;
}

void Tracer::visit_deferred(uint64_t grey, const Shape& shape) {
  uint64_t object = grey & ~kCounted;
  if (!account(grey, object_words(object, shape))) return;
  completions_->defer(address(object), false);
  check_room();
}

bool Tracer::count_if_primitive(uint64_t offset) {
  const Shape* s = slow_shape(offset);
  if (s == nullptr) return true;
  if (s->path != Path::kPrimArray) return false;
  account(offset, object_words(offset, *s));
  return true;
}

void Tracer::begin_partial(uint64_t object, uint64_t at, uint64_t count, uint64_t klass) {
  if (partials_.size() >= kMaxPartials) {
    // Counted already; its chunk is swept again when the others are done.
    slow_.dropped++;
    regions_.flag_chunk(object);
    return;
  }
  partials_.push_back({object, at, count, klass, 0, false});
  hot_.partials = partials_.size();
}

// The current run of the newest partial is used up: its next block, or its end.
void Tracer::next_run(Partial* p) {
  if (p->again) {
    // A partial gets its turn when the stack is empty: there is room.
    stack_[hot_.top++] = p->object | kCounted;
    partials_.pop_back();
    hot_.partials = partials_.size();
    return;
  }
  const Shape* s = nullptr;
  if (p->klass_word != 0) {
    const Shape& cached = shapes_.cached(p->klass_word);
    // Shapes may have been invalidated since; then it is looked up as if the object were met again (counted).
    s = cached.klass_word == p->klass_word ? &cached : slow_shape(p->object | kCounted);
  }
  const bool blocks =
      s != nullptr && (s->path == Path::kHuge || s->path == Path::kBlocks || s->path == Path::kOneBlock);
  if (!blocks || p->next_block >= s->block_count) {
    partials_.pop_back();
    hot_.partials = partials_.size();
    return;
  }
  // Looked up again, it may be another one than that which the object was accounted with.
  if (s->size_words - 1 >= (geometry_.heap_bytes - p->object) / 8)
    return fail(MERAPI_FAULT_BAD_OBJECT, address(p->object), s->size_words);
  merapi_ref_block block;
  if (!shapes_.block(*s, p->next_block++, &block))
    return fail(MERAPI_FAULT_BAD_SHAPE, p->klass_word, MERAPI_SHAPE_KIND_INSTANCE);
  hot_.work--;
  p->at = p->object + block.offset;
  p->remaining = block.count;
}

// ------------------------------------------------- stack, spill and drops

void Tracer::make_room() {
  uint64_t block = std::min<uint64_t>(kBlock, options_.stack_entries / 2);
  uint64_t* from = &stack_[hot_.top - block];
  if (options_.use_spill && geometry_.spill_words - spilled_ >= block) {
    std::copy(from, from + block, geometry_.spill + spilled_);
    spilled_ += block;
    slow_.spill_writes += (block + 7) / 8;
    hot_.top -= block;
    return;
  }
  hot_.top -= block;
  for (uint64_t i = 0; i < block; i++) drop_grey(from[i]);
}

// Forget a grey without losing what it leads to: count it now, and have its chunk swept again.
void Tracer::drop_grey(uint64_t grey) {
  if (check_stale_ && stale(grey)) {
    slow_.stale++;
    return;
  }
  uint64_t object = grey & ~kCounted;
  hot_.work--;
  if (object + 16 > geometry_.heap_bytes) return fail(MERAPI_FAULT_BAD_OBJECT, address(object), 0);
  uint64_t klass = klass_word(object);
  const Shape* s = &shapes_.cached(klass);
  if (klass == 0 || s->klass_word != klass) s = slow_shape(grey);
  if (s == nullptr) return;
  switch (s->path) {
    case Path::kMirror:
    case Path::kDeferred:
      visit_deferred(grey, *s);
      return;
    case Path::kLeaf:
    case Path::kPrimArray:
      account(grey, object_words(object, *s));
      return;
    default:
      if (!account(grey, object_words(object, *s))) return;
      slow_.dropped++;
      regions_.flag_chunk(object);
  }
}

// The spill area lies in the window: what comes back is checked like anything read there.
bool Tracer::refill() {
  uint64_t block = std::min({kBlock, spilled_, uint64_t{options_.stack_entries / 2}});
  spilled_ -= block;
  slow_.spill_reads += (block + 7) / 8;
  for (uint64_t i = 0; i < block; i++) {
    uint64_t grey = load(geometry_.spill[spilled_ + i]);
    uint64_t object = grey & ~kCounted;
    if (object >= geometry_.heap_bytes || (object & geometry_.alignment_mask()) != 0 || stale(grey) ||
        !marked(object)) {
      slow_.stale++;
      continue;
    }
    stack_[hot_.top++] = grey;
  }
  hot_.work--;
  return true;
}

// ----------------------------------------------------------------- sweep

void Tracer::command(uint32_t first, uint32_t count) {
  slices_.push_back({first, first + count, first});
  mark_commanded();
}

// A region may hear late that it is commanded: until then what is marked in it is pushed.
void Tracer::mark_commanded() {
  slices_told_ = std::max(slices_told_, slices_swept_);
  if (slices_told_ == slices_swept_ + slices_.size()) return;
  Slice& slice = slices_[slices_told_ - slices_swept_];
  const uint32_t end = slice.told + std::min(kToldAtOnce, slice.end - slice.told);
  while (slice.told != end) regions_.command(slice.told++);
  if (end == slice.end) slices_told_++;
}

// Called when nothing is in flight and the stack is empty. False: nothing is left at all.
bool Tracer::more() {
  if (hot_.sweep_bits != 0 || hot_.sweep_next < hot_.sweep_end) return true;
  if (spilled_ != 0) return refill();
  return next_segment();
}

void Tracer::end_segment() {
  if (!in_segment_) return;
  slow_.swept_lines += segment_lines();
  in_segment_ = false;
  if (!segment_is_chunk_) {
    regions_.swept(segment_region_);
    regions_.forget_host_bits(segment_region_);
  }
  segment_has_host_ = false;
  segment_edge_ = &no_edge_;
}

void Tracer::start_segment(uint32_t region, uint64_t start, uint64_t end) {
  WordSpan span = words_of(geometry_, start, end);
  in_segment_ = true;
  segment_region_ = region;
  segment_end_ = end;
  segment_last_mask_ = span.last_mask;
  segment_first_ = hot_.sweep_next = span.first;
  hot_.sweep_end = span.first + span.count;
  hot_.sweep_bits = 0;
  // Opening read these words once already.
  hot_.work -= int64_t(span.count / 8) + 1;
}

// Of the bitmap, which the sweep of the present segment has read.
uint64_t Tracer::segment_lines() const { return in_segment_ ? lines_of_words(segment_first_, hot_.sweep_next) : 0; }

bool Tracer::next_segment() {
  end_segment();
  while (chunk_at_ < chunk_end_) {
    uint32_t region = uint32_t(chunk_at_ >> geometry_.region_log2);
    uint64_t start = chunk_at_;
    chunk_at_ = std::min(chunk_end_, regions_.start(region) + geometry_.region_bytes());
    if (region >= geometry_.region_count) break;
    uint64_t end = std::min(chunk_at_, edges_[region].limit);
    if (end <= start) continue;  // unopened regions have limit 0
    segment_is_chunk_ = true;
    segment_has_host_ = regions_.state(region) == RegionState::kPlain;
    regions_.rewind_host();
    segment_host_only_ = false;
    segment_counted_ = ~uint64_t{0};
    segment_edge_ = &no_edge_;
    start_segment(region, start, end);
    return true;
  }
  while (!slices_.empty()) {
    Slice& slice = slices_.front();
    if (slice.next == slice.end) {
      slices_.pop_front();
      slices_swept_++;
      continue;
    }
    if (hot_.work <= 0) return true;
    uint32_t region = slice.next;
    if (slice.told <= region) {
      regions_.command(region);
      slice.told = region + 1;
    }
    bool open = false, fell = false;
    Fault f = regions_.open(region, &open);
    if (!f && open) f = regions_.refresh_one(region, &fell);
    if (f) {
      fail(f.code, f.address, f.detail);
      return true;
    }
    if (!open) {
      wanted_ = region;
      hot_.work = 0;
      return true;
    }
    slice.next++;
    if (fell) check_stale_ = true;
    RegionState state = regions_.state(region);
    segment_is_chunk_ = false;
    segment_host_only_ = state == RegionState::kHostOnly || state == RegionState::kPlain;
    bool again = state == RegionState::kSwept;
    segment_counted_ = again ? ~uint64_t{0} : 0;
    segment_has_host_ = !again && (segment_host_only_ || regions_.has_host_bits(region));
    regions_.rewind_host();
    segment_edge_ = state == RegionState::kPending ? &edges_[region] : &no_edge_;
    start_segment(region, regions_.start(region), edges_[region].limit);
    if (hot_.sweep_next < hot_.sweep_end) return true;
    end_segment();
  }
  if (regions_.flagged() != 0) {
    uint64_t bytes;
    regions_.take_chunk(&chunk_at_, &bytes);
    chunk_end_ = chunk_at_ + bytes;
    slow_.rescans++;
    return true;
  }
  return false;
}

bool Tracer::busy() const {
  return hot_.top != 0 || hot_.partials != 0 || hot_.objects_head != hot_.objects_tail ||
         hot_.references_head != hot_.references_tail || hot_.sweep_bits != 0 || hot_.sweep_next < hot_.sweep_end ||
         spilled_ != 0 || !slices_.empty() || waits() || chunk_at_ < chunk_end_ || regions_.flagged() != 0;
}

// ---------------------------------------------------------------- pauses

void Tracer::trim_segment() {
  if (!in_segment_) return;
  segment_end_ = std::min(segment_end_, edges_[segment_region_].limit);
  uint64_t start = regions_.start(segment_region_);
  WordSpan span = words_of(geometry_, start, std::max(segment_end_, start));
  uint64_t end = span.first + span.count;
  if (end <= hot_.sweep_end) {
    hot_.sweep_end = std::max(end, std::min(hot_.sweep_next, hot_.sweep_end));
    segment_last_mask_ = span.last_mask;
  }
  if (hot_.sweep_bits == 0) return;
  hot_.sweep_bits &= bitmap_[hot_.sweep_base >> (geometry_.alignment_log2 + 6)];
  for (uint64_t bits = hot_.sweep_bits; bits != 0; bits &= bits - 1) {
    int bit = __builtin_ctzll(bits);
    if (hot_.sweep_base + (uint64_t(bit) << geometry_.alignment_log2) >= segment_end_) {
      hot_.sweep_bits &= ~(uint64_t{1} << bit);
    }
  }
}

void Tracer::begin_refresh() {
  // That a limit fell stays: what a pause interrupted owes its check, and finds the lower limit latched already.
  refresh_next_ = 0;
}

bool Tracer::refresh_some() {
  if (Fault f = regions_.refresh_some(&refresh_next_, &refresh_fell_)) {
    fail(f.code, f.address, f.detail);
    return true;
  }
  if (refresh_next_ != geometry_.region_count) return false;
  if (std::exchange(refresh_fell_, false)) drop_stale();
  return true;
}

void Tracer::drop_stale() {
  check_stale_ = true;
  slow_.limits_fell++;
  uint32_t tail = hot_.references_head;
  for (uint32_t i = hot_.references_head; i != hot_.references_tail; i++) {
    uint64_t offset = references_[i & (kReferenceQueue - 1)];
    if (stale(offset)) {
      slow_.above++;
    } else {
      references_[tail++ & (kReferenceQueue - 1)] = offset;
    }
  }
  hot_.references_tail = tail;
  tail = hot_.objects_head;
  for (uint32_t i = hot_.objects_head; i != hot_.objects_tail; i++) {
    uint64_t grey = objects_[i & (kObjectQueue - 1)];
    if (stale(grey)) {
      slow_.stale++;
    } else {
      objects_[tail++ & (kObjectQueue - 1)] = grey;
    }
  }
  hot_.objects_tail = tail;
  auto gone = std::remove_if(partials_.begin(), partials_.end(), [&](const Partial& p) { return stale(p.object); });
  slow_.stale += uint64_t(partials_.end() - gone);
  partials_.erase(gone, partials_.end());
  hot_.partials = partials_.size();
  trim_segment();
}

void Tracer::renew_shapes() {
  shapes_.invalidate();
  for (Partial& p : partials_) {
    if (p.klass_word == 0) continue;
    p.remaining = 0;
    p.again = true;
  }
}

// -------------------------------------------------------------- counters

void Tracer::export_counters(uint64_t* v) const {
  v[MERAPI_COUNTER_OBJECTS_MARKED] = hot_.marked;
  v[MERAPI_COUNTER_OBJECTS_SCANNED] = hot_.scanned;
  v[MERAPI_COUNTER_REFERENCES_READ] = hot_.references;
  v[MERAPI_COUNTER_REFS_NULL] = hot_.nulls;
  v[MERAPI_COUNTER_REFS_OUTSIDE] = slow_.outside;
  v[MERAPI_COUNTER_REFS_ABOVE_LIMIT] = slow_.above;
  v[MERAPI_COUNTER_REFS_MARKED] = hot_.tested - hot_.marked;
  v[MERAPI_COUNTER_LIVE_WORDS] = hot_.live_words;
  v[MERAPI_COUNTER_SHAPE_HITS] = hot_.visits - std::min(hot_.visits, slow_.shape_misses);
  v[MERAPI_COUNTER_SHAPE_MISSES] = slow_.shape_misses;
  v[MERAPI_COUNTER_SHAPE_ABSENT] = slow_.shape_absent;
  v[MERAPI_COUNTER_BITMAP_READS] = regions_.lines_read() + slow_.swept_lines + segment_lines();
  v[MERAPI_COUNTER_SPILL_WRITES] = slow_.spill_writes;
  v[MERAPI_COUNTER_SPILL_READS] = slow_.spill_reads;
  v[MERAPI_COUNTER_GREYS_DROPPED] = slow_.dropped;
  v[MERAPI_COUNTER_RESCANS] = slow_.rescans;
  v[MERAPI_COUNTER_GREYS_SUBMITTED] = slow_.submitted;
  v[MERAPI_COUNTER_GREYS_STALE] = slow_.stale;
}

}  // namespace merapi::sim
