// SPDX-License-Identifier: Apache-2.0
//
// Expanders, regions and dax devices as sysfs shows them. Read directly: libdaxctl knows nothing of CXL, libcxl is not
// in every distribution that we run on, and tests give another root in MERAPI_SYSFS_ROOT.
#ifndef MERAPI_DAXCTL_TOOLS_SYSFS_H_
#define MERAPI_DAXCTL_TOOLS_SYSFS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace merapi::cli {

// $MERAPI_SYSFS_ROOT or "/sys"; $MERAPI_DEV_ROOT or "/dev"; $MERAPI_PROC_ROOT or "/proc".
std::string sysfs_root();
std::string dev_root();
std::string proc_root();

// Names in a folder, sorted as people sort (dax0.2 before dax0.10); empty when there is none.
std::vector<std::string> entries(const std::string& folder);
std::optional<std::string> attribute(const std::string& path);
std::optional<uint64_t> number(const std::string& path);  // nothing but a number from 0 to 2^64-1

// A CXL memory device (/sys/bus/cxl/devices/memN).
struct Expander {
  std::string name;
  std::string serial;
  uint64_t volatile_bytes = 0;
  uint64_t persistent_bytes = 0;
  int numa_node = -1;
  std::string driver;  // empty: no driver has it
  std::string pci;     // PCI function
};
std::vector<Expander> expanders();

// A CXL region (/sys/bus/cxl/devices/regionN).
struct Region {
  std::string name;
  std::string mode;  // "ram", "pmem"
  uint64_t start = 0;
  uint64_t bytes = 0;
  uint64_t ways = 0;  // 0: the kernel does not tell
  uint64_t granularity = 0;
  bool committed = false;
  std::vector<std::string> endpoints;  // decoders of its targets
  std::vector<std::string> expanders;  // memory devices behind them, where sysfs tells
  std::string dax_region;              // name of the dax region below it, if any
};
std::vector<Region> regions();

// A dax device (/sys/bus/dax/devices/daxX.Y).
struct DaxDevice {
  std::string name;
  std::string path;  // /dev/daxX.Y
  uint64_t bytes = 0;
  uint64_t align = 0;  // 0: the kernel does not tell
  int target_node = -1;
  std::string driver;  // "device_dax", "kmem", or empty
  uint64_t start = 0;  // physical address of its first byte; 0 when not readable (root only)
  std::string region;  // CXL region it belongs to, if any
  std::string parent;  // folder of its dax region
  std::string mode() const { return driver == "kmem" ? "system-ram" : driver.empty() ? "none" : "devdax"; }
};
// daxX.Y; other tools name devices by nothing else.
bool is_dax_name(const std::string& name);
std::vector<DaxDevice> dax_devices();
// "dax0.0", "/dev/dax0.0" or "dax:/dev/dax0.0", or another path of its node; nothing when there is none of that name. A
// file elsewhere that is called like a device is none.
std::optional<DaxDevice> find_dax(const std::string& name);

// A pmem region of libnvdimm (/sys/bus/nd/devices/regionN) and its namespaces.
struct PmemRegion {
  std::string name;
  uint64_t bytes = 0;
  uint64_t available = 0;
  uint64_t start = 0;     // physical address, that of the CXL region it lies in; 0 when not readable (root only)
  uint64_t mappings = 0;  // memory devices it is made of; 0: the kernel does not tell
};
std::vector<PmemRegion> pmem_regions();

// A tracer's PCI function (/sys/class/misc/merapiN, of the driver merapi_tracer).
struct TracerFunction {
  std::string name;
  std::string path;  // /dev/merapiN
  std::string pci;
  uint64_t memory_bytes = 0;   // of its expander
  uint64_t window_offset = 0;  // what it traces of that
  uint64_t window_bytes = 0;   // 0: nothing
  uint64_t interrupts = 0;
  uint64_t engines = 0;  // started so far
  bool answers = true;   // its registers can be read
};
std::vector<TracerFunction> tracer_functions();
// Is it in the PCI slot of that expander?
bool beside(const TracerFunction& function, const Expander& expander);
// Sets a bound (window_offset, window_bytes). 0, or the errno value: EBUSY while somebody has the function open.
int set_tracer_bound(const TracerFunction& function, const std::string& attribute, uint64_t value);
// The errno value when they are not the caller's to set; 0: they are, or that shows only when they are set.
int tracer_bound_refused(const TracerFunction& function);

// The part of an expander's memory that a dax device is, in bytes from the memory's first one on. Nothing when that
// cannot be told: not root, no CXL region, or several expanders.
struct Place {
  std::string expander;
  uint64_t offset = 0;
};
std::optional<Place> place_of(const DaxDevice& device);
// Where a region begins.
std::optional<Place> place_of(const Region& region);

// Is the module there: loaded, or built in (it has a folder in /sys/module or is in modules.builtin)?
bool module_present(const std::string& name);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_SYSFS_H_
