// SPDX-License-Identifier: Apache-2.0
//
// merapi doctor: what is in the way of a window on this machine, each with its remedy.
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "device_process.h"
#include "graph/names.h"
#include "memory_speed.h"
#include "merapi/contract.h"
#include "options.h"
#include "processes.h"
#include "sysfs.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct Options {
  bool as_json = false;
};

// An expander's latency is a few times that of memory; an emulator's function for each load takes hundreds of times as
// long.
constexpr double kSlow = 30;

enum class Verdict { kGood, kNote, kBad };

class Findings {
 public:
  void add(const std::string& check, Verdict verdict, const std::string& found, const std::string& remedy = "") {
    static const char* const kNames[] = {"ok", "note", "problem"};
    json one = {{"check", check}, {"verdict", kNames[int(verdict)]}, {"found", found}};
    if (verdict != Verdict::kGood) one["remedy"] = remedy;
    all_.push_back(one);
    bad_ |= verdict == Verdict::kBad;
  }
  const json& all() const { return all_; }
  bool bad() const { return bad_; }

 private:
  json all_ = json::array();
  bool bad_ = false;
};

std::string boot_config() {
  const char* given = getenv("MERAPI_KERNEL_CONFIG");
  utsname kernel{};
  uname(&kernel);
  return given != nullptr ? given : std::string("/boot/config-") + kernel.release;
}

// What to do with a compressed configuration.
std::string unpacked(const std::string& path) {
  return "zcat " + path + " > FILE, and set MERAPI_KERNEL_CONFIG to FILE";
}

void check_kernel(Findings* f, bool wanted) {
  std::string config;
  if (!read_text(boot_config(), &config)) {
    const std::string why = strerror(errno);
    const std::string running = proc_root() + "/config.gz";
    f->add(
        "kernel options", Verdict::kNote, "no configuration at " + boot_config() + ": " + why,
        access(running.c_str(), R_OK) == 0 ? unpacked(running) : "make it readable, or set MERAPI_KERNEL_CONFIG to it");
    return;
  }
  if (config.compare(0, 2, "\x1f\x8b") == 0) {
    f->add("kernel options", Verdict::kNote, "expected text at " + boot_config() + ", found it compressed (gzip)",
           unpacked(boot_config()));
    return;
  }
  static const char* const kOptions[] = {"CONFIG_DEV_DAX",  "CONFIG_DEV_DAX_CXL", "CONFIG_CXL_BUS",
                                         "CONFIG_CXL_ACPI", "CONFIG_CXL_MEM",     "CONFIG_CXL_REGION"};
  const std::string text = "\n" + config + "\n";
  std::string missing;
  for (const std::string option : kOptions)
    if (text.find("\n" + option + "=y\n") == std::string::npos &&
        text.find("\n" + option + "=m\n") == std::string::npos)
      missing += (missing.empty() ? "" : " ") + option;
  if (missing.empty()) {
    f->add("kernel options", Verdict::kGood, "all there");
  } else {
    f->add("kernel options", wanted ? Verdict::kBad : Verdict::kNote, "without " + missing,
           "use a kernel with them (6.12 or newer of Debian has them)");
  }
}

void check_modules(Findings* f, bool expander) {
  // An expander that the firmware configured may come without CXL drivers; devdax is needed always.
  std::vector<std::string> names = {"device_dax"};
  if (expander) names.insert(names.end(), {"cxl_acpi", "cxl_pci", "cxl_mem", "dax_cxl"});
  std::string missing;
  for (const std::string& name : names)
    if (!module_present(name)) missing += (missing.empty() ? "" : " ") + name;
  const bool wanted = expander || !dax_devices().empty();
  if (missing.empty()) {
    f->add("modules", Verdict::kGood, "all there");
  } else {
    f->add("modules", wanted ? Verdict::kBad : Verdict::kNote, "missing: " + missing, "modprobe " + missing);
  }
}

// With kmem there and memory onlined by itself, a volatile region becomes system memory before anybody can take it.
void check_auto_online(Findings* f) {
  const std::string policy = attribute(sysfs_root() + "/devices/system/memory/auto_online_blocks").value_or("offline");
  const bool kmem = module_present("kmem");
  if (policy == "offline" || !kmem) {
    f->add("auto-online", Verdict::kGood, "policy " + policy + (kmem ? ", kmem loaded" : ", no kmem"));
  } else {
    f->add("auto-online", Verdict::kBad,
           "policy " + policy + " with the module kmem loaded: new dax devices become system memory",
           "echo offline > /sys/devices/system/memory/auto_online_blocks, or boot with memhp_default_state=offline");
  }
}

void check_expanders(Findings* f, const std::vector<Expander>& all) {
  for (const Expander& e : all) {
    if (e.driver.empty())
      f->add("expander " + e.name, Verdict::kBad, "no driver has it", "modprobe cxl_mem; see dmesg");
    else
      f->add("expander " + e.name, Verdict::kGood,
             "volatile " + human_bytes(e.volatile_bytes) + ", persistent " + human_bytes(e.persistent_bytes));
  }
  for (const Region& r : regions())
    if (r.ways > 1)
      f->add("region " + r.name, Verdict::kBad, "interleaved over " + std::to_string(r.ways) + " expanders",
             "no device of it sees whole objects; make a region for each expander");
    else if (r.ways == 0)
      f->add("region " + r.name, Verdict::kBad, "no number in interleave_ways", "cxl destroy-region " + r.name);
    else if (!r.committed)
      f->add("region " + r.name, Verdict::kBad, "not committed", "cxl enable-region " + r.name + "; see dmesg");
}

void check_dax(Findings* f) {
  for (const DaxDevice& d : dax_devices()) {
    const std::string check = "dax " + d.name;
    const auto users = users_of(d.path);
    if (d.mode() == "system-ram") {
      f->add(check, Verdict::kBad, "is system memory",
             "daxctl reconfigure-device -m devdax -f " + d.name +
                 "; when that is refused, boot with "
                 "memhp_default_state=offline");
    } else if (d.mode() == "none") {
      f->add(check, Verdict::kBad, "no driver has it", "merapi provision " + d.name);
    } else if (d.align > MERAPI_MAPPED_ALIGNMENT) {
      f->add(check, Verdict::kBad, "alignment " + human_bytes(d.align),
             "make it again with 2 MiB: daxctl create-device -a 2M");
    } else if (access(d.path.c_str(), F_OK) != 0) {
      f->add(check, Verdict::kBad, "no device node " + d.path, "start udev");
    } else if (access(d.path.c_str(), R_OK | W_OK) != 0) {
      f->add(check, Verdict::kBad, "no permission to read and write " + d.path,
             "merapi provision --owner USER " + d.name + " as root, or a udev rule");
    } else if (!users.empty()) {
      f->add(check, Verdict::kNote,
             "in use by " + users.front().command + "(" + std::to_string(users.front().pid) + ")",
             "one window has one host and one device");
    } else if (const double slower = slower_than_memory(d.path).value_or(1); slower > kSlow) {
      f->add(check, Verdict::kBad, "reads take " + human_count(slower) + " times as long as those of ordinary memory",
             "an emulator that does not map it directly: use QEMU 11.1 or later, and no interleave");
    } else {
      f->add(check, Verdict::kGood, human_bytes(d.bytes) + ", alignment " + human_bytes(d.align));
    }
  }
}

// Where a tracer's PCI function is bounded to, and which dax device begins there: it is bounded in bytes of its
// expander, and its host opens the two by their names.
void check_tracers(Findings* f, const std::vector<Expander>& expanders) {
  const std::vector<DaxDevice> devices = dax_devices();
  for (const TracerFunction& t : tracer_functions()) {
    const std::string check = "tracer " + t.name;
    const auto memory =
        std::find_if(expanders.begin(), expanders.end(), [&](const Expander& e) { return beside(t, e); });
    const std::string of = memory == expanders.end() ? "its expander" : memory->name;
    const std::string part =
        human_bytes(t.window_bytes) + " from " + human_bytes(t.window_offset) + " of " + of + " on";
    const DaxDevice* window = nullptr;
    std::string known;  // a device of that expander
    bool unknown = memory == expanders.end();
    for (const DaxDevice& d : devices) {
      const auto place = place_of(d);
      unknown |= !place && (d.start == 0 || !d.region.empty());
      if (!place || place->expander != of) continue;
      if (known.empty()) known = d.name;
      if (place->offset == t.window_offset) window = &d;
    }
    const std::string remedy = "merapi provision " + (!known.empty() ? known : unknown ? "daxX.Y" : of);
    if (!t.answers)
      f->add(check, Verdict::kBad, "does not answer",
             "reset it (the file reset of PCI function " + t.pci + "); see dmesg");
    else if (t.window_bytes == 0)
      f->add(check, Verdict::kNote, "traces nothing", remedy);
    else if (window != nullptr && t.window_bytes <= window->bytes)
      f->add(check, Verdict::kGood, "traces " + part + " (" + window->name + ")");
    else if (window != nullptr)
      f->add(check, Verdict::kBad, "traces " + part + ", more than " + window->name + " has", remedy);
    else if (unknown)
      f->add(check, Verdict::kNote, "traces " + part + "; which dax device is there cannot be told",
             "run it as root; one expander must be behind the device");
    else
      f->add(check, Verdict::kBad, "traces " + part + ", where no dax device begins", remedy);
  }
}

void check_windows(Findings* f) {
  for (const UsedWindow& w : used_windows()) {
    const std::string check = "window " + w.name;
    try {
      const Window window = inspect(w);
      const ControlPage c(window);
      if (c.fault.code != MERAPI_FAULT_NONE)
        f->add(check, Verdict::kBad, "fault " + graph::fault_name(c.fault.code), "merapi info " + w.name);
      else if (c.device.magic == MERAPI_DEVICE_MAGIC && c.device.coherence != c.config.coherence)
        f->add(check, Verdict::kBad,
               "host is prepared for " + graph::coherence_name(c.config.coherence) + ", device is " +
                   graph::coherence_name(c.device.coherence),
               "use a device of the mode that the JVM accepts: coherent");
      else
        f->add(check, Verdict::kGood,
               graph::coherence_name(c.config.coherence) + ", " + graph::state_name(c.device_index.state));
    } catch (const graph::Error& e) {
      // Between two looks a window may end; what stays and is no window was truncated or overwritten.
      if (exit_of(e.code) != kDenied) f->add(check, Verdict::kNote, e.what(), "make the window again when this stays");
    }
  }
}

void check_device_process(Findings* f) {
  const std::string socket = default_socket();
  struct stat status {};
  const Listener listener = listener_at(socket);
  if (listener.stopped)
    f->add("device process", Verdict::kBad,
           "process " + std::to_string(listener.pid) + " at " + socket + " is stopped: it traces nothing",
           "kill -CONT " + std::to_string(listener.pid));
  else if (const std::string why = listener.there ? "" : why_no_socket(socket); !why.empty())
    f->add("device process", Verdict::kBad, why, "name another with MERAPI_SOCKET: 'merapi run' refuses this one");
  else if (const std::string why = why_no_run(socket); !why.empty())
    f->add("device process", Verdict::kBad, why, "'merapi run' refuses this socket until then");
  else if (listener.there)
    f->add("device process", Verdict::kGood, "listens at " + socket);
  else if (stat(socket.c_str(), &status) == 0)
    f->add("device process", Verdict::kNote, "a socket without a process at " + socket,
           "nothing: 'merapi run' replaces it");
  else if (find_program("merapi-device").empty() && getenv("MERAPI_DEVICE_PROGRAM") == nullptr)
    f->add("device process", Verdict::kBad, "no merapi-device beside merapi or in PATH",
           "install it, or set MERAPI_DEVICE_PROGRAM");
  else
    f->add("device process", Verdict::kGood, "none at " + socket + "; 'merapi run' starts one");
}

int doctor(const Options& o) {
  Findings f;
  const std::vector<Expander> all = expanders();
  check_kernel(&f, !all.empty());
  check_modules(&f, !all.empty());
  check_auto_online(&f);
  check_expanders(&f, all);
  check_dax(&f);
  check_tracers(&f, all);
  check_windows(&f);
  check_device_process(&f);
  if (o.as_json) {
    print(f.all());
  } else {
    for (const json& one : shown(f.all())) {
      printf("%-8s %s: %s\n", one["verdict"].get<std::string>().c_str(), one["check"].get<std::string>().c_str(),
             one["found"].get<std::string>().c_str());
      if (one.contains("remedy")) printf("         -> %s\n", one["remedy"].get<std::string>().c_str());
    }
  }
  return f.bad() ? kFound : kOk;
}

}  // namespace

void add_doctor(Cli& cli) {
  auto o = std::make_shared<Options>();
  Verb verb = cli.verb("doctor", "Check what a window needs and say the remedy for what is missing",
                       [o] { return doctor(*o); });
  verb.flag("--json", o->as_json, "print JSON");
}

}  // namespace merapi::cli
