// SPDX-License-Identifier: Apache-2.0
//
// A host for tests of the device process: puts a random heap into a window through libmerapi, has the device trace it
// and compares with the naive closure. Prints one JSON object. Exit codes: 0 as expected, 1 the result is wrong,
// 3 the device did not play along (the JSON says how).
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "merapi/merapi.h"
#include "sim/test/closure.h"
#include "sim/test/heap_maker.h"

namespace merapi::sim::test {
namespace {

using nlohmann::json;

struct Options {
  std::string window;
  uint64_t seed = 1;
  uint32_t regions = 24;
  int cycles = 1;
  int pauses = 0;          // per cycle
  bool hold = false;       // say "tracing", then neither read completions nor end
  bool reattach = false;   // when the device is lost, attach again (for 10 s) and do the cycle anew
  uint64_t linger_ms = 0;  // between cycles
  std::string wait_for;    // after a cycle, until there is a file of this name
  std::string save;        // save the window with its answers here instead of tracing
};

struct Failed {
  int exit_code;
  std::string what;
};

class Probe {
 public:
  explicit Probe(const Options& o) : o_(o), r_(o.seed), local_(shape(o)), maker_(&local_, &r_, Topology::kRandom) {
    maker_.make();
    merapi_geometry g{};
    g.heap_bytes = local_.heap_bytes();
    g.region_log2 = local_.shape.region_log2;
    g.alignment_log2 = local_.shape.alignment_log2;
    g.submission_entries = local_.shape.submission_entries;
    g.completion_entries = local_.shape.completion_entries;
    g.shape_slots = local_.shape.shape_slots;
    g.spill_bytes = local_.shape.spill_bytes;
    merapi_error error{};
    int status = merapi_open(o.window.c_str(), &g, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE, &window_, &error);
    if (status < 0) throw Failed{3, std::string("open: ") + error.message};
    status = merapi_configure(window_, local_.config(), &error);
    if (status < 0) throw Failed{3, std::string("configure: ") + error.message};
    for (int a : {MERAPI_AREA_SHAPES, MERAPI_AREA_SHAPE_EXTENSION, MERAPI_AREA_LIMITS, MERAPI_AREA_HEAP}) copy_in(a);
    if (o.save.empty()) attach(10'000'000);
  }
  ~Probe() { merapi_close(window_); }

  // An image as a host makes one: window, greys, and what the host would answer.
  json save() {
    maker_.mark_some(0, 5);
    copy_in(MERAPI_AREA_BITMAP0);
    Closure closure = naive_closure(closure_input(0));
    std::vector<uint64_t> keys, first = {0}, references;
    std::vector<uint8_t> is_klass;
    auto add = [&](uint64_t key, bool klass) {
      keys.push_back(key);
      is_klass.push_back(klass);
      for (uint64_t a : maker_.answer(key)) references.push_back(a);
      first.push_back(references.size());
    };
    for (uint64_t offset : closure.deferred) add(local_.shape.heap_base + offset, false);
    for (uint64_t klass : closure.klasses) add(klass, true);
    merapi_answers answers{keys.size(), keys.data(), is_klass.data(), first.data(), references.data()};
    merapi_error error{};
    if (merapi_image_save(window_, o_.save.c_str(), 0, &answers, "{\"g1_mark_ms\": 1.5}", &error) < 0) {
      throw Failed{3, std::string("save: ") + error.message};
    }
    return {{"ok", true}, {"marked", closure.newly_count}, {"deferred", closure.deferred.size()}};
  }

  json run() {
    for (int i = 0; i < o_.cycles; i++) {
      for (;;) {
        try {
          cycle(uint32_t(i % 2));
          break;
        } catch (const Failed& f) {
          if (!o_.reattach || f.exit_code != 3) throw;
          losses_.push_back(f.what);
          merapi_revoke(window_);
          reattach();
        }
      }
      if (o_.linger_ms != 0) usleep(useconds_t(o_.linger_ms * 1000));
      while (!o_.wait_for.empty() && !std::filesystem::exists(o_.wait_for)) usleep(20'000);
    }
    return {
        {"ok", true}, {"cycles", o_.cycles}, {"objects_marked", marked_}, {"losses", losses_}, {"pause_us", pause_us_}};
  }

 private:
  static WindowShape shape(const Options& o) {
    WindowShape s;
    s.regions = o.regions;
    s.region_log2 = 18;
    s.spill_bytes = 65536;
    return s;
  }

  uint8_t* area(int which) {
    if (areas_[which] == nullptr) areas_[which] = merapi_map_area(window_, merapi_area(which));
    if (areas_[which] == nullptr) throw Failed{3, "cannot map an area"};
    return static_cast<uint8_t*>(areas_[which]);
  }
  void copy_in(int which) { std::memcpy(area(which), local_.area(which), local_.layout.area[which].size); }

  void attach(uint64_t timeout_us) {
    merapi_error error{};
    if (merapi_attach(window_, timeout_us, &error) < 0) throw Failed{3, std::string("attach: ") + error.message};
  }

  void reattach() {
    for (int i = 0;; i++) {
      try {
        return attach(1'000'000);
      } catch (const Failed&) {
        if (i == 100) throw;
      }
      usleep(100'000);
    }
  }

  void submit(merapi_submission e) {
    e.cycle = cycle_;
    for (int i = 0; i < 1'000'000; i++) {
      int n = merapi_submit(window_, &e, 1);
      if (n < 0) throw Failed{3, std::string("submit: ") + strerror(-n)};
      if (n == 1) return;
      merapi_doorbell(window_);
      if (merapi_wait(window_, 1'000'000) == 0) break;
    }
    throw Failed{3, "the device takes no submissions"};
  }

  void cycle(uint32_t bitmap) {
    cycle_ = merapi_next_cycle(window_);
    uint64_t bytes = local_.layout.area[MERAPI_AREA_BITMAP0].size;
    std::memset(local_.bitmap(int(bitmap)), 0, bytes);
    maker_.mark_some(bitmap, 5);
    copy_in(MERAPI_AREA_BITMAP0 + int(bitmap));
    deferred_.clear();
    seen_.clear();
    unsized_.clear();
    pending_.clear();

    merapi_submission e{};
    e.opcode = MERAPI_OP_BEGIN_CYCLE;
    e.arg = bitmap;
    submit(e);
    e.opcode = MERAPI_OP_TRACE_REGION;
    e.arg = 0;
    e.payload[0] = local_.shape.regions;
    submit(e);
    merapi_doorbell(window_);
    if (o_.hold) {
      std::cout << "tracing" << std::endl;
      for (;;) pause_process();
    }
    int pauses = o_.pauses;
    while (merapi_idle(window_, cycle_) == 0 || !pending_.empty()) {
      serve();
      if (pauses > 0) {
        pauses--;
        pause_once();
      }
    }
    check(bitmap);
  }

  [[noreturn]] static void pause_process() {
    for (;;) ::pause();
  }

  void serve() {
    merapi_completion c[16];
    int n = merapi_complete(window_, c, 16);
    if (n < 0) throw Failed{3, std::string("complete: ") + strerror(-n)};
    for (int i = 0; i < n; i++) {
      if (c[i].cycle == cycle_) take(c[i]);
    }
    while (!pending_.empty() && merapi_submission_room(window_) > 0) {
      merapi_submission e{};
      e.opcode = MERAPI_OP_GREY;
      while (!pending_.empty() && e.count < MERAPI_ENTRY_WORDS) {
        e.payload[e.count++] = pending_.front();
        pending_.pop_front();
      }
      submit(e);
    }
    merapi_doorbell(window_);
    merapi_fault_record f{};
    if (uint32_t code = merapi_fault_get(window_, &f)) {
      throw Failed{3, std::string("fault: ") + merapi_fault_name(code)};
    }
    // Nothing to read, and nothing to say or no room to say it.
    if (n == 0 && (pending_.empty() ? merapi_idle(window_, cycle_) == 0 : merapi_submission_room(window_) <= 0)) {
      if (merapi_wait(window_, 2'000'000) == 0) throw Failed{3, "no news from the device for 2 s"};
      if (merapi_device_gone(window_)) throw Failed{3, "the device is gone"};
    }
  }

  void take(const merapi_completion& c) {
    for (int i = 0; i < c.count; i++) {
      if (c.type == MERAPI_COMP_DEFER) {
        uint64_t offset = c.payload[i] - local_.shape.heap_base;
        deferred_.insert(offset);
        if ((c.flags >> MERAPI_DEFER_FLAG_UNSIZED & 1) != 0) unsized_.insert(offset);
      } else if (c.type == MERAPI_COMP_SHAPE_SEEN) {
        seen_.insert(c.payload[i]);
      } else {
        continue;
      }
      for (uint64_t a : maker_.answer(c.payload[i])) pending_.push_back(a);
    }
  }

  void pause_once() {
    timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    int status = merapi_pause(window_, 5'000'000);
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (status < 0) throw Failed{3, std::string("pause: ") + strerror(-status)};
    pause_us_.push_back(double(b.tv_sec - a.tv_sec) * 1e6 + double(b.tv_nsec - a.tv_nsec) / 1e3);
    merapi_resume(window_);
  }

  ClosureInput closure_input(uint32_t bitmap) {
    ClosureInput in = ClosureInput::of_window(local_.base, bitmap);
    for (uint32_t i = 0; i < local_.shape.regions; i++) in.commanded.insert(i);
    in.answer_object = [this](uint64_t a) { return maker_.answer(a); };
    in.answer_klass = in.answer_object;
    return in;
  }

  void check(uint32_t bitmap) {
    ClosureInput in = closure_input(bitmap);
    Closure want = naive_closure(in);
    std::string difference = compare_marks(in, want, area(MERAPI_AREA_BITMAP0 + int(bitmap)));
    if (!difference.empty()) throw Failed{1, difference};
    if (deferred_ != want.deferred || unsized_ != want.unsized) throw Failed{1, "the deferred objects differ"};
    if (seen_ != want.klasses) throw Failed{1, "the klasses seen differ"};
    for (uint32_t i = 0; i < local_.shape.regions; i++) {
      if (merapi_live_get(window_, i) != want.live[i]) throw Failed{1, "live words differ"};
    }
    marked_ += want.newly_count;
  }

  const Options o_;
  Random r_;
  Window local_;
  HeapMaker maker_;
  merapi_window* window_ = nullptr;
  void* areas_[MERAPI_AREA_COUNT] = {};
  uint32_t cycle_ = 0;
  uint64_t marked_ = 0;
  std::deque<uint64_t> pending_;
  std::set<uint64_t> deferred_, unsized_, seen_;
  std::vector<std::string> losses_;
  std::vector<double> pause_us_;
};

}  // namespace
}  // namespace merapi::sim::test

int main(int argc, char** argv) {
  using namespace merapi::sim::test;
  Options o;
  CLI::App app{"A host that has a device trace a random heap and checks the result"};
  app.option_defaults()->disable_flag_override();
  app.add_option("window", o.window, "device:SOCKET or file:PATH")->required();
  app.add_option("--seed", o.seed)->capture_default_str();
  app.add_option("--regions", o.regions)->capture_default_str();
  app.add_option("--cycles", o.cycles)->capture_default_str();
  app.add_option("--pauses", o.pauses, "pauses in each cycle")->capture_default_str();
  app.add_option("--linger-ms", o.linger_ms, "wait between cycles")->capture_default_str();
  app.add_option("--wait-for", o.wait_for, "wait after a cycle until this file exists");
  app.add_flag("--hold", o.hold, "start a cycle, say \"tracing\" and do nothing more");
  app.add_flag("--reattach", o.reattach, "attach again when the device is lost");
  app.add_option("--save", o.save, "save the window as an image instead of tracing");
  CLI11_PARSE(app, argc, argv);
  try {
    Probe probe(o);
    std::cout << (o.save.empty() ? probe.run() : probe.save()).dump() << std::endl;
    return 0;
  } catch (const Failed& f) {
    std::cout << nlohmann::json{{"ok", false}, {"what", f.what}}.dump() << std::endl;
    return f.exit_code;
  }
}
