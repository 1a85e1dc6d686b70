// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/records.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace merapi::sim::rtl::test {

using nlohmann::json;

std::string record_path(const std::string& name) {
  const char* given = std::getenv("MERAPI_RECORDS");
  namespace fs = std::filesystem;
  const fs::path folder =
      given != nullptr ? fs::path(given)
                       : (fs::read_symlink("/proc/self/exe").parent_path() / MERAPI_WORK_RECORDS).lexically_normal();
  return folder / (name + ".json");
}

std::optional<json> read_record(const std::string& name) {
  std::ifstream in(record_path(name));
  if (!in) return std::nullopt;
  return json::parse(in);
}

void write_record(const std::string& name, const json& record) {
  std::ofstream out(record_path(name));
  const char* separator = "{\n";
  for (const auto& [run, found] : record.items()) {
    out << separator << ' ' << json(run) << ": " << found.dump();
    separator = ",\n";
  }
  out << "\n}\n";
  out.close();
  if (!out) throw std::runtime_error("expected to write " + record_path(name) + ": " + std::strerror(errno));
}

}  // namespace merapi::sim::rtl::test
