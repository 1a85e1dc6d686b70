// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds per object of the functional model over synthetic heaps, one thread, no host at work beside it.
#include <sys/resource.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "sim/bench/heaps.h"
#include "sim/model/model.h"

namespace merapi::sim::bench {
namespace {

// Processor time of this thread: a busy machine shows less in it than in wall time.
double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

class QuietHost : public EngineHost {
 public:
  void notify() override {}
  uint32_t take_memory_fault(uint64_t*) override { return 0; }
};

void submit(SharedWindow& w, uint64_t* produced, merapi_submission e) {
  e.sequence = uint32_t(*produced + 1);
  w.submissions()[*produced % w.submission_entries()] = e;
  __atomic_store_n(&w.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET)->submission_produced, ++*produced,
                   __ATOMIC_RELEASE);
}

struct Run {
  double seconds = 0;
  uint64_t marked = 0;
  // With single turns: between two looks at the host's requests, which is what a pause waits for at most.
  double turn_p99_us = 0, turn_max_us = 0;
};

// One cycle on a fresh engine; `cold`: its mapping has no page table entries yet.
// `turns`: time each turn by itself.
Run trace(Heap& heap, TracerOptions options, bool cold, bool turns = false) {
  if (turns) options.step_ns = 0;
  std::vector<double> times;
  SharedWindow& w = *heap.window;
  w.clear_bitmap();
  for (uint64_t root : heap.roots) w.mark(root);
  if (cold) w.remap_device();
  QuietHost host;
  Model model(w.device(), &host, EngineOptions{}, options);
  auto* index = w.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  index->submission_produced = index->completion_consumed = 0;
  index->generation += 2;
  model.step();
  uint64_t produced = 0;
  double start = seconds();
  merapi_submission e{};
  e.opcode = MERAPI_OP_BEGIN_CYCLE;
  e.cycle = 1;
  submit(w, &produced, e);
  e.opcode = MERAPI_OP_TRACE_REGION;
  e.payload[0] = w.regions();
  submit(w, &produced, e);
  auto* device = w.control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
  auto* idle = w.control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  while (idle->idle != 1 || idle->consumed != produced) {
    if (device->state == MERAPI_DEVICE_STATE_FAULTED) throw std::runtime_error("the model stopped with a fault");
    double before = turns ? seconds() : 0;
    model.step();
    if (turns) times.push_back(seconds() - before);
    index->completion_consumed = device->completion_produced;
  }
  Run run;
  run.seconds = seconds() - start;
  run.marked = w.control<merapi_counters>(MERAPI_COUNTERS_OFFSET)->value[MERAPI_COUNTER_OBJECTS_MARKED];
  if (!times.empty()) {
    std::sort(times.begin(), times.end());
    run.turn_p99_us = times[times.size() * 99 / 100] * 1e6;
    run.turn_max_us = times.back() * 1e6;
  }
  return run;
}

}  // namespace
}  // namespace merapi::sim::bench

int main(int argc, char** argv) {
  using namespace merapi::sim::bench;
  CLI::App app{"Speed of the functional model over synthetic heaps"};
  std::vector<std::string> names;
  double scale = 1;
  int repeats = 3;
  bool wide = false, json = false;
  merapi::sim::TracerOptions options;
  app.add_option("heaps", names, "which heaps (default: all)")->check(CLI::IsMember(heap_names()));
  app.add_option("--scale", scale, "size relative to 10 M nodes or 5 M map entries")->capture_default_str();
  app.add_option("--repeats", repeats, "warm runs; the fastest counts")->capture_default_str();
  app.add_flag("--wide", wide, "8-byte references");
  app.add_option("--stack-entries", options.stack_entries)->capture_default_str();
  app.add_flag("--strict", options.strict);
  app.add_flag("--json", json, "one JSON object a line");
  CLI11_PARSE(app, argc, argv);
  if (names.empty()) names = heap_names();
  if (!json)
    std::printf("%-15s %12s %9s %9s %9s %9s %9s %9s\n", "heap", "objects", "cold s", "warm s", "ns/object", "vs G1",
                "p99 us", "max us");
  for (const std::string& name : names) {
    uint64_t n = uint64_t(scale * (name == "hashmap" ? 5e6 : 1e7));
    Heap heap = make_heap(name, n, wide);
    Run cold = trace(heap, options, true);
    Run warm = cold;
    for (int i = 0; i < repeats; i++) {
      Run r = trace(heap, options, false);
      if (i == 0 || r.seconds < warm.seconds) warm = r;
    }
    Run paced = trace(heap, options, true, true);
    double ns = warm.seconds * 1e9 / double(std::max<uint64_t>(warm.marked, 1));
    if (json) {
      nlohmann::json line = {{"heap", name},
                             {"objects", warm.marked},
                             {"cold_seconds", cold.seconds},
                             {"seconds", warm.seconds},
                             {"ns_per_object", ns},
                             {"turn_p99_us", paced.turn_p99_us},
                             {"turn_max_us", paced.turn_max_us}};
      if (heap.g1_seconds != 0) line["g1_seconds"] = heap.g1_seconds;
      std::cout << line.dump() << std::endl;
    } else {
      std::printf("%-15s %12lu %9.3f %9.3f %9.2f ", name.c_str(), (unsigned long)warm.marked, cold.seconds,
                  warm.seconds, ns);
      if (heap.g1_seconds != 0) {
        std::printf("%9.2f", heap.g1_seconds / warm.seconds);
      } else {
        std::printf("%9s", "-");
      }
      std::printf(" %9.1f %9.1f\n", paced.turn_p99_us, paced.turn_max_us);
      std::fflush(stdout);
    }
  }
  return 0;
}
