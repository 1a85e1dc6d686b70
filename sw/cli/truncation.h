// SPDX-License-Identifier: Apache-2.0
//
// Files that end sooner than expected, mapped ones that become smaller and written ones that a limit keeps from
// growing: the program says so instead of ending by a signal.
#ifndef MERAPI_CLI_TRUNCATION_H_
#define MERAPI_CLI_TRUNCATION_H_

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace merapi::cli {

// What the handler says, and the status that it ends with.
inline std::string truncation_text;
inline int truncation_code = EXIT_FAILURE;

// While one of these is there, zeros take the place of what is gone from a mapped file, and it tells afterwards: for
// what reads one of several files, and goes on with the others. In one thread, after catch_truncation.
class HeldTruncation {
 public:
  HeldTruncation() : before_(held_) {
    held_ = 1;
    if (!before_) seen_ = 0;
  }
  ~HeldTruncation() { held_ = before_; }
  HeldTruncation(const HeldTruncation&) = delete;
  HeldTruncation& operator=(const HeldTruncation&) = delete;
  bool seen() const { return seen_; }

  // In the handler: false when there is nothing to hold, or no way to.
  static bool hold(const void* address) {
    if (!held_) return false;
    for (const uintptr_t page : {uintptr_t{4} << 10, uintptr_t{64} << 10, uintptr_t{2} << 20, uintptr_t{1} << 30}) {
      void* const from = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~(page - 1));
      if (mmap(from, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
          MAP_FAILED)
        continue;
      seen_ = 1;
      return true;
    }
    return false;
  }

 private:
  static inline volatile sig_atomic_t held_ = 0, seen_ = 0;
  const sig_atomic_t before_;
};

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
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    if (HeldTruncation::hold(info->si_addr)) return;
    (void)!write(STDERR_FILENO, truncation_text.data(), truncation_text.size());
    _exit(truncation_code);
  };
  sigaction(SIGBUS, &action, nullptr);
  outlive_file_limit();
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_TRUNCATION_H_
