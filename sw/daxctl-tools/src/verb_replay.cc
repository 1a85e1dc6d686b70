// SPDX-License-Identifier: Apache-2.0
//
// merapi replay and merapi verify: a saved window on a device, without the program that made it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "device_process.h"
#include "heap_reader.h"
#include "options.h"
#include "trace_session.h"
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

struct Difference {
  uint64_t missed = 0;      // reachable and not marked by the device
  uint64_t unexpected = 0;  // marked by the device and not reachable
  uint64_t live = 0;        // regions with other live words
  uint64_t klasses = 0;     // klasses reported by one side only
  std::string first;
  bool none() const { return missed + unexpected + live + klasses == 0; }
};

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

Difference compare(const Window& window, const HeapReader& heap, const Closure& expected, uint32_t bitmap,
                   const TraceResult& found) {
  Difference d;
  const auto note = [&d](const std::string& text) {
    if (d.first.empty()) d.first = text;
  };
  const Bits marks = heap.marks(bitmap);
  for (uint64_t w = 0; w < marks.words(); w++) {
    const uint64_t missed = expected.marked.word(w) & ~marks.word(w), more = marks.word(w) & ~expected.marked.word(w);
    d.missed += uint64_t(__builtin_popcountll(missed));
    d.unexpected += uint64_t(__builtin_popcountll(more));
    if ((missed | more) != 0)
      note("object " +
           hex(heap.config().heap_base + heap.offset_of_unit(w * 64 + uint64_t(__builtin_ctzll(missed | more)))) +
           (missed != 0 ? " is reachable and not marked" : " is marked and not reachable"));
  }
  for (uint32_t region = 0; region < heap.config().region_count; region++) {
    const uint64_t live = merapi_live_get(window.get(), region);
    if (live == expected.live_words[region]) continue;
    d.live++;
    note("region " + std::to_string(region) + ": expected " + std::to_string(expected.live_words[region]) +
         " live words, found " + std::to_string(live));
  }
  std::vector<uint64_t> klasses = expected.klasses, differing;
  std::sort(klasses.begin(), klasses.end());
  std::vector<uint64_t> reported = found.klasses;
  reported.erase(std::unique(reported.begin(), reported.end()), reported.end());
  std::set_symmetric_difference(klasses.begin(), klasses.end(), reported.begin(), reported.end(),
                                std::back_inserter(differing));
  d.klasses = differing.size();
  if (!differing.empty()) note("klass word " + hex(differing.front()) + " was reported by one side only");
  return d;
}

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
  const Answers answers(merapi_image_answers(image.get()));
  Stage stage(o, image);
  const Window& window = stage.window();
  const uint32_t bitmap = merapi_image_bitmap(image.get());
  json result = {{"image", o.image}, {"text", image.text()}, {"runs", json::array()}};
  bool good = true;
  for (unsigned i = 0; i < o.repeat; i++) {
    merapi_revoke(window.get());
    merapi_error error{};
    const int status = merapi_image_load(image.get(), window.get(), &error);
    if (status < 0) throw Failure(exit_of(status), error.message);
    std::optional<HeapReader> heap;
    std::optional<Closure> expected;
    if (o.verify) {
      heap.emplace(window);
      expected.emplace(close_over(*heap, bitmap, answers));
    }
    TraceOptions trace_options;
    trace_options.bitmap = bitmap;
    trace_options.timeout_seconds = o.timeout;
    const TraceResult traced = trace(window, answers, trace_options);
    json run = describe_trace(traced);
    if (o.verify) {
      const Difference d = compare(window, *heap, *expected, bitmap, traced);
      run["verify"] = {{"same", d.none()},        {"expected_objects", expected->objects},
                       {"missed", d.missed},      {"unexpected", d.unexpected},
                       {"live_mismatch", d.live}, {"klass_mismatch", d.klasses}};
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
  const Option socket = verb.option("--socket", o->socket, "socket of the device process (default: the user's own)");
  verb.option("--window", o->window, "use this window (dax:PATH, file:PATH), which is overwritten").excludes(socket);
  verb.option("--repeat", o->repeat, "trace so many times").with_default().between(1, 100000);
  verb.option("--timeout", o->timeout, "seconds for one trace").with_default();
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace

void add_replay(Cli& cli) {
  add(cli, "replay", "Trace a saved window on a device and show how long it took", false);
  add(cli, "verify", "Trace a saved window on a device and compare with the CPU's own answer", true);
}

}  // namespace merapi::cli
