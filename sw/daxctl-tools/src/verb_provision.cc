// SPDX-License-Identifier: Apache-2.0
//
// merapi provision and release: from bare memory to a ready window, and back.
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "options.h"
#include "provisioning.h"
#include "subdivision.h"

namespace merapi::cli {
namespace {

struct Options {
  std::string target, type, owner;
  double patience = 10;
  bool as_json = false;
};

// -1: stays as it is, as for chown(2).
struct Owner {
  uid_t user = uid_t(-1);
  gid_t group = gid_t(-1);
};

// A user's or group's number, which need not have a name. The largest is chown(2)'s for none.
std::optional<uint32_t> id_of(const std::string& text) {
  uint32_t id = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, id);
  if (error != std::errc() || rest != end || id == UINT32_MAX) return std::nullopt;
  return id;
}

// USER or USER:GROUP, each a name or else a number as chown(1) has it; without a group that of the user, if known.
Owner owner_of(const std::string& text) {
  Owner owner;
  const size_t colon = text.find(':');
  const std::string user_name = text.substr(0, colon);
  const std::optional<uint32_t> user_id = id_of(user_name);
  const passwd* user = getpwnam(user_name.c_str());
  if (user == nullptr && user_id) user = getpwuid(*user_id);
  if (user == nullptr && !user_id)
    throw Failure(kUsage, "expected a user's name or number in --owner, found '" + text + "'");
  owner.user = user != nullptr ? user->pw_uid : *user_id;
  if (user != nullptr) owner.group = user->pw_gid;
  if (colon == std::string::npos) return owner;
  const std::string group_name = text.substr(colon + 1);
  const std::optional<uint32_t> group_id = id_of(group_name);
  const group* named = getgrnam(group_name.c_str());
  if (named == nullptr && !group_id)
    throw Failure(kUsage, "expected a group's name or number in --owner, found '" + text + "'");
  owner.group = named != nullptr ? named->gr_gid : *group_id;
  return owner;
}

void give_to(const Owner& owner, const std::string& path) {
  if (chown(path.c_str(), owner.user, owner.group) == 0) return;
  throw system_failure(errno, "cannot give " + path + " to the user " + std::to_string(owner.user));
}

void tell(const Provisioning& work, const json& result, bool as_json) {
  if (as_json) {
    print(result);
    return;
  }
  for (const std::string& line : work.found()) printf("found  %s\n", line.c_str());
  for (const std::string& line : work.did()) printf("did    %s\n", line.c_str());
}

int provision(const Options& o) {
  // Before anything is made: a wrong name would be told of a region that stays.
  std::optional<Owner> owner;
  if (!o.owner.empty()) owner = owner_of(o.owner);
  Provisioning work(o.patience);
  const RecordTurn turn;
  DaxDevice device = work.provision(o.target, o.type);
  json windows = json::array();
  for (const DaxDevice& further : restore_windows(&work, device)) {
    if (owner && further.name != device.name) give_to(*owner, further.path);
    windows.push_back("dax:" + further.path);
  }
  // It may have given room to others.
  if (const auto again = find_dax(device.name)) device = *again;
  if (owner) give_to(*owner, device.path);
  const std::string window = "dax:" + device.path;
  tell(work,
       {{"window", window},
        {"bytes", device.bytes},
        {"align", device.align},
        {"further_windows", windows},
        {"changed", !work.did().empty()},
        {"found", work.found()},
        {"did", work.did()}},
       o.as_json);
  if (!o.as_json) printf("ready  %s (%s)\n", window.c_str(), human_bytes(device.bytes).c_str());
  return kOk;
}

int release(const Options& o) {
  Provisioning work(o.patience);
  const RecordTurn turn;
  WindowRecord record;
  const std::string key = record_key(work.release(o.target));
  int unrecorded = 0;
  if (!key.empty() && !record.of(key).empty()) {
    record.forget(key);
    unrecorded = record.save();
  }
  tell(work, {{"changed", !work.did().empty()}, {"found", work.found()}, {"did", work.did()}}, o.as_json);
  if (unrecorded != 0)
    throw Failure(exit_of_output(unrecorded),
                  WindowRecord::unwritten(unrecorded,
                                          "the region is gone, but the next 'merapi provision' makes its further "
                                          "windows again: make that file writable, and release the region then"));
  return kOk;
}

}  // namespace

void add_provision(Cli& cli) {
  auto p = std::make_shared<Options>();
  Verb verb = cli.verb("provision",
                       "Make a ready window of an expander, a region or a dax device; doing it again changes nothing",
                       [p] { return provision(*p); });
  verb.option("target", p->target, "memN, regionN or daxX.Y (default: the only one there is)");
  verb.option("--type", p->type, "memory to use of an expander (default: what it has)").one_of({"ram", "pmem"});
  verb.option("--owner", p->owner, "give the device node to USER[:GROUP]").not_empty();
  verb.option("--patience", p->patience, "seconds to wait for the kernel to show what was made")
      .with_default()
      .between(0.0, 600.0);
  verb.flag("--json", p->as_json, "print JSON");

  auto r = std::make_shared<Options>();
  verb = cli.verb("release", "Undo provision: destroy the region that a window lies in", [r] { return release(*r); });
  verb.option("target", r->target, "memN, regionN or daxX.Y").required();
  verb.flag("--json", r->as_json, "print JSON");
}

}  // namespace merapi::cli
