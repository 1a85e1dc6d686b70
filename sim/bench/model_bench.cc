// SPDX-License-Identifier: Apache-2.0
//
// Nanoseconds per object of the functional model, or cycles per object of a simulated tracer and its simulation's
// speed, over synthetic heaps, one thread, no host at work beside it.
#include <sys/resource.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "sim/bench/heaps.h"
#include "sim/device/options.h"
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
  uint64_t marked = 0, cycles = 0;
  // With single turns: between two looks at the host's requests, which is what a pause waits for at most.
  double turn_p99_us = 0, turn_max_us = 0;
};

using MakeEngine = std::function<std::unique_ptr<Engine>(const WindowMemory&, EngineHost*)>;

// One cycle on a fresh engine; `cold`: its mapping has no page table entries yet.
// `turns`: time each turn by itself.
Run trace(Heap& heap, const MakeEngine& make, bool cold, bool turns = false) {
  std::vector<double> times;
  SharedWindow& w = *heap.window;
  w.clear_bitmap();
  for (uint64_t root : heap.roots) w.mark(root);
  if (cold) w.remap_device();
  QuietHost host;
  std::unique_ptr<Engine> engine = make(w.device(), &host);
  auto* index = w.control<merapi_host_index>(MERAPI_HOST_INDEX_OFFSET);
  index->submission_produced = index->completion_consumed = 0;
  index->generation += 2;
  auto* device = w.control<merapi_device_index>(MERAPI_DEVICE_INDEX_OFFSET);
  while (__atomic_load_n(&device->generation, __ATOMIC_ACQUIRE) != index->generation) engine->step();
  uint64_t produced = 0;
  double start = seconds();
  merapi_submission e{};
  e.opcode = MERAPI_OP_BEGIN_CYCLE;
  e.cycle = 1;
  submit(w, &produced, e);
  e.opcode = MERAPI_OP_TRACE_REGION;
  e.payload[0] = w.regions();
  submit(w, &produced, e);
  auto* idle = w.control<merapi_idle_record>(MERAPI_IDLE_RECORD_OFFSET);
  while (idle->idle != 1 || idle->consumed != produced) {
    if (device->state == MERAPI_DEVICE_STATE_FAULTED) throw std::runtime_error("the engine stopped with a fault");
    double before = turns ? seconds() : 0;
    engine->step();
    if (turns) times.push_back(seconds() - before);
    index->completion_consumed = device->completion_produced;
  }
  Run run;
  run.seconds = seconds() - start;
  const uint64_t* counters = w.control<merapi_counters>(MERAPI_COUNTERS_OFFSET)->value;
  run.marked = counters[MERAPI_COUNTER_OBJECTS_MARKED];
  run.cycles = counters[MERAPI_COUNTER_CYCLES];
  if (!times.empty()) {
    std::sort(times.begin(), times.end());
    run.turn_p99_us = times[times.size() * 99 / 100] * 1e6;
    run.turn_max_us = times.back() * 1e6;
  }
  return run;
}

void simulate(const std::string& name, uint64_t objects, bool wide, const RtlOptions& options, bool json) {
  Heap heap = make_heap(name, objects, wide);
  Run run = trace(
      heap, [&](const WindowMemory& memory, EngineHost* host) { return make_rtl_engine(options, {}, memory, host); },
      false);
  RtlChoice choice = choose_rtl(options);
  const uint64_t* counters = heap.window->control<merapi_counters>(MERAPI_COUNTERS_OFFSET)->value;
  nlohmann::json line = {{"heap", name},
                         {"preset", choice.preset},
                         {"memory", choice.memory_name},
                         {"objects", run.marked},
                         {"cycles", run.cycles},
                         {"cycles_per_object", double(run.cycles) / double(std::max<uint64_t>(run.marked, 1))},
                         {"bytes_read", counters[MERAPI_COUNTER_BYTES_READ]},
                         {"bytes_written", counters[MERAPI_COUNTER_BYTES_WRITTEN]},
                         {"khz", double(run.cycles) / run.seconds / 1e3}};
  if (json) {
    std::cout << line.dump() << std::endl;
  } else {
    std::printf("%-15s %12lu %12lu %9.2f %9.0f\n", name.c_str(), (unsigned long)run.marked, (unsigned long)run.cycles,
                line["cycles_per_object"].get<double>(), line["khz"].get<double>());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace merapi::sim::bench

static int run(int argc, char** argv) {
  using namespace merapi::sim::bench;
  CLI::App app{"Speed of the functional model or of a simulated tracer over synthetic heaps"};
  std::vector<std::string> names;
  double scale = 1;
  int repeats = 3;
  bool wide = false, json = false, rtl = false;
  merapi::sim::RtlOptions rtl_options;
  merapi::sim::TracerOptions options;
  app.option_defaults()->disable_flag_override();
  app.add_option("heaps", names, "which heaps (default: all)")->check(CLI::IsMember(heap_names()));
  app.add_option("--scale", scale, "size relative to 10 M nodes or 5 M map entries")
      ->check(CLI::Range(1e-6, 1e3))
      ->capture_default_str();
  app.add_option("--repeats", repeats, "warm runs; the fastest counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--wide", wide, "8-byte references");
  app.add_option("--stack-entries", options.stack_entries)->capture_default_str();
  app.add_flag("--strict", options.strict);
  app.add_flag("--json", json, "one JSON object a line");
  auto* simulated = app.add_flag("--rtl", rtl, "simulate the tracer instead");
  merapi::sim::add_rtl_options(&app, simulated, &rtl_options);
  CLI11_PARSE(app, argc, argv);
  if (names.empty()) names = heap_names();
  auto size = [&](const std::string& name) { return uint64_t(scale * (name == "hashmap" ? 5e6 : 1e7)); };
  if (rtl) {
    if (!json) std::printf("%-15s %12s %12s %9s %9s\n", "heap", "objects", "cycles", "c/object", "kHz");
    for (const std::string& name : names) simulate(name, size(name), wide, rtl_options, json);
    return 0;
  }
  auto model = [&](uint64_t step_ns) {
    return [&options, step_ns](const merapi::sim::WindowMemory& memory, merapi::sim::EngineHost* host) {
      merapi::sim::TracerOptions o = options;
      o.step_ns = step_ns;
      return std::unique_ptr<merapi::sim::Engine>(
          std::make_unique<merapi::sim::Model>(memory, host, merapi::sim::EngineOptions{}, o));
    };
  };
  if (!json)
    std::printf("%-15s %12s %9s %9s %9s %9s %9s %9s\n", "heap", "objects", "cold s", "warm s", "ns/object", "vs G1",
                "p99 us", "max us");
  for (const std::string& name : names) {
    Heap heap = make_heap(name, size(name), wide);
    Run cold = trace(heap, model(options.step_ns), true);
    Run warm = cold;
    for (int i = 0; i < repeats; i++) {
      Run r = trace(heap, model(options.step_ns), false);
      if (i == 0 || r.seconds < warm.seconds) warm = r;
    }
    Run paced = trace(heap, model(0), true, true);
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

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_bench: %s\n", error.what());
    return 3;
  }
}
