// SPDX-License-Identifier: Apache-2.0
//
// What every verb shares: exit codes, failures with words, output.
#ifndef MERAPI_DAXCTL_TOOLS_CLI_H_
#define MERAPI_DAXCTL_TOOLS_CLI_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

namespace merapi::cli {

using json = nlohmann::ordered_json;

// Exit codes of every verb but `run`, which passes its program's status on.
enum Exit {
  kOk = 0,
  kFound = 1,   // the verb worked and what it looked at is not in order (verify, doctor; a device that is late)
  kUsage = 2,   // wrong command line
  kAbsent = 3,  // what was named is not there, is not a window, or cannot be used as one
  kBusy = 4,    // somebody else uses it
  kDenied = 5,  // no permission
  kSystem = 6,  // anything else
};

// Ends the verb: the text goes to stderr, `exit_code` to the caller.
class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& what) : std::runtime_error(what), exit_code(exit_code) {}
  const int exit_code;
};

// The exit code for an errno value (positive or negative).
int exit_of(int error_number);
// The same where a file is written: ENOSPC is a full disk there, and no window that is too small.
int exit_of_output(int error_number);
// A Failure of a system call: "WHAT: strerror".
Failure system_failure(int error_number, const std::string& what);

// On stderr, with the program's name in front; control characters but line ends and tabs are escaped as by shown.
void say(const std::string& text);
// JSON on stdout, with a line end.
void print(const json& value);
// `value` as people are shown it: in its texts, keys apart, control characters are escaped (\x1b). Names of windows,
// devices and processes are anybody's, and those characters are commands for a terminal.
json shown(json value);
// The same of a text: in messages, of what others named, so that it adds no lines either.
std::string shown_text(const std::string& text);
// 1572864 as "1.5 MiB".
std::string human_bytes(uint64_t bytes);
// 1234567 as "1.23 M".
std::string human_count(double count);
// The same file from every folder; links stay. Throws Failure in a folder that is gone.
std::string absolute_path(const std::string& path);
// Whole text of a small file without the line end; false, with errno, when it cannot be read or has more than 16 MiB.
bool read_text(const std::string& path, std::string* text);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_CLI_H_
