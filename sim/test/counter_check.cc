// SPDX-License-Identifier: Apache-2.0
#include "sim/test/counter_check.h"

#include <sstream>

namespace merapi::sim::test {
namespace {

constexpr uint64_t kAny = ~uint64_t{0};
constexpr uint64_t kAheadAtFirst = 128;
constexpr uint64_t kChunkLines = 8;  // of the bitmap, swept again at once

class Checker {
 public:
  explicit Checker(const CounterCase& c) : c_(c) {}

  uint64_t at(int counter) const { return c_.values[counter]; }
  void between(int counter, uint64_t least, uint64_t most) {
    number("counter " + std::to_string(counter), at(counter), least, most);
  }
  void equal(int counter, uint64_t want) { between(counter, want, want); }
  void number(const std::string& name, uint64_t have, uint64_t least, uint64_t most) {
    if (have >= least && have <= most) return;
    error_ << name << ": " << have << ", expected " << least;
    if (most != least) error_ << " to " << most;
    error_ << "; ";
  }
  std::string error() const { return error_.str(); }

 private:
  const CounterCase& c_;
  std::ostringstream error_;
};

void check_closure(const CounterCase& c, Checker* k) {
  const ClosureCounts& want = c.closure->counts;
  const HostTally& host = c.host;
  // A reference that a full store turns away is dropped after it was tested, and read again later.
  bool drops = k->at(MERAPI_COUNTER_GREYS_DROPPED) != 0 || c.may_drop;
  uint64_t read = k->at(MERAPI_COUNTER_REFERENCES_READ);
  bool once = read == want.references && !drops;
  if (c.scanned_once) once = true;
  uint64_t most = once ? 0 : kAny;
  auto up_to = [&](uint64_t exact) { return once ? exact : most; };

  k->equal(MERAPI_COUNTER_OBJECTS_MARKED, c.closure->newly_count);
  k->equal(MERAPI_COUNTER_LIVE_WORDS, want.live_words);
  k->between(MERAPI_COUNTER_REFERENCES_READ, want.references, up_to(want.references));
  uint64_t scanned = want.arrays + want.instances;
  k->between(MERAPI_COUNTER_OBJECTS_SCANNED, scanned + (c.promises.counts_leaves ? want.leaves : 0),
             c.scanned_once ? scanned + (c.promises.counts_leaves ? want.leaves : 0) : kAny);
  // A null of the host is counted as what it is or as outside the heap.
  k->between(MERAPI_COUNTER_REFS_NULL, want.nulls, up_to(want.nulls + host.nulls));
  k->number("REFS_NULL + REFS_OUTSIDE", k->at(MERAPI_COUNTER_REFS_NULL) + k->at(MERAPI_COUNTER_REFS_OUTSIDE),
            want.nulls + want.outside + host.nulls + host.outside,
            up_to(want.nulls + want.outside + host.nulls + host.outside));
  k->between(MERAPI_COUNTER_REFS_ABOVE_LIMIT, want.above + host.above, up_to(want.above + host.above));

  uint64_t ended = k->at(MERAPI_COUNTER_REFS_NULL) + k->at(MERAPI_COUNTER_REFS_OUTSIDE) +
                   k->at(MERAPI_COUNTER_REFS_ABOVE_LIMIT) + k->at(MERAPI_COUNTER_REFS_MARKED) +
                   k->at(MERAPI_COUNTER_OBJECTS_MARKED) +
                   (c.promises.counts_once ? 0 : k->at(MERAPI_COUNTER_GREYS_DROPPED));
  uint64_t began = read + k->at(MERAPI_COUNTER_GREYS_SUBMITTED);
  // A GREY entry that is refused for want of room is offered again as a whole.
  // What was followed ahead was marked without being read, one step for an object scanned and some.
  uint64_t ahead = c.promises.follows_ahead ? k->at(MERAPI_COUNTER_OBJECTS_SCANNED) + kAheadAtFirst : 0;
  k->number("references that ended", ended, began, c.may_drop && !c.promises.counts_once ? kAny : began + ahead);

  // Shapes: every visited object is looked up, once or (when it is sized by a further line) twice.
  k->number("SHAPE_HITS + SHAPE_MISSES", k->at(MERAPI_COUNTER_SHAPE_HITS) + k->at(MERAPI_COUNTER_SHAPE_MISSES),
            want.sized, c.scanned_once ? 3 * (want.sized + c.closure->deferred.size()) : kAny);
  k->between(MERAPI_COUNTER_SHAPE_MISSES, c.closure->klasses.size() + want.shapeless.size(), kAny);
  k->between(MERAPI_COUNTER_SHAPE_ABSENT, want.shapeless.size(), k->at(MERAPI_COUNTER_SHAPE_MISSES));
  k->between(MERAPI_COUNTER_GREYS_STALE, 0, 0);
  // Without what marking reads, which is in what a watched memory has seen. Each line may be read once more, before
  // anything is marked there.
  if (c.accesses == nullptr) {
    const uint64_t most_lines = 2 * c.swept_lines + kChunkLines * k->at(MERAPI_COUNTER_RESCANS);
    k->between(MERAPI_COUNTER_BITMAP_READS, c.swept_lines, c.scanned_once ? most_lines : kAny);
  }
  if (c.scanned_once) {
    k->equal(MERAPI_COUNTER_DEFERRED, c.closure->deferred.size());
    k->equal(MERAPI_COUNTER_GREYS_DROPPED, 0);
  }
}

void check_accesses(const CounterCase& c, Checker* k) {
  const AreaAccesses& a = *c.accesses;
  k->equal(MERAPI_COUNTER_BITMAP_READS, a.cycle_bitmap.reads);
  k->equal(MERAPI_COUNTER_BITMAP_WRITES, a.cycle_bitmap.writes);
  k->equal(MERAPI_COUNTER_SPILL_READS, a.area[MERAPI_AREA_SPILL].reads);
  k->equal(MERAPI_COUNTER_SPILL_WRITES, a.area[MERAPI_AREA_SPILL].writes);
  // What was spilled came back.
  k->equal(MERAPI_COUNTER_SPILL_READS, k->at(MERAPI_COUNTER_SPILL_WRITES));
  // Lines of a shape's further blocks are fetched by the same way.
  uint64_t heap = a.area[MERAPI_AREA_HEAP].reads;
  k->between(MERAPI_COUNTER_HEAP_LINES, heap, heap + a.area[MERAPI_AREA_SHAPE_EXTENSION].reads);
  // The window's own share of the control page is read and written before and after the counters are.
  uint64_t reads = 0, writes = 0;
  for (int i : {MERAPI_AREA_LIMITS, MERAPI_AREA_SHAPES, MERAPI_AREA_SHAPE_EXTENSION, MERAPI_AREA_SPILL,
                MERAPI_AREA_HEAP, MERAPI_AREA_LIVE}) {
    reads += a.area[i].reads;
    writes += a.area[i].writes;
  }
  k->between(MERAPI_COUNTER_BYTES_READ, MERAPI_LINE_BYTES * (reads + a.cycle_bitmap.reads),
             MERAPI_LINE_BYTES * a.all.reads);
  k->between(MERAPI_COUNTER_BYTES_WRITTEN, MERAPI_LINE_BYTES * (writes + a.cycle_bitmap.writes),
             MERAPI_LINE_BYTES * a.all.writes);
  if (a.area[MERAPI_AREA_HEAP].writes != 0) k->number("writes to the heap", a.area[MERAPI_AREA_HEAP].writes, 0, 0);
}

void check_time(const CounterCase& c, Checker* k) {
  k->equal(MERAPI_COUNTER_NANOSECONDS, 0);
  k->equal(MERAPI_COUNTER_CPU_NANOSECONDS, 0);
  k->between(MERAPI_COUNTER_CYCLES, 1, c.clock);
  if (c.traced != 0) k->equal(MERAPI_COUNTER_CYCLES, c.traced);
  // A lane ends one object a cycle at most.
  k->between(MERAPI_COUNTER_OBJECTS_SCANNED, 0, c.lanes * k->at(MERAPI_COUNTER_CYCLES));
  for (int stall : {MERAPI_COUNTER_STALL_MEMORY, MERAPI_COUNTER_STALL_BITMAP, MERAPI_COUNTER_STALL_GREY,
                    MERAPI_COUNTER_STALL_SHAPE}) {
    k->between(stall, 0, c.lanes * k->at(MERAPI_COUNTER_CYCLES));
  }
  k->between(MERAPI_COUNTER_STALL_COMPLETION, 0, c.clock);
  // A lane that fetched a line or missed a shape waited for it.
  if (k->at(MERAPI_COUNTER_HEAP_LINES) != 0) k->between(MERAPI_COUNTER_STALL_MEMORY, 1, kAny);
  if (k->at(MERAPI_COUNTER_SHAPE_MISSES) != 0) k->between(MERAPI_COUNTER_STALL_SHAPE, 1, kAny);
  k->between(MERAPI_COUNTER_STALL_GREY, 1, kAny);  // at the latest before the idle
  bool paused = k->at(MERAPI_COUNTER_PAUSES) != 0;
  k->between(MERAPI_COUNTER_PAUSE_MAX, paused ? 1 : 0, paused ? c.host.longest_pause : 0);
}

}  // namespace

std::string check_counters(const CounterCase& c) {
  Checker k(c);
  if (!c.limits_fell) check_closure(c, &k);
  k.equal(MERAPI_COUNTER_GREYS_SUBMITTED, c.host.greys);
  k.equal(MERAPI_COUNTER_DEFERRED, c.host.deferred);
  k.equal(MERAPI_COUNTER_SHAPES_SEEN, c.host.klasses);
  k.between(MERAPI_COUNTER_PAUSES, c.host.pauses_least, c.host.pauses_most);
  k.between(MERAPI_COUNTER_ROUNDS, c.rounds_least, c.rounds_most);
  k.between(MERAPI_COUNTER_REFS_FILTERED, 0, k.at(MERAPI_COUNTER_REFS_MARKED));
  // A chunk is swept again when greys of it were dropped, and only then; after a pause with a drop before it all are.
  uint64_t dropped = k.at(MERAPI_COUNTER_GREYS_DROPPED);
  bool all_again = dropped != 0 && k.at(MERAPI_COUNTER_PAUSES) != 0;
  k.between(MERAPI_COUNTER_RESCANS, dropped != 0 ? 1 : 0, all_again ? kAny : dropped);
  if (!c.may_drop) k.equal(MERAPI_COUNTER_GREYS_DROPPED, 0);
  if (c.accesses != nullptr) {
    check_accesses(c, &k);
    check_time(c, &k);
  }
  for (int i = MERAPI_COUNTER_ROUNDS + 1; i < int(MERAPI_COUNTER_COUNT); i++) {
    if (c.values[i] != 0) k.number("a counter that does not exist", c.values[i], 0, 0);
  }
  return k.error();
}

}  // namespace merapi::sim::test
