// SPDX-License-Identifier: Apache-2.0
//
// Memory that is not to be had: the message of the exception says what was expected, not the name of the exception.
#ifndef MERAPI_CLI_SHORT_MEMORY_H_
#define MERAPI_CLI_SHORT_MEMORY_H_

#include <new>

namespace merapi::cli {

class ShortMemory : public std::bad_alloc {
 public:
  const char* what() const noexcept override {
    return "expected more memory, found none left for this process; raise its limits ('ulimit -v', 'ulimit -d') or end "
           "what else uses the machine's memory";
  }
};

// From here on what operator new throws says so.
inline void tell_short_memory() {
  std::set_new_handler([] { throw ShortMemory(); });
}

}  // namespace merapi::cli

#endif  // MERAPI_CLI_SHORT_MEMORY_H_
