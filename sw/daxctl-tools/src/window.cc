// SPDX-License-Identifier: Apache-2.0
#include "window.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "names.h"

namespace merapi::cli {
namespace {

void truncated(int) {
  static const char kText[] =
      "merapi: expected the window's file to keep its size, found that it became smaller while it was mapped; make the "
      "window again\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(kAbsent);
}

// Where a window of `bytes` fits: tmpfs reserves nothing, so half of what is free is taken as the limit.
std::string scratch_folder(uint64_t bytes, const std::string& beside) {
  struct statvfs room {};
  if (statvfs("/dev/shm", &room) == 0 && access("/dev/shm", W_OK) == 0 &&
      uint64_t(room.f_bavail) * room.f_frsize / 2 > bytes)
    return "/dev/shm";
  std::filesystem::path folder = std::filesystem::path(beside).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace

void catch_truncation() {
  struct sigaction action {};
  action.sa_handler = truncated;
  sigaction(SIGBUS, &action, nullptr);
}

bool ControlPage::attached() const {
  return host_index.generation != 0 && host_index.generation % 2 == 0 &&
         device_index.generation == host_index.generation;
}

Window::Window(const std::string& name, const merapi_geometry* geometry, uint32_t flags) : name_(name) {
  merapi_error error{};
  merapi_window* window = nullptr;
  const int status = merapi_open(name.c_str(), geometry, flags, &window, &error);
  window_.reset(window);
  if (status < 0) throw Failure(exit_of(status), error.message);
}

ControlPage Window::control() const {
  // The metadata is contiguous from offset 0 (struct merapi_layout), and the submission ring is part of it.
  const uint8_t* base = area(MERAPI_AREA_SUBMISSION) - layout().area[MERAPI_AREA_SUBMISSION].offset;
  merapi_invalidate(get(), base, MERAPI_CONTROL_BYTES);
  ControlPage c;
  const auto copy = [base](auto* to, uint32_t offset) { memcpy(to, base + offset, sizeof *to); };
  copy(&c.identity, MERAPI_IDENTITY_OFFSET);
  copy(&c.config, MERAPI_CONFIG_OFFSET);
  copy(&c.host_index, MERAPI_HOST_INDEX_OFFSET);
  copy(&c.host_request, MERAPI_HOST_REQUEST_OFFSET);
  copy(&c.device, MERAPI_DEVICE_IDENTITY_OFFSET);
  copy(&c.device_index, MERAPI_DEVICE_INDEX_OFFSET);
  copy(&c.device_ack, MERAPI_DEVICE_ACK_OFFSET);
  copy(&c.idle, MERAPI_IDLE_RECORD_OFFSET);
  copy(&c.fault, MERAPI_FAULT_RECORD_OFFSET);
  copy(&c.counters, MERAPI_COUNTERS_OFFSET);
  return c;
}

uint8_t* Window::area(merapi_area which) const {
  void* address = merapi_map_area(get(), which);
  if (address == nullptr) throw system_failure(errno, name_ + ": cannot map the area " + area_name(which));
  return static_cast<uint8_t*>(address);
}

Image::Image(const std::string& path) : path_(path) {
  merapi_error error{};
  merapi_image* image = nullptr;
  const int status = merapi_image_open(path.c_str(), &image, &error);
  image_.reset(image);
  if (status < 0) throw Failure(exit_of(status), error.message);
}

merapi_geometry Image::geometry() const {
  merapi_geometry geometry{};
  merapi_image_geometry(get(), &geometry);
  return geometry;
}

json Image::text() const {
  const char* text = merapi_image_json(get());
  json value = json::parse(text, nullptr, false);
  if (value.is_object()) return value;
  return {{"text", text}};
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

Window unpack(const Image& image) {
  const std::string folder = scratch_folder(merapi_image_window_bytes(image.get()), image.path());
  std::string path = folder + "/merapi-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) throw system_failure(errno, "cannot make a file in " + folder + " to unpack " + image.path());
  // Opened under its name, then nameless: nothing is left behind, however this ends.
  struct Remove {
    int fd;
    const std::string& path;
    ~Remove() {
      unlink(path.c_str());
      close(fd);
    }
  } remove{fd, path};
  const merapi_geometry geometry = image.geometry();
  Window window("file:" + path, &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE);
  merapi_error error{};
  const int status = merapi_image_load(image.get(), window.get(), &error);
  if (status < 0) throw Failure(exit_of(status), error.message);
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
          {"coherence", coherence_name(c.coherence)},
          {"mirror_size_offset", c.mirror_size_offset}};
}

json describe_device(const ControlPage& control) {
  const merapi_device_identity& d = control.device;
  if (d.magic != MERAPI_DEVICE_MAGIC) return nullptr;
  const char* name = reinterpret_cast<const char*>(d.name);
  json capabilities = json::array();
  for (const auto& [bit, text] : capability_names())
    if (d.capabilities >> bit & 1) capabilities.push_back(text);
  return {{"name", std::string(name, strnlen(name, sizeof d.name))},
          {"kind", merapi_kind_name(d.kind)},
          {"pid", d.pid},
          {"contract", std::to_string(d.version_major) + "." + std::to_string(d.version_minor)},
          {"coherence", coherence_name(d.coherence)},
          {"lanes", d.lanes},
          {"patience_us", d.patience_us},
          {"window_bytes", d.window_bytes},
          {"capabilities", capabilities},
          {"state", state_name(control.device_index.state)}};
}

json describe_counters(const merapi_counters& counters) {
  json all = json::object();
  for (const auto& [index, name] : counter_names()) all[name] = counters.value[index];
  return all;
}

json describe_layout(const merapi_layout& layout) {
  json areas = json::array();
  for (const auto& [index, name] : area_names()) {
    const merapi_area_desc& area = layout.area[index];
    if (area.size != 0) areas.push_back({{"area", name}, {"offset", area.offset}, {"bytes", area.size}});
  }
  std::sort(areas.begin(), areas.end(), [](const json& a, const json& b) { return a["offset"] < b["offset"]; });
  return areas;
}

}  // namespace merapi::cli
