// SPDX-License-Identifier: Apache-2.0
//
// Several windows on one expander: further dax devices in its region, and the record of them from which `provision`
// makes them again, since the kernel forgets subdivisions when it boots.
#ifndef MERAPI_DAXCTL_TOOLS_SUBDIVISION_H_
#define MERAPI_DAXCTL_TOOLS_SUBDIVISION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "provisioning.h"
#include "sysfs.h"

namespace merapi::cli {

// Sizes of the windows that create-window made, by the region that they lie in (record_key), in the order of their
// making: made again in that order they lie as before. A file of JSON, $MERAPI_STATE or /var/lib/merapi/windows.json.
class WindowRecord {
 public:
  static std::string path();
  // An empty record when there is no file. Throws when it is not a record, or cannot be read.
  WindowRecord();
  std::vector<uint64_t> of(const std::string& key) const;
  void add(const std::string& key, uint64_t bytes);
  void remove(const std::string& key, uint64_t bytes);
  void forget(const std::string& key);
  // The new record is on the disk, or the old one is still there: 0, or the errno value that says why it cannot be
  // written. What it is of has been done nevertheless.
  int save() const;
  // What is told of it, and what follows.
  static std::string unwritten(int code, const std::string& consequence);

 private:
  std::map<std::string, std::vector<uint64_t>> all_;
};

// Held while regions, dax devices or the record change: what is new is told by a look before and after, and the record
// is read and written as a whole. Where the record cannot be written either, everybody goes on alone.
class RecordTurn {
 public:
  RecordTurn();
  ~RecordTurn();
  RecordTurn(const RecordTurn&) = delete;
  RecordTurn& operator=(const RecordTurn&) = delete;

 private:
  int fd_;
};

// What a region's windows are recorded by: the serial number of its expander, with the region's place behind an @
// unless it begins with the expander's first byte. Empty when either cannot be told: an expander may have no number, or
// 0.
std::string record_key(const std::optional<Place>& region);
std::string record_key(const DaxDevice& device);

// A further dax device of `bytes` in the region of `sibling`. Missing room is taken from the device named `shrink`
// (empty: from none).
DaxDevice make_window(Provisioning* work, const DaxDevice& sibling, uint64_t bytes, const std::string& shrink);

// The end of such a device.
void unmake_window(Provisioning* work, const DaxDevice& device);

// Those of the record that are not there, beside `first`. Returns all further devices of the region.
std::vector<DaxDevice> restore_windows(Provisioning* work, const DaxDevice& first);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_SUBDIVISION_H_
