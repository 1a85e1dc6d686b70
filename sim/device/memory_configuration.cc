// SPDX-License-Identifier: Apache-2.0
#include "sim/device/memory_configuration.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <vector>

#include "merapi/contract.h"

namespace merapi::sim {
namespace {

using Section = std::map<std::string, std::string>;
using Sections = std::map<std::string, Section>;

// Words and whole numbers that every one of DRAMsim3's own configurations states, as it spells them. (tCK, a real
// number, is the one besides.)
struct Needed {
  const char* section;
  std::vector<const char*> numbers, words;
};
const std::vector<Needed>& needed() {
  static const std::vector<Needed> all = {
      {"dram_structure", {"bankgroups", "banks_per_group", "rows", "columns", "device_width"}, {"protocol"}},
      {"timing", {"CL", "CWL", "tRAS", "tRP", "tRFC", "tWR", "tFAW"}, {}},
      {"system",
       {"channel_size", "channels", "bus_width", "cmd_queue_size", "trans_queue_size"},
       {"address_mapping", "queue_structure", "row_buf_policy"}},
  };
  return all;
}

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// More than any memory has, and what DRAMsim3 can count with.
constexpr uint64_t kMostCycles = 100'000, kMostRanks = 64;
const std::map<std::string, uint64_t> kMost = {
    {"bankgroups", 64}, {"banks_per_group", 1024}, {"rows", 1 << 22},          {"columns", 1 << 16},
    {"BL", 64},         {"device_width", 1024},    {"channel_size", 1 << 20},  {"channels", 1024},
    {"bus_width", 512}, {"cmd_queue_size", 1024},  {"trans_queue_size", 1024},
};

// As DRAMsim3 reads it: names in any case, a line that begins with a blank continues the value before it, comments
// begin with ';' after a blank.
Sections read(const std::string& path) {
  Sections sections;
  std::ifstream in(path);
  std::string line, section;
  bool continues = false;
  while (std::getline(in, line)) {
    const std::string text = trimmed(line);
    if (text.empty() || text[0] == ';' || text[0] == '#') continue;
    if (continues && std::isspace(static_cast<unsigned char>(line[0]))) continue;
    const size_t bracket = text.find(']'), sign = text.find_first_of("=:");
    if (text[0] == '[' && bracket != std::string::npos) {
      section = lower(text.substr(1, bracket - 1));
      sections[section];
      continues = false;
    } else if (text[0] != '[' && sign != std::string::npos) {
      std::string value = text.substr(sign + 1);
      for (const char* comment : {" ;", "\t;"}) value = value.substr(0, value.find(comment));
      const std::string key = lower(trimmed(text.substr(0, sign)));
      // DRAMsim3 joins the values.
      if (!sections[section].emplace(key, trimmed(value)).second)
        throw std::runtime_error("expected a DRAMsim3 configuration at " + path + ", found " + key + " twice in [" +
                                 section + "]; leave one out");
      continues = true;
    }
  }
  return sections;
}

// Behind a number: nothing, or what nobody takes for a part of it ("0.666 (1/1.5)").
bool ends(const char* text) { return *text == 0 || *text == ';' || std::isspace(static_cast<unsigned char>(*text)); }
bool is_clock(const std::string& text) {
  char* end = nullptr;
  const double nanoseconds = std::strtod(text.c_str(), &end);
  return end != text.c_str() && ends(end) && nanoseconds >= 0.1 && nanoseconds <= 100;
}
// DRAMsim3 reads decimal digits, and takes what comes of anything else.
bool is_whole(const std::string& text, uint64_t least, uint64_t most) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 9 || !ends(text.c_str() + digits)) return false;
  const uint64_t value = std::stoull(text);
  return value >= least && value <= most;
}
bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

class Check {
 public:
  explicit Check(const std::string& path) : path_(path), sections_(read(path)) {}

  void run() {
    for (const Needed& n : needed()) {
      if (sections_.count(n.section) == 0) missing(std::string("[") + n.section + "]");
    }
    refuse_missing();
    // An HMC is no channel of a port.
    one_of("dram_structure", "protocol",
           {"DDR3", "DDR4", "GDDR5", "GDDR5X", "GDDR6", "LPDDR", "LPDDR3", "LPDDR4", "HBM", "HBM2"});
    for (const Needed& n : needed()) {
      for (const char* key : n.numbers) number(n.section, key);
      for (const char* key : n.words) {
        if (find(n.section, key) == nullptr) missing(key, n.section);
      }
    }
    if (find("timing", "tCK") == nullptr) missing("tCK", "timing");
    number("dram_structure", "BL", 0);  // of a bus that takes no time
    row_to_column();
    refuse_missing();
    if (!is_clock(*find("timing", "tCK"))) found_instead("timing", "tCK", "from 0.1 to 100 (nanoseconds)");
    one_of("system", "queue_structure", {"PER_BANK", "PER_RANK"});
    one_of("system", "row_buf_policy", {"OPEN_PAGE", "CLOSE_PAGE"});
    one_of("system", "refresh_policy", {"RANK_LEVEL_SIMULTANEOUS", "RANK_LEVEL_STAGGERED", "BANK_LEVEL_STAGGERED"});
    address_mapping();
    // Each port of the tracer has a channel of its own.
    if (value_of("system", "channels") != 1) found_instead("system", "channels", "1");
    if (value_of("system", "bus_width") < value_of("dram_structure", "device_width"))
      found_instead("system", "bus_width", "of at least a device's width");
    a_line_each();
    geometry();
    times();
  }

 private:
  const std::string* find(const std::string& section, const std::string& key) const {
    const auto s = sections_.find(section);
    if (s == sections_.end()) return nullptr;
    const auto value = s->second.find(lower(key));
    return value == s->second.end() ? nullptr : &value->second;
  }
  uint64_t value_of(const char* section, const char* key) const { return std::stoull(*find(section, key)); }
  void missing(const std::string& what) { missing_ += (missing_.empty() ? "" : ", ") + what; }
  void missing(const std::string& key, const std::string& section) { missing(key + " in [" + section + "]"); }
  void refuse_missing() const {
    if (missing_.empty()) return;
    throw std::runtime_error("expected a DRAMsim3 configuration at " + path_ + ", found no " + missing_ +
                             "; the manual page of merapi-device says what --memory takes");
  }
  void found_instead(const std::string& section, const std::string& key, const std::string& wanted) const {
    throw std::runtime_error("expected a DRAMsim3 configuration of one channel at " + path_ + ", with " + key + " " +
                             wanted + " in [" + section + "], found '" + *find(section, key) + "'");
  }
  void number(const char* section, const char* key, uint64_t least = 1) {
    const std::string* value = find(section, key);
    const uint64_t most = std::string(section) == "timing" ? kMostCycles : kMost.at(key);
    if (value == nullptr) {
      missing(key, section);
    } else if (!is_whole(*value, least, most)) {
      found_instead(section, key, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
  }
  // One access is what the tracer asks for at once. Where a burst takes no time it may be.
  void a_line_each() const {
    const uint64_t width = value_of("system", "bus_width"), burst = value_of("dram_structure", "BL");
    if (burst == 0 || width * burst == MERAPI_LINE_BYTES * 8) return;
    const uint64_t needed = MERAPI_LINE_BYTES * 8 / width;
    found_instead("dram_structure", "BL", std::to_string(needed) + " (lines of 64 bytes at that bus_width)");
  }
  // Addresses are cut into fields of bits, and DRAMsim3 divides by the megabytes of a bank.
  void geometry() const {
    for (const char* key : {"bankgroups", "banks_per_group", "rows", "columns", "device_width"}) {
      if (!is_power_of_two(value_of("dram_structure", key))) found_instead("dram_structure", key, "a power of two");
    }
    const std::string protocol = *find("dram_structure", "protocol");
    const uint64_t burst = value_of("dram_structure", "BL");
    uint64_t columns = value_of("dram_structure", "columns");  // of a device's width
    if (protocol.rfind("GDDR", 0) == 0) columns *= burst;
    if (protocol.rfind("HBM", 0) == 0) columns *= 2;
    if (columns < burst) found_instead("dram_structure", "columns", "of a burst (BL) at least");
    const uint64_t width = value_of("dram_structure", "device_width"), page = columns * width / 8;
    const uint64_t bank = page * (value_of("dram_structure", "rows") / 1024) / 1024;  // in MiB, as it divides
    if (bank == 0)
      found_instead("dram_structure", "rows", "of at least 1 MiB in a bank (of so many columns and that device_width)");
    const uint64_t rank = bank * value_of("dram_structure", "bankgroups") *
                          value_of("dram_structure", "banks_per_group") * (value_of("system", "bus_width") / width);
    if (value_of("system", "channel_size") / rank > kMostRanks)
      found_instead("system", "channel_size",
                    "of at most " + std::to_string(kMostRanks) + " ranks (of " + std::to_string(rank) + " MiB)");
  }
  // Those, too, that may be missing or empty.
  void times() const {
    for (const auto& [key, value] : sections_.at("timing")) {
      if (key == "tck" || value.empty() || is_whole(value, 0, kMostCycles)) continue;
      found_instead("timing", key, "a whole number of at most " + std::to_string(kMostCycles));
    }
    // Else it does nothing but refresh.
    const std::string* interval = find("timing", "tREFI");
    if (interval != nullptr && is_whole(*interval, 1, kMostCycles) &&
        value_of("timing", "tRFC") >= value_of("timing", "tREFI"))
      found_instead("timing", "tRFC", "below tREFI");
  }
  // One time for both directions, or two.
  void row_to_column() {
    if (find("timing", "tRCD") != nullptr) return number("timing", "tRCD");
    if (find("timing", "tRCDRD") == nullptr) return missing("tRCD (or tRCDRD and tRCDWR)", "timing");
    number("timing", "tRCDRD");
    number("timing", "tRCDWR");
  }
  // A word that may be missing.
  void one_of(const char* section, const char* key, const std::vector<std::string>& words) const {
    const std::string* value = find(section, key);
    if (value == nullptr || std::find(words.begin(), words.end(), *value) != words.end()) return;
    std::string names;
    for (const std::string& word : words) names += (names.empty() ? "of " : ", ") + word;
    found_instead(section, key, names);
  }
  void address_mapping() const {
    const std::string value = *find("system", "address_mapping");
    std::vector<std::string> fields;
    for (size_t i = 0; i < value.size(); i += 2) fields.push_back(value.substr(i, 2));
    std::sort(fields.begin(), fields.end());
    if (fields == std::vector<std::string>{"ba", "bg", "ch", "co", "ra", "ro"}) return;
    found_instead("system", "address_mapping", "of the six fields ro, ra, ba, bg, co, ch");
  }

  const std::string path_;
  const Sections sections_;
  std::string missing_;
};

}  // namespace

void check_memory_configuration(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw std::runtime_error("expected a DRAMsim3 configuration at " + path + ", found another kind of file");
  Check(path).run();
}

}  // namespace merapi::sim
