// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/waves.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace merapi::sim::rtl::test {
namespace {

void read_number(const char* name, uint64_t* number) {
  const char* said = std::getenv(name);
  if (said == nullptr) return;
  const char* end = said + std::strlen(said);
  if (auto [at, error] = std::from_chars(said, end, *number); error != std::errc() || at != end || said == end)
    throw std::runtime_error(std::string("expected a number of cycles in ") + name + ", found '" + said + "'");
}

}  // namespace

SimulationOptions with_waves(SimulationOptions options) {
  static int files = 0;
  const char* file = std::getenv("MERAPI_WAVES");
  if (file == nullptr || *file == 0) return options;
  read_number("MERAPI_WAVES_FROM", &options.waves.from);
  read_number("MERAPI_WAVES_CYCLES", &options.waves.cycles);
  std::filesystem::path path = file;
  if (++files > 1)
    path.replace_filename(path.stem().string() + "-" + std::to_string(files) + path.extension().string());
  options.waves.file = path;
  return options;
}

}  // namespace merapi::sim::rtl::test
