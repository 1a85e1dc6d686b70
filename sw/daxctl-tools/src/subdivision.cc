// SPDX-License-Identifier: Apache-2.0
#include "subdivision.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "merapi/contract.h"
#include "merapi/merapi.h"

namespace merapi::cli {
namespace {

// Whoever provisions as an ordinary user may read it.
constexpr mode_t kRecordMode = 0644;

// A dax region's number: the X of its devices daxX.Y.
std::string region_number(const DaxDevice& device) { return device.name.substr(3, device.name.find('.') - 3); }

// Folders mapping0, mapping1, ...; "mapping" itself is where one is asked for.
unsigned extents(const DaxDevice& device) {
  const std::string head = "mapping";
  unsigned count = 0;
  for (const std::string& entry : entries(sysfs_root() + "/bus/dax/devices/" + device.name))
    count += entry.rfind(head, 0) == 0 && entry.size() > head.size();
  return count;
}

void shrink(Provisioning* work, const std::string& name, uint64_t by) {
  const auto device = find_dax(name);
  if (!device) throw Failure(kAbsent, "expected a dax device named '" + name + "', found none");
  Provisioning::require_unused(*device);
  if (device->bytes <= by)
    throw Failure(kAbsent,
                  "expected more than " + human_bytes(by) + " in " + name + ", found " + human_bytes(device->bytes));
  const auto place = place_of(*device);
  const std::optional<Span> taken = place ? std::optional(Span{place->offset + device->bytes - by, by}) : std::nullopt;
  if (taken) Provisioning::require_tracer_lets_go(*device, *taken, "what is to be taken from " + device->name);
  const char* words = "see dmesg; a device in use cannot shrink";
  work->change({"daxctl", "disable-device", device->name}, words);
  try {
    work->change({"daxctl", "reconfigure-device", "-s", std::to_string(device->bytes - by), device->name}, words);
  } catch (const Failure&) {
    run_command({"daxctl", "enable-device", device->name});  // as it was
    throw;
  }
  work->change({"daxctl", "enable-device", device->name}, words);
  if (const auto smaller = find_dax(name)) work->bound_tracer(*smaller, taken);
}

// A tracer may reach a window that was made of free room: one that was bounded by hand, or to a window that went
// without this command.
void keep_tracers_away(Provisioning* work, const DaxDevice& made, const std::string& sibling) {
  const auto place = place_of(made);
  if (!place) return;
  const Span taken{place->offset, made.bytes};
  try {
    Provisioning::require_tracer_lets_go(made, taken, "the room of the new window");
  } catch (const Failure&) {
    unmake_window(work, made);
    throw;
  }
  if (const auto first = find_dax(sibling)) work->bound_tracer(*first, taken);
}

bool further(const DaxDevice& device) { return device.name.substr(device.name.find('.')) != ".0"; }

}  // namespace

std::string WindowRecord::path() {
  const char* given = getenv("MERAPI_STATE");
  return given != nullptr && *given != '\0' ? given : "/var/lib/merapi/windows.json";
}

WindowRecord::WindowRecord() {
  std::string text;
  errno = 0;
  if (!read_text(path(), &text)) {
    if (errno == ENOENT) return;
    throw system_failure(errno != 0 ? errno : EIO, "expected to read the record of windows at " + path() + ", found");
  }
  const auto refuse = [](const std::string& found) {
    throw Failure(kAbsent, "expected sizes of windows by region in " + path() + ", found something else (" + found +
                               "); remove it, and make the windows again");
  };
  try {
    json::parse(text).get_to(all_);
  } catch (const json::exception& e) {
    refuse(e.what());
  }
  for (const auto& [serial, sizes] : all_)
    for (const uint64_t bytes : sizes)
      if (bytes == 0 || bytes % MERAPI_MAPPED_ALIGNMENT != 0 || bytes > INT64_MAX)
        refuse("a window of " + std::to_string(bytes) + " bytes");
}

std::vector<uint64_t> WindowRecord::of(const std::string& key) const {
  const auto found = all_.find(key);
  return found != all_.end() ? found->second : std::vector<uint64_t>();
}

void WindowRecord::add(const std::string& key, uint64_t bytes) { all_[key].push_back(bytes); }

void WindowRecord::remove(const std::string& key, uint64_t bytes) {
  std::vector<uint64_t>& sizes = all_[key];
  const auto last = std::find(sizes.rbegin(), sizes.rend(), bytes);
  if (last != sizes.rend()) sizes.erase(std::next(last).base());
  if (sizes.empty()) all_.erase(key);
}

void WindowRecord::forget(const std::string& key) { all_.erase(key); }

int WindowRecord::save() const {
  std::error_code error;
  if (const auto folder = std::filesystem::path(path()).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, error);
  if (error) return error.value();
  merapi_output* output = nullptr;
  if (const int status = merapi_output_open(path().c_str(), &output, nullptr); status < 0) return -status;
  const std::string text = json(all_).dump(1) + "\n";
  const int fd = merapi_output_fd(output);
  int code = fchmod(fd, kRecordMode) < 0 ? errno : 0;
  for (size_t done = 0; code == 0 && done < text.size();) {
    const ssize_t more = write(fd, text.data() + done, text.size() - done);
    if (more > 0)
      done += size_t(more);
    else if (more == 0 || errno != EINTR)
      code = more == 0 ? EIO : errno;
  }
  if (code == 0) return -merapi_output_commit(output, nullptr);
  merapi_output_abandon(output);
  return code;
}

std::string WindowRecord::unwritten(int code, const std::string& consequence) {
  return "expected to write " + path() + ", found: " + strerror(code) + "; " + consequence;
}

RecordTurn::RecordTurn() {
  const std::filesystem::path path = WindowRecord::path() + ".lock";
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0 || flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  say("waiting for another process that makes or removes windows");
  while (flock(fd_, LOCK_EX) < 0 && errno == EINTR) {
  }
}

RecordTurn::~RecordTurn() {
  if (fd_ >= 0) close(fd_);
}

std::string record_key(const std::optional<Place>& region) {
  if (!region) return "";
  for (const Expander& e : expanders()) {
    if (e.name != region->expander) continue;
    if (e.serial.empty() || strtoull(e.serial.c_str(), nullptr, 0) == 0) return "";
    char at[24] = "";
    if (region->offset != 0) snprintf(at, sizeof at, "@0x%" PRIx64, region->offset);
    return e.serial + at;
  }
  return "";
}

std::string record_key(const DaxDevice& device) {
  for (const Region& r : regions())
    if (!device.region.empty() && r.name == device.region) return record_key(place_of(r));
  return "";
}

void unmake_window(Provisioning* work, const DaxDevice& device) {
  if (!device.driver.empty()) work->change({"daxctl", "disable-device", device.name}, "see dmesg");
  work->change({"daxctl", "destroy-device", device.name}, "see dmesg");
}

DaxDevice make_window(Provisioning* work, const DaxDevice& sibling, uint64_t bytes, const std::string& shrunk) {
  if (const auto device = find_dax(shrunk); device && device->parent != sibling.parent)
    throw Failure(kUsage, "expected --shrink to name a device of the region that " + sibling.name + " lies in, found " +
                              device->name + " of another one; nothing was changed");
  const auto available = number(sibling.parent + "/dax_region/available_size");
  const bool taken = available && *available < bytes;
  if (taken) {
    if (shrunk.empty())
      throw Failure(kAbsent, "expected " + human_bytes(bytes) + " free in the region of " + sibling.name + ", found " +
                                 human_bytes(*available) + "; name a device to take it from with --shrink");
    shrink(work, shrunk, bytes - *available);
  }
  std::vector<std::string> before;
  for (const DaxDevice& d : dax_devices()) before.push_back(d.name);
  work->change({"daxctl", "create-device", "-r", region_number(sibling), "-s", std::to_string(bytes), "-a", "2097152"},
               "the region may have no contiguous room; 'daxctl list -R' shows it");
  for (const DaxDevice& d : dax_devices()) {
    if (std::count(before.begin(), before.end(), d.name) != 0) continue;
    const unsigned pieces = extents(d);
    if (pieces > 1) {
      unmake_window(work, d);
      throw Failure(kAbsent, "expected one extent for a window, found " + std::to_string(pieces) + " in " + d.name +
                                 ", which is gone again: the free room is in pieces; destroy windows between them");
    }
    if (!taken) keep_tracers_away(work, d, sibling.name);  // what was taken they have let go
    return d;
  }
  throw Failure(kSystem, "expected a new dax device after 'daxctl create-device', found none; see dmesg");
}

std::vector<DaxDevice> restore_windows(Provisioning* work, const DaxDevice& first) {
  std::vector<DaxDevice> there;
  for (const DaxDevice& d : dax_devices())
    if (d.parent == first.parent && further(d)) there.push_back(d);
  const std::string key = record_key(first);
  if (key.empty() || further(first)) return there;
  std::vector<uint64_t> sizes;
  for (const DaxDevice& d : there) sizes.push_back(d.bytes);
  for (const uint64_t bytes : WindowRecord().of(key)) {
    const auto same = std::find(sizes.begin(), sizes.end(), bytes);
    if (same != sizes.end()) {
      sizes.erase(same);
    } else {
      there.push_back(make_window(work, first, bytes, first.name));
    }
  }
  return there;
}

}  // namespace merapi::cli
