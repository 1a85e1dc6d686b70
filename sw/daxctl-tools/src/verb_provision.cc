// SPDX-License-Identifier: Apache-2.0
//
// merapi provision and release: from bare memory to a ready window, and back.
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

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

// USER or USER:GROUP as chown(1) has it.
void give_to(const std::string& owner, const std::string& path) {
  const size_t colon = owner.find(':');
  const passwd* user = getpwnam(owner.substr(0, colon).c_str());
  if (user == nullptr) throw Failure(kUsage, "expected a user name in --owner, found '" + owner + "'");
  const uid_t uid = user->pw_uid;
  gid_t gid = user->pw_gid;
  if (colon != std::string::npos) {
    const group* g = getgrnam(owner.substr(colon + 1).c_str());
    if (g == nullptr) throw Failure(kUsage, "expected a group name in --owner, found '" + owner + "'");
    gid = g->gr_gid;
  }
  if (chown(path.c_str(), uid, gid) < 0) throw system_failure(errno, "cannot give " + path + " to " + owner);
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
  Provisioning work(o.patience);
  DaxDevice device = work.provision(o.target, o.type);
  json windows = json::array();
  for (const DaxDevice& further : restore_windows(&work, device)) {
    if (!o.owner.empty() && further.name != device.name) give_to(o.owner, further.path);
    windows.push_back("dax:" + further.path);
  }
  // It may have given room to others.
  if (const auto again = find_dax(device.name)) device = *again;
  if (!o.owner.empty()) give_to(o.owner, device.path);
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
  WindowRecord record;
  const std::string serial = work.release(o.target);
  if (!serial.empty() && !record.of(serial).empty()) {
    record.forget(serial);
    record.save();
  }
  tell(work, {{"changed", !work.did().empty()}, {"found", work.found()}, {"did", work.did()}}, o.as_json);
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
  verb.option("--owner", p->owner, "give the device node to USER[:GROUP]");
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
