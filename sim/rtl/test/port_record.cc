// SPDX-License-Identifier: Apache-2.0
//
// Whether the tracer behaves as recorded in every case of the regression: what leaves its ports, and when
// (port_digest.h), is compared with records/<preset>-ports.json. A run depends on the design and its seed alone, so a
// difference is a change of the design: meant, or one that the cases' own checks cannot see, such as a wait that only
// an overflow makes longer. Cases do not fail by it; the program does, at its end. A preset without a record is not
// compared, nor is a seed that was not recorded: with MERAPI_PORTS=1 either is a failure. Nothing is compared with
// MERAPI_PORTS=0. MERAPI_RECORD_PORTS=1 records.
#include <gtest/gtest.h>

#include <iomanip>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "sim/rtl/test/port_digest.h"
#include "sim/rtl/test/records.h"
#include "sim/rtl/test/rtl_machine.h"
#include "sim/rtl/test/seeds.h"

namespace merapi::sim::rtl::test {
namespace {

using nlohmann::json;

std::string hex(uint64_t value) {
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << value;
  return out.str();
}

// The digests of the cases that have passed: of others, what there is depends on where they failed. None: of a case
// that sent nothing.
std::map<std::string, std::map<uint64_t, uint64_t>> passed;

class AfterEach : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { take_digests(); }
  void OnTestEnd(const testing::TestInfo& info) override {
    std::map<uint64_t, uint64_t> digests = take_digests();
    if (info.result()->Passed()) passed[std::string(info.test_suite_name()) + "." + info.name()] = digests;
  }
};

class AtEnd : public testing::Environment {
 public:
  AtEnd() { testing::UnitTest::GetInstance()->listeners().Append(new AfterEach); }
  void TearDown() override {
    const std::string file = chosen_preset() + "-ports";
    if (from_environment("MERAPI_RECORD_PORTS", 0) != 0) {
      record(file);
    } else if (from_environment("MERAPI_PORTS", 1) != 0) {
      compare(file);
    }
  }

 private:
  static void record(const std::string& file) {
    json record = read_record(file).value_or(json::object());
    for (const auto& [name, digests] : passed) {
      if (digests.empty()) continue;
      record[name] = json::object();
      for (const auto& [seed, digest] : digests) record[name][std::to_string(seed)] = hex(digest);
    }
    write_record(file, record);
  }
  static void compare(const std::string& file) {
    const bool all = from_environment("MERAPI_PORTS", 0) != 0;
    const std::optional<json> record = read_record(file);
    if (!record) {
      if (all) ADD_FAILURE() << "ports: expected a record in " << record_path(file) << "; `make record-rtl-work`";
      return;
    }
    for (const auto& [name, digests] : passed) {
      if (digests.empty()) {
        EXPECT_FALSE(record->contains(name)) << "ports: nothing left them in " << name << ", and something is recorded";
        continue;
      }
      if (!record->contains(name)) {
        ADD_FAILURE() << "ports: expected " << name << " in " << record_path(file) << "; `make record-rtl-work`";
        continue;
      }
      const json& recorded = record->at(name);
      for (const auto& [seed, digest] : digests) {
        const std::string key = std::to_string(seed);
        if (recorded.contains(key)) {
          EXPECT_EQ(recorded[key].get<std::string>(), hex(digest))
              << "ports: what left them in " << name << ", seed " << seed
              << ", is not what was recorded (first); when the change of the design is meant: `make record-rtl-work`; "
              << "replay: " << replay(name, "MERAPI_PORTS=1 MERAPI_SEED=" + key);
        } else if (all) {
          ADD_FAILURE() << "ports: expected seed " << seed << " of " << name << " in " << record_path(file)
                        << "; MERAPI_PORTS=1 is for seeds that `make record-rtl-work` records";
        }
      }
    }
  }
};

// GoogleTest owns it.
[[maybe_unused]] const testing::Environment* const kAtEnd = testing::AddGlobalTestEnvironment(new AtEnd);

}  // namespace
}  // namespace merapi::sim::rtl::test
