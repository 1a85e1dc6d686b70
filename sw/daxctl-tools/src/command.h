// SPDX-License-Identifier: Apache-2.0
//
// Runs cxl, daxctl, ndctl and modprobe: state changes are theirs, so that this program works with each version of them.
#ifndef MERAPI_DAXCTL_TOOLS_COMMAND_H_
#define MERAPI_DAXCTL_TOOLS_COMMAND_H_

#include <string>
#include <vector>

namespace merapi::cli {

struct CommandResult {
  int status = 0;  // exit status; 127 when there is no such program, 128 + n when a signal ended it
  std::string out, err;
  bool ok() const { return status == 0; }
};

CommandResult run_command(const std::vector<std::string>& command);
// The command as a user would type it.
std::string command_text(const std::vector<std::string>& command);

}  // namespace merapi::cli

#endif  // MERAPI_DAXCTL_TOOLS_COMMAND_H_
