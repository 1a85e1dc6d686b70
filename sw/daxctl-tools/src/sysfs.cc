// SPDX-License-Identifier: Apache-2.0
#include "sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli.h"

namespace merapi::cli {
namespace {

namespace fs = std::filesystem;

std::string from_environment(const char* variable, const char* otherwise) {
  const char* value = getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

bool begins(const std::string& text, const std::string& head) { return text.rfind(head, 0) == 0; }

// Order of people: digits by their value.
bool before(const std::string& a, const std::string& b) {
  size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (isdigit(static_cast<unsigned char>(a[i])) && isdigit(static_cast<unsigned char>(b[k]))) {
      size_t i2 = i, k2 = k;
      while (i2 < a.size() && isdigit(static_cast<unsigned char>(a[i2]))) i2++;
      while (k2 < b.size() && isdigit(static_cast<unsigned char>(b[k2]))) k2++;
      const std::string x = a.substr(i, i2 - i), y = b.substr(k, k2 - k);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i = i2;
      k = k2;
    } else if (a[i] != b[k]) {
      return a[i] < b[k];
    } else {
      i++;
      k++;
    }
  }
  return a.size() - i < b.size() - k;
}

// Where a link of sysfs leads, as a path without links; the path itself when that is not known.
std::string resolved(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) != nullptr ? real : path;
}

std::string driver_of(const std::string& device) {
  const std::string link = device + "/driver";
  std::error_code error;
  if (!fs::exists(link, error)) return "";
  return fs::path(resolved(link)).filename().string();
}

// The last folder name in `path` that starts with `head` and goes on with a digit.
std::string component(const std::string& path, const std::string& head) {
  std::string found;
  for (const fs::path& part : fs::path(path)) {
    const std::string name = part.string();
    if (begins(name, head) && name.size() > head.size() && isdigit(static_cast<unsigned char>(name[head.size()])))
      found = name;
  }
  return found;
}

// Expanders that a region may have at most (CXL 3: 16).
constexpr uint64_t kTargets = 16;

uint64_t number_or(const std::string& path, uint64_t otherwise) { return number(path).value_or(otherwise); }

std::string bound_path(const TracerFunction& function, const std::string& attribute) {
  return sysfs_root() + "/class/misc/" + function.name + "/device/" + attribute;
}

}  // namespace

std::string sysfs_root() { return from_environment("MERAPI_SYSFS_ROOT", "/sys"); }
std::string dev_root() { return from_environment("MERAPI_DEV_ROOT", "/dev"); }
std::string proc_root() { return from_environment("MERAPI_PROC_ROOT", "/proc"); }

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end(), before);
  return names;
}

std::optional<std::string> attribute(const std::string& path) {
  std::string text;
  if (!read_text(path, &text)) return std::nullopt;
  return text;
}

std::optional<uint64_t> number(const std::string& path) {
  const auto text = attribute(path);
  if (!text || text->empty() || !isdigit(static_cast<unsigned char>(text->front()))) return std::nullopt;
  char* end;
  errno = 0;
  const uint64_t value = strtoull(text->c_str(), &end, 0);
  if (errno != 0 || end != text->c_str() + text->size()) return std::nullopt;
  return value;
}

std::vector<Expander> expanders() {
  const std::string bus = sysfs_root() + "/bus/cxl/devices/";
  std::vector<Expander> found;
  for (const std::string& name : entries(bus)) {
    if (!begins(name, "mem") || name.size() == 3 || !isdigit(static_cast<unsigned char>(name[3]))) continue;
    const std::string device = bus + name;
    Expander e;
    e.name = name;
    e.serial = attribute(device + "/serial").value_or("");
    e.volatile_bytes = number_or(device + "/ram/size", 0);
    e.persistent_bytes = number_or(device + "/pmem/size", 0);
    if (const auto node = attribute(device + "/numa_node")) e.numa_node = atoi(node->c_str());
    e.driver = driver_of(device);
    e.pci = fs::path(resolved(device)).parent_path().filename().string();
    found.push_back(e);
  }
  return found;
}

std::vector<Region> regions() {
  const std::string bus = sysfs_root() + "/bus/cxl/devices/";
  std::vector<Region> found;
  for (const std::string& name : entries(bus)) {
    if (!begins(name, "region") || name.size() == 6) continue;
    const std::string device = bus + name;
    Region r;
    r.name = name;
    r.mode = attribute(device + "/mode").value_or("");
    r.start = number_or(device + "/resource", 0);
    r.bytes = number_or(device + "/size", 0);
    r.ways = number_or(device + "/interleave_ways", 0);
    r.granularity = number_or(device + "/interleave_granularity", 0);
    r.committed = number_or(device + "/commit", 0) == 1;
    for (uint64_t i = 0; i < std::min(r.ways, kTargets); i++) {
      const auto target = attribute(device + "/target" + std::to_string(i));
      if (!target || target->empty()) continue;
      r.endpoints.push_back(*target);
      // An endpoint decoder lies below its endpoint port, whose uport is the memory device.
      const fs::path decoder = resolved(bus + *target);
      const std::string memory = fs::path(resolved((decoder.parent_path() / "uport").string())).filename().string();
      if (begins(memory, "mem")) r.expanders.push_back(memory);
    }
    for (const std::string& child : entries(device))
      if (begins(child, "dax_region")) r.dax_region = child;
    found.push_back(r);
  }
  return found;
}

bool is_dax_name(const std::string& name) {
  const size_t dot = name.find('.');
  if (!begins(name, "dax") || dot == name.npos) return false;
  const std::string numbers[] = {name.substr(3, dot - 3), name.substr(dot + 1)};
  return std::all_of(std::begin(numbers), std::end(numbers), [](const std::string& number) {
    return !number.empty() && number.find_first_not_of("0123456789") == number.npos;
  });
}

std::vector<DaxDevice> dax_devices() {
  const std::string bus = sysfs_root() + "/bus/dax/devices/";
  std::vector<DaxDevice> found;
  for (const std::string& name : entries(bus)) {
    if (!is_dax_name(name)) continue;
    const std::string device = bus + name, real = resolved(device);
    DaxDevice d;
    d.name = name;
    d.path = dev_root() + "/" + name;
    d.bytes = number_or(device + "/size", 0);
    d.align = number_or(device + "/align", 0);
    if (const auto node = attribute(device + "/target_node")) d.target_node = atoi(node->c_str());
    d.start = number_or(device + "/resource", 0);
    d.driver = driver_of(device);
    d.region = begins(component(real, "region"), "region") && real.find("/ndbus") == std::string::npos
                   ? component(real, "region")
                   : "";
    d.parent = fs::path(real).parent_path().string();
    found.push_back(d);
  }
  return found;
}

std::optional<DaxDevice> find_dax(const std::string& name) {
  const std::string wanted = begins(name, "dax:") ? name.substr(4) : name;
  std::error_code error;
  for (const DaxDevice& d : dax_devices())
    if (wanted == d.name || wanted == "/dev/" + d.name || fs::equivalent(wanted, d.path, error)) return d;
  return std::nullopt;
}

std::vector<PmemRegion> pmem_regions() {
  const std::string bus = sysfs_root() + "/bus/nd/devices/";
  std::vector<PmemRegion> found;
  for (const std::string& name : entries(bus)) {
    if (!begins(name, "region")) continue;
    const std::string device = bus + name;
    PmemRegion r;
    r.name = name;
    r.bytes = number_or(device + "/size", 0);
    r.available = number_or(device + "/available_size", 0);
    r.mappings = number_or(device + "/mappings", 0);
    r.start = number_or(device + "/resource", 0);
    found.push_back(r);
  }
  return found;
}

std::vector<TracerFunction> tracer_functions() {
  std::vector<TracerFunction> found;
  const std::string folder = sysfs_root() + "/class/misc";
  for (const std::string& name : entries(folder)) {
    const std::string device = folder + "/" + name + "/device";
    const auto bytes = number(device + "/window_bytes");
    if (name.rfind("merapi", 0) != 0 || !bytes) continue;
    std::error_code error;
    const std::string pci = fs::canonical(device, error).filename().string();
    const auto engines = number(device + "/engines");
    found.push_back({name, dev_root() + "/" + name, pci, number_or(device + "/memory_bytes", 0),
                     number_or(device + "/window_offset", 0), *bytes, number_or(device + "/interrupts", 0),
                     engines.value_or(0), engines.has_value()});
  }
  return found;
}

bool beside(const TracerFunction& function, const Expander& expander) {
  // Functions of one slot differ in what follows the dot.
  const auto slot = [](const std::string& pci) { return pci.substr(0, pci.rfind('.')); };
  return slot(function.pci) == slot(expander.pci);
}

int tracer_bound_refused(const TracerFunction& function) {
  return access(bound_path(function, "window_bytes").c_str(), W_OK) == 0 ? 0 : errno;
}

int set_tracer_bound(const TracerFunction& function, const std::string& attribute, uint64_t value) {
  const int fd = open(bound_path(function, attribute).c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC);
  if (fd < 0) return errno;
  const std::string text = std::to_string(value) + "\n";
  const int code = write(fd, text.data(), text.size()) == ssize_t(text.size()) ? 0 : errno;
  close(fd);
  return code;
}

std::optional<Place> place_of(const Region& region) {
  if (region.expanders.size() != 1 || region.ways != 1) return std::nullopt;
  // Its endpoint decoder says it, all ones when it has no memory. Nothing is assumed, since a tracer that is bounded to
  // another place writes over what is there.
  const auto base = number(sysfs_root() + "/bus/cxl/devices/" + region.endpoints.front() + "/dpa_resource");
  if (!base || *base == UINT64_MAX) return std::nullopt;
  return Place{region.expanders.front(), *base};
}

std::optional<Place> place_of(const DaxDevice& device) {
  if (device.start == 0) return std::nullopt;
  for (const Region& r : regions()) {
    if (r.start == 0 || device.start < r.start || device.start - r.start >= r.bytes) continue;
    auto place = place_of(r);
    if (!place || place->offset > UINT64_MAX - (device.start - r.start)) return std::nullopt;
    place->offset += device.start - r.start;
    return place;
  }
  return std::nullopt;
}

bool module_present(const std::string& name) {
  std::error_code error;
  if (fs::exists(sysfs_root() + "/module/" + name, error)) return true;
  utsname kernel{};
  uname(&kernel);
  const std::string modules = from_environment("MERAPI_MODULES_ROOT", "/lib/modules");
  std::ifstream builtin(modules + "/" + kernel.release + "/modules.builtin");
  std::string wanted = "/" + name + ".ko";
  for (std::string line; std::getline(builtin, line);) {
    std::replace(line.begin(), line.end(), '-', '_');
    if (line.size() >= wanted.size() && line.compare(line.size() - wanted.size(), wanted.size(), wanted) == 0)
      return true;
  }
  return false;
}

}  // namespace merapi::cli
