// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/seeds.h"

#include <filesystem>

#include "sim/rtl/test/rtl_machine.h"

namespace merapi::sim::rtl::test {

std::string replay(const std::string& test, const std::string& set) {
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path here = program.lexically_relative(std::filesystem::current_path());
  if (!here.empty() && *here.begin() != "..") program = here.has_parent_path() ? here : "." / here;
  return "MERAPI_PRESET=" + chosen_preset() + " " + set + " " + program.string() + " --gtest_filter=" + test;
}

std::string replay(const std::string& set) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return replay(std::string(info->test_suite_name()) + "." + info->name(), set);
}

}  // namespace merapi::sim::rtl::test
