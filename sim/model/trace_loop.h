// SPDX-License-Identifier: Apache-2.0
//
// The inner loop, specialised for the widths of references and klass words and for the object alignment. Included by
// trace_loop.cc alone. State that changes per object lives in a local copy of Hot; a slow path is called between
// "tracer.hot_ = h" and "h = tracer.hot_".
#ifndef MERAPI_SIM_MODEL_TRACE_LOOP_H_
#define MERAPI_SIM_MODEL_TRACE_LOOP_H_

#include "sim/model/tracer.h"

#define MERAPI_INLINE inline __attribute__((always_inline))

namespace merapi::sim {

// kAlignmentLog2 0: read it from the geometry.
template <typename Oop, typename Klass, int kAlignmentLog2, bool kStrict>
struct Loop {
  static constexpr uint32_t kReferenceMask = kReferenceQueue - 1;
  static constexpr uint32_t kObjectMask = kObjectQueue - 1;
  // Misses kept in flight: about what a core's line fill buffers hold.
  static constexpr uint32_t kReferenceDepth = 24;
  static constexpr uint32_t kObjectDepth = 16;
  // The sweep does not run over more zero words than this while something in flight might still set a bit there.
  static constexpr uint32_t kZeroRun = 8;
  // References of an interruptible run looked at before anything else gets a turn.
  static constexpr uint64_t kStride = 256;

  Tracer& t;
  Hot h;
  // Loop invariants, copied so that stores through pointers cannot make the compiler read them again.
  const uint8_t* const heap;
  uint64_t* const bitmap;
  RegionEdge* const edges;
  uint64_t* const stack;
  uint64_t* const live;
  const uint64_t stack_entries;
  const uint64_t heap_bytes;
  const uint64_t delta;
  const uint64_t alignment_mask;
  const uint32_t region_count;
  const uint8_t shift, region_log2, alignment_log2_;

  explicit MERAPI_INLINE Loop(Tracer& tracer)
      : t(tracer),
        h(tracer.hot_),
        heap(tracer.geometry_.heap),
        bitmap(tracer.bitmap_),
        edges(tracer.edges_),
        stack(tracer.stack_.get()),
        live(tracer.geometry_.live),
        stack_entries(tracer.options_.stack_entries),
        heap_bytes(tracer.geometry_.heap_bytes),
        delta(tracer.geometry_.delta),
        alignment_mask(tracer.geometry_.alignment_mask()),
        region_count(tracer.geometry_.region_count),
        shift(tracer.geometry_.shift),
        region_log2(tracer.geometry_.region_log2),
        alignment_log2_(tracer.geometry_.alignment_log2) {}

  MERAPI_INLINE int alignment_log2() const { return kAlignmentLog2 != 0 ? kAlignmentLog2 : alignment_log2_; }

  // One load, whatever mutators do meanwhile: what was checked is what is used. Fields are naturally aligned.
  template <typename T>
  static MERAPI_INLINE T fetch(const uint8_t* at) {
    return __atomic_load_n(reinterpret_cast<const T*>(at), __ATOMIC_RELAXED);
  }

  template <typename F>
  MERAPI_INLINE auto slow(F call) {
    t.hot_ = h;
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      h = t.hot_;
    } else {
      auto result = call();
      h = t.hot_;
      return result;
    }
  }

  MERAPI_INLINE void push(uint64_t grey, bool really) {
    if (__builtin_expect(h.top == stack_entries, 0)) slow([this] { t.make_room(); });
    stack[h.top] = grey;
    h.top += really;
  }

  // Test and set the oldest reference's bit.
  MERAPI_INLINE void test_one() {
    uint64_t offset = t.references_[h.references_head++ & kReferenceMask];
    uint64_t* word = &bitmap[offset >> (alignment_log2() + 6)];
    uint64_t bit = uint64_t{1} << ((offset >> alignment_log2()) & 63);
    uint64_t old = *word;
    bool newly = (old & bit) == 0;
    *word = old | bit;
    h.tested++;
    h.marked += newly;
    uint64_t region = offset >> region_log2;
    push(offset, newly & (offset < edges[region].leave_from));
    if (__builtin_expect((offset & ((uint64_t{1} << region_log2) - 1)) == 0, 0) && newly &&
        offset < edges[region].leave_from) {
      // A humongous primitive array must not be held: see the head of tracer.h.
      if (slow([this, offset] { return t.count_if_primitive(offset); })) h.top--;
    }
  }

  MERAPI_INLINE void scan(const uint8_t* field, uint64_t count, uint64_t object) {
    h.references += count;
    h.work -= int64_t(count);
    for (const uint8_t* end = field + count * sizeof(Oop); field != end; field += sizeof(Oop)) {
      Oop oop = fetch<Oop>(field);
      uint64_t offset = (uint64_t{oop} << shift) + delta;
      uint64_t region = offset >> region_log2;
      region = region < region_count ? region : region_count;
      if (__builtin_expect(oop == 0, 0)) {
        h.nulls++;
      } else if (__builtin_expect(offset < edges[region].limit && (offset & alignment_mask) == 0, 1)) {
        __builtin_prefetch(&bitmap[offset >> (alignment_log2() + 6)], 1, 3);
        t.references_[h.references_tail++ & kReferenceMask] = offset;
        if (h.references_tail - h.references_head >= kReferenceDepth) test_one();
      } else {
        slow([&, this] { return t.enqueue_reference(offset, object); });
        if (h.references_tail - h.references_head >= kReferenceDepth) test_one();
      }
    }
  }

  MERAPI_INLINE bool account(uint64_t grey, uint64_t words) {
    uint64_t object = grey & ~kCounted;
    if (__builtin_expect(words - 1 >= (heap_bytes - object) / 8, 0)) {
      slow([&, this] { return t.fail(MERAPI_FAULT_BAD_OBJECT, t.address(object), words); });
      return false;
    }
    uint64_t add = (grey & kCounted) != 0 ? 0 : words;
    live[object >> region_log2] += add;
    h.live_words += add;
    return true;
  }

  // Length and size in words. A negative length (as Java has it) becomes an impossible size; behind a wide klass word
  // that ends with the heap nothing is read, and the size is 0.
  MERAPI_INLINE uint64_t array_words(uint64_t object, const Shape& s, uint64_t* length) const {
    if (sizeof(Klass) == 8 && __builtin_expect(object > heap_bytes - 24, 0)) return 0;
    *length = fetch<uint32_t>(heap + object + 8 + sizeof(Klass));
    uint64_t bytes = (s.header_bytes + (*length << s.element_log2) + alignment_mask) & ~alignment_mask;
    return bytes / 8 | (0 - (*length >> 31));
  }

  MERAPI_INLINE void visit(uint64_t grey) {
    uint64_t object = grey & ~kCounted;
    uint64_t length = 0;  // of an array
    if (kAlignmentLog2 <= 3 && __builtin_expect(object > heap_bytes - 16, 0)) {
      return slow([&, this] { return t.fail(MERAPI_FAULT_BAD_OBJECT, t.address(object), 0); });
    }
    Klass klass = fetch<Klass>(heap + object + 8);
    h.visits++;
    h.work--;
    const Shape* s = &t.shapes_.cached(klass);
    if (__builtin_expect(s->klass_word != klass || klass == 0, 0)) {
      s = slow([&, this] { return t.slow_shape(grey); });
      if (s == nullptr) return;
    }
    switch (s->path) {
      case Path::kOneBlock:
        if (!account(grey, s->size_words)) return;
        h.scanned++;
        scan(heap + object + s->first.offset, s->first.count, object);
        return;
      case Path::kLeaf:
        account(grey, s->size_words);
        return;
      case Path::kPrimArray:
        account(grey, array_words(object, *s, &length));
        return;
      case Path::kObjArray:
        if (!account(grey, array_words(object, *s, &length))) return;
        h.scanned++;
        if (length <= kInlineReferences) {
          scan(heap + object + s->header_bytes, length, object);
        } else {
          slow([&, this] { t.begin_partial(object, object + s->header_bytes, length, 0); });
        }
        return;
      case Path::kBlocks: {
        if (!account(grey, s->size_words)) return;
        h.scanned++;
        const merapi_ref_block* blocks = s->blocks;
        for (uint32_t i = 0, n = s->block_count; i < n; i++) {
          scan(heap + object + blocks[i].offset, blocks[i].count, object);
        }
        return;
      }
      case Path::kHuge:
        if (!account(grey, s->size_words)) return;
        h.scanned++;
        slow([&, this] { t.begin_partial(object, 0, 0, klass); });
        return;
      case Path::kMirror:
      case Path::kDeferred:
        slow([&, this] { t.visit_deferred(grey, *s); });
        return;
    }
  }

  // One stride of the newest interrupted scan.
  MERAPI_INLINE void stride() {
    Partial& p = t.partials_.back();
    if (p.remaining == 0) {
      slow([&, this] { return t.next_run(&p); });
      return;
    }
    uint64_t count = p.remaining < kStride ? p.remaining : kStride;
    uint64_t at = p.at, object = p.object;
    p.at += count * sizeof(Oop);
    p.remaining -= count;
    scan(heap + at, count, object);
  }

  MERAPI_INLINE bool in_flight() const {
    return h.objects_head != h.objects_tail || h.references_head != h.references_tail;
  }

  // Take the next non-zero bitmap word of the segment into the register. False: none, or not now.
  MERAPI_INLINE bool advance() {
    bool found = false;
    while (h.sweep_next < h.sweep_end) {
      uint64_t word = bitmap[h.sweep_next];
      if (word == 0) {
        if (h.sweep_zeros == kZeroRun) {
          if (in_flight() || h.work <= 0) break;
          h.work--;
          h.sweep_zeros = 0;
        }
        h.sweep_zeros++;
        h.sweep_next++;
        continue;
      }
      h.sweep_zeros = 0;
      uint64_t index = h.sweep_next++;
      if (h.sweep_next == h.sweep_end) {
        if constexpr (kStrict) {
          if ((word & ~t.segment_last_mask_) != 0 && !t.segment_is_chunk_) {
            slow([&, this] {
              return t.fail(MERAPI_FAULT_INTERNAL, t.address(index << (alignment_log2() + 6)), kMarkedAboveLimit);
            });
            return false;
          }
        }
        word &= t.segment_last_mask_;
      }
      h.sweep_base = index << (alignment_log2() + 6);
      h.sweep_counted = t.segment_counted_;
      if (t.segment_has_host_) {
        uint64_t first = t.geometry_.region_words() * t.segment_region_;
        h.sweep_counted = t.regions_.host_word(t.segment_region_, index - first);
        if (t.segment_is_chunk_) {
          // Marks of the host in a region that it never gave for tracing are not greys.
          word &= ~h.sweep_counted;
          h.sweep_counted = ~uint64_t{0};
        } else if (t.segment_host_only_) {
          word &= h.sweep_counted;
        }
      }
      h.sweep_bits = word;
      h.work--;
      if (word != 0) {
        found = true;
        break;
      }
    }
    t.segment_edge_->leave_from = h.sweep_next << (alignment_log2() + 6);
    return found;
  }

  MERAPI_INLINE void enqueue_object(uint64_t grey) {
    __builtin_prefetch(heap + grey, 0, 3);
    t.objects_[h.objects_tail++ & kObjectMask] = grey;
  }

  MERAPI_INLINE void fill() {
    while (h.objects_tail - h.objects_head < kObjectDepth) {
      if (h.top != 0) {
        uint64_t grey = stack[--h.top];
        if (__builtin_expect(t.check_stale_, 0) && t.stale(grey)) {
          t.slow_.stale++;
          continue;
        }
        enqueue_object(grey);
      } else if (h.partials != 0) {
        return;
      } else if (h.sweep_bits != 0) {
        int bit = __builtin_ctzll(h.sweep_bits);
        h.sweep_bits &= h.sweep_bits - 1;
        enqueue_object((h.sweep_base + (uint64_t(bit) << alignment_log2())) | (h.sweep_counted >> bit & 1));
      } else if (!advance()) {
        return;
      }
    }
  }

  MERAPI_INLINE Tracer::Exit loop() {
    while (h.work > 0) {
      fill();
      if (h.objects_head == h.objects_tail) {
        if (h.top == 0 && h.partials != 0) {
          stride();
        } else if (h.references_head != h.references_tail) {
          test_one();
        } else if (!slow([this] { return t.more(); })) {
          break;
        }
        continue;
      }
      uint64_t grey = t.objects_[h.objects_head++ & kObjectMask];
      if constexpr (kStrict) {
        if (!t.marked(grey & ~kCounted)) {
          slow([&, this] { return t.fail(MERAPI_FAULT_INTERNAL, t.address(grey & ~kCounted), kGreyUnmarked); });
          break;
        }
      }
      visit(grey);
    }
    t.hot_ = h;
    if (t.fault_) return Tracer::Exit::kFault;
    return h.work > 0 ? Tracer::Exit::kDry : Tracer::Exit::kBudget;
  }

  static Tracer::Exit run(Tracer& tracer) { return Loop(tracer).loop(); }

  // Empty the reference queue; what is newly marked goes to the stack.
  static Tracer::Exit settle(Tracer& tracer) {
    Loop l(tracer);
    while (l.h.references_head != l.h.references_tail) l.test_one();
    tracer.hot_ = l.h;
    return tracer.fault_ ? Tracer::Exit::kFault : Tracer::Exit::kBudget;
  }
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_TRACE_LOOP_H_
