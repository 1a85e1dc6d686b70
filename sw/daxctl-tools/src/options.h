// SPDX-License-Identifier: Apache-2.0
//
// Command lines as verbs describe them. What parses them (CLI11) is in options.cc alone: its headers take longer to
// compile than all verbs together.
#ifndef MERAPI_DAXCTL_TOOLS_OPTIONS_H_
#define MERAPI_DAXCTL_TOOLS_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace merapi::cli {

// Seconds, a week: simulated tracers take hours for a large heap.
constexpr double kLongestTimeout = 604800;

// A positional argument or an option. Each call adds a rule and returns the same option.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  // --help shows the value that the variable had.
  Option& with_default();
  Option& one_of(std::vector<std::string> values);
  Option& not_empty();
  // A file to write, or "-".
  Option& output();
  Option& between(double low, double high);
  // "512M", "2G": powers of 1024.
  Option& size();
  Option& not_zero();
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// A verb's command line. Names without "--" are positional. The variables must live as long as the verb.
class Verb {
 public:
  explicit Verb(CLI::App* app) : app_(app) {}
  Option option(const std::string& name, std::string& value, const std::string& help);
  Option option(const std::string& name, double& value, const std::string& help);
  Option option(const std::string& name, uint32_t& value, const std::string& help);
  Option option(const std::string& name, uint64_t& value, const std::string& help);
  Option option(const std::string& name, std::vector<std::string>& value, const std::string& help);
  Option option(const std::string& name, std::vector<uint64_t>& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  // What follows the first positional argument belongs to it, whatever it looks like.
  void positionals_at_end();

 private:
  CLI::App* app_;
};

class Cli {
 public:
  Cli();
  ~Cli();
  // A verb; `act` runs when the user chose it and returns the exit code.
  Verb verb(const std::string& name, const std::string& description, std::function<int()> act);
  int main(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// What `act` returns, or the exit code for what it throws; the words of that go to `problem`, or to stderr.
int guarded(const std::function<int()>& act, std::string* problem = nullptr);

// Each verb's own file.
void add_info(Cli& cli);
void add_run(Cli& cli);
void add_list(Cli& cli);
void add_top(Cli& cli);
void add_save(Cli& cli);
void add_load(Cli& cli);
void add_replay(Cli& cli);  // replay and verify
void add_export(Cli& cli);
void add_windows(Cli& cli);    // create-window and destroy-window
void add_provision(Cli& cli);  // provision and release
void add_trace(Cli& cli);
void add_reset(Cli& cli);
void add_doctor(Cli& cli);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_OPTIONS_H_
