// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/replay.h"

#include <string.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "graph/closure.h"
#include "graph/names.h"
#include "sim/device/simulated_tracer.h"
#include "sw/cli/json_text.h"

namespace merapi::sim {
namespace {

using nlohmann::json;

constexpr uint64_t kLine = 64;

LinesNeeded lines_needed(const graph::ObjectGraph& heap, uint32_t bitmap) {
  LinesNeeded needed;
  std::vector<bool> touched(heap.heap_bytes() / kLine);
  heap.marks(bitmap).each([&](uint64_t unit) {
    needed.objects++;
    heap.read_by_a_trace(heap.offset_of_unit(unit), [&](uint64_t from, uint64_t bytes) {
      for (uint64_t line = from / kLine; line <= (from + bytes - 1) / kLine; line++) {
        if (touched[line]) continue;
        touched[line] = true;
        needed.heap++;
      }
    });
  });
  for (uint32_t r = 0; r < heap.config().region_count; r++) {
    const uint64_t first = uint64_t{r} << heap.config().region_log2;
    if (heap.limit(r) <= first) continue;
    // A line of the bitmap stands for this many bytes of the heap.
    const uint64_t covered = (kLine * 8) << heap.config().alignment_log2;
    needed.bitmap += (heap.limit(r) - first + covered - 1) / covered;
  }
  return needed;
}

void run(const graph::Image& image, const graph::Window& window, const ReplayOptions& options, ReplayResult* result) {
  const uint32_t bitmap = image.bitmap();
  const graph::Answers answers(image.answers());
  window.load(image);
  const graph::ObjectGraph heap(window);
  std::optional<graph::Closure> expected;
  if (options.check) expected = graph::close_over(heap, bitmap, answers);
  graph::TraceOptions how;
  how.bitmap = bitmap;
  how.attach_us = how.patience_us = options.patience_us;
  how.pauses = options.pauses;
  how.pause_every_us = options.pause_every_us;
  graph::trace(window, answers, how, &result->trace);
  result->finished = true;
  if (expected) {
    const auto& [klasses, deferred] = std::tie(result->trace.klasses, result->trace.deferred);
    const graph::Difference d = graph::compare(window, heap, bitmap, *expected, klasses, deferred);
    if (!d.none()) {
      result->problem = "marks: " + std::to_string(d.missed) + " missing, " + std::to_string(d.unexpected) +
                        " too many; " + std::to_string(d.live) + " regions, " + std::to_string(d.klasses) +
                        " klasses, " + std::to_string(d.deferred) + " deferred objects differ: " + d.first;
      return;
    }
    result->checked = true;
  }
  if (options.lines) result->lines = lines_needed(heap, bitmap);
}

// How long the device traced: a simulated one by its own clock, not by the simulation's. 0 when that is not known.
double device_seconds(const graph::TraceResult& t) {
  if (t.device.kind != MERAPI_DEVICE_KIND_RTL) return t.seconds;
  return double(t.counters[MERAPI_COUNTER_CYCLES]) / (kClockMhz * 1e6);
}

}  // namespace

ReplayResult replay(const graph::Image& image, const graph::Window& window, const ReplayOptions& options) {
  ReplayResult result;
  result.rtl_preset = options.rtl_preset;
  result.memory = options.memory;
  const json text = cli::parse_json(image.text());
  // Anybody's text: what is no number says nothing.
  if (const auto g1 = text.find("g1_mark_ms"); text.is_object() && g1 != text.end() && g1->is_number())
    result.g1_seconds = g1->get<double>() / 1e3;
  try {
    run(image, window, options, &result);
  } catch (const graph::Error& e) {
    // Cycles are counted from 1: without one no device has taken the window.
    if (result.trace.cycle == 0) throw;
    result.problem = e.what();
    if (const auto* broken = dynamic_cast<const graph::Broken*>(&e)) result.fault = broken->fault;
  }
  merapi_revoke(window.get());
  return result;
}

std::string to_json(const ReplayResult& r) {
  const graph::TraceResult& t = r.trace;
  const char* const name = reinterpret_cast<const char*>(t.device.name);
  // Names and messages of others may be anything; what is not UTF-8 is replaced.
  const auto text = [](const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); };
  json out = {{"ok", r.problem.empty()},
              {"checked", r.checked},
              {"device", std::string(name, strnlen(name, sizeof t.device.name))},
              {"kind", merapi_kind_name(t.device.kind)},
              {"deferred", t.deferred.size()},
              {"shapes_seen", t.klasses.size()},
              {"submitted", t.answers},
              {"unanswered", t.unanswered},
              {"pause_us", t.pause_us}};
  if (r.finished) out["seconds"] = t.seconds;
  if (!r.problem.empty()) out["problem"] = r.problem;
  if (r.fault != 0) out["fault"] = merapi_fault_name(r.fault);
  if (r.g1_seconds > 0) {
    out["g1_seconds"] = r.g1_seconds;
    if (device_seconds(t) > 0) out["ratio"] = r.g1_seconds / device_seconds(t);
  }
  if (!r.rtl_preset.empty()) out.update({{"rtl_preset", r.rtl_preset}, {"memory", r.memory}});
  if (r.lines.objects != 0) {
    out["lines_needed"] = {{"objects", r.lines.objects}, {"heap", r.lines.heap}, {"bitmap", r.lines.bitmap}};
  }
  if (!r.finished) return text(out);
  for (const auto& [index, name] : graph::counter_names()) out["counters"][name] = t.counters[index];
  return text(out);
}

std::string to_text(const ReplayResult& r) {
  const graph::TraceResult& t = r.trace;
  if (!r.finished) return r.problem + "\n";
  char line[512];
  std::string out;
  auto add = [&](const char* name, double value, const char* unit) {
    std::snprintf(line, sizeof line, "%-18s %14.0f %s\n", name, value, unit);
    out += line;
  };
  add("objects marked", double(t.counters[MERAPI_COUNTER_OBJECTS_MARKED]), "");
  add("references read", double(t.counters[MERAPI_COUNTER_REFERENCES_READ]), "");
  add("live", double(t.counters[MERAPI_COUNTER_LIVE_WORDS]) * 8 / 1e6, "MB");
  add("deferred", double(t.deferred.size()), "");
  add("klasses seen", double(t.klasses.size()), "");
  add("time", t.seconds * 1e6, "us");
  if (uint64_t cycles = t.counters[MERAPI_COUNTER_CYCLES]; cycles != 0) {
    add("device cycles", double(cycles), "");
    if (!r.memory.empty()) out += "memory             " + r.memory + "\n";
    if (t.seconds > 0) add("simulated", double(cycles) / t.seconds / 1e3, "kHz");
  }
  if (!t.pause_us.empty()) {
    add("pauses", double(t.pause_us.size()), "");
    add("longest pause", *std::max_element(t.pause_us.begin(), t.pause_us.end()), "us");
  }
  if (r.lines.objects != 0) {
    add("heap lines needed", double(r.lines.heap), "");
    add("bitmap lines", double(r.lines.bitmap), "");
  }
  const double seconds = device_seconds(t);
  if (r.g1_seconds > 0 && seconds > 0) {
    const bool simulated = t.device.kind == MERAPI_DEVICE_KIND_RTL;
    std::snprintf(line, sizeof line, "%-18s %14.0f us, %.2f times %s\n", "stock G1", r.g1_seconds * 1e6,
                  r.g1_seconds / seconds, simulated ? "the cycles' time at 250 MHz" : "this");
    out += line;
  }
  out += r.problem.empty() ? (r.checked ? "equal to the closure\n" : "finished, not checked\n") : r.problem + "\n";
  return out;
}

}  // namespace merapi::sim
