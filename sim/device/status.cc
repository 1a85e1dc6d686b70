// SPDX-License-Identifier: Apache-2.0
#include "sim/device/status.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "merapi/merapi.h"

namespace merapi::sim {
namespace {

using nlohmann::json;

const char* state_name(uint32_t state) {
  static const char* const kNames[] = {"detached", "ready", "tracing", "idle", "paused", "faulted"};
  return state < std::size(kNames) ? kNames[state] : "unknown";
}

json describe(const Context& c) {
  EngineStatus s = c.status();
  return {{"window", c.name()},
          {"bytes", c.bytes()},
          {"end", end_name(c.end())},
          {"state", state_name(s.state)},
          {"generation", s.generation},
          {"cycle", s.cycle},
          {"cycles", s.cycles_begun},
          {"objects_marked", s.objects_marked},
          {"references", s.references_read},
          {"device_cycles", s.device_cycles},
          {"faults", s.faults},
          {"last_fault", merapi_fault_name(s.last_fault)}};
}

// Paths may be anything; what is not UTF-8 is replaced.
std::string text_of(const json& event) { return event.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

std::string lost_events(uint64_t count) { return text_of({{"event", "lost"}, {"events", count}}); }

}  // namespace

StatusPrinter::StatusPrinter(bool json) : json_(json), output_(STDOUT_FILENO, lost_events) {}

void StatusPrinter::ready(const std::string& where) {
  if (json_) {
    output_.put(text_of({{"event", "ready"}, {"where", where}, {"version", MERAPI_DEVICE_VERSION}}));
  } else {
    output_.put("ready " + where + "\n");
  }
}

void StatusPrinter::began(const Context& context) {
  if (json_) output_.put(text_of({{"event", "began"}, {"context", describe(context)}}));
}

void StatusPrinter::ended(const Context& context) {
  if (json_) output_.put(text_of({{"event", "ended"}, {"context", describe(context)}}));
}

void StatusPrinter::status(const std::vector<std::unique_ptr<Context>>& contexts) {
  if (!json_) return;
  json list = json::array();
  for (const auto& c : contexts) list.push_back(describe(*c));
  output_.put(text_of({{"event", "status"}, {"contexts", list}}));
}

}  // namespace merapi::sim
