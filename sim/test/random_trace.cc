// SPDX-License-Identifier: Apache-2.0
#include "sim/test/random_trace.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "sim/test/answers.h"
#include "sim/test/closure.h"
#include "sim/test/counter_check.h"
#include "sim/test/heap_maker.h"
#include "sim/test/random_shape.h"
#include "sim/test/window_fixture.h"

namespace merapi::sim::test {
namespace {

// So few marks of the host that no device has to trace before it has found them all.
constexpr size_t kFewMarks = 24;
// So few that a list is what is left to do before long.
constexpr size_t kAlone = 3;
// So many pauses, and the device is left to itself: objects that take longer than what lies between two of them begin
// again with each.
constexpr int kManyPauses = 100;

class Trace {
 public:
  Trace(uint64_t seed, const TraceKnobs& knobs, const DeviceMaker& make_device)
      : knobs_(knobs), r_(seed), window_(random_shape(&r_, knobs.once)) {
    Topology topology = Topology(r_.below(6));
    maker_ = std::make_unique<HeapMaker>(&window_, &r_, topology);
    maker_->make();
    bitmap_ = uint32_t(r_.below(2));
    size_t most = knobs_.once ? kFewMarks : topology == Topology::kList ? kAlone : ~size_t{0};
    maker_->mark_some(bitmap_, uint32_t(r_.percent(20) ? 0 : r_.between(1, 40)), most);
    // Stale marks in the other bitmap, live words of an older cycle.
    maker_->mark_some(1 - bitmap_, 30);
    for (uint32_t i = 0; i < window_.shape.regions; i++) window_.live()[i] = r_.next();
    device_ = make_device(&window_, &r_, knobs_);
    promises_ = device_->promises();
    machine_ = &device_->host();
    before_ = window_.copy();
  }

  std::string run() {
    if (!device_->attach()) return "no handshake";
    start_cycle();
    uint64_t turns = 0;
    while (error_.str().empty()) {
      if (++turns > device_->most_turns()) {
        error_ << "no end after " << turns << " turns, state " << machine_->state();
        break;
      }
      if (const merapi_fault_record& f = machine_->fault(); f.code != 0) {
        error_ << "fault " << merapi_fault_name(f.code) << " address " << std::hex << f.address << " detail "
               << f.detail;
        break;
      }
      act();
      if (commands_.empty() && pending_.empty() && machine_->idle()) break;
    }
    if (error_.str().empty()) check();
    if (!error_.str().empty()) {
      error_ << " (" << aborts_ << " aborts, " << pauses_ << " pauses, " << reclaimed_.size() << " reclaimed, "
             << fallen_.size() << " fallen, " << window_.shape.regions << " regions)";
    }
    return error_.str();
  }

 private:
  bool small_spill() const { return knobs_.no_spill || window_.shape.spill_bytes == kSmallSpill; }

  void start_cycle() {
    commands_.clear();
    pending_.clear();
    deferred_.clear();
    deferred_again_ = 0;
    unsized_.clear();
    seen_.clear();
    submitted_.clear();
    answers_.forget();
    reported_twice_ = false;
    recommanded_.clear();
    commanded_.clear();
    tally_ = {};
    taken_back_ = kNever;
    begin_index_ = machine_->produced;
    clock_ = device_->clock();
    device_->begin_count(bitmap_);
    machine_->begin(bitmap_);
    if (knobs_.once) return command_once();
    command_slices();
    if (knobs_.overwrites) find_live();
  }

  void command_slices() {
    // Slices in any order, some regions never, some twice, some overlapping.
    // Where flagged chunks are swept whole and greys may be dropped, every region is commanded.
    bool all = small_spill() && !promises_.sweeps_greys_only;
    uint32_t at = 0, n = window_.shape.regions;
    std::vector<std::pair<uint32_t, uint32_t>> slices;
    while (at < n) {
      uint32_t count = uint32_t(r_.between(1, std::min<uint64_t>(n - at, 8)));
      if (all || !r_.percent(10)) slices.push_back({at, count});
      at += count;
    }
    for (uint64_t extra = r_.percent(30) ? r_.between(1, 3) : 0; extra != 0; extra--) {
      uint32_t first = uint32_t(r_.below(n));
      slices.push_back({first, uint32_t(r_.between(1, n - first))});
    }
    if (r_.percent(70)) {
      for (size_t i = slices.size(); i > 1; i--) std::swap(slices[i - 1], slices[r_.below(i)]);
    }
    for (auto [first, count] : slices) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_TRACE_REGION;
      e.arg = first;
      e.payload[0] = count;
      commands_.push_back(e);
      for (uint32_t i = first; i < first + count; i++) {
        if (!commanded_.insert(i).second) recommanded_.insert(i);
      }
    }
    insert_others();
  }

  // Everything at once, before anything is traced; then what the host has to add.
  void command_once() {
    merapi_submission e{};
    e.opcode = MERAPI_OP_TRACE_REGION;
    e.payload[0] = window_.shape.regions;
    commands_.push_back(e);
    for (uint32_t i = 0; i < window_.shape.regions; i++) commanded_.insert(i);
    for (uint64_t i = r_.below(4); i != 0; i--) commands_.push_back(some_greys());
  }

  merapi_submission some_greys() {
    merapi_submission e{};
    e.opcode = MERAPI_OP_GREY;
    e.count = uint16_t(r_.below(7));
    for (int k = 0; k < e.count; k++) {
      e.payload[k] = maker_->any_address();
      submitted_.push_back(e.payload[k]);
    }
    return e;
  }

  void insert_others() {
    auto anywhere = [&](merapi_submission e) {
      commands_.insert(commands_.begin() + long(r_.below(commands_.size() + 1)), e);
    };
    for (uint64_t i = r_.below(4); i != 0; i--) anywhere(some_greys());
    for (uint64_t i = r_.below(3); i != 0; i--) {
      merapi_submission e{};
      e.opcode = r_.percent(50) ? MERAPI_OP_FENCE : MERAPI_OP_NOP;
      e.payload[0] = r_.next();
      anywhere(e);
    }
    if (r_.percent(30)) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_CLEAR_BITMAP;
      e.arg = 1 - bitmap_;
      e.payload[0] = r_.below(window_.shape.regions);
      e.payload[1] = r_.between(1, window_.shape.regions - e.payload[0]);
      anywhere(e);
    }
    if (r_.percent(10)) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_INVALIDATE_SHAPES;
      anywhere(e);
      reported_twice_ = true;
    }
  }

  // As what the program may use at the begin of the cycle: it can store nothing else.
  void find_live() {
    snapshot_ = naive_closure(closure_input());
    overwriting_.clear();
    live_.clear();
    for (const MadeObject& o : maker_->objects()) {
      if (!o.below_limit || reclaimed_.count(o.offset) != 0 || !in_snapshot(address(o))) continue;
      live_.push_back(&o);
      if (maker_->is_scanned(o) && !maker_->fields_of(o).empty()) overwriting_.push_back(&o);
    }
    overwrites_left_ = overwriting_.empty() ? 0 : r_.between(20, 1500);
  }

  uint64_t address(const MadeObject& o) const { return window_.shape.heap_base + o.offset; }

  // Nothing, or an object that is marked in this cycle, or nobody's concern.
  bool in_snapshot(uint64_t reference) {
    uint64_t offset = reference - window_.shape.heap_base;
    return reference == 0 || offset >= window_.heap_bytes() ||
           offset >= window_.limits()[offset >> window_.shape.region_log2] ||
           snapshot_.marked[offset >> window_.shape.alignment_log2];
  }

  // The program stores a reference while the device may be reading it; what was there is owed (G1's barrier).
  void overwrite() {
    if (overwrites_left_ == 0) return;
    overwrites_left_--;
    const uint64_t field = r_.pick(maker_->fields_of(*r_.pick(overwriting_)));
    const uint64_t before = maker_->load_reference(field);
    uint64_t value = r_.percent(40) ? 0 : address(*r_.pick(live_));
    if (r_.percent(20)) value = maker_->load_reference(r_.pick(maker_->fields_of(*r_.pick(overwriting_))));
    // Marked by the host where nothing was commanded: what such an object refers to may be dead.
    if (!in_snapshot(before) || !in_snapshot(value)) return;
    maker_->store_reference(field, value);
    overwritten_.push_back({field, before});
    pending_.push_back(before);
  }

  void undo_overwrites() {
    for (; !overwritten_.empty(); overwritten_.pop_back()) {
      maker_->store_reference(overwritten_.back().first, overwritten_.back().second);
    }
  }

  ClosureInput closure_input() {
    ClosureInput in = ClosureInput::of_window(before_->base, bitmap_);
    in.commanded = commanded_;
    in.submitted = submitted_;
    in.answer_object = [&](uint64_t a) { return maker_->answer(a); };
    in.answer_klass = in.answer_object;
    return in;
  }

  bool may_pause() const { return knobs_.pauses && !(knobs_.hasty && pauses_ >= kManyPauses); }

  void act() {
    if (knobs_.overwrites) {
      for (uint64_t i = r_.below(4); i != 0; i--) overwrite();
    }
    if (knobs_.redefines && r_.percent(5)) maker_->publish_again();
    if (knobs_.hasty && may_pause() && r_.percent(4)) hurry();
    uint64_t dice = r_.below(100);
    if (dice < 60) {
      device_->advance(&r_);
    } else if (dice < 70) {
      submit_next();
    } else if (dice < (knobs_.slow_host ? 71 : 90)) {
      read_completions(r_.percent(50) ? ~size_t{0} : r_.between(1, 5));
    } else if (dice < 97) {
      submit_answers();
    } else if (dice < 99) {
      if (may_pause() && r_.percent(20)) pause();
    } else if (knobs_.aborts && aborts_ < 3 && r_.percent(5)) {
      abort();
    }
  }

  void submit_next() {
    if (commands_.empty() || !machine_->room()) return;
    merapi_submission e = commands_.front();
    commands_.pop_front();
    e.cycle = machine_->cycle;
    answers_.expect(machine_->produced, e);
    if (e.opcode == MERAPI_OP_GREY) tally_greys({e.payload, e.payload + e.count});
    machine_->submit(e);
    expect_new_shapes();
  }

  void submit_answers() {
    while (!pending_.empty() && machine_->room()) {
      std::vector<uint64_t> some;
      while (!pending_.empty() && some.size() < MERAPI_ENTRY_WORDS) {
        some.push_back(pending_.front());
        pending_.pop_front();
      }
      tally_greys(some);
      machine_->grey(some);
      expect_new_shapes();
    }
  }

  void tally_greys(const std::vector<uint64_t>& addresses) {
    tally_.greys += addresses.size();
    for (uint64_t a : addresses) {
      uint64_t offset = a - window_.shape.heap_base;
      if (a == 0) {
        tally_.nulls++;
      } else if (offset >= window_.heap_bytes()) {
        tally_.outside++;
      } else if (offset >= window_.limits()[offset >> window_.shape.region_log2]) {
        tally_.above++;
      }
    }
  }

  void read_completions(size_t count) {
    if (promises_.counts_events && machine_->completed() != completed_ && machine_->events() == events_) {
      error_ << "completions without an event; ";
    }
    completed_ = machine_->completed();
    events_ = machine_->events();
    for (const merapi_completion& c : machine_->complete(count)) {
      if (c.cycle != machine_->cycle) {
        if (c.cycle > machine_->cycle || aborts_ == 0) error_ << "completion of cycle " << c.cycle << "; ";
        continue;
      }
      switch (c.type) {
        case MERAPI_COMP_DONE:
          done(c);
          break;
        case MERAPI_COMP_DEFER:
          tally_.deferred += c.count;
          for (int i = 0; i < c.count; i++) defer(c.payload[i], (c.flags >> MERAPI_DEFER_FLAG_UNSIZED & 1) != 0);
          break;
        case MERAPI_COMP_SHAPE_SEEN:
          tally_.klasses += c.count;
          for (int i = 0; i < c.count; i++) {
            if (!seen_.insert(c.payload[i]).second) {
              if (promises_.reports_once && !reported_twice_) error_ << "klass reported twice; ";
              continue;
            }
            for (uint64_t a : maker_->answer(c.payload[i])) pending_.push_back(a);
          }
          break;
        case MERAPI_COMP_FAULT:
          break;
        default:
          error_ << "completion type " << int(c.type) << "; ";
      }
    }
  }

  void done(const merapi_completion& c) {
    merapi_submission e{};
    error_ << answers_.take(c, &e);
    if (e.opcode != MERAPI_OP_CLEAR_BITMAP) return;
    uint64_t words = window_.region_bytes() >> (window_.shape.alignment_log2 + 6);
    const uint64_t* from = window_.bitmap(int(e.arg)) + e.payload[0] * words;
    if (std::any_of(from, from + e.payload[1] * words, [](uint64_t w) { return w != 0; })) error_ << "not cleared; ";
  }

  void defer(uint64_t address, bool unsized) {
    uint64_t offset = address - window_.shape.heap_base;
    if (offset >= window_.heap_bytes()) {
      error_ << "DEFER of an address outside the heap; ";
      return;
    }
    // Reported before its region was given up, read after.
    if (fallen_.count(uint32_t(offset >> window_.shape.region_log2)) != 0) return;
    if (promises_.marks_before_reports && !window_.marked(int(bitmap_), offset)) {
      error_ << "DEFER of an unmarked object; ";
      return;
    }
    if (unsized && !unsized_.insert(offset).second) error_ << "an unsized object reported twice; ";
    if (!deferred_.insert(offset).second) deferred_again_++;
    const MadeObject* o = knobs_.redefines ? maker_->object_at(offset) : nullptr;
    if (o != nullptr) scan_for_device(*o);
    // As the closure, for which it is still the device's.
    if (o != nullptr && (maker_->is_scanned(*o) || o->primitive)) return;
    for (uint64_t a : maker_->answer(address)) pending_.push_back(a);
  }

  // What the device would have found in it, and told of it, had its shape not been redefined.
  void scan_for_device(const MadeObject& o) {
    if (maker_->is_scanned(o)) {
      for (uint64_t field : maker_->fields_of(o)) {
        if (uint64_t a = maker_->load_reference(field)) pending_.push_back(a);
      }
    }
    if (maker_->is_reported(o.klass_word)) {
      klasses_visited_.insert(o.klass_word);
      for (uint64_t a : maker_->answer(o.klass_word)) pending_.push_back(a);
    }
  }

  // What the device may write in a cycle, as one number; nothing of it may move while it is paused.
  uint64_t device_areas() {
    uint64_t hash = 0;
    auto add = [&](const uint8_t* from, uint64_t bytes) {
      for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t w;
        std::memcpy(&w, from + i, 8);
        hash = (hash ^ w) * UINT64_C(0x100000001b3) + i;
      }
    };
    for (int a :
         {MERAPI_AREA_BITMAP0, MERAPI_AREA_BITMAP1, MERAPI_AREA_LIVE, MERAPI_AREA_SPILL, MERAPI_AREA_COMPLETION}) {
      // Bitmaps are padded to 2 MiB; only the heap's part is of interest.
      bool bitmap = a == MERAPI_AREA_BITMAP0 || a == MERAPI_AREA_BITMAP1;
      add(window_.area(a),
          bitmap ? window_.heap_bytes() >> (window_.shape.alignment_log2 + 3) : window_.layout.area[a].size);
    }
    return hash;
  }

  void pause() {
    pauses_++;
    // Counted for certain when the cycle had begun and the pause before was over.
    tally_.pauses_least += machine_->executed() > begin_index_ && machine_->resume_acknowledged();
    tally_.pauses_most++;
    uint64_t asked = device_->clock();
    machine_->request_pause();
    if (!device_->settle([&] { return machine_->pause_acknowledged(); })) {
      error_ << "pause not acknowledged; ";
      return;
    }
    // One that was taken back may have been acknowledged as well, at any time until now.
    tally_.longest_pause = std::max(tally_.longest_pause, device_->clock() - std::min(asked, taken_back_));
    taken_back_ = kNever;
    uint64_t hash = device_areas();
    for (uint64_t i = r_.below(4); i != 0; i--) device_->advance(&r_);
    if (device_areas() != hash) error_ << "written while paused; ";
    if (knobs_.reclaims && r_.percent(50)) reclaim();
    if (knobs_.falls && r_.percent(50)) fall();
    if (knobs_.overwrites) overwrite();
    if (knobs_.redefines && r_.percent(70)) redefine();
    machine_->resume();
    expect_new_shapes();
  }

  // What the device does between two of them may be nothing.
  void hurry() {
    for (uint64_t i = r_.between(1, 3); i != 0 && error_.str().empty(); i--) {
      if (!r_.percent(30)) {
        pause();
        continue;
      }
      tally_.pauses_most++;
      taken_back_ = std::min(taken_back_, device_->clock());
      machine_->request_pause();
      if (r_.percent(70)) device_->advance(&r_);
      machine_->resume();
      expect_new_shapes();
    }
  }

  // Behind a pause INVALIDATE_SHAPES may be among what waits in the ring: klasses may be reported again.
  void expect_new_shapes() {
    if (!machine_->resume_acknowledged() && machine_->executed() != machine_->produced) reported_twice_ = true;
  }

  // The device hears of it before it goes on, whatever is in front of that in the ring.
  void redefine() {
    if (r_.percent(50)) submit_next();
    if (!machine_->room()) return;
    for (uint64_t i = r_.between(1, 8); i != 0; i--) maker_->redefine();
    machine_->command(MERAPI_OP_INVALIDATE_SHAPES, 0, 0, 0);
    reported_twice_ = true;
  }

  // Eager reclaim of a humongous primitive array: bits and live words cleared, its regions free.
  void reclaim() {
    std::vector<const MadeObject*> candidates;
    for (const MadeObject& o : maker_->objects()) {
      if (o.humongous && o.primitive && reclaimed_.count(o.offset) == 0) candidates.push_back(&o);
    }
    if (candidates.empty()) return;
    const MadeObject& o = *r_.pick(candidates);
    reclaimed_.insert(o.offset);
    clear_bit(o.offset);
    for (uint64_t at = o.offset; at < o.offset + o.words * 8; at += window_.region_bytes()) {
      uint64_t region = at >> window_.shape.region_log2;
      window_.limits()[region] = region << window_.shape.region_log2;
      window_.live()[region] = 0;
    }
    std::memset(window_.heap() + o.offset, 0xA5, o.words * 8);
  }

  void clear_bit(uint64_t offset) {
    uint64_t bit = offset >> window_.shape.alignment_log2;
    window_.bitmap(int(bitmap_))[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  }

  // A whole region is given up, with whatever the device holds of it: greys, references in flight, half an array.
  void fall() {
    uint32_t region = uint32_t(r_.below(window_.shape.regions));
    uint64_t start = uint64_t{region} << window_.shape.region_log2;
    if (window_.limits()[region] == start) return;
    // Half an array cannot be given up.
    for (const MadeObject& o : maker_->objects()) {
      uint64_t last = (o.offset + o.words * 8 - 1) >> window_.shape.region_log2;
      if (last != o.offset >> window_.shape.region_log2 && o.offset >> window_.shape.region_log2 <= region &&
          region <= last) {
        return;
      }
    }
    fallen_.insert(region);
    uint64_t words = window_.region_bytes() >> (window_.shape.alignment_log2 + 6);
    std::fill_n(window_.bitmap(int(bitmap_)) + region * words, words, 0);
    window_.limits()[region] = start;
    window_.live()[region] = 0;
    for (uint64_t at = 0; at < window_.region_bytes(); at += 8) {
      uint64_t junk = r_.next();
      std::memcpy(window_.heap() + start + at, &junk, 8);
    }
  }

  // With fallen regions the result depends on when they fell: everything that is reachable without them is marked,
  // nothing is that was not reachable with them, and the live words belong to the marks.
  void check_fallen() {
    ClosureInput in = closure_input();
    Closure most = naive_closure(in);
    for (uint32_t region : fallen_) {
      auto* limits = reinterpret_cast<uint64_t*>(before_->base + window_.layout.area[MERAPI_AREA_LIMITS].offset);
      limits[region] = uint64_t{region} << window_.shape.region_log2;
    }
    Closure least = naive_closure(in);
    std::map<uint32_t, uint64_t> live;
    for (uint64_t bit = 0; bit < most.marked.size(); bit++) {
      uint64_t offset = bit << window_.shape.alignment_log2;
      bool have = window_.marked(int(bitmap_), offset);
      if (least.marked[bit] && !have) error_ << "missing " << std::hex << offset << std::dec << "; ";
      if (have && !most.marked[bit]) error_ << "too many " << std::hex << offset << std::dec << "; ";
      if (have && fallen_.count(uint32_t(offset >> window_.shape.region_log2)) != 0)
        error_ << "marked after its fall; ";
      if (!have || !most.newly[bit] || unsized_.count(offset) != 0) continue;
      live[uint32_t(offset >> window_.shape.region_log2)] += maker_->object_at(offset)->words;
    }
    for (uint32_t i = 0; i < window_.shape.regions; i++) {
      bool fallen = fallen_.count(i) != 0;
      if (window_.live()[i] != (fallen ? 0 : live[i])) {
        error_ << "live words of region " << i << ": " << window_.live()[i] << " not " << live[i] << "; ";
      }
    }
  }

  // With redefined shapes who scans an object depends on when: the marks do not, and each object's words are either in
  // the live table or the host's to add.
  void check_redefined(const Closure& want) {
    const int log2 = window_.shape.alignment_log2;
    auto missing = [&](const char* what, const std::set<uint64_t>& have, const std::set<uint64_t>& least) {
      for (uint64_t x : least) {
        if (have.count(x) == 0) error_ << what << ": missing " << std::hex << x << std::dec << "; ";
      }
    };
    missing("deferred", deferred_, want.deferred);
    missing("unsized", unsized_, want.unsized);
    missing("klasses", want.klasses, seen_);
    seen_.insert(klasses_visited_.begin(), klasses_visited_.end());
    missing("klasses", seen_, want.klasses);
    for (uint64_t o : deferred_) {
      if (!want.marked[o >> log2]) error_ << "deferred and not reached " << std::hex << o << std::dec << "; ";
    }
    std::map<uint32_t, uint64_t> live = want.live;
    for (uint64_t o : unsized_) {
      if (!want.newly[o >> log2]) error_ << "unsized and the host's " << std::hex << o << std::dec << "; ";
      if (want.unsized.count(o) == 0) live[uint32_t(o >> window_.shape.region_log2)] -= maker_->object_at(o)->words;
    }
    for (uint32_t i = 0; i < window_.shape.regions; i++) {
      if (window_.live()[i] != live[i]) {
        error_ << "live words of region " << i << ": " << window_.live()[i] << " not " << live[i] << "; ";
      }
    }
  }

  void abort() {
    aborts_++;
    machine_->abort();
    if (!device_->settle([&] { return machine_->abort_acknowledged(); })) {
      error_ << "abort not acknowledged; ";
      return;
    }
    if (r_.percent(50)) read_completions(~size_t{0});
    // The host starts over with the heap of the first cycle, and the marks that its own start pause would set.
    undo_overwrites();
    for (int b : {0, 1}) {
      uint64_t bytes = window_.heap_bytes() >> (window_.shape.alignment_log2 + 3);
      std::memcpy(window_.bitmap(b), before_->base + window_.layout.area[MERAPI_AREA_BITMAP0 + b].offset, bytes);
    }
    for (uint64_t offset : reclaimed_) clear_bit(offset);
    start_cycle();
  }

  void check() {
    if (!answers_.none_missing()) error_ << "a DONE is missing; ";
    if (!device_->settle([&] { return machine_->resume_acknowledged(); })) error_ << "resume not acknowledged; ";
    if (machine_->state() != MERAPI_DEVICE_STATE_IDLE) error_ << "state " << machine_->state() << " at idle; ";
    if (knobs_.falls) {
      check_fallen();
      return check_counts(nullptr);
    }
    // The closure of what the window was before, without what was reclaimed meanwhile.
    std::memcpy(before_->base + window_.layout.area[MERAPI_AREA_LIMITS].offset, window_.limits(),
                window_.shape.regions * 8);
    ClosureInput in = closure_input();
    Closure want = naive_closure(in);
    error_ << compare_marks(in, want, window_.area(MERAPI_AREA_BITMAP0 + int(bitmap_)));
    if (knobs_.redefines) {
      check_redefined(want);
      return check_counts(nullptr);
    }
    // Reported before it was reclaimed: the host checks limits itself.
    if (!promises_.reports_once) {
      for (uint64_t o : reclaimed_) deferred_.erase(o), unsized_.erase(o);
    }
    compare("deferred", deferred_, want.deferred);
    compare("unsized", unsized_, want.unsized);
    if (promises_.reports_once || reclaimed_.empty()) compare("klasses", seen_, want.klasses);
    for (uint32_t i = 0; i < window_.shape.regions; i++) {
      if (window_.live()[i] != want.live[i]) {
        error_ << "live words of region " << i << ": " << window_.live()[i] << " not " << want.live[i] << "; ";
      }
    }
    if (promises_.reports_once && deferred_again_ != 0 && recommanded_.empty() &&
        machine_->counter(MERAPI_COUNTER_RESCANS) == 0) {
      error_ << deferred_again_ << " deferred objects reported again without need; ";
    }
    // What is overwritten is read, or not.
    check_counts(knobs_.overwrites ? nullptr : &want);
    undo_overwrites();
    // The heap is read-only for the device.
    uint64_t heap = window_.layout.area[MERAPI_AREA_HEAP].offset;
    if (reclaimed_.empty() && std::memcmp(window_.heap(), before_->base + heap, window_.heap_bytes()) != 0) {
      error_ << "the heap was written; ";
    }
  }

  void check_counts(const Closure* want) {
    CounterCase c;
    c.promises = promises_;
    c.limits_fell = want == nullptr || !reclaimed_.empty();
    c.may_drop = small_spill();
    c.scanned_once = knobs_.once;
    // What an abort dropped was not executed.
    c.rounds_least = machine_->produced - (aborts_ == 0 ? 0 : begin_index_);
    c.rounds_most = machine_->produced;
    c.swept_lines = swept_lines();
    c.closure = want;
    c.host = tally_;
    if (taken_back_ != kNever) {
      c.host.longest_pause = std::max(c.host.longest_pause, device_->clock() - taken_back_);
    }
    c.accesses = device_->accesses();
    c.clock = device_->clock() - clock_;
    c.traced = device_->traced();
    c.lanes = window_.control<merapi_device_identity>(MERAPI_DEVICE_IDENTITY_OFFSET)->lanes;
    c.values = window_.control<merapi_counters>(MERAPI_COUNTERS_OFFSET)->value;
    error_ << check_counters(c);
  }

  uint64_t swept_lines() {
    const uint64_t bytes_per_line = uint64_t{8 * MERAPI_LINE_BYTES} << window_.shape.alignment_log2;
    uint64_t lines = 0;
    for (uint32_t region : commanded_) {
      const uint64_t used = window_.limits()[region] - (uint64_t{region} << window_.shape.region_log2);
      lines += (used + bytes_per_line - 1) / bytes_per_line;
    }
    return lines;
  }

  void compare(const char* what, const std::set<uint64_t>& have, const std::set<uint64_t>& want) {
    size_t missing = 0, extra = 0;
    uint64_t example = 0;
    for (uint64_t x : want) {
      if (have.count(x) == 0) missing++, example = x;
    }
    for (uint64_t x : have) {
      if (want.count(x) == 0) extra++, example = x;
    }
    if (missing + extra != 0) {
      error_ << what << ": " << missing << " missing, " << extra << " too many of " << want.size() << ", for instance "
             << std::hex << example << std::dec << "; ";
    }
  }

  const TraceKnobs knobs_;
  Random r_;
  Window window_;
  std::unique_ptr<HeapMaker> maker_;
  std::unique_ptr<TracedDevice> device_;
  DevicePromises promises_;
  WindowHost* machine_ = nullptr;
  std::unique_ptr<Mapping> before_;
  uint32_t bitmap_ = 0;
  std::deque<merapi_submission> commands_;
  std::deque<uint64_t> pending_;
  Answers answers_;
  std::set<uint32_t> commanded_, recommanded_, fallen_;
  std::vector<uint64_t> submitted_;
  std::set<uint64_t> deferred_, unsized_, seen_, reclaimed_;
  std::set<uint64_t> klasses_visited_;  // of `redefines`: by the host, for an object that it scanned
  HostTally tally_;
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint64_t taken_back_ = kNever;  // when the first pause was asked for that was taken back, of those since the last one
  uint64_t begin_index_ = 0, clock_ = 0, completed_ = 0;
  uint32_t events_ = 0;
  bool reported_twice_ = false;
  uint64_t deferred_again_ = 0;
  int aborts_ = 0, pauses_ = 0;
  // Of `overwrites`: what the cycle marks, objects that the program may store, those whose fields it may write, and
  // what it has: the field, and what was there before.
  Closure snapshot_;
  std::vector<const MadeObject*> live_, overwriting_;
  std::vector<std::pair<uint64_t, uint64_t>> overwritten_;
  uint64_t overwrites_left_ = 0;
  std::ostringstream error_;
};

}  // namespace

std::string random_trace(uint64_t seed, const TraceKnobs& knobs, const DeviceMaker& make_device) {
  return Trace(seed, knobs, make_device).run();
}

}  // namespace merapi::sim::test
