// SPDX-License-Identifier: Apache-2.0
//
// merapi replay and merapi verify: a saved window on a device, without the program that made it.
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "child.h"
#include "cli.h"
#include "cli/standard_streams.h"
#include "device_process.h"
#include "graph/closure.h"
#include "graph/trace.h"
#include "options.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct Options {
  std::string image;
  std::string device = "model";
  std::string socket;
  std::string window;
  unsigned repeat = 1;
  double timeout = 600;
  bool as_json = false;
  bool verify = false;
};

int replay_in(const std::string& name, const Image& image, const Options& o) {
  const graph::Answers answers(image.answers());
  const merapi_geometry geometry = image.geometry();
  const Window window(name, &geometry, MERAPI_OPEN_FORMAT);
  const uint32_t bitmap = image.bitmap();
  json result = {{"image", o.image}, {"text", image_text(image)}, {"runs", json::array()}};
  bool good = true;
  for (unsigned i = 0; i < o.repeat; i++) {
    merapi_revoke(window.get());
    window.load(image);
    std::optional<graph::ObjectGraph> heap;
    std::optional<graph::Closure> expected;
    if (o.verify) {
      heap.emplace(window);
      expected.emplace(graph::close_over(*heap, bitmap, answers));
    }
    graph::TraceOptions trace_options;
    trace_options.bitmap = bitmap;
    trace_options.timeout_seconds = o.timeout;
    graph::TraceResult traced;
    graph::trace(window, answers, trace_options, &traced);
    // One that ran at the socket before.
    if (o.window.empty() && o.device == "rtl" && traced.device.kind != MERAPI_DEVICE_KIND_RTL)
      throw Failure(kAbsent, "expected the simulated tracer (--device rtl) at " + name.substr(name.find(':') + 1) +
                                 ", found a device of kind " + merapi_kind_name(traced.device.kind) +
                                 "; end that one, or name another --socket");
    json run = describe_trace(traced);
    if (o.verify) {
      const graph::Difference d = graph::compare(window, *heap, bitmap, *expected, traced.klasses, traced.deferred);
      run["verify"] = {{"same", d.none()},
                       {"expected_objects", expected->objects},
                       {"missed", d.missed},
                       {"unexpected", d.unexpected},
                       {"live_mismatch", d.live},
                       {"klass_mismatch", d.klasses},
                       {"deferred_mismatch", d.deferred}};
      if (!d.none()) say(o.image + ": " + d.first);
      good &= d.none();
    }
    if (!o.as_json)
      printf("%s (%s): %s objects, %s references, %s live, %.3f ms%s\n",
             shown(run["device"]).get<std::string>().c_str(), run["kind"].get<std::string>().c_str(),
             human_count(run["objects"]).c_str(), human_count(run["references"]).c_str(),
             human_bytes(run["live_bytes"]).c_str(), run["ms"].get<double>(),
             !o.verify                           ? ""
             : run["verify"]["same"].get<bool>() ? ", as computed on the CPU"
                                                 : ", NOT as computed on the CPU");
    result["runs"].push_back(run);
  }
  if (o.as_json) print(result);
  return good ? kOk : kFound;
}

int replay(const Options& o) {
  const Image image(o.image);
  image.check();  // before a window is laid out anew for it, or a device started
  if (!o.window.empty()) return replay_in(o.window, image, o);
  const std::string socket = o.socket.empty() ? default_socket() : absolute_socket(o.socket);
  const auto child = [&] {
    return written("merapi", guarded([&] { return replay_in("device:" + socket, image, o); }), kSystem);
  };
  int status = 0;
  try {
    status = run_beside_device(socket, o.device, child);
  } catch (const Interrupted& e) {
    say(e.what());
    die_of(e.signal_number);
  }
  if (WIFSIGNALED(status)) die_of(WTERMSIG(status));
  return WEXITSTATUS(status);
}

void add(Cli& cli, const std::string& name, const std::string& description, bool verify) {
  auto o = std::make_shared<Options>();
  o->verify = verify;
  Verb verb = cli.verb(name, description, [o] { return replay(*o); });
  verb.option("image", o->image, "saved window").required().not_empty();
  const Option device =
      verb.option("--device", o->device, "what traces when no device runs yet").with_default().one_of({"model", "rtl"});
  const Option socket =
      verb.option("--socket", o->socket, "socket of the device process (default: the user's own)").not_empty();
  verb.option("--window", o->window, "use this window (dax:PATH, file:PATH), which is overwritten")
      .not_empty()
      .excludes(socket)
      .excludes(device);
  verb.option("--repeat", o->repeat, "trace so many times").with_default().between(1, 100000);
  verb.option("--timeout", o->timeout, "seconds for one trace; 0: no limit").with_default().between(0, kLongestTimeout);
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace

void add_replay(Cli& cli) {
  add(cli, "replay", "Trace a saved window on a device and show how long it took", false);
  add(cli, "verify", "Trace a saved window on a device and compare with the CPU's own answer", true);
}

}  // namespace merapi::cli
