// SPDX-License-Identifier: Apache-2.0
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/json_text.h"
#include "cli/truncation.h"
#include "graph/names.h"

namespace merapi::cli {
namespace {

// Where a window of `bytes` fits: tmpfs reserves nothing, so half of what is free is taken as the limit.
std::string scratch_folder(uint64_t bytes, const std::string& beside) {
  struct statvfs room {};
  if (statvfs("/dev/shm", &room) == 0 && access("/dev/shm", W_OK) == 0 &&
      uint64_t(room.f_bavail) * room.f_frsize / 2 > bytes)
    return "/dev/shm";
  std::filesystem::path folder = std::filesystem::path(beside).parent_path();
  return folder.empty() ? "." : folder.string();
}

// Not executable, where the kernel knows that.
int memory_file() {
#ifdef MFD_NOEXEC_SEAL
  const int fd = memfd_create("merapi", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) return fd;
#endif
  return memfd_create("merapi", MFD_CLOEXEC);
}

// A file without a name in this folder, or -1. Where the file system has no such thing it loses its name at once.
int nameless_file(const std::string& folder) {
  int fd = open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string path = folder + "/merapi-XXXXXX";
  fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

// A window that `image` fits into, in a file without a name: nothing is left behind, however its user ends.
Window nameless_window(const Image& image) {
  const uint64_t bytes = merapi_image_window_bytes(image.get());
  const std::string folder = scratch_folder(bytes, image.path());
  struct File {
    int fd;
    ~File() { close(fd); }
  } file{nameless_file(folder)};
  if (file.fd < 0) {
    const int code = errno;
    file.fd = memory_file();
    if (file.fd < 0)
      throw system_failure(code, "cannot make a file in " + folder + ", nor one in memory, to unpack " + image.path());
  }
  const merapi_geometry geometry = image.geometry();
  return Window("file:/proc/self/fd/" + std::to_string(file.fd), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE);
}

graph::Error became_smaller(const std::string& name) {
  return graph::Error(
      -EBADMSG, "expected a control page in " + name + ", found that its file became smaller; make the window again");
}

// Through a file: where the memory is gone a system call fails, and a load would end the process.
void copy_page(const Window& window, const uint8_t* base, uint8_t* to) {
  static const int file = memory_file();
  const ssize_t written = file < 0 ? -1 : pwrite(file, base, MERAPI_CONTROL_BYTES, 0);
  if (file >= 0 && written < 0 && errno == EFAULT) throw became_smaller(window.name());
  if (written != MERAPI_CONTROL_BYTES || pread(file, to, MERAPI_CONTROL_BYTES, 0) != ssize_t(MERAPI_CONTROL_BYTES))
    memcpy(to, base, MERAPI_CONTROL_BYTES);
}

}  // namespace

bool ControlPage::attached() const {
  return host_index.generation != 0 && host_index.generation % 2 == 0 &&
         device_index.generation == host_index.generation;
}

Window look_into(const std::string& name) {
  const HeldTruncation held;
  Window window = Window::inspect(name);
  if (held.seen()) throw became_smaller(name);
  return window;
}

ControlPage::ControlPage(const Window& window) {
  const HeldTruncation held;
  // The metadata is contiguous from offset 0 (struct merapi_layout), and the submission ring is part of it.
  const uint8_t* base = window.area(MERAPI_AREA_SUBMISSION) - window.layout().area[MERAPI_AREA_SUBMISSION].offset;
  merapi_invalidate(window.get(), base, MERAPI_CONTROL_BYTES);
  uint8_t page[MERAPI_CONTROL_BYTES];
  copy_page(window, base, page);
  if (held.seen()) throw became_smaller(window.name());
  const auto copy = [&page](auto* to, uint32_t offset) { memcpy(to, page + offset, sizeof *to); };
  copy(&identity, MERAPI_IDENTITY_OFFSET);
  copy(&config, MERAPI_CONFIG_OFFSET);
  copy(&host_index, MERAPI_HOST_INDEX_OFFSET);
  copy(&host_request, MERAPI_HOST_REQUEST_OFFSET);
  copy(&device, MERAPI_DEVICE_IDENTITY_OFFSET);
  copy(&device_index, MERAPI_DEVICE_INDEX_OFFSET);
  copy(&device_ack, MERAPI_DEVICE_ACK_OFFSET);
  copy(&idle, MERAPI_IDLE_RECORD_OFFSET);
  copy(&fault, MERAPI_FAULT_RECORD_OFFSET);
  copy(&counters, MERAPI_COUNTERS_OFFSET);
}

json image_text(const Image& image) {
  json value = parse_json(image.text());
  if (value.is_object()) return value;
  return {{"text", image.text()}};
}

std::string path_of(const std::string& name) { return name.rfind("file:", 0) == 0 ? name.substr(5) : name; }

const std::string& window_that_stays(const std::string& name) {
  std::error_code absent;
  if (name.rfind("device:", 0) == 0 || std::filesystem::is_socket(name, absent))
    throw Failure(kUsage, "expected a window that stays (file:PATH, dax:PATH), found " + name +
                              ", a device's, which is gone when its last user is; 'merapi replay' uses such windows");
  return name;
}

bool is_image(const std::string& path) {
  static const char kMagic[8] = {'M', 'E', 'R', 'A', 'P', 'I', 'M', 'G'};
  char found[sizeof kMagic];
  struct stat status {};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool same = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                    pread(fd, found, sizeof found, 0) == ssize_t(sizeof found) &&
                    memcmp(found, kMagic, sizeof found) == 0;
  close(fd);
  return same;
}

bool is_cut_off(const std::string& path) {
  merapi_identity identity{};
  uint64_t generation = 0;
  struct stat status {};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool read = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                    pread(fd, &identity, sizeof identity, MERAPI_IDENTITY_OFFSET) == ssize_t(sizeof identity) &&
                    pread(fd, &generation, sizeof generation, MERAPI_HOST_INDEX_OFFSET) == ssize_t(sizeof generation);
  close(fd);
  // As libmerapi knows them (merapi_was_window): only the magic is taken away meanwhile.
  return read && identity.magic == 0 && identity.version_major == MERAPI_VERSION_MAJOR &&
         identity.control_bytes == MERAPI_CONTROL_BYTES && generation % 2 == 1;
}

Window unpack(const Image& image) {
  Window window = nameless_window(image);
  window.load(image);
  return window;
}

json describe_config(const merapi_config& c) {
  return {{"heap_base", c.heap_base},
          {"narrow_oop_base", c.narrow_oop_base},
          {"narrow_oop_shift", c.narrow_oop_shift},
          {"oop_bytes", c.oop_bytes},
          {"klass_bytes", c.klass_bytes},
          {"alignment_bytes", uint64_t(1) << (c.alignment_log2 & 63)},
          {"region_bytes", uint64_t(1) << (c.region_log2 & 63)},
          {"region_count", c.region_count},
          {"coherence", graph::coherence_name(c.coherence)},
          {"mirror_size_offset", c.mirror_size_offset}};
}

json describe_device(const ControlPage& control) {
  const merapi_device_identity& d = control.device;
  if (d.magic != MERAPI_DEVICE_MAGIC) return nullptr;
  const char* name = reinterpret_cast<const char*>(d.name);
  json capabilities = json::array();
  for (const auto& [bit, text] : graph::capability_names())
    if (d.capabilities >> bit & 1) capabilities.push_back(text);
  return {{"name", std::string(name, strnlen(name, sizeof d.name))},
          {"kind", merapi_kind_name(d.kind)},
          {"pid", d.pid},
          {"contract", std::to_string(d.version_major) + "." + std::to_string(d.version_minor)},
          {"coherence", graph::coherence_name(d.coherence)},
          {"lanes", d.lanes},
          {"patience_us", d.patience_us},
          {"window_bytes", d.window_bytes},
          {"capabilities", capabilities},
          {"state", graph::state_name(control.device_index.state)}};
}

json describe_counters(const uint64_t* counters) {
  json all = json::object();
  for (const auto& [index, name] : graph::counter_names()) all[name] = counters[index];
  return all;
}

json describe_layout(const merapi_layout& layout) {
  json areas = json::array();
  for (const auto& [index, name] : graph::area_names()) {
    const merapi_area_desc& area = layout.area[index];
    if (area.size != 0) areas.push_back({{"area", name}, {"offset", area.offset}, {"bytes", area.size}});
  }
  std::sort(areas.begin(), areas.end(), [](const json& a, const json& b) { return a["offset"] < b["offset"]; });
  return areas;
}

json describe_trace(const graph::TraceResult& r) {
  const char* name = reinterpret_cast<const char*>(r.device.name);
  return {{"device", std::string(name, strnlen(name, sizeof r.device.name))},
          {"kind", merapi_kind_name(r.device.kind)},
          {"cycle", r.cycle},
          {"ms", r.seconds * 1e3},
          {"device_ms", double(r.counters[MERAPI_COUNTER_NANOSECONDS]) / 1e6},
          {"objects", r.counters[MERAPI_COUNTER_OBJECTS_MARKED]},
          {"references", r.counters[MERAPI_COUNTER_REFERENCES_READ]},
          {"live_bytes", r.counters[MERAPI_COUNTER_LIVE_WORDS] * 8},
          {"deferred", r.deferred.size()},
          {"shapes_seen", r.klasses.size()},
          {"answers", r.answers},
          {"counters", describe_counters(r.counters)}};
}

}  // namespace merapi::cli
