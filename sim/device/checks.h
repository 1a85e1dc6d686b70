// SPDX-License-Identifier: Apache-2.0
//
// What CLI11 takes and no program means.
#ifndef MERAPI_SIM_DEVICE_CHECKS_H_
#define MERAPI_SIM_DEVICE_CHECKS_H_

#include <CLI/CLI.hpp>
#include <string>

namespace merapi::sim {

inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& value) { return value.empty() ? std::string("expected a path, found nothing") : std::string(); },
      "");
}

// For all options of `app` so far: -1 is no large number.
inline void refuse_negative(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();
    if (type.rfind("UINT", 0) != 0 && type.rfind("INT", 0) != 0) continue;
    // As a transformation, since these come before all checks and the last one comes first.
    option->transform(CLI::Validator(
        [](std::string& value) {
          return value.rfind('-', 0) == 0 ? "expected a number of at least 0, found " + value : std::string();
        },
        ""));
  }
}

}  // namespace merapi::sim

#endif  // MERAPI_SIM_DEVICE_CHECKS_H_
