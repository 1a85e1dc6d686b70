// SPDX-License-Identifier: Apache-2.0
#include "sim/rtl/test/seeds.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "sim/rtl/test/rtl_machine.h"

namespace merapi::sim::rtl::test {

namespace {

// Made while the test runs, since a signal's handler may do little more than write.
char last_words[4096];

void say_last_words(int signal) {
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, last_words, strlen(last_words));
  raise(signal);  // as it would have ended: the handler is there once
}

class LastWords : public testing::EmptyTestEventListener {
  void OnTestProgramStart(const testing::UnitTest&) override {
    struct sigaction action = {};
    action.sa_handler = say_last_words;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
  }
  void OnTestStart(const testing::TestInfo&) override { remember_replay(0); }
  void OnTestEnd(const testing::TestInfo&) override { last_words[0] = 0; }
};

[[maybe_unused]] const bool listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new LastWords);  // which owns it
  return true;
}();

}  // namespace

void remember_replay(uint64_t seed) {
  const std::string words = "replay: " + replay(seed ? "MERAPI_SEED=" + std::to_string(seed) : "") + "\n";
  last_words[words.copy(last_words, sizeof last_words - 1)] = 0;
}

std::string replay(const std::string& test, const std::string& set) {
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path here = program.lexically_relative(std::filesystem::current_path());
  if (!here.empty() && *here.begin() != "..") program = here.has_parent_path() ? here : "." / here;
  return "MERAPI_PRESET=" + chosen_preset() + " " + (set.empty() ? "" : set + " ") + program.string() +
         " --gtest_filter=" + test;
}

std::string replay(const std::string& set) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return replay(std::string(info->test_suite_name()) + "." + info->name(), set);
}

}  // namespace merapi::sim::rtl::test

// How an assertion of the RTL ends the program, in the third seed: test_rtl_program.py runs it and reads what is
// said.
TEST(RtlReplay, DISABLED_AnAssertionNamesItsSeed) {
  merapi::sim::rtl::test::each_seed([](uint64_t seed) {
    if (seed == 3) abort();
  });
}

TEST(RtlReplay, DISABLED_AnAssertionNamesItsTest) { abort(); }
