// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/replay.h"

#include <string.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "sim/test/closure.h"

namespace merapi::sim {
namespace {

using nlohmann::json;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

[[noreturn]] void give_up(const std::string& what) { throw std::runtime_error(what); }

class Replay {
 public:
  Replay(merapi_image* image, merapi_window* window, const ReplayOptions& options, ReplayResult* result)
      : image_(image), window_(window), options_(options), out_(*result), answers_(merapi_image_answers(image)) {
    for (uint64_t i = 0; answers_ != nullptr && i < answers_->count; i++) {
      (answers_->is_klass[i] != 0 ? klass_answers_ : object_answers_)[answers_->key[i]] = i;
    }
    out_.rtl_preset = options.rtl_preset;
    out_.memory = options.memory;
    json text = json::parse(merapi_image_json(image), nullptr, false);
    if (text.is_object()) out_.g1_seconds = text.value("g1_mark_ms", 0.0) / 1e3;
  }

  void run() {
    merapi_error error{};
    if (merapi_image_load(image_, window_, &error) < 0) give_up(std::string("cannot load the image: ") + error.message);
    if (options_.check) keep_bitmap();
    if (merapi_attach(window_, options_.patience_us, &error) < 0) give_up(error.message);
    merapi_device_info(window_, &out_.device);
    double start = now();
    begin();
    while (merapi_idle(window_, cycle_) == 0 || !pending_.empty()) serve();
    out_.seconds = now() - start;
    for (int i = 0; i < int(MERAPI_COUNTER_COUNT); i++)
      out_.counters[i] = merapi_counter(window_, static_cast<enum merapi_counter>(i));
    if (options_.check) check();
    if (options_.lines) out_.lines = LiveHeap(window_).lines_needed(bitmap());
  }

 private:
  const merapi_config& config() {
    if (config_.region_count == 0) merapi_get_config(window_, &config_);
    return config_;
  }
  uint32_t bitmap() const { return merapi_image_bitmap(image_); }

  void submit(merapi_submission e) {
    e.cycle = cycle_;
    double end = now() + double(options_.patience_us) * 1e-6;
    for (;;) {
      int n = merapi_submit(window_, &e, 1);
      if (n < 0) give_up(std::string("the device took no submission: ") + strerror(-n));
      if (n == 1) return;
      merapi_doorbell(window_);
      if (now() > end) give_up("the device took no submission in time");
      merapi_wait(window_, 100'000);
    }
  }

  void begin() {
    cycle_ = merapi_next_cycle(window_);
    merapi_submission e{};
    e.opcode = MERAPI_OP_BEGIN_CYCLE;
    e.arg = bitmap();
    submit(e);
    e.opcode = MERAPI_OP_TRACE_REGION;
    e.arg = 0;
    e.payload[0] = config().region_count;
    submit(e);
    merapi_doorbell(window_);
  }

  void serve() {
    merapi_completion c[64];
    int n = merapi_complete(window_, c, 64);
    if (n < 0) give_up(std::string("the completion ring is broken: ") + strerror(-n));
    for (int i = 0; i < n; i++) {
      if (c[i].cycle == cycle_) take(c[i]);
    }
    bool said = false;
    while (!pending_.empty() && merapi_submission_room(window_) > 0) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_GREY;
      while (!pending_.empty() && e.count < MERAPI_ENTRY_WORDS) {
        e.payload[e.count++] = pending_.front();
        pending_.pop_front();
      }
      out_.submitted += e.count;
      submit(e);
      said = true;
    }
    if (said) merapi_doorbell(window_);
    out_.fault = merapi_fault_get(window_, nullptr);
    if (out_.fault != 0) give_up(std::string("the device stopped: ") + merapi_fault_name(out_.fault));
    if (int(out_.pause_us.size()) < options_.pauses) pause();
    if (n == 0 && !said && merapi_idle(window_, cycle_) == 0 && merapi_wait(window_, options_.patience_us) == 0) {
      prove_alive();
    }
  }

  // A trace without deferred objects has no news before it ends: a device that lives acknowledges a pause and has
  // done something since the last one.
  void prove_alive() {
    int status = merapi_pause(window_, 0);
    if (status < 0) give_up("the device had no news in time and acknowledged no pause");
    uint64_t done = 0;
    for (auto c : {MERAPI_COUNTER_OBJECTS_SCANNED, MERAPI_COUNTER_REFERENCES_READ, MERAPI_COUNTER_BITMAP_READS})
      done += merapi_counter(window_, c);
    merapi_resume(window_);
    merapi_doorbell(window_);
    if (done == progress_) give_up("the device makes no progress");
    progress_ = done;
  }

  void pause() {
    double start = now();
    int status = merapi_pause(window_, options_.patience_us);
    if (status < 0) give_up(std::string("a pause was not acknowledged: ") + strerror(-status));
    out_.pause_us.push_back((now() - start) * 1e6);
    merapi_resume(window_);
  }

  void take(const merapi_completion& c) {
    for (int i = 0; i < c.count; i++) {
      if (c.type == MERAPI_COMP_DEFER) {
        if (!deferred_.insert(c.payload[i]).second) continue;
        out_.deferred++;
        if (!answer(object_answers_, c.payload[i])) out_.unanswered++;
      } else if (c.type == MERAPI_COMP_SHAPE_SEEN) {
        if (!seen_.insert(c.payload[i]).second) continue;
        out_.shapes_seen++;
        answer(klass_answers_, c.payload[i]);
      }
    }
  }

  // False: the image says nothing about this key.
  bool answer(const std::unordered_map<uint64_t, uint64_t>& index, uint64_t key) {
    auto [from, to] = range(index, key);
    pending_.insert(pending_.end(), from, to);
    return index.count(key) != 0;
  }
  std::pair<const uint64_t*, const uint64_t*> range(const std::unordered_map<uint64_t, uint64_t>& index, uint64_t key) {
    auto it = index.find(key);
    if (it == index.end()) return {nullptr, nullptr};
    return {answers_->reference + answers_->first[it->second], answers_->reference + answers_->first[it->second + 1]};
  }

  uint8_t* area(int which) {
    if (areas_[which] == nullptr) areas_[which] = merapi_map_area(window_, merapi_area(which));
    if (areas_[which] == nullptr) give_up("cannot map an area of the window");
    return static_cast<uint8_t*>(areas_[which]);
  }
  uint64_t bitmap_bytes() {
    return (uint64_t{config().region_count} << config().region_log2) >> (config().alignment_log2 + 3);
  }

  void keep_bitmap() {
    const uint8_t* from = area(MERAPI_AREA_BITMAP0 + int(bitmap()));
    before_.assign(from, from + bitmap_bytes());
  }

  void check() {
    test::ClosureInput in;
    in.config = config();
    const merapi_layout* layout = merapi_layout_of(window_);
    for (int a : {MERAPI_AREA_SHAPES, MERAPI_AREA_SHAPE_EXTENSION, MERAPI_AREA_LIMITS, MERAPI_AREA_HEAP}) {
      in.area_bytes[a] = layout->area[a].size;
      if (layout->area[a].offset != 0) in.area[a] = area(a);
    }
    in.bitmap = before_.data();
    for (uint32_t r = 0; r < config().region_count; r++) in.commanded.insert(r);
    in.answer_object = [this](uint64_t key) {
      auto [from, to] = range(object_answers_, key);
      return std::vector<uint64_t>(from, to);
    };
    in.answer_klass = [this](uint64_t key) {
      auto [from, to] = range(klass_answers_, key);
      return std::vector<uint64_t>(from, to);
    };
    test::Closure want = test::naive_closure(in);
    std::string wrong = test::compare_marks(in, want, area(MERAPI_AREA_BITMAP0 + int(bitmap())));
    if (!wrong.empty()) give_up(wrong);
    if (deferred_.size() != want.deferred.size()) give_up("the deferred objects differ from the closure's");
    for (uint64_t offset : want.deferred) {
      if (deferred_.count(in.config.heap_base + offset) == 0) give_up("a deferred object was not reported");
    }
    for (uint64_t klass : want.klasses) {
      if (seen_.count(klass) == 0) give_up("a klass was not reported");
    }
    for (uint32_t r = 0; r < config().region_count; r++) {
      if (merapi_live_get(window_, r) != want.live[r]) give_up("live words of region " + std::to_string(r) + " differ");
    }
    out_.checked = true;
  }

  merapi_image* image_;
  merapi_window* window_;
  const ReplayOptions options_;
  ReplayResult& out_;
  const merapi_answers* answers_;
  std::unordered_map<uint64_t, uint64_t> object_answers_, klass_answers_;  // key: index of the answer
  merapi_config config_{};
  uint32_t cycle_ = 0;
  std::deque<uint64_t> pending_;
  std::unordered_set<uint64_t> deferred_, seen_;
  void* areas_[MERAPI_AREA_COUNT] = {};
  std::vector<uint8_t> before_;
  uint64_t progress_ = ~uint64_t{0};  // at the last sign of life
};

// By enum merapi_counter.
const char* const kNamed[] = {
    "cycles",        "nanoseconds",      "cpu_nanoseconds",  "objects_marked", "objects_scanned", "references",
    "refs_null",     "refs_outside",     "refs_above_limit", "refs_marked",    "refs_filtered",   "live_words",
    "deferred",      "shapes_seen",      "shape_hits",       "shape_misses",   "shape_absent",    "bitmap_reads",
    "bitmap_writes", "spill_writes",     "spill_reads",      "greys_dropped",  "rescans",         "greys_submitted",
    "greys_stale",   "pauses",           "pause_max",        "bytes_read",     "bytes_written",   "stall_memory",
    "stall_bitmap",  "stall_completion", "stall_grey",       "stall_shape",    "heap_lines",      "rounds"};
static_assert(std::size(kNamed) == MERAPI_COUNTER_ROUNDS + 1);

}  // namespace

ReplayResult replay(merapi_image* image, merapi_window* window, const ReplayOptions& options) {
  ReplayResult result;
  try {
    Replay(image, window, options, &result).run();
  } catch (const std::exception& e) {
    result.problem = e.what();
  }
  merapi_revoke(window);
  return result;
}

std::string to_json(const ReplayResult& r) {
  json out = {{"ok", r.problem.empty()},
              {"checked", r.checked},
              {"device", reinterpret_cast<const char*>(r.device.name)},
              {"kind", merapi_kind_name(r.device.kind)},
              {"seconds", r.seconds},
              {"deferred", r.deferred},
              {"shapes_seen", r.shapes_seen},
              {"submitted", r.submitted},
              {"unanswered", r.unanswered},
              {"pause_us", r.pause_us}};
  if (!r.problem.empty()) out["problem"] = r.problem;
  if (r.fault != 0) out["fault"] = merapi_fault_name(r.fault);
  if (r.g1_seconds > 0) {
    out["g1_seconds"] = r.g1_seconds;
    if (r.seconds > 0) out["ratio"] = r.g1_seconds / r.seconds;
  }
  if (!r.rtl_preset.empty()) out.update({{"rtl_preset", r.rtl_preset}, {"memory", r.memory}});
  if (r.lines.objects != 0) {
    out["lines_needed"] = {{"objects", r.lines.objects}, {"heap", r.lines.heap}, {"bitmap", r.lines.bitmap}};
  }
  for (size_t i = 0; i < std::size(kNamed); i++) out["counters"][kNamed[i]] = r.counters[i];
  return out.dump();
}

std::string to_text(const ReplayResult& r) {
  char line[512];
  std::string out;
  auto add = [&](const char* name, double value, const char* unit) {
    std::snprintf(line, sizeof line, "%-18s %14.0f %s\n", name, value, unit);
    out += line;
  };
  add("objects marked", double(r.counters[MERAPI_COUNTER_OBJECTS_MARKED]), "");
  add("references read", double(r.counters[MERAPI_COUNTER_REFERENCES_READ]), "");
  add("live", double(r.counters[MERAPI_COUNTER_LIVE_WORDS]) * 8 / 1e6, "MB");
  add("deferred", double(r.deferred), "");
  add("klasses seen", double(r.shapes_seen), "");
  add("time", r.seconds * 1e6, "us");
  if (uint64_t cycles = r.counters[MERAPI_COUNTER_CYCLES]; cycles != 0) {
    add("device cycles", double(cycles), "");
    if (!r.memory.empty()) out += "memory             " + r.memory + "\n";
    if (r.seconds > 0) add("simulated", double(cycles) / r.seconds / 1e3, "kHz");
  }
  if (r.g1_seconds > 0 && r.seconds > 0) {
    std::snprintf(line, sizeof line, "%-18s %14.0f us, %.2f times this\n", "stock G1", r.g1_seconds * 1e6,
                  r.g1_seconds / r.seconds);
    out += line;
  }
  out += r.problem.empty() ? (r.checked ? "equal to the closure\n" : "finished, not checked\n") : r.problem + "\n";
  return out;
}

}  // namespace merapi::sim
