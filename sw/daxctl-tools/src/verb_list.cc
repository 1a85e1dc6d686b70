// SPDX-License-Identifier: Apache-2.0
//
// merapi list: expanders, regions, dax devices, windows, tracers, and who uses them.
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "graph/names.h"
#include "options.h"
#include "processes.h"
#include "sysfs.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct Options {
  bool as_json = false;
};

json list_expanders() {
  json all = json::array();
  for (const Expander& e : expanders())
    all.push_back({{"expander", e.name},
                   {"serial", e.serial},
                   {"volatile_bytes", e.volatile_bytes},
                   {"persistent_bytes", e.persistent_bytes},
                   {"numa_node", e.numa_node},
                   {"driver", e.driver},
                   {"pci", e.pci}});
  return all;
}

json list_regions() {
  json all = json::array();
  for (const Region& r : regions())
    all.push_back({{"region", r.name},
                   {"mode", r.mode},
                   {"start", r.start},
                   {"bytes", r.bytes},
                   {"interleave_ways", r.ways},
                   {"interleave_granularity", r.granularity},
                   {"committed", r.committed},
                   {"expanders", r.expanders}});
  return all;
}

json list_users(const std::vector<User>& users) {
  json all = json::array();
  for (const User& u : users) all.push_back({{"pid", u.pid}, {"command", u.command}, {"role", u.role}});
  return all;
}

json list_dax() {
  json all = json::array();
  for (const DaxDevice& d : dax_devices()) {
    all.push_back({{"dax", d.name},
                   {"path", d.path},
                   {"bytes", d.bytes},
                   {"align", d.align},
                   {"mode", d.mode()},
                   {"target_node", d.target_node},
                   {"region", d.region},
                   {"expander", json(nullptr)},
                   {"offset", json(nullptr)},
                   {"users", list_users(users_of(d.path))}});
    if (const auto place = place_of(d)) {
      all.back()["expander"] = place->expander;
      all.back()["offset"] = place->offset;
    }
  }
  return all;
}

// What a window says, or why it cannot be read; a list goes on without it.
json list_windows(const std::vector<UsedWindow>& windows) {
  json all = json::array();
  for (const UsedWindow& w : windows) {
    json entry = {
        {"window", w.name}, {"kind", w.kind}, {"label", w.label}, {"bytes", w.bytes}, {"users", list_users(w.users)}};
    try {
      const Window window = inspect(w);
      const ControlPage control(window);
      entry["bytes"] = window.bytes();
      entry["attached"] = control.attached();
      entry["state"] = graph::state_name(control.device_index.state);
      entry["cycle"] = control.idle.cycle;
      const json device = describe_device(control);
      entry["tracer"] = device.is_null() ? json(nullptr) : json{{"name", device["name"]}, {"kind", device["kind"]}};
    } catch (const graph::Error& e) {
      entry["problem"] = e.what();
    }
    all.push_back(entry);
  }
  return all;
}

json list_tracers(const std::vector<UsedWindow>& windows) {
  json all = json::array();
  for (const DeviceProcess& d : device_processes(windows))
    all.push_back({{"pid", d.pid},
                   {"command", d.command},
                   {"sockets", d.seen ? json(d.sockets) : json(nullptr)},
                   {"windows", d.seen ? json(d.windows) : json(nullptr)}});
  return all;
}

json list_functions() {
  json all = json::array();
  for (const TracerFunction& t : tracer_functions())
    all.push_back({{"function", t.name},
                   {"path", t.path},
                   {"pci", t.pci},
                   {"memory_bytes", t.memory_bytes},
                   {"window_offset", t.window_offset},
                   {"window_bytes", t.window_bytes},
                   {"interrupts", t.interrupts},
                   {"engines", t.engines},
                   {"users", list_users(users_of(t.path))}});
  return all;
}

std::string users_text(const json& users) {
  std::string text;
  for (const json& u : users)
    text += (text.empty() ? "" : ", ") + u["role"].get<std::string>() + " " + u["command"].get<std::string>() + "(" +
            std::to_string(u["pid"].get<int>()) + ")";
  return text.empty() ? "nobody" : text;
}

std::string place_text(const json& dax) {
  if (dax["offset"].is_null()) return "";
  return " from " + human_bytes(dax["offset"]) + " of " + dax["expander"].get<std::string>() + " on";
}

// What a window is, where its name does not tell.
std::string origin_text(const json& window) {
  const std::string name = window["window"], kind = window["kind"], label = window["label"];
  if (kind == "memory") return " (memory)";
  if (kind == "removed") return " (removed " + label + ")";
  return name.substr(name.find(':') + 1) == label ? "" : " (" + label + " elsewhere)";
}

void show(const json& all) {
  for (const json& e : all["expanders"])
    printf("expander  %-8s volatile %s, persistent %s, serial %s, driver %s\n",
           e["expander"].get<std::string>().c_str(), human_bytes(e["volatile_bytes"]).c_str(),
           human_bytes(e["persistent_bytes"]).c_str(), e["serial"].get<std::string>().c_str(),
           e["driver"].get<std::string>().empty() ? "none" : e["driver"].get<std::string>().c_str());
  for (const json& r : all["regions"])
    printf("region    %-8s %s, %s, %" PRIu64 " way(s), %s\n", r["region"].get<std::string>().c_str(),
           r["mode"].get<std::string>().c_str(), human_bytes(r["bytes"]).c_str(), r["interleave_ways"].get<uint64_t>(),
           r["committed"].get<bool>() ? "committed" : "not committed");
  for (const json& d : all["dax"])
    printf("dax       %-8s %s%s, align %s, %s; used by %s\n", d["dax"].get<std::string>().c_str(),
           human_bytes(d["bytes"]).c_str(), place_text(d).c_str(), human_bytes(d["align"]).c_str(),
           d["mode"].get<std::string>().c_str(), users_text(d["users"]).c_str());
  for (const json& w : all["windows"]) {
    printf("window    %s%s  %s", w["window"].get<std::string>().c_str(), origin_text(w).c_str(),
           human_bytes(w["bytes"]).c_str());
    if (w.contains("problem")) {
      printf("; %s", w["problem"].get<std::string>().c_str());
    } else {
      const json& tracer = w["tracer"];
      printf(", %s, tracer %s, %s, cycle %u", w["attached"].get<bool>() ? "attached" : "not attached",
             tracer.is_null() ? "none" : tracer["name"].get<std::string>().c_str(),
             w["state"].get<std::string>().c_str(), w["cycle"].get<unsigned>());
    }
    printf("; used by %s\n", users_text(w["users"]).c_str());
  }
  for (const json& t : all["tracers"]) {
    if (t["windows"].is_null()) {
      printf("tracer    %s(%d), another user's: its windows are not to be seen\n",
             t["command"].get<std::string>().c_str(), t["pid"].get<int>());
      continue;
    }
    std::string sockets;
    for (const json& s : t["sockets"]) sockets += " " + s.get<std::string>();
    printf("tracer    %s(%d) serves %zu window(s)%s%s\n", t["command"].get<std::string>().c_str(), t["pid"].get<int>(),
           t["windows"].get<size_t>(), sockets.empty() ? "" : " at", sockets.c_str());
  }
  for (const json& t : all["functions"]) {
    const std::string traces =
        t["window_bytes"] == 0 ? "nothing ('merapi provision' gives it a window)"
                               : human_bytes(t["window_bytes"]) + " from " + human_bytes(t["window_offset"]) + " on";
    printf("function  %-8s traces %s, at PCI %s; used by %s\n", t["function"].get<std::string>().c_str(),
           traces.c_str(), t["pci"].get<std::string>().c_str(), users_text(t["users"]).c_str());
  }
}

int list(const Options& o) {
  const std::vector<UsedWindow> windows = used_windows();
  const json all = {
      {"expanders", list_expanders()},    {"regions", list_regions()},        {"dax", list_dax()},
      {"windows", list_windows(windows)}, {"tracers", list_tracers(windows)}, {"functions", list_functions()}};
  if (o.as_json) {
    print(all);
    return kOk;
  }
  show(shown(all));
  bool nothing = true;
  for (const json& part : all) nothing &= part.empty();
  if (nothing) say("found no expander, dax device, window or tracer; 'merapi doctor' says what is missing");
  return kOk;
}

}  // namespace

void add_list(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb = cli.verb("list", "List expanders, regions, dax devices, windows and tracers, and who uses them",
                       [o] { return list(*o); });
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace merapi::cli
