// SPDX-License-Identifier: Apache-2.0
//
// merapi create-window and destroy-window: several windows on one expander by dax subdivision, or windows in files.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "options.h"
#include "processes.h"
#include "provisioning.h"
#include "subdivision.h"
#include "window.h"

namespace merapi::cli {
namespace {

struct CreateOptions {
  std::string where;
  uint64_t size = 0, heap = 0, region = 0;
  std::string shrink;
  bool as_json = false;
};

struct DestroyOptions {
  std::string window;
  bool as_json = false;
};

unsigned log2_of(uint64_t value, const char* what) {
  if (value == 0 || (value & (value - 1)) != 0)
    throw Failure(kUsage, std::string("expected a power of two for ") + what + ", found " + std::to_string(value));
  return unsigned(__builtin_ctzll(value));
}

int create_file(const CreateOptions& o) {
  if (o.heap == 0) throw Failure(kUsage, "expected --heap SIZE for a window in a file, found none");
  merapi_geometry geometry{};
  geometry.heap_bytes = o.heap;
  geometry.region_log2 = uint8_t(log2_of(o.region == 0 ? uint64_t(1) << 20 : o.region, "--region"));
  geometry.alignment_log2 = 3;
  const Window window("file:" + path_of(o.where), &geometry, MERAPI_OPEN_FORMAT | MERAPI_OPEN_CREATE);
  const json result = {{"window", window.name()}, {"bytes", window.bytes()}, {"did", {"laid out " + path_of(o.where)}}};
  if (o.as_json) {
    print(result);
  } else {
    printf("%s (%s)\n", window.name().c_str(), human_bytes(window.bytes()).c_str());
  }
  return kOk;
}

int create_dax(const CreateOptions& o) {
  const RecordTurn turn;
  const auto sibling = find_dax(o.where);
  if (!sibling)
    throw Failure(kAbsent, "expected a dax device whose region the window shares, found nothing named '" + o.where +
                               "'; for a window in a file give a path and --heap");
  if (o.size == 0 || o.size % MERAPI_MAPPED_ALIGNMENT != 0)
    throw Failure(kUsage, "expected --size as a multiple of 2 MiB, found " + std::to_string(o.size));
  Provisioning work(10);
  WindowRecord record;  // a damaged one is told before anything is made
  const DaxDevice made = make_window(&work, *sibling, o.size, o.shrink);
  const std::string forgotten = "the window is there, but is not made again after a reboot";
  if (const std::string key = record_key(made); key.empty()) {
    say("expected an expander with a serial number, and a region whose place in it the kernel tells, found none; " +
        forgotten);
  } else {
    record.add(key, made.bytes);
    if (const int code = record.save(); code != 0) say(WindowRecord::unwritten(code, forgotten));
  }
  if (o.as_json) {
    print({{"window", "dax:" + made.path}, {"bytes", made.bytes}, {"found", work.found()}, {"did", work.did()}});
  } else {
    for (const std::string& line : work.found()) printf("found  %s\n", line.c_str());
    printf("dax:%s (%s)\n", made.path.c_str(), human_bytes(made.bytes).c_str());
  }
  return kOk;
}

// A name that dax devices have, whether there is such a device or not.
bool names_dax(const std::string& where) {
  if (where.rfind("file:", 0) == 0) return false;
  const std::string name = where.rfind("/dev/", 0) == 0 ? where.substr(5) : where;
  return where.rfind("dax:", 0) == 0 || is_dax_name(name) || find_dax(where);
}

int create(const CreateOptions& o) {
  const bool dax = names_dax(o.where);
  const bool file = !dax && (o.where.rfind("file:", 0) == 0 || o.heap != 0);
  if (dax && (o.heap != 0 || o.region != 0))
    throw Failure(kUsage, "expected --size and --shrink for a window on the dax device " + o.where +
                              ", found --heap or --region; write file:" + o.where + " for a file of that name");
  if (file && (o.size != 0 || !o.shrink.empty()))
    throw Failure(kUsage, "expected --heap and --region for a window in the file " + path_of(o.where) +
                              ", found --size or --shrink; leave them out");
  return file ? create_file(o) : create_dax(o);
}

int destroy(const DestroyOptions& o) {
  Provisioning work(10);
  std::vector<std::string> did;
  int unrecorded = 0;
  std::optional<RecordTurn> turn;
  if (names_dax(o.window)) turn.emplace();
  if (const auto device = find_dax(o.window)) {
    Provisioning::require_unused(*device);
    if (device->name.substr(device->name.find('.')) == ".0")
      throw Failure(kUsage, "expected a window that create-window made, found " + device->name +
                                ": the first device of a region can shrink but not go away; 'merapi release' takes the "
                                "whole region back");
    const std::string key = record_key(*device);
    WindowRecord record;
    if (const auto place = place_of(*device))
      work.end_tracers(place->expander, {place->offset, device->bytes}, device->name);
    unmake_window(&work, *device);
    if (!key.empty()) {
      record.remove(key, device->bytes);
      unrecorded = record.save();
    }
    did = work.did();
  } else {
    const std::string path = path_of(o.window);
    struct stat status {};
    if (lstat(path.c_str(), &status) < 0) throw system_failure(errno, "expected a window at " + path);
    if (S_ISLNK(status.st_mode)) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(path, error).string();
      throw Failure(kAbsent, "expected a window's file at " + path + ", found a link to " + shown_text(target) +
                                 "; name the file itself, and remove the link with rm");
    }
    // Only what is a window, or was becoming one, and only while nobody has it. The host's lock says so when it is
    // opened; of a device /proc says more than its lock, where it is seen.
    const bool cut_off = is_cut_off(path);
    std::optional<Window> window;
    if (!cut_off) window.emplace("file:" + path, nullptr, 0);
    for (const User& user : users_of(path))
      throw Failure(kBusy, "expected nobody to use " + path + ", found " + shown_text(user.command) + "(" +
                               std::to_string(user.pid) + "); end it first");
    if (is_served(path))
      throw Failure(kBusy, "expected nobody to use " + path +
                               ", found a device's lock, of another user's process or of one in another container; end "
                               "that one first");
    if (cut_off) {
      merapi_geometry least{};
      least.heap_bytes = uint64_t(1) << 16;
      least.region_log2 = 16;
      least.alignment_log2 = 3;
      least.submission_entries = least.completion_entries = least.shape_slots = MERAPI_TABLE_ENTRIES_MIN;
      window.emplace("file:" + path, &least, MERAPI_OPEN_FORMAT);
    }
    if (unlink(path.c_str()) < 0) throw system_failure(errno, "cannot remove " + path);
    did.push_back("removed " + path);
  }
  if (o.as_json) {
    print({{"did", did}});
  } else {
    for (const std::string& line : did) printf("did    %s\n", line.c_str());
  }
  if (unrecorded != 0)
    throw Failure(exit_of_output(unrecorded),
                  WindowRecord::unwritten(unrecorded,
                                          "the window is gone, but the next 'merapi provision' makes it again: make "
                                          "that file writable, and destroy the window then"));
  return kOk;
}

}  // namespace

void add_windows(Cli& cli) {
  auto c = std::make_shared<CreateOptions>();
  Verb verb =
      cli.verb("create-window", "Make another window on an expander, or one in a file", [c] { return create(*c); });
  verb.option("where", c->where, "dax device whose region the window shares, or a file (file:PATH)").required();
  verb.option("--size", c->size, "dax: size of the window (512M, 2G, ...)").size().not_zero();
  verb.option("--shrink", c->shrink, "dax: device to take missing room from").not_empty();
  verb.option("--heap", c->heap, "file: size of the heap to lay out").size().not_zero();
  verb.option("--region", c->region, "file: size of a region (default 1M)").size().not_zero();
  verb.flag("--json", c->as_json, "print JSON");

  auto d = std::make_shared<DestroyOptions>();
  verb = cli.verb("destroy-window", "Remove a window that create-window made and nobody uses",
                  [d] { return destroy(*d); });
  verb.option("window", d->window, "dax device or window file").required().not_empty();
  verb.flag("--json", d->as_json, "print JSON");
}

}  // namespace merapi::cli
