// SPDX-License-Identifier: Apache-2.0
//
// merapi replay and merapi verify: a saved window on a device, without the program that made it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
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

// The window to work in, with the image's contents.
class Stage {
 public:
  Stage(const Options& o, const Image& image) {
    const merapi_geometry geometry = image.geometry();
    std::string name = o.window;
    if (name.empty()) {
      const std::string socket = o.socket.empty() ? default_socket() : o.socket;
      device_.emplace(socket, o.device);
      name = "device:" + socket;
    }
    window_.emplace(name, &geometry, MERAPI_OPEN_FORMAT);
  }
  Window& window() { return *window_; }

 private:
  std::optional<SharedDevice> device_;  // ended after the window is closed
  std::optional<Window> window_;
};

int replay(const Options& o) {
  const Image image(o.image);
  const graph::Answers answers(image.answers());
  Stage stage(o, image);
  const Window& window = stage.window();
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
      printf("%s (%s): %s objects, %s references, %s live, %.3f ms%s\n", run["device"].get<std::string>().c_str(),
             run["kind"].get<std::string>().c_str(), human_count(run["objects"]).c_str(),
             human_count(run["references"]).c_str(), human_bytes(run["live_bytes"]).c_str(), run["ms"].get<double>(),
             !o.verify                           ? ""
             : run["verify"]["same"].get<bool>() ? ", as computed on the CPU"
                                                 : ", NOT as computed on the CPU");
    result["runs"].push_back(run);
  }
  if (o.as_json) print(result);
  return good ? kOk : kFound;
}

void add(Cli& cli, const std::string& name, const std::string& description, bool verify) {
  auto o = std::make_shared<Options>();
  o->verify = verify;
  Verb verb = cli.verb(name, description, [o] { return replay(*o); });
  verb.option("image", o->image, "saved window").required();
  verb.option("--device", o->device, "what traces when no device runs yet").with_default().one_of({"model", "rtl"});
  const Option socket =
      verb.option("--socket", o->socket, "socket of the device process (default: the user's own)").not_empty();
  verb.option("--window", o->window, "use this window (dax:PATH, file:PATH), which is overwritten")
      .not_empty()
      .excludes(socket);
  verb.option("--repeat", o->repeat, "trace so many times").with_default().between(1, 100000);
  verb.option("--timeout", o->timeout, "seconds for one trace").with_default().between(0, kLongestTimeout);
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace

void add_replay(Cli& cli) {
  add(cli, "replay", "Trace a saved window on a device and show how long it took", false);
  add(cli, "verify", "Trace a saved window on a device and compare with the CPU's own answer", true);
}

}  // namespace merapi::cli
