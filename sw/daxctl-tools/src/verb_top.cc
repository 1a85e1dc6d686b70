// SPDX-License-Identifier: Apache-2.0
//
// merapi top: live counters of windows.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "graph/names.h"
#include "options.h"
#include "processes.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct Options {
  std::vector<std::string> names;
  double interval = 1;
  bool once = false;
  bool as_json = false;
};

using Clock = std::chrono::steady_clock;

struct Sample {
  Clock::time_point at;
  ControlPage control;
};

// A window under observation. It stays open, so that a rate is of one and the same window.
struct Watched {
  std::string name;
  std::string users;
  std::optional<Window> window;
  std::optional<Sample> before, now;
  std::string problem;
};

volatile sig_atomic_t ended = 0;

uint64_t value(const Sample& s, uint32_t counter) { return s.control.counters.value[counter]; }

// Counters start at 0 with every cycle: a smaller value is a new cycle's.
uint64_t grown(const Watched& w, uint32_t counter) {
  const uint64_t now = value(*w.now, counter), before = value(*w.before, counter);
  const bool same = w.now->control.host_index.generation == w.before->control.host_index.generation && now >= before;
  return same ? now - before : now;
}

std::string users_text(const std::vector<User>& users) {
  std::string text;
  for (const User& u : users) text += (text.empty() ? "" : " ") + u.command + ":" + std::to_string(u.pid);
  return text;
}

void sample(Watched* w) {
  try {
    if (!w->window) w->window.emplace(Window::inspect(window_name(w->name)));
    w->before = w->now;
    w->now = Sample{Clock::now(), ControlPage(*w->window)};
    w->problem.clear();
  } catch (const std::exception& e) {
    w->problem = e.what();
  }
}

void find_windows(std::vector<Watched>* watched) {
  std::vector<Watched> next;
  for (const UsedWindow& used : used_windows()) {
    Watched w{used.name, users_text(used.users), std::nullopt, std::nullopt, std::nullopt, ""};
    for (Watched& old : *watched)
      if (old.name == used.name && old.users == w.users) w = std::move(old);
    next.push_back(std::move(w));
  }
  *watched = std::move(next);
}

json measure(const Watched& w) {
  json m = {{"window", w.name}, {"users", w.users}};
  if (!w.problem.empty()) {
    m["problem"] = w.problem;
    return m;
  }
  const ControlPage& c = w.now->control;
  const double seconds = w.before ? std::chrono::duration<double>(w.now->at - w.before->at).count() : 0;
  const auto rate = [&](uint32_t counter) { return seconds > 0 ? double(grown(w, counter)) / seconds : 0.0; };
  const json device = describe_device(c);
  m["tracer"] = device.is_null() ? json(nullptr) : device["name"];
  m["attached"] = c.attached();
  m["state"] = graph::state_name(c.device_index.state);
  m["fault"] = graph::fault_name(c.fault.code);
  m["seconds"] = seconds;
  // Cycle ids count up by one in a window.
  m["traces"] = c.idle.cycle;
  m["traces_per_s"] = seconds > 0 && c.idle.cycle >= w.before->control.idle.cycle
                          ? double(c.idle.cycle - w.before->control.idle.cycle) / seconds
                          : 0.0;
  m["objects_per_s"] = rate(MERAPI_COUNTER_OBJECTS_MARKED);
  m["references_per_s"] = rate(MERAPI_COUNTER_REFERENCES_READ);
  m["bytes_read_per_s"] = rate(MERAPI_COUNTER_BYTES_READ);
  m["bytes_written_per_s"] = rate(MERAPI_COUNTER_BYTES_WRITTEN);
  json stalls = json::object();
  for (const auto& [index, name] : graph::counter_names())
    if (std::string(name).rfind("stall_", 0) == 0) stalls[name] = rate(index);
  m["stalls_per_s"] = stalls;
  m["counters"] = describe_counters(c.counters.value);
  return m;
}

void show(const json& all, bool screen) {
  if (screen) printf("\033[H\033[2J");
  char clock[32];
  const time_t now = time(nullptr);
  strftime(clock, sizeof clock, "%H:%M:%S", localtime(&now));
  printf("merapi top  %s\n%-10s %-9s %7s %11s %11s %11s %11s %9s  %s\n", clock, "TRACER", "STATE", "TRACES",
         "OBJECTS/S", "REFS/S", "READ/S", "WRITTEN/S", "STALLS/S", "WINDOW");
  for (const json& m : all) {
    if (m.contains("problem")) {
      printf("%-10s %s: %s\n", "-", m["window"].get<std::string>().c_str(), m["problem"].get<std::string>().c_str());
      continue;
    }
    double stalls = 0;
    for (const json& s : m["stalls_per_s"]) stalls += s.get<double>();
    printf("%-10.10s %-9s %7u %11s %11s %11s %11s %9s  %s\n",
           m["tracer"].is_null() ? "none" : m["tracer"].get<std::string>().c_str(),
           m["fault"] == "none" ? m["state"].get<std::string>().c_str() : m["fault"].get<std::string>().c_str(),
           m["traces"].get<unsigned>(), human_count(m["objects_per_s"]).c_str(),
           human_count(m["references_per_s"]).c_str(),
           human_bytes(uint64_t(m["bytes_read_per_s"].get<double>())).c_str(),
           human_bytes(uint64_t(m["bytes_written_per_s"].get<double>())).c_str(), human_count(stalls).c_str(),
           (m["users"].get<std::string>().empty() ? m["window"] : m["users"]).get<std::string>().c_str());
  }
  if (all.empty()) printf("no window is in use\n");
  fflush(stdout);
}

void pause_for(double seconds) {
  timespec nap{};
  nap.tv_sec = time_t(seconds);
  nap.tv_nsec = long((seconds - std::floor(seconds)) * 1e9);
  nanosleep(&nap, nullptr);  // a signal ends it early, as it should
}

int top(const Options& o) {
  std::vector<Watched> watched;
  for (const std::string& name : o.names) watched.push_back({name, "", {}, {}, {}, ""});
  struct sigaction action {};
  action.sa_handler = [](int) { ended = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const bool screen = isatty(STDOUT_FILENO) != 0 && !o.as_json && !o.once;
  const auto look = [&] {
    if (o.names.empty()) find_windows(&watched);
    for (Watched& w : watched) sample(&w);
  };
  look();
  // A window named by the user that cannot be read at all is his mistake; one that goes away later is news.
  for (const Watched& w : watched)
    if (!o.names.empty() && !w.problem.empty()) throw Failure(kAbsent, w.name + ": " + w.problem);
  do {
    pause_for(o.interval);
    if (ended != 0) break;
    look();
    json all = json::array();
    for (const Watched& w : watched) all.push_back(measure(w));
    if (o.as_json) {
      print(all);
    } else {
      show(all, screen);
    }
  } while (!o.once);
  return kOk;
}

}  // namespace

void add_top(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb = cli.verb("top", "Watch the counters of windows: traces, objects and bytes a second, stalls",
                       [o] { return top(*o); });
  verb.option("windows", o->names, "windows to watch (default: all in use)");
  verb.option("--interval", o->interval, "seconds between two looks").with_default().between(0.01, 3600.0);
  verb.flag("--once", o->once, "measure one interval and end");
  verb.flag("--json", o->as_json, "print JSON, one array for each interval");
}

}  // namespace merapi::cli
