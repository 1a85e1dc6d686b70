// SPDX-License-Identifier: Apache-2.0
//
// Files that end sooner than expected, mapped ones that become smaller and written ones that a limit keeps from
// growing: the program says so instead of ending by a signal.
#ifndef MERAPI_CLI_TRUNCATION_H_
#define MERAPI_CLI_TRUNCATION_H_

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace merapi::cli {

// What the handler says, and the status that it ends with.
inline std::string truncation_text;
inline int truncation_code = EXIT_FAILURE;

// From here on: writes beyond the largest file allowed (ulimit -f) fail with EFBIG. Programs that are started from here
// have the signal as it was.
inline void outlive_file_limit() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGXFSZ, &action, nullptr);
}

// From here on the same, and for a mapped file that becomes smaller: `code`, and the message in the name of `program`.
inline void catch_truncation(const char* program, int code) {
  truncation_text = std::string(program) +
                    ": expected memory behind what is mapped, found that a file became smaller or that its file system "
                    "or the memory is full; make room, and the file again\n";
  truncation_code = code;
  struct sigaction action {};
  action.sa_handler = [](int) {
    (void)!write(STDERR_FILENO, truncation_text.data(), truncation_text.size());
    _exit(truncation_code);
  };
  sigaction(SIGBUS, &action, nullptr);
  outlive_file_limit();
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_TRUNCATION_H_
