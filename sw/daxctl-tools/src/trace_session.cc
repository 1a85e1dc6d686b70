// SPDX-License-Identifier: Apache-2.0
#include "trace_session.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>

#include "names.h"

namespace merapi::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kAttachMicroseconds = 10'000'000;
constexpr uint64_t kWaitMicroseconds = 5000;

class Session {
 public:
  Session(const Window& window, const Answers& answers, const TraceOptions& options)
      : window_(window), w_(window.get()), answers_(answers), options_(options) {}

  TraceResult run() {
    merapi_error error{};
    const int status = merapi_attach(w_, kAttachMicroseconds, &error);
    if (status < 0) throw Failure(exit_of(status), error.message);
    result_.cycle = merapi_next_cycle(w_);
    const Clock::time_point start = Clock::now();
    deadline_ =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_seconds));
    command();
    serve();
    result_.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    result_.control = window_.control();
    std::sort(result_.klasses.begin(), result_.klasses.end());
    return result_;
  }

 private:
  void command() {
    merapi_config config;
    merapi_get_config(w_, &config);
    if (options_.first_region >= config.region_count || options_.regions > config.region_count - options_.first_region)
      throw Failure(kUsage, "expected regions below " + std::to_string(config.region_count) + ", found " +
                                std::to_string(options_.first_region) + " and " + std::to_string(options_.regions) +
                                " from there on");
    merapi_submission begin{}, regions{};
    begin.opcode = MERAPI_OP_BEGIN_CYCLE;
    begin.arg = options_.bitmap;
    regions.opcode = MERAPI_OP_TRACE_REGION;
    regions.arg = options_.first_region;
    regions.payload[0] = options_.regions != 0 ? options_.regions : config.region_count - options_.first_region;
    regions.payload[1] = MERAPI_SCOPE_HEAP | MERAPI_ORDER_ANY << 8;
    commands_ = {begin, regions};
    for (const uint64_t address : options_.greys) pending_.push_back(address);
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
      if (sent < 0) throw Failure(exit_of(sent), window_.name() + ": the device's submission index is impossible");
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

  void answer(uint64_t key, bool is_klass) {
    const std::vector<uint64_t> references = answers_.of(key, is_klass);
    result_.answers += references.size();
    pending_.insert(pending_.end(), references.begin(), references.end());
  }

  void take(const merapi_completion& c) {
    if (c.cycle != result_.cycle) return;
    const uint16_t count = std::min<uint16_t>(c.count, MERAPI_ENTRY_WORDS);
    switch (c.type) {
      case MERAPI_COMP_DEFER:
        result_.deferred += count;
        for (uint16_t i = 0; i < count; i++) answer(c.payload[i], false);
        break;
      case MERAPI_COMP_SHAPE_SEEN:
        result_.shapes_seen += count;
        for (uint16_t i = 0; i < count; i++) {
          result_.klasses.push_back(c.payload[i]);
          answer(c.payload[i], true);
        }
        break;
      default:
        break;
    }
  }

  void check_fault() {
    merapi_fault_record fault{};
    const uint32_t code = merapi_fault_get(w_, &fault);
    if (code == MERAPI_FAULT_NONE) return;
    char detail[96];
    snprintf(detail, sizeof detail, " (address %#llx, detail %#llx)", static_cast<unsigned long long>(fault.address),
             static_cast<unsigned long long>(fault.detail));
    throw Failure(kFound,
                  window_.name() + ": expected the device to trace, found the fault " + fault_name(code) + detail);
  }

  void serve() {
    for (;;) {
      bool progress = submit();
      merapi_completion entries[64];
      const int got = merapi_complete(w_, entries, int(std::size(entries)));
      if (got < 0) throw Failure(kFound, window_.name() + ": expected whole completions, found a broken one");
      for (int i = 0; i < got; i++) take(entries[i]);
      progress |= got > 0;
      if (progress) continue;
      check_fault();
      if (commands_.empty() && pending_.empty() && merapi_idle(w_, result_.cycle) == 1) return;
      if (merapi_device_gone(w_)) throw Failure(kAbsent, window_.name() + ": the device went away while it traced");
      if (Clock::now() > deadline_) {
        char seconds[32];
        snprintf(seconds, sizeof seconds, "%g", options_.timeout_seconds);
        throw Failure(kBusy, window_.name() + ": expected the device to be idle within " + seconds + " s, found it " +
                                 state_name(merapi_device_state(w_)));
      }
      merapi_wait(w_, kWaitMicroseconds);
    }
  }

  const Window& window_;
  merapi_window* const w_;
  const Answers& answers_;
  const TraceOptions& options_;
  TraceResult result_;
  Clock::time_point deadline_;
  std::deque<merapi_submission> commands_;
  std::deque<uint64_t> pending_;
};

}  // namespace

TraceResult trace(const Window& window, const Answers& answers, const TraceOptions& options) {
  return Session(window, answers, options).run();
}

json describe_trace(const TraceResult& r) {
  const auto& counters = r.control.counters.value;
  const json device = describe_device(r.control);
  return {{"device", device["name"]},
          {"kind", device["kind"]},
          {"cycle", r.cycle},
          {"ms", r.milliseconds},
          {"device_ms", double(counters[MERAPI_COUNTER_NANOSECONDS]) / 1e6},
          {"objects", counters[MERAPI_COUNTER_OBJECTS_MARKED]},
          {"references", counters[MERAPI_COUNTER_REFERENCES_READ]},
          {"live_bytes", counters[MERAPI_COUNTER_LIVE_WORDS] * 8},
          {"deferred", r.deferred},
          {"shapes_seen", r.shapes_seen},
          {"answers", r.answers},
          {"counters", describe_counters(r.control.counters)}};
}

}  // namespace merapi::cli
