// SPDX-License-Identifier: Apache-2.0
#ifndef MERAPI_SIM_TEST_ENVIRONMENT_H_
#define MERAPI_SIM_TEST_ENVIRONMENT_H_

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace merapi::sim::test {

// A number that tests are told, or another one when they are not. Anything else ends the program: a test that ran no
// seed has not passed.
inline uint64_t from_environment(const char* name, uint64_t otherwise, uint64_t least = 0) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 0);
  if (std::isdigit(static_cast<unsigned char>(*text)) && *end == 0 && errno == 0 && value >= least) return value;
  std::fprintf(stderr, "%s: expected a number of at least %llu, found '%s'\n", name,
               static_cast<unsigned long long>(least), text);
  std::exit(2);
}

}  // namespace merapi::sim::test

#endif  // MERAPI_SIM_TEST_ENVIRONMENT_H_
