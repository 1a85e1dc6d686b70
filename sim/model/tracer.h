// SPDX-License-Identifier: Apache-2.0
//
// The tracing core: greys in, marks, live words, deferred objects and seen klasses out.
//
//   sweep of commanded slices --+
//   GREY, arrays in part -------+--> object queue --> visit: size, count, report; each reference
//   grey stack (spill, drop) ---+    (header          is filtered against its region's limit
//            ^                        prefetched)          |
//            |                                             v
//            +----- newly marked <----- test and set <--- reference queue (bitmap word prefetched)
//
// Two short queues, one in front of each memory access that misses, keep many misses in flight (Cher, Hosking,
// Vitek: "Software prefetching for mark-sweep garbage collection", ASPLOS 2004).
//
// WHICH MARKS ARE GREY. The host's greys and the tracer's own marks meet in the same bits. Two things tell them apart:
//
// 1. A snapshot. The first time anything touches a region (a reference into it or the sweep) the region is *opened*:
//    its bits are copied (sparse). The contract says that the host never marks while the device owns the bitmap, so
//    these are exactly the host's bits. Nothing can be marked in an unopened region, since its limit reads as 0 in the
//    filter.
// 2. A finger, as G1 has it (G1CMTask::is_below_finger). A newly marked object in a region that was opened under a
//    waiting TRACE_REGION and lies at or above the sweep's position (RegionEdge::leave_from) is left for the sweep;
//    every other newly marked object is pushed on the grey stack. The sweep takes a whole bitmap word into a register
//    and moves the finger behind it at once, so a mark set later in that word is pushed.
//
// Nothing is lost, by cases on a bit that is set in a region: (a) host's bit, region commanded: the sweep meets it,
// because the sweep reads every word below the limit once; (b) set by the tracer at or above the finger: the sweep has
// yet to read that word and meets it; (c) set by the tracer elsewhere: pushed, so it is visited or dropped, and a
// dropped one leaves its chunk's rescan flag. (d) region opened without a command and commanded later: its new marks
// were pushed and go on to be pushed, and the sweep looks only at the snapshot's bits. Nothing is counted twice: live
// words are added at the first visit of an object that was not the host's, a sweep reads every word once, a pushed
// object is not at or above the finger. A slice that is commanded again after its sweep is scanned a second time
// without counting: greys cannot be there, and a second scan only costs time.
//
// COUNTING is at the visit, not at the mark, so that the header's cache miss is taken once, prefetched. Marked objects
// that were not visited yet are in no table: a region reclaimed in a pause (limit at its start, bits and live words
// cleared) leaves nothing behind, because held greys are checked against the limits again after every pause and the
// sweep reads bits, not memories of bits. Humongous primitive arrays, which eager reclaim is about, are never held at
// all: an object at a region's start is looked at when it is marked.
#ifndef MERAPI_SIM_MODEL_TRACER_H_
#define MERAPI_SIM_MODEL_TRACER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "sim/model/completions.h"
#include "sim/model/geometry.h"
#include "sim/model/regions.h"
#include "sim/model/shapes.h"

namespace merapi::sim {

// A grey is the object's heap offset; the low bit says that its words were counted (or are the host's to count).
inline constexpr uint64_t kCounted = 1;

inline constexpr uint32_t kReferenceQueue = 64;  // slots; a power of two
inline constexpr uint32_t kObjectQueue = 32;

// What the loop counts, since begin().
struct Counts {
  uint64_t marked = 0;
  uint64_t tested = 0;
  uint64_t nulls = 0;
  uint64_t scanned = 0;
  uint64_t references = 0;
  uint64_t live_words = 0;
  uint64_t visits = 0;
};

// What the loop keeps in registers.
struct Hot : Counts {
  uint64_t top = 0;  // greys on the stack
  uint32_t references_head = 0, references_tail = 0;
  uint32_t objects_head = 0, objects_tail = 0;
  int64_t work = 0;  // budget: about one unit per reference or per eight bitmap words
  uint64_t partials = 0;

  uint64_t sweep_bits = 0;                 // rest of the word in hand
  uint64_t sweep_counted = 0;              // of these, which are the host's
  uint64_t sweep_base = 0;                 // heap offset of bit 0 of that word
  uint64_t sweep_next = 0, sweep_end = 0;  // words of the segment not read yet
  uint32_t sweep_zeros = 0;                // zero words since the last other one or the last empty pipeline
};

// An array, or an instance with very many references, whose scan was interrupted.
struct Partial {
  uint64_t object = 0;
  uint64_t at = 0;          // heap offset of the next reference of the current run
  uint64_t remaining = 0;   // references left in the run
  uint64_t klass_word = 0;  // instances: runs come from this klass' shape; 0 for arrays
  uint32_t next_block = 0;
  bool again = false;  // its shape may be another one now: visited as if it were met again, counted
};

struct TracerOptions {
  uint32_t stack_entries = 512 * 1024;
  bool use_spill = true;
  bool strict = false;
  // Units of work between two looks at the host's requests, at most; fewer where a unit takes long.
  int64_t slice = 1024;
  // How long step() goes on before it returns.
  uint64_t step_ns = 2'000'000;
  // Words of the bitmap whose host bits are kept together, and how many such pieces of a region are read at once.
  uint8_t piece_log2 = 11;
  uint32_t pieces_at_once = 32;
  // For tests of hosts, who must take it from any device: no klass has a shape here, and each DEFER comes twice.
  bool forgetful = false;
};

class Tracer {
 public:
  enum class Exit {
    kBudget,  // stopped in the middle, call run() again
    kDry,     // nothing to visit; whether the cycle is idle is the caller's to decide
    kFault,   // see fault()
  };

  Tracer(const WindowMemory& memory, const TracerOptions& options, Completions* completions);

  // A new cycle on bitmap 0 or 1, once clear_some() has said that nothing of the one before is left. The geometry is
  // copied.
  void begin(const Geometry& geometry, uint32_t bitmap);
  bool clear_some();
  // Drop everything that is held. What was counted stays until the next cycle or handshake.
  void drop();
  void forget_counts();

  // One reference submitted by GREY.
  void submit(uint64_t address);
  // Accept a slice for the sweep. Slices are swept in the order of acceptance; the caller posts DONE when
  // take_swept() says so.
  void command(uint32_t first, uint32_t count);
  // Slices finished since begin().
  uint64_t slices_swept() const { return slices_swept_; }

  // Trace until about `work` references were looked at.
  Exit run(int64_t work);
  // Mark everything in the reference queue (before a FENCE is answered).
  Exit settle();
  // References wait for a large region that is being opened, those of earlier GREYs among them.
  bool waits() const { return wanted_ != kNoRegion || !waiting_.empty(); }
  // Limits may have changed: read them again and drop held greys that lie at or above them. Nothing else is called
  // between begin_refresh() and the refresh_some() that is the last.
  void begin_refresh();
  bool refresh_some();
  void invalidate_shapes() { shapes_.invalidate(); }
  // Shapes may have been replaced in a pause: nothing goes on by one of before. Arrays keep their place: they may be
  // too long for the time between two pauses.
  void renew_shapes();

  const Fault& fault() const { return fault_; }
  // Work is left: slices, greys, rescans.
  bool busy() const;
  // Strict mode: check what must hold when nothing is held.
  Fault check_idle();

  // Contract counters that the tracer owns, by enum merapi_counter.
  void export_counters(uint64_t* values) const;
  uint64_t references_read() const { return hot_.references; }
  uint64_t objects_marked() const { return hot_.marked; }

 private:
  template <typename Oop, typename Klass, int kAlignmentLog2, bool kStrict>
  friend struct Loop;
  struct Loops {
    Exit (*run)(Tracer&);
    Exit (*settle)(Tracer&);
  };
  static Loops choose(const Geometry& geometry, bool strict);

  // Slow paths: the loop writes hot_ before and reads it after.
  void enqueue_reference(uint64_t offset, uint64_t object);
  const Shape* slow_shape(uint64_t grey);
  void visit_deferred(uint64_t grey, const Shape& shape);
  void begin_partial(uint64_t object, uint64_t at, uint64_t count, uint64_t klass_word);
  void next_run(Partial* partial);
  bool count_if_primitive(uint64_t offset);
  void open_some();
  void mark_commanded();
  void drop_stale();
  void make_room();
  void drop_grey(uint64_t grey);
  bool more();
  bool refill();
  bool next_segment();
  void start_segment(uint32_t region, uint64_t start, uint64_t end);
  void end_segment();
  uint64_t segment_lines() const;
  void trim_segment();
  void check_room();
  void fail(uint32_t code, uint64_t address, uint64_t detail);

  uint64_t object_words(uint64_t object, const Shape& shape) const;
  bool account(uint64_t grey, uint64_t words);
  bool marked(uint64_t offset) const {
    return (bitmap_[offset >> (geometry_.alignment_log2 + 6)] >> ((offset >> geometry_.alignment_log2) & 63) & 1) != 0;
  }
  uint64_t address(uint64_t offset) const { return geometry_.heap_base + offset; }
  uint64_t klass_word(uint64_t offset) const;
  bool stale(uint64_t grey) const {
    uint64_t offset = grey & ~kCounted;
    return offset >= edges_[offset >> geometry_.region_log2].limit;
  }

  WindowMemory memory_;
  TracerOptions options_;
  Completions* completions_;
  Geometry geometry_;
  Loops loops_{};

  Hot hot_;
  uint64_t* bitmap_ = nullptr;
  RegionEdge* edges_ = nullptr;
  bool check_stale_ = false;  // a limit fell in this cycle
  uint64_t references_[kReferenceQueue];
  uint64_t objects_[kObjectQueue];
  std::unique_ptr<uint64_t[]> stack_;
  Shapes shapes_;
  Regions regions_;
  Fault fault_;

  std::vector<Partial> partials_;
  uint64_t spilled_ = 0;  // words in the spill area

  // References to regions that are too large to be opened at once, and the one that the sweep has come to.
  static constexpr uint32_t kNoRegion = ~0u;
  std::vector<uint64_t> waiting_;
  uint32_t wanted_ = kNoRegion;
  uint32_t refresh_next_ = 0;
  bool refresh_fell_ = false;

  struct Slice {
    uint32_t next, end;
    uint32_t told;  // Regions knows that those before are commanded
  };
  std::deque<Slice> slices_;
  uint64_t slices_swept_ = 0;
  uint64_t slices_told_ = 0;  // since begin()
  bool in_segment_ = false;
  bool segment_is_chunk_ = false;
  uint32_t segment_region_ = 0;
  uint64_t segment_first_ = 0;     // word of the bitmap
  uint64_t segment_end_ = 0;       // heap offset
  bool segment_has_host_ = false;  // else segment_counted_ says it for every bit
  uint64_t segment_counted_ = 0;
  bool segment_host_only_ = false;
  uint64_t segment_last_mask_ = 0;
  RegionEdge* segment_edge_ = &no_edge_;  // where the finger is kept; a dummy when nothing is left for this sweep
  RegionEdge no_edge_;
  uint64_t chunk_at_ = 0, chunk_end_ = 0;

  struct Slow {
    uint64_t outside = 0, above = 0, shape_misses = 0, shape_absent = 0, spill_writes = 0, spill_reads = 0, dropped = 0,
             rescans = 0, submitted = 0, stale = 0, limits_fell = 0, swept_lines = 0;
  } slow_;
};

}  // namespace merapi::sim

#endif  // MERAPI_SIM_MODEL_TRACER_H_
