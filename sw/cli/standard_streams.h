// SPDX-License-Identifier: Apache-2.0
//
// Standard input, output and error of every program with a command line: at its start they are open, and at its end
// nothing that it printed is lost unsaid.
#ifndef MERAPI_CLI_STANDARD_STREAMS_H_
#define MERAPI_CLI_STANDARD_STREAMS_H_

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <iostream>

namespace merapi::cli {

// First in main: the numbers of closed streams are taken, so that no window gets one and what is printed into it. Each
// is opened in the direction that it is not used in: reading and writing still fail, for child processes as well.
inline void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      const int made = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
      if (made >= 0 && made != fd) close(made);
    }
  }
}

// Why standard output lost something; 0: it did not. The streams themselves forget the reason.
inline int output_error = 0;

// Sends what was printed on its way. False when that or something before it was lost.
inline bool flush_output() {
  const bool before = std::cout.good() && ferror(stdout) == 0;
  std::cout.clear();
  errno = 0;
  const bool now = std::cout.flush().good() && fflush(stdout) == 0;
  if (!now && errno != 0) output_error = errno;
  if (!(before && now) && output_error == 0) output_error = EIO;
  return output_error == 0;
}

// Last in main: `code`, but `lost` instead of 0 when standard output did not take everything.
inline int written(const char* program, int code, int lost) {
  if (flush_output()) return code;
  fprintf(stderr, "%s: expected to write to standard output, found: %s\n", program, strerror(output_error));
  return code != 0 ? code : lost;
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_STANDARD_STREAMS_H_
