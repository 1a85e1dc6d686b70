// SPDX-License-Identifier: Apache-2.0
//
// From an expander, a region or a dax device to a ready window, and back. Each step looks first, so that doing it again
// does nothing.
#ifndef MERAPI_DAXCTL_TOOLS_PROVISIONING_H_
#define MERAPI_DAXCTL_TOOLS_PROVISIONING_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "command.h"
#include "sysfs.h"

namespace merapi::cli {

// A part of an expander's memory, in bytes from its first one on.
struct Span {
  uint64_t offset = 0, bytes = 0;
};

class Provisioning {
 public:
  explicit Provisioning(double patience_seconds) : patience_(patience_seconds) {}

  // `target`: memN, regionN, daxX.Y (with or without /dev/), or empty for the only one there is. `type`: "ram", "pmem",
  // or empty for what the expander has.
  DaxDevice provision(const std::string& target, const std::string& type);
  // Returns where the region that was destroyed began; nothing when none was, or when that could not be told.
  std::optional<Place> release(const std::string& target);

  // What was met and what was changed, in words, in order.
  const std::vector<std::string>& found() const { return found_; }
  const std::vector<std::string>& did() const { return did_; }

  // Run a command that changes something; throws with its words and `remedy` when it fails.
  void change(const std::vector<std::string>& command, const std::string& remedy);
  // A tracer's PCI function beside the device's expander traces this device from now on, and nothing else of the
  // memory. One that is in use, or not ours to set, stays as it is; that is told. With `taken`: only one that reaches
  // any of that, in the same expander.
  void bound_tracer(const DaxDevice& device, const std::optional<Span>& taken = std::nullopt);
  // Refuse while a tracer that reaches any of `taken`, which lies in the expander of `device`, cannot be bounded, as
  // far as that shows. `what` says what that is.
  static void require_tracer_lets_go(const DaxDevice& device, const Span& taken, const std::string& what);
  // No tracer's PCI function beside the expander reaches any of `taken` any more: it traces nothing until it is bounded
  // again. Refuses where require_tracer_lets_go does.
  void end_tracers(const std::string& expander, const Span& taken, const std::string& what);
  // Refuse while a process has the device open.
  static void require_unused(const DaxDevice& device);

 private:
  DaxDevice device_of(const std::string& target, const std::string& type);
  std::string only_target();
  DaxDevice from_expander(const Expander& expander, const std::string& type);
  DaxDevice from_region(const Region& region);
  DaxDevice from_pmem_region(const PmemRegion& region);
  void release_pmem(const PmemRegion& region, bool whole);
  DaxDevice ready(DaxDevice device);
  Region create_region(const Expander& expander, const std::string& type);
  void require_single(const Region& region);
  void require_driver(const Expander& expander);
  void load_modules(const std::vector<std::string>& names);
  bool wait_for(const std::function<bool()>& there);

  double patience_;
  std::vector<std::string> found_, did_;
};

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_PROVISIONING_H_
