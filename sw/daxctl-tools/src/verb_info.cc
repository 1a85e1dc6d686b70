// SPDX-License-Identifier: Apache-2.0
//
// merapi info: what a window or an image says of itself. Looks only.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "graph/names.h"
#include "options.h"
#include "processes.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct Options {
  std::string name;
  bool as_json = false;
};

json rings(const ControlPage& c, const merapi_layout& layout) {
  const auto ring = [](uint64_t bytes, uint64_t produced, uint64_t consumed) -> json {
    return {{"entries", bytes / MERAPI_LINE_BYTES}, {"produced", produced}, {"consumed", consumed}};
  };
  return {{"submission", ring(layout.area[MERAPI_AREA_SUBMISSION].size, c.host_index.submission_produced,
                              c.device_index.submission_consumed)},
          {"completion", ring(layout.area[MERAPI_AREA_COMPLETION].size, c.device_index.completion_produced,
                              c.host_index.completion_consumed)}};
}

// What the process is called that the window says laid it out, while it has it; later another one may have its number.
std::string host_command(const Window& window, uint64_t pid) {
  return may_use(pid, path_of(window.name())) ? command_of(pid) : "";
}

json describe_window(const Window& window) {
  const ControlPage c(window);
  struct merapi_shape_usage shapes {};
  merapi_shape_usage(window.get(), &shapes);
  return {{"name", window.name()},
          {"kind", "window"},
          {"bytes", window.bytes()},
          {"contract", std::to_string(c.identity.version_major) + "." + std::to_string(c.identity.version_minor)},
          {"attached", c.attached()},
          {"generation", c.host_index.generation},
          {"host", {{"pid", c.identity.host_pid}, {"command", host_command(window, c.identity.host_pid)}}},
          {"device", describe_device(c)},
          {"config", describe_config(c.config)},
          {"layout", describe_layout(window.layout())},
          {"shapes", {{"slots", shapes.slots}, {"used", shapes.used}, {"tombstones", shapes.tombstones}}},
          {"rings", rings(c, window.layout())},
          {"requests",
           {{"pause", {{"requested", c.host_request.pause}, {"acknowledged", c.device_ack.pause}}},
            {"resume", {{"requested", c.host_request.resume}, {"acknowledged", c.device_ack.resume}}},
            {"abort", {{"requested", c.host_request.abort}, {"acknowledged", c.device_ack.abort}}}}},
          {"idle", {{"cycle", c.idle.cycle}, {"idle", c.idle.idle == 1}}},
          {"fault",
           {{"code", graph::fault_name(c.fault.code)},
            {"cycle", c.fault.cycle},
            {"address", c.fault.address},
            {"detail", c.fault.detail}}},
          {"counters", describe_counters(c.counters.value)}};
}

json describe_image(const Image& image) {
  const merapi_geometry g = image.geometry();
  const merapi_answers* answers = image.answers();
  struct stat status {};
  if (stat(image.path().c_str(), &status) < 0) throw system_failure(errno, image.path());
  uint64_t klasses = 0;
  for (uint64_t i = 0; i < answers->count; i++) klasses += answers->is_klass[i];
  return {
      {"name", image.path()},
      {"kind", "image"},
      {"file_bytes", uint64_t(status.st_size)},
      {"window_bytes", image.window_bytes()},
      {"bitmap", image.bitmap()},
      {"heap_bytes", g.heap_bytes},
      {"region_bytes", uint64_t(1) << g.region_log2},
      {"alignment_bytes", uint64_t(1) << g.alignment_log2},
      {"answers",
       {{"objects", answers->count - klasses}, {"klasses", klasses}, {"references", answers->first[answers->count]}}},
      {"text", image_text(image)}};
}

// As print does.
std::string json_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : json_of(value); }

void show_window(const json& w) {
  const json& config = w["config"];
  printf("window      %s (%s, contract %s)\n", text_of(w["name"]).c_str(), human_bytes(w["bytes"]).c_str(),
         text_of(w["contract"]).c_str());
  const std::string command = text_of(w["host"]["command"]);
  printf("host        pid %" PRIu64 " (%s), generation %" PRIu64 ", %s\n", w["host"]["pid"].get<uint64_t>(),
         command.empty() ? "gone" : command.c_str(), w["generation"].get<uint64_t>(),
         w["attached"].get<bool>() ? "attached" : "not attached");
  const json& device = w["device"];
  if (device.is_null()) {
    printf("device      none has answered\n");
  } else {
    printf("device      %s (%s, pid %" PRIu64 "), %s, %s, %u lanes, patience %u us\n", text_of(device["name"]).c_str(),
           text_of(device["kind"]).c_str(), device["pid"].get<uint64_t>(), text_of(device["state"]).c_str(),
           text_of(device["coherence"]).c_str(), device["lanes"].get<unsigned>(),
           device["patience_us"].get<unsigned>());
  }
  if (text_of(w["fault"]["code"]) != "none")
    printf("fault       %s in cycle %u, address %#" PRIx64 ", detail %#" PRIx64 "\n",
           text_of(w["fault"]["code"]).c_str(), w["fault"]["cycle"].get<unsigned>(),
           w["fault"]["address"].get<uint64_t>(), w["fault"]["detail"].get<uint64_t>());
  printf("heap        base %#" PRIx64 ", %u regions of %s, references of %u bytes, klass words of %u bytes\n",
         config["heap_base"].get<uint64_t>(), config["region_count"].get<unsigned>(),
         human_bytes(config["region_bytes"]).c_str(), config["oop_bytes"].get<unsigned>(),
         config["klass_bytes"].get<unsigned>());
  printf("shapes      %u of %u slots\n", w["shapes"]["used"].get<unsigned>(), w["shapes"]["slots"].get<unsigned>());
  printf("cycle       %u, %s\n", w["idle"]["cycle"].get<unsigned>(),
         w["idle"]["idle"].get<bool>() ? "idle" : "not idle");
  printf("areas\n");
  for (const json& area : w["layout"])
    printf("  %-16s %#14" PRIx64 "  %s\n", text_of(area["area"]).c_str(), area["offset"].get<uint64_t>(),
           human_bytes(area["bytes"]).c_str());
  printf("counters that are not zero\n");
  for (const auto& counter : w["counters"].items())
    if (counter.value().get<uint64_t>() != 0)
      printf("  %-16s %20" PRIu64 "\n", counter.key().c_str(), counter.value().get<uint64_t>());
}

void show_image(const json& i) {
  printf("image       %s (%s, for a window of %s)\n", text_of(shown(i["name"])).c_str(),
         human_bytes(i["file_bytes"]).c_str(), human_bytes(i["window_bytes"]).c_str());
  printf("heap        %s in regions of %s, greys in bitmap %u\n", human_bytes(i["heap_bytes"]).c_str(),
         human_bytes(i["region_bytes"]).c_str(), i["bitmap"].get<unsigned>());
  printf("answers     %" PRIu64 " objects, %" PRIu64 " klasses, %" PRIu64 " references\n",
         i["answers"]["objects"].get<uint64_t>(), i["answers"]["klasses"].get<uint64_t>(),
         i["answers"]["references"].get<uint64_t>());
  // As a whole, for the keys.
  printf("text        %s\n", text_of(shown(json_of(i["text"]))).c_str());
}

int info(const Options& o) {
  const bool image = is_image(o.name);
  const json found = image ? describe_image(Image(o.name)) : describe_window(Window::inspect(window_name(o.name)));
  if (o.as_json) {
    print(found);
  } else if (image) {
    show_image(found);
  } else {
    show_window(shown(found));
  }
  return kOk;
}

}  // namespace

void add_info(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb = cli.verb("info", "Show what a window or a saved image says of itself; never disturbs a live one",
                       [o] { return info(*o); });
  verb.option("name", o->name, "window (file:PATH, dax:PATH, pid:PID or a path) or image").required();
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace merapi::cli
