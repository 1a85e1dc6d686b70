// SPDX-License-Identifier: Apache-2.0
//
// merapi top: live counters of windows.
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "cli/command_line.h"
#include "cli/standard_streams.h"
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

// Seconds between two looks at the counters: they start at 0 with every cycle, and what a cycle counted is there from
// its end to the next one's begin.
constexpr double kLook = 0.02;

// Between two looks at whether a window is still there: an open window keeps the memory of one whose users have gone.
constexpr std::chrono::seconds kPresence(1);

// A window under observation. It stays open, so that a rate is of one and the same window.
struct Watched {
  std::string name;
  std::string users;
  std::optional<UsedWindow> used;  // found in use, not named by the user
  std::optional<Window> window;
  std::string path;  // where it is as long as it is there
  FileId id;
  Clock::time_point looked;                            // for its presence
  bool gone = false;                                   // for good, with its process
  std::optional<Sample> first, now;                    // of the interval: where it began, the last look
  std::array<uint64_t, MERAPI_COUNTER_COUNT> grown{};  // in the interval, over all its cycles
  std::string problem;
  int status = kOk;  // exit code for the problem
};

volatile sig_atomic_t ended = 0;

// What was counted between two looks. One smaller value says that all of them are a new cycle's. ROUNDS goes on through
// cycles and would look the same, were it not for the others.
void add_growth(const ControlPage& before, const ControlPage& now, Watched* w) {
  bool same = now.host_index.generation == before.host_index.generation;
  for (uint32_t i = 0; i < MERAPI_COUNTER_COUNT; i++) same &= now.counters.value[i] >= before.counters.value[i];
  for (uint32_t i = 0; i < MERAPI_COUNTER_COUNT; i++)
    w->grown[i] += now.counters.value[i] - (same ? before.counters.value[i] : 0);
}

std::string users_text(const std::vector<User>& users) {
  std::string text;
  for (const User& u : users) text += (text.empty() ? "" : " ") + u.command + ":" + std::to_string(u.pid);
  return text;
}

std::string path_in(const std::string& name) {
  if (name.rfind("pci:", 0) == 0) return name.substr(name.find(',') + 1);
  return name.rfind("dax:", 0) == 0 ? name.substr(4) : path_of(name);
}

bool of_process(const Watched& w) { return w.path.rfind("/proc/", 0) == 0; }

void open_window(Watched* w) {
  if (w->used) {
    w->window.emplace(inspect(*w->used));
    w->path = w->used->users.front().path;
    w->id = w->used->id;
    return;
  }
  const std::string name = window_name(w->name);
  struct stat status {};
  Window window = look_into(name);
  w->path = path_in(name);
  if (stat(w->path.c_str(), &status) < 0) throw system_failure(errno, w->path);
  w->id = file_id(status);
  w->window.emplace(std::move(window));
}

bool is_there(const Watched& w) {
  const auto same = [&](const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && file_id(status) == w.id;
  };
  if (!w.used) return same(w.path);
  const auto& users = w.used->users;
  return std::any_of(users.begin(), users.end(), [&](const User& user) { return same(user.path); });
}

void give_up(Watched* w) {
  w->window.reset();
  w->first.reset();
  w->now.reset();
  w->grown = {};
  w->gone = of_process(*w);
  throw Failure(kAbsent, w->gone ? "expected it to stay in use, found that its process has ended or closed it; "
                                   "'merapi list' shows those in use"
                                 : "expected the same file at " + w->path +
                                       ", found none or another; make the window there again");
}

void look_at(Watched* w) {
  const Clock::time_point now = Clock::now();
  if (!w->gone && now - w->looked >= kPresence) {
    w->looked = now;
    if (w->window && !is_there(*w)) give_up(w);
    if (!w->window) open_window(w);
  }
  if (!w->window) return;
  Sample next{now, ControlPage(*w->window)};
  if (w->now) add_growth(w->now->control, next.control, w);
  w->now = std::move(next);
  if (!w->first) w->first = w->now;
  w->problem.clear();
}

void sample(Watched* w) {
  const auto look = [w] {
    look_at(w);
    return int(kOk);
  };
  w->status = guarded(look, &w->problem);
}

void find_windows(std::vector<Watched>* watched) {
  std::vector<Watched> next;
  for (const UsedWindow& used : used_windows()) {
    Watched w;
    w.name = used.name;
    w.users = users_text(used.users);
    for (Watched& old : *watched)
      if (old.id == used.id && old.users == w.users && !old.gone) w = std::move(old);
    w.used = used;
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
  const double seconds = std::chrono::duration<double>(w.now->at - w.first->at).count();
  const auto rate = [&](uint32_t counter) { return seconds > 0 ? double(w.grown[counter]) / seconds : 0.0; };
  const json device = describe_device(c);
  m["tracer"] = device.is_null() ? json(nullptr) : device["name"];
  m["attached"] = c.attached();
  m["state"] = graph::state_name(c.device_index.state);
  m["fault"] = graph::fault_name(c.fault.code);
  m["seconds"] = seconds;
  // Cycle ids count up by one in a window.
  m["traces"] = c.idle.cycle;
  m["traces_per_s"] = seconds > 0 && c.idle.cycle >= w.first->control.idle.cycle
                          ? double(c.idle.cycle - w.first->control.idle.cycle) / seconds
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
  if (all.empty()) {
    const std::vector<DeviceProcess> devices = device_processes({});
    const bool seen = std::all_of(devices.begin(), devices.end(), [](const DeviceProcess& d) { return d.seen; });
    printf(seen ? "no window is in use\n" : "no window is to be seen; there are devices of other users\n");
  }
  flush_output();
}

void pause_for(double seconds) {
  timespec nap{};
  nap.tv_sec = time_t(seconds);
  nap.tv_nsec = long((seconds - std::floor(seconds)) * 1e9);
  nanosleep(&nap, nullptr);  // a signal ends it early, as it should
}

int top(const Options& o) {
  std::vector<Watched> watched;
  for (const std::string& name : o.names) watched.emplace_back().name = name;
  struct sigaction action {};
  action.sa_handler = [](int) { ended = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const bool screen = isatty(STDOUT_FILENO) != 0 && !o.as_json && !o.once;
  const auto look = [&] {
    for (Watched& w : watched) sample(&w);
  };
  // Whoever has looked for an interval tells it once and begins the next where it ended.
  const auto begin = [&] {
    for (Watched& w : watched) w.first = w.now, w.grown = {};
    if (o.names.empty()) find_windows(&watched);
  };
  begin();
  look();
  // A window named by the user that cannot be read at all is his mistake; one that goes away later is news.
  for (const Watched& w : watched)
    if (!o.names.empty() && !w.problem.empty()) throw Failure(w.status, with_name(w.name, w.problem));
  // Until standard output fails, too: nobody sees the rest.
  do {
    const auto end = Clock::now() + std::chrono::duration<double>(o.interval);
    for (double left = o.interval; left > 0 && ended == 0;) {
      pause_for(std::min(left, kLook));
      look();
      left = std::chrono::duration<double>(end - Clock::now()).count();
    }
    if (ended != 0) break;
    json all = json::array();
    for (const Watched& w : watched) all.push_back(measure(w));
    if (o.as_json) {
      print(all);
    } else {
      show(shown(all), screen);
    }
    begin();
  } while (!o.once && flush_output());
  return kOk;
}

}  // namespace

void add_top(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb = cli.verb("top", "Watch the counters of windows: traces, objects and bytes a second, stalls",
                       [o] { return top(*o); });
  verb.option("windows", o->names, "windows to watch (default: all in use)").not_empty();
  verb.option("--interval", o->interval, "seconds between two looks").with_default().between(0.01, 3600.0);
  verb.flag("--once", o->once, "measure one interval and end");
  verb.flag("--json", o->as_json, "print JSON, one array for each interval");
}

}  // namespace merapi::cli
