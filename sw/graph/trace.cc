// SPDX-License-Identifier: Apache-2.0
#include "graph/trace.h"

#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <unordered_set>
#include <utility>

#include "graph/names.h"

namespace merapi::graph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kWaitMicroseconds = 5000;
constexpr uint64_t kSoonMicroseconds = 20;  // that it traces now is no news

class Session {
 public:
  Session(const Window& window, const Answers& answers, const TraceOptions& options, TraceResult* result)
      : window_(window), w_(window.get()), answers_(answers), options_(options), result_(*result) {}

  void run() {
    merapi_get_config(w_, &config_);
    check_regions();
    merapi_error error{};
    const int status = merapi_attach(w_, options_.attach_us, &error);
    if (status < 0) throw Error(status, error.message);
    merapi_device_info(w_, &result_.device);
    result_.cycle = merapi_next_cycle(w_);
    start_ = news_ = paused_ = Clock::now();
    command();
    serve();
    result_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    for (int i = 0; i < int(MERAPI_COUNTER_COUNT); i++) result_.counters[i] = merapi_counter(w_, counter_of(i));
    std::sort(result_.deferred.begin(), result_.deferred.end());
    std::sort(result_.klasses.begin(), result_.klasses.end());
  }

 private:
  static enum merapi_counter counter_of(int i) { return static_cast<enum merapi_counter>(i); }
  double microseconds_since(Clock::time_point then) const {
    return std::chrono::duration<double, std::micro>(Clock::now() - then).count();
  }

  void check_regions() const {
    if (options_.first_region < config_.region_count &&
        options_.regions <= config_.region_count - options_.first_region)
      return;
    throw Error(-EINVAL, "expected regions below " + std::to_string(config_.region_count) + ", found " +
                             std::to_string(options_.first_region) + " and " + std::to_string(options_.regions) +
                             " from there on");
  }

  void command() {
    merapi_submission begin{}, regions{};
    begin.opcode = MERAPI_OP_BEGIN_CYCLE;
    begin.arg = options_.bitmap;
    regions.opcode = MERAPI_OP_TRACE_REGION;
    regions.arg = options_.first_region;
    regions.payload[0] = options_.regions != 0 ? options_.regions : config_.region_count - options_.first_region;
    regions.payload[1] = MERAPI_SCOPE_HEAP | MERAPI_ORDER_ANY << 8;
    commands_ = {begin, regions};
    pending_.assign(options_.greys.begin(), options_.greys.end());
  }

  // What fits into the ring. Commands go before greys.
  bool submit() {
    bool progress = false;
    while (!commands_.empty() || !pending_.empty()) {
      merapi_submission entry{};
      if (!commands_.empty()) {
        entry = commands_.front();
      } else {
        entry.opcode = MERAPI_OP_GREY;
        entry.count = uint16_t(std::min<size_t>(pending_.size(), MERAPI_ENTRY_WORDS));
        std::copy_n(pending_.begin(), entry.count, entry.payload);
      }
      entry.cycle = result_.cycle;
      const int sent = merapi_submit(w_, &entry, 1);
      if (sent < 0) throw Broken(window_.name() + ": the device's submission index is impossible");
      if (sent == 0) break;
      progress = true;
      if (!commands_.empty()) {
        commands_.pop_front();
      } else {
        pending_.erase(pending_.begin(), pending_.begin() + entry.count);
      }
    }
    if (progress) merapi_doorbell(w_);
    return progress;
  }

  // False: the image says nothing about this key.
  bool answer(uint64_t key, bool is_klass) {
    const Answers::Range references = answers_.of(key, is_klass);
    result_.answers += references.size();
    pending_.insert(pending_.end(), references.begin(), references.end());
    return references.known;
  }

  bool can_be_object(uint64_t address) const {
    const uint64_t offset = address - config_.heap_base;
    return offset < uint64_t{config_.region_count} << config_.region_log2 &&
           offset % (uint64_t{1} << config_.alignment_log2) == 0;
  }
  bool has_shape(uint64_t klass) const {
    merapi_shape shape;
    return merapi_shape_get(w_, klass, &shape, nullptr, 0) == 0;
  }

  // True for news. A device may report the same object again, and a broken one what is not there: neither has an end.
  bool take(const merapi_completion& c) {
    if (c.cycle != result_.cycle) return false;
    if (c.type == MERAPI_COMP_DONE) return c.arg == MERAPI_OP_TRACE_REGION && !std::exchange(scanned_, true);
    bool news = false;
    const uint16_t count = std::min<uint16_t>(c.count, MERAPI_ENTRY_WORDS);
    for (uint16_t i = 0; i < count; i++) {
      if (c.type == MERAPI_COMP_DEFER && deferred_.insert(c.payload[i]).second) {
        result_.deferred.push_back(c.payload[i]);
        if (!answer(c.payload[i], false)) result_.unanswered++;
        news |= can_be_object(c.payload[i]);
      } else if (c.type == MERAPI_COMP_SHAPE_SEEN && seen_.insert(c.payload[i]).second) {
        result_.klasses.push_back(c.payload[i]);
        answer(c.payload[i], true);
        news |= has_shape(c.payload[i]);
      }
    }
    return news;
  }

  void check_fault() const {
    merapi_fault_record fault{};
    const uint32_t code = merapi_fault_get(w_, &fault);
    if (code == MERAPI_FAULT_NONE) return;
    throw Broken(window_.name() + ": expected the device to trace, found the fault " + fault_name(code) + " (address " +
                     hex(fault.address) + ", detail " + hex(fault.detail) + ")",
                 code);
  }

  void pause() {
    const Clock::time_point begin = Clock::now();
    const int status = merapi_pause(w_, options_.patience_us);
    if (status < 0) throw Error(status, window_.name() + ": the device did not acknowledge a pause");
    result_.pause_us.push_back(microseconds_since(begin));
    merapi_resume(w_);
    merapi_doorbell(w_);
    paused_ = Clock::now();
  }

  // A trace without deferred objects has no news before it ends: a device that lives acknowledges a pause and has done
  // something since the last one.
  void prove_alive() {
    const int status = merapi_pause(w_, 0);
    if (status < 0) throw Error(status, window_.name() + ": the device had no news in time and acknowledged no pause");
    const uint64_t done = merapi_progress(w_);
    merapi_resume(w_);
    merapi_doorbell(w_);
    if (done == progress_) throw Error(-ETIMEDOUT, window_.name() + ": the device makes no progress");
    progress_ = done;
    news_ = Clock::now();
  }

  // A device may have something to say without end. What is new that it said before it went is read.
  void check_time(bool news) {
    if (!news && merapi_device_gone(w_))
      throw Error(-ENODEV, window_.name() + ": the device went away while it traced");
    if (options_.timeout_seconds > 0 && microseconds_since(start_) > options_.timeout_seconds * 1e6) {
      char seconds[32];
      snprintf(seconds, sizeof seconds, "%g", options_.timeout_seconds);
      throw Error(-ETIMEDOUT, window_.name() + ": expected the trace to end within " + seconds +
                                  " s, found the device " + state_name(merapi_device_state(w_)));
    }
    if (news) {
      news_ = Clock::now();
    } else if (microseconds_since(news_) > double(options_.patience_us)) {
      prove_alive();
    }
  }

  void serve() {
    for (;;) {
      const bool submitted = submit();
      bool news = submitted;
      merapi_completion entries[64];
      const int got = merapi_complete(w_, entries, int(std::size(entries)));
      if (got < 0) throw Broken(window_.name() + ": expected whole completions, found a broken one");
      for (int i = 0; i < got; i++) news |= take(entries[i]);
      check_fault();
      const bool due = options_.pause_every_us > 0 && microseconds_since(paused_) > double(options_.pause_every_us);
      // Until the cycle has begun a pause is that of an idle device, and is not counted.
      const bool wanted = commands_.empty() && int(result_.pause_us.size()) < options_.pauses;
      const bool early = wanted && merapi_device_state(w_) == MERAPI_DEVICE_STATE_TRACING;
      if (early || (due && commands_.empty())) pause();
      const bool busy = submitted || got > 0 || early;
      if (!busy && commands_.empty() && pending_.empty() && merapi_idle(w_, result_.cycle) == 1) return;
      check_time(news);
      if (!busy) merapi_wait(w_, wanted ? kSoonMicroseconds : kWaitMicroseconds);
    }
  }

  const Window& window_;
  merapi_window* const w_;
  const Answers& answers_;
  const TraceOptions& options_;
  TraceResult& result_;
  merapi_config config_{};
  Clock::time_point start_, news_, paused_;  // news_: the last sign of life
  std::deque<merapi_submission> commands_;
  std::deque<uint64_t> pending_;
  std::unordered_set<uint64_t> deferred_, seen_;
  bool scanned_ = false;              // the one command that has an answer was answered
  uint64_t progress_ = ~uint64_t{0};  // what had been done then
};

}  // namespace

void trace(const Window& window, const Answers& answers, const TraceOptions& options, TraceResult* result) {
  *result = {};
  Session(window, answers, options, result).run();
}

}  // namespace merapi::graph
