// SPDX-License-Identifier: Apache-2.0
#include "provisioning.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "merapi/contract.h"
#include "processes.h"

namespace merapi::cli {
namespace {

bool begins(const std::string& text, const std::string& head) { return text.rfind(head, 0) == 0; }

// The kernel's words for what it could not do, with the remedy; empty when they are unknown.
std::string known_remedy(const std::vector<std::string>& command, const std::string& words) {
  const bool creates_region = command.size() > 1 && command[0] == "cxl" && command[1] == "create-region";
  if (words.find("Permission denied") != std::string::npos ||
      words.find("Operation not permitted") != std::string::npos)
    return "run it as root";
  if (words.find("synchronize CPU cache") != std::string::npos ||
      (creates_region && words.find("No such device or address") != std::string::npos))
    return "the kernel cannot flush CPU caches for the region, as in a virtual machine that shows itself as one: start "
           "QEMU with -cpu max,-hypervisor; see dmesg";
  if (words.find("busy") != std::string::npos) return "end what uses it; 'merapi list' shows the users";
  return "";
}

bool lies_in(const DaxDevice& device, const PmemRegion& region) {
  return (device.parent + "/").find("/" + region.name + "/") != std::string::npos && device.region.empty();
}

// What a tool's listing says under this key, when it is of the type that it should be.
template <typename T>
T told(const json& one, const char* key, T otherwise) {
  const auto found = one.is_object() ? one.find(key) : one.end();
  if (found == one.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) return found->is_string() ? found->template get<T>() : otherwise;
  if constexpr (std::is_same_v<T, bool>) return found->is_boolean() ? found->template get<T>() : otherwise;
  if constexpr (std::is_same_v<T, uint64_t>) return found->is_number_unsigned() ? found->template get<T>() : otherwise;
}

template <typename T>
const T* named(const std::vector<T>& all, const std::string& name) {
  for (const T& one : all)
    if (one.name == name) return &one;
  return nullptr;
}

// `is`: why it matters, where the user named something else.
void require_nobody(const std::string& path, const std::string& is) {
  std::string users;
  for (const User& user : users_of(path))
    users += (users.empty() ? "" : ", ") + shown_text(user.command) + "(" + std::to_string(user.pid) + ")";
  if (!users.empty())
    throw Failure(kBusy, "expected nobody to use " + path + is + ", found " + users + "; end them first");
}

std::vector<TracerFunction> tracers_beside(const std::string& expander) {
  const std::vector<Expander> memories = expanders();
  const Expander* memory = named(memories, expander);
  std::vector<TracerFunction> all = tracer_functions();
  std::erase_if(all, [&](const TracerFunction& t) { return memory == nullptr || !beside(t, *memory); });
  return all;
}

// Any of that part of the memory.
bool reaches(const TracerFunction& tracer, const Span& part) {
  if (tracer.window_bytes == 0) return false;
  return part.offset < tracer.window_offset ? tracer.window_offset - part.offset < part.bytes
                                            : part.offset - tracer.window_offset < tracer.window_bytes;
}

// The tracers that reach any of that part of an expander's memory. Refuses where one of them cannot be bounded, as far
// as that shows.
std::vector<TracerFunction> let_go(const std::string& expander, const Span& taken, const std::string& what) {
  std::vector<TracerFunction> all = tracers_beside(expander);
  std::erase_if(all, [&](const TracerFunction& t) { return !reaches(t, taken); });
  for (const TracerFunction& t : all) {
    const std::string is = ", a tracer that reaches " + what;
    require_nobody(t.path, is);
    if (const int code = tracer_bound_refused(t); code != 0)
      throw system_failure(code, "expected to bound " + t.name + is + "; run it as root");
  }
  return all;
}

// Names of the regions on an expander.
std::vector<std::string> regions_on(const std::string& expander) {
  std::vector<std::string> names;
  for (const Region& r : regions())
    if (std::count(r.expanders.begin(), r.expanders.end(), expander) != 0) names.push_back(r.name);
  return names;
}

}  // namespace

void Provisioning::change(const std::vector<std::string>& command, const std::string& remedy) {
  const CommandResult result = run_command(command);
  if (result.ok()) {
    did_.push_back(command_text(command));
    return;
  }
  const std::string words = result.err + result.out;
  const std::string known = known_remedy(command, words);
  const bool denied = words.find("Permission denied") != std::string::npos ||
                      words.find("Operation not permitted") != std::string::npos;
  const bool busy = words.find("busy") != std::string::npos;
  throw Failure(result.status == 127 ? kAbsent
                : denied             ? kDenied
                : busy               ? kBusy
                                     : kSystem,
                "expected '" + command_text(command) + "' to work, found status " + std::to_string(result.status) +
                    (result.err.empty() ? "" : ": " + result.err) + "\n  " +
                    (result.status == 127 ? "install the package that has '" + command.front() + "'"
                     : known.empty()      ? remedy
                                          : known));
}

void Provisioning::require_unused(const DaxDevice& device) { require_nobody(device.path, ""); }

bool Provisioning::wait_for(const std::function<bool()>& there) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_);
  while (!there()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    usleep(20000);
  }
  return true;
}

void Provisioning::load_modules(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (module_present(name)) continue;
    const std::vector<std::string> command = {"modprobe", name};
    const CommandResult result = run_command(command);
    if (result.ok()) {
      did_.push_back(command_text(command));
    } else {
      throw Failure(kAbsent, "expected the kernel module " + name + ", found none (" + result.err +
                                 "); use a kernel that has it (6.12 or newer of Debian does)");
    }
  }
}

// A window needs whole objects in one device: an interleaved region spreads each object over several.
void Provisioning::require_single(const Region& region) {
  if (region.ways == 0)
    throw Failure(kAbsent, "expected a region on one expander, found " + region.name +
                               " without a number in interleave_ways; is it a region that nobody finished? see 'cxl "
                               "list -R -v', and destroy it (cxl destroy-region " +
                               region.name + ")");
  if (region.ways > 1)
    throw Failure(kAbsent, "expected a region on one expander, found " + region.name + " interleaved over " +
                               std::to_string(region.ways) +
                               ": no device of it sees whole objects, so none can trace; destroy it and create a "
                               "region for each expander (cxl destroy-region " +
                               region.name + ")");
}

std::string Provisioning::only_target() {
  std::vector<std::string> all;
  for (const Expander& e : expanders()) all.push_back(e.name);
  if (all.empty())
    for (const DaxDevice& d : dax_devices()) all.push_back(d.name);
  if (all.size() == 1) return all.front();
  std::string names;
  for (const std::string& name : all) names += (names.empty() ? "" : ", ") + name;
  throw Failure(all.empty() ? kAbsent : kUsage,
                all.empty() ? "expected an expander or a dax device, found none; 'merapi doctor' says what is missing"
                            : "expected one expander to choose, found " + names + "; name one");
}

// The kernel takes a moment for each expander; until its driver has it, nothing can be made of it.
void Provisioning::require_driver(const Expander& expander) {
  const bool there = wait_for([&] {
    for (const Expander& e : expanders())
      if (e.name == expander.name && !e.driver.empty()) return true;
    return false;
  });
  if (!there)
    throw Failure(kAbsent, "expected the driver cxl_mem to have " + expander.name +
                               ", found none; is the module loaded? see dmesg");
}

Region Provisioning::create_region(const Expander& expander, const std::string& type) {
  std::vector<std::string> command = {"cxl", "create-region", "-m", "-t", type, "-w", "1"};
  // A root decoder (fixed memory window) that leads to this expander alone and has room; where the list does not tell,
  // cxl chooses.
  const CommandResult listed = run_command({"cxl", "list", "-D", "-d", "root", "-m", expander.name});
  const json decoders = listed.ok() ? json::parse(listed.out, nullptr, false) : json();
  std::string chosen, interleaved;
  if (decoders.is_array()) {
    const char* capable = type == "pmem" ? "pmem_capable" : "volatile_capable";
    for (const json& d : decoders) {
      const std::string name = told(d, "decoder", std::string());
      if (!told(d, capable, false) || name.empty()) continue;
      if (std::max(told(d, "interleave_ways", uint64_t(1)), told(d, "nr_targets", uint64_t(1))) > 1) {
        interleaved = name;
      } else if (chosen.empty() && told(d, "max_available_extent", UINT64_MAX) != 0) {
        chosen = name;
      }
    }
  }
  if (chosen.empty() && !interleaved.empty())
    throw Failure(kAbsent, "expected a memory window that leads to " + expander.name + " alone, found " + interleaved +
                               ", which spreads addresses over several host bridges: no device of it sees whole "
                               "objects, so none can trace; configure a window without interleave in the firmware");
  if (!chosen.empty()) command.insert(command.end(), {"-d", chosen});
  command.push_back(expander.name);
  const std::vector<std::string> before = regions_on(expander.name);
  change(command, "the kernel refused the region: see dmesg, and 'merapi doctor' for what is missing");
  std::optional<Region> made;
  const bool there = wait_for([&] {
    for (const Region& r : regions())
      if (std::count(r.expanders.begin(), r.expanders.end(), expander.name) != 0 &&
          std::count(before.begin(), before.end(), r.name) == 0)
        made = r;
    return made.has_value();
  });
  if (!there)
    throw Failure(kAbsent, "expected a region on " + expander.name + " after creating one, found none; see dmesg");
  return *made;
}

DaxDevice Provisioning::from_expander(const Expander& expander, const std::string& type) {
  found_.push_back("expander " + expander.name + ": volatile " + human_bytes(expander.volatile_bytes) +
                   ", persistent " + human_bytes(expander.persistent_bytes));
  for (const Region& region : regions())
    if (std::count(region.expanders.begin(), region.expanders.end(), expander.name) != 0 &&
        (type.empty() || region.mode == type || region.mode.empty()))
      return from_region(region);
  std::string wanted = type;
  if (wanted.empty()) wanted = expander.volatile_bytes != 0 ? "ram" : "pmem";
  const uint64_t room = wanted == "ram" ? expander.volatile_bytes : expander.persistent_bytes;
  if (room == 0)
    throw Failure(kAbsent, "expected " + expander.name + " to have memory of type " + wanted +
                               ", found none; use --type " + (wanted == "ram" ? "pmem" : "ram"));
  load_modules(wanted == "ram" ? std::vector<std::string>{"cxl_acpi", "cxl_pci", "cxl_mem", "dax_cxl", "device_dax"}
                               : std::vector<std::string>{"cxl_acpi", "cxl_pci", "cxl_mem", "cxl_pmem", "device_dax"});
  require_driver(expander);
  return from_region(create_region(expander, wanted));
}

DaxDevice Provisioning::from_region(const Region& region) {
  found_.push_back("region " + region.name + ": " + region.mode + ", " + human_bytes(region.bytes) + ", " +
                   std::to_string(region.ways) + " way(s)" + (region.committed ? "" : ", not committed"));
  require_single(region);
  if (region.mode == "pmem") {
    std::optional<PmemRegion> below;
    wait_for([&] {
      for (const PmemRegion& p : pmem_regions())
        if (p.start != 0 && p.start == region.start) below = p;
      return below.has_value();
    });
    if (!below)
      throw Failure(kAbsent,
                    "expected a pmem region below " + region.name +
                        ", found none; run it as root, with the module cxl_pmem loaded; the expander must have label "
                        "storage");
    return from_pmem_region(*below);
  }
  load_modules({"dax_cxl", "device_dax"});
  std::optional<DaxDevice> device;
  wait_for([&] {
    for (const DaxDevice& d : dax_devices())
      if (d.region == region.name && !device) device = d;
    return device.has_value();
  });
  if (!device)
    throw Failure(kAbsent, "expected a dax device on " + region.name +
                               ", found none; is the region enabled (cxl enable-region " + region.name + ")?");
  return ready(*device);
}

DaxDevice Provisioning::from_pmem_region(const PmemRegion& region) {
  found_.push_back("pmem region " + region.name + ": " + human_bytes(region.bytes) + ", " +
                   human_bytes(region.available) + " free");
  if (region.mappings == 0)
    throw Failure(kAbsent, "expected a pmem region on one device, found " + region.name +
                               " without a number in mappings; see 'ndctl list -R -v'");
  if (region.mappings > 1)
    throw Failure(kAbsent, "expected a pmem region on one device, found " + region.name + " interleaved over " +
                               std::to_string(region.mappings) +
                               ": no device of it sees whole objects, so none can trace");
  const auto existing = [&]() -> std::optional<DaxDevice> {
    for (const DaxDevice& d : dax_devices())
      if (lies_in(d, region)) return d;
    return std::nullopt;
  };
  if (!existing())
    change({"ndctl", "create-namespace", "-m", "devdax", "-a", "2M", "-r", region.name},
           "the region may hold another namespace: 'ndctl list -N -r " + region.name + "'");
  std::optional<DaxDevice> device;
  if (!wait_for([&] { return (device = existing()).has_value(); }))
    throw Failure(kAbsent,
                  "expected a dax device on " + region.name + " after making a namespace, found none; see dmesg");
  return ready(*device);
}

DaxDevice Provisioning::ready(DaxDevice device) {
  found_.push_back("dax device " + device.name + ": " + human_bytes(device.bytes) + ", align " +
                   human_bytes(device.align) + ", mode " + device.mode());
  if (device.mode() != "devdax") {
    require_unused(device);
    change({"daxctl", "reconfigure-device", "-m", "devdax", "-f", device.name},
           device.mode() == "system-ram"
               ? "the kernel onlined it as system memory and does not give it back: boot with "
                 "memhp_default_state=offline or keep the module kmem from loading"
               : "see dmesg");
    const bool there = wait_for([&] {
      const auto again = find_dax(device.name);
      if (again) device = *again;
      return again && again->mode() == "devdax";
    });
    if (!there)
      throw Failure(kAbsent, "expected " + device.name + " in mode devdax, found " + device.mode() +
                                 "; is the module device_dax there?");
  }
  if (device.align > MERAPI_MAPPED_ALIGNMENT)
    throw Failure(kAbsent, "expected an alignment of at most 2 MiB, found " + human_bytes(device.align) + " on " +
                               device.name + "; make it again: daxctl destroy-device and daxctl create-device -a 2M");
  if (device.bytes < MERAPI_MAPPED_ALIGNMENT)
    throw Failure(kAbsent, "expected a dax device with room for a window, found " + human_bytes(device.bytes) + " in " +
                               device.name + "; make it larger with 'daxctl reconfigure-device -s'");
  if (access(device.path.c_str(), F_OK) != 0)
    throw Failure(kAbsent, "expected the device node " + device.path + ", found none; is udev running?");
  if (access(device.path.c_str(), R_OK | W_OK) != 0)
    throw Failure(kDenied, "expected to read and write " + device.path + ", found: " + strerror(errno) +
                               "; give it to the user with --owner (as root) or with a udev rule");
  return device;
}

void Provisioning::require_tracer_lets_go(const DaxDevice& device, const Span& taken, const std::string& what) {
  if (const auto place = place_of(device)) let_go(place->expander, taken, what);  // else bound_tracer tells
}

void Provisioning::end_tracers(const std::string& expander, const Span& taken, const std::string& what) {
  for (const TracerFunction& t : let_go(expander, taken, what)) {
    if (const int code = set_tracer_bound(t, "window_bytes", 0); code != 0)
      throw system_failure(code, "expected to end " + t.name + ", a tracer that reaches " + what + "; see dmesg");
    did_.push_back("bounded " + t.name + " to nothing");
  }
}

void Provisioning::bound_tracer(const DaxDevice& device, const std::optional<Span>& taken) {
  const auto place = place_of(device);
  if (!place) {
    if (!device.region.empty())
      for (const TracerFunction& t : tracer_functions())
        found_.push_back("tracer " + t.name + ": left as it is: where in its expander " + device.name +
                         " lies cannot be told (dpa_resource of its decoder; physical addresses are root's)");
    return;
  }
  for (const TracerFunction& t : tracers_beside(place->expander)) {
    if (taken && !reaches(t, *taken)) continue;
    if (t.window_offset == place->offset && t.window_bytes == device.bytes) continue;
    const std::string bounds = human_bytes(device.bytes) + " from " + human_bytes(place->offset) + " of " +
                               place->expander + " on (" + device.name + ")";
    // It reaches nothing in between.
    int code = t.window_bytes != 0 ? set_tracer_bound(t, "window_bytes", 0) : 0;
    if (code == 0 && t.window_offset != place->offset) code = set_tracer_bound(t, "window_offset", place->offset);
    if (code == 0) code = set_tracer_bound(t, "window_bytes", device.bytes);
    if (code == 0) {
      did_.push_back("bounded " + t.name + " to " + bounds);
    } else if (code == EBUSY || code == EACCES || code == EPERM) {
      found_.push_back("tracer " + t.name + ": not bounded to " + bounds + ": " + strerror(code));
    } else {
      throw system_failure(code, "expected to bound " + t.name + " to " + bounds + "; see dmesg");
    }
  }
}

DaxDevice Provisioning::provision(const std::string& target, const std::string& type) {
  const DaxDevice device = device_of(target, type);
  bound_tracer(device);
  return device;
}

DaxDevice Provisioning::device_of(const std::string& target, const std::string& type) {
  std::string name = target.empty() ? only_target() : target;
  if (const auto device = find_dax(name)) {
    if (!device->region.empty()) {
      const std::vector<Region> all = regions();
      if (const Region* region = named(all, device->region)) require_single(*region);
    }
    return ready(*device);
  }
  const std::vector<Expander> memories = expanders();
  if (const Expander* expander = named(memories, name)) return from_expander(*expander, type);
  const std::vector<Region> cxl = regions();
  if (const Region* region = named(cxl, name)) return from_region(*region);
  const std::vector<PmemRegion> pmem = pmem_regions();
  if (const PmemRegion* region = named(pmem, name)) return from_pmem_region(*region);
  throw Failure(kAbsent, "expected an expander (memN), a region or a dax device, found nothing named '" + name +
                             "'; 'merapi list' shows what is there");
}

// The devdax namespaces of a pmem region; others are somebody else's data, and keep a region that is to go as a whole.
void Provisioning::release_pmem(const PmemRegion& region, bool whole) {
  found_.push_back("pmem region " + region.name);
  for (const DaxDevice& d : dax_devices())
    if (lies_in(d, region)) require_unused(d);
  const std::vector<std::string> list = {"ndctl", "list", "-N", "-r", region.name};
  const CommandResult listed = run_command(list);
  if (!listed.ok())
    throw Failure(listed.status == 127 ? kAbsent : kSystem, "expected '" + command_text(list) +
                                                                "' to work, found status " +
                                                                std::to_string(listed.status) + ": " + listed.err);
  json all = json::parse(listed.out, nullptr, false);
  // One namespace is listed as an object, several as an array, none as nothing.
  if (all.is_object()) all = json::array({all});
  if (!all.is_array()) return;
  for (const json& one : all)
    if (const std::string name = told(one, "dev", std::string()), mode = told(one, "mode", std::string());
        whole && mode != "devdax")
      throw Failure(kBusy, "expected namespaces of mode devdax alone in " + region.name + ", found " + name +
                               " of mode " + mode +
                               ", whose data would be lost; destroy it first (ndctl destroy-namespace)");
  for (const json& one : all)
    if (const std::string name = told(one, "dev", std::string());
        told(one, "mode", std::string()) == "devdax" && !name.empty())
      change({"ndctl", "destroy-namespace", "-f", name}, "see dmesg");
}

std::optional<Place> Provisioning::release(const std::string& target) {
  std::string region_name = target;
  const auto device = find_dax(target);
  const std::vector<Region> all = regions();
  if (device) {
    found_.push_back("dax device " + device->name + " in mode " + device->mode());
    region_name = device->region;
  } else {
    const std::vector<std::string> on = regions_on(target);
    std::string names;
    for (const std::string& name : on) names += (names.empty() ? "" : ", ") + name;
    if (on.size() > 1)
      throw Failure(kUsage, "expected one region on " + target + " to release, found " + names + "; name one");
    if (!on.empty()) region_name = on.front();
  }
  const Region* region = named(all, region_name);
  const std::vector<Expander> memories = expanders();
  for (const PmemRegion& pmem : pmem_regions()) {
    const bool same = region != nullptr ? pmem.start != 0 && pmem.start == region->start
                                        : pmem.name == target || (device && lies_in(*device, pmem));
    if (!same) continue;
    release_pmem(pmem, region != nullptr);
    if (region == nullptr) return std::nullopt;
  }
  if (region == nullptr) {
    if (!device && named(memories, target) == nullptr && !begins(target, "region"))
      throw Failure(kAbsent, "expected an expander, a region or a dax device, found nothing named '" + target + "'");
    found_.push_back(device ? device->name + " belongs to no CXL region: nothing of ours to undo"
                            : "no region: nothing to undo");
    return std::nullopt;
  }
  found_.push_back("region " + region->name);
  for (const DaxDevice& d : dax_devices()) {
    if (d.region != region->name) continue;
    require_unused(d);
    if (d.mode() == "system-ram")
      throw Failure(kBusy, "expected " + d.name +
                               " not to be system memory, found that it is; offline it first: daxctl "
                               "offline-memory " +
                               d.name);
  }
  const auto place = place_of(*region);
  if (place) end_tracers(place->expander, {place->offset, region->bytes}, region->name);
  change({"cxl", "disable-region", region->name}, "see dmesg");
  change({"cxl", "destroy-region", region->name}, "see dmesg");
  return place;
}

}  // namespace merapi::cli
