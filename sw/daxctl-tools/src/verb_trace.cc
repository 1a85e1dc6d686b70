// SPDX-License-Identifier: Apache-2.0
//
// merapi trace and merapi reset: commands to a device by hand, on windows that no host uses.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "options.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct TraceVerb {
  std::string window;
  graph::TraceOptions trace;
  bool as_json = false;
};

struct ResetVerb {
  std::string window;
  double timeout = 10;
  bool as_json = false;
};

int run_trace(const TraceVerb& o) {
  const Window window(window_that_stays(o.window), nullptr, 0);
  graph::TraceResult traced;
  graph::trace(window, graph::Answers(), o.trace, &traced);
  json result = describe_trace(traced);
  if (o.as_json) {
    print(result);
  } else {
    result = shown(std::move(result));
    printf("%s (%s): cycle %u, %s objects, %s references, %s live, %zu deferred, %.3f ms\n",
           result["device"].get<std::string>().c_str(), result["kind"].get<std::string>().c_str(), traced.cycle,
           human_count(result["objects"]).c_str(), human_count(result["references"]).c_str(),
           human_bytes(result["live_bytes"]).c_str(), traced.deferred.size(), traced.seconds * 1e3);
  }
  return kOk;
}

int run_reset(const ResetVerb& o) {
  // Opening takes the host's lock and ends the former generation; a handshake and an abort then show that the device
  // is well, and closing leaves the window revoked.
  const Window window(window_that_stays(o.window), nullptr, 0);
  merapi_error error{};
  const uint64_t patience = uint64_t(o.timeout * 1e6);
  int status = merapi_attach(window.get(), patience, &error);
  if (status < 0) throw Failure(exit_of(status), error.message);
  status = merapi_abort(window.get(), patience);
  if (status < 0) throw system_failure(status, window.name() + ": the device did not acknowledge an abort");
  const ControlPage control(window);
  const json device = describe_device(control);
  if (o.as_json) {
    print({{"window", window.name()}, {"generation", control.host_index.generation}, {"device", device}});
  } else {
    printf("%s: %s answers, generation %llu, %s\n", window.name().c_str(),
           shown(device["name"]).get<std::string>().c_str(),
           static_cast<unsigned long long>(control.host_index.generation), device["state"].get<std::string>().c_str());
  }
  return kOk;
}

}  // namespace

void add_trace(Cli& cli) {
  auto o = std::make_shared<TraceVerb>();
  o->trace.timeout_seconds = 600;
  Verb verb =
      cli.verb("trace", "Let a device trace regions of a window that no host uses", [o] { return run_trace(*o); });
  verb.option("window", o->window, "window (file:PATH, dax:PATH or a path); its bitmap keeps the marks").required();
  verb.option("--bitmap", o->trace.bitmap, "mark bitmap to work in").with_default().between(0, 1);
  verb.option("--region", o->trace.first_region, "first region").with_default();
  verb.option("--count", o->trace.regions, "regions; 0: all from the first on").with_default();
  verb.option("--grey", o->trace.greys, "address to mark and trace (repeatable)");
  verb.option("--timeout", o->trace.timeout_seconds, "seconds to wait for the device; 0: no limit")
      .with_default()
      .between(0, kLongestTimeout);
  verb.flag("--json", o->as_json, "print JSON");
}

void add_reset(Cli& cli) {
  auto o = std::make_shared<ResetVerb>();
  Verb verb = cli.verb("reset", "Bring the device of a window that no host uses into a known state",
                       [o] { return run_reset(*o); });
  verb.option("window", o->window, "window (file:PATH, dax:PATH or a path)").required();
  verb.option("--timeout", o->timeout, "seconds to wait for the device").with_default().between(0, kLongestTimeout);
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace merapi::cli
