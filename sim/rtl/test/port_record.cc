// SPDX-License-Identifier: Apache-2.0
//
// Whether the tracer behaves as recorded in every case of the regression: what leaves its ports, and when
// (port_digest.h), is compared with records/<preset>-ports.json. A run depends on the design and its seed alone, so a
// difference is a change of the design: meant, or one that the cases' own checks cannot see, such as a wait that only
// an overflow makes longer. Cases do not fail by it; the program does, at its end. A preset without a record is not
// compared, nor is a seed that was not recorded, nor anything with MERAPI_PORTS=0. MERAPI_RECORD_PORTS=1 records.
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

// The digests of the cases that have passed: of others, what there is depends on where they failed.
std::map<std::string, std::map<uint64_t, uint64_t>> passed;

class AfterEach : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { take_digests(); }
  void OnTestEnd(const testing::TestInfo& info) override {
    std::map<uint64_t, uint64_t> digests = take_digests();
    if (info.result()->Passed() && !digests.empty()) {
      passed[std::string(info.test_suite_name()) + "." + info.name()] = digests;
    }
  }
};

class AtEnd : public testing::Environment {
 public:
  AtEnd() { testing::UnitTest::GetInstance()->listeners().Append(new AfterEach); }
  void TearDown() override {
    const std::string file = chosen_preset() + "-ports";
    std::optional<json> known = read_record(file);
    const bool records = from_environment("MERAPI_RECORD_PORTS", 0) != 0;
    if (!records && (!known || from_environment("MERAPI_PORTS", 1) == 0)) return;
    json record = known.value_or(json::object());
    if (records) {
      for (const auto& [name, digests] : passed) {
        record[name] = json::object();
        for (const auto& [seed, digest] : digests) record[name][std::to_string(seed)] = hex(digest);
      }
      write_record(file, record);
      return;
    }
    for (const auto& [name, digests] : passed) {
      if (!record.contains(name)) {
        ADD_FAILURE() << "ports: expected " << name << " in " << record_path(file) << "; `make record-rtl-work`";
        continue;
      }
      for (const auto& [seed, digest] : digests) {
        const std::string recorded = record[name].value(std::to_string(seed), hex(digest));
        EXPECT_EQ(recorded, hex(digest)) << "ports: what left them in " << name << ", seed " << seed
                                         << ", is not what was recorded (first); when the change of the design is "
                                            "meant: `make record-rtl-work`";
      }
    }
  }
};

// GoogleTest owns it.
[[maybe_unused]] const testing::Environment* const kAtEnd = testing::AddGlobalTestEnvironment(new AtEnd);

}  // namespace
}  // namespace merapi::sim::rtl::test
