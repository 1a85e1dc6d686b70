// SPDX-License-Identifier: Apache-2.0
//
// What runs were like, kept beside their sources: records/<name>.json, an object with one line for each run, so that a
// change is read line by line. MERAPI_RECORDS: another folder with records than sim/rtl/test/records of the clone that
// the program lies in.
#ifndef MERAPI_SIM_RTL_TEST_RECORDS_H_
#define MERAPI_SIM_RTL_TEST_RECORDS_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace merapi::sim::rtl::test {

std::string record_path(const std::string& name);
// Nothing when there is no such record. Throws nlohmann::json::exception when it is not JSON.
std::optional<nlohmann::json> read_record(const std::string& name);
void write_record(const std::string& name, const nlohmann::json& record);

}  // namespace merapi::sim::rtl::test

#endif  // MERAPI_SIM_RTL_TEST_RECORDS_H_
